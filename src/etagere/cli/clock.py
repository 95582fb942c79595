"""`etagere clock`: shows the times in a data directory, and corrects them."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import msgspec

from etagere import data_directory
from etagere.bodies.audit.snapshot import CannotCheck, require_ledger
from etagere.cli import CLEAN, FINDINGS, CommandError, settings_of
from etagere.cli.stores import open_store
from etagere.clock import TICKS_PER_SECOND, Clock, SystemClock
from etagere.config import Config
from etagere.engine import ledger, reserve, timeline, wire
from etagere.engine.groups import Writer
from etagere.engine.interface import ReadTxn, registered
from etagere.engine.records import ENCODE
from etagere.engine.timeline import Timeline
from etagere.operations.clock_reset import ResetClock, TimesReset, reset_clock
from etagere.rules.dates import format_instant
from etagere.settings import Settings
from etagere.settings.loading import add_arguments as add_settings

NAME = "clock"
SUMMARY = "show or correct the times in a data directory"
DESCRIPTION = """\
Shows the date of the store, the stamp of its last change and the clock of this machine. The
store's date follows the clock, but never goes back. If the clock was far ahead while the
store was in use, the date stays ahead, and the server refuses to start.

With --reset, the command sets the store's date to the clock of this machine. Set the clock
and stop the server first. Objects that were changed while the date was ahead get new stamps:
new ETags, new Last-Modified dates and, for snapshots, new names. The times of messages that
were put, taken or hidden then are shifted back. Leases do not change. Messages that expired
early and were removed are not restored.

With --engine, the command shows the date of a cluster, which follows the clock of the
PostgreSQL server.

Exit status: 0 if the times are plausible, 1 if they are not, 2 if the command failed."""
EXAMPLES = """\
etagere clock --data /srv/etagere         # a server may be running
etagere clock --data /srv/etagere --reset"""

PLAUSIBLE_SINCE: Final = 1_767_225_600 * TICKS_PER_SECOND
"""2026-01-01: a clock that shows an earlier date than this program is wrong."""

_decode_result = msgspec.msgpack.Decoder(TimesReset).decode


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_settings(parser, "data", "engine")
    parser.add_argument(
        "--reset", action="store_true", help="set the store's date to the clock of this machine"
    )


def run(arguments: argparse.Namespace) -> int:
    settings, clock = settings_of(arguments), SystemClock()
    if settings.engine is not None:
        return _show_cluster(settings, clock, reset=arguments.reset)
    directory = settings.data
    with _raising_command_error(directory):
        require_ledger(directory)
        if arguments.reset:
            changed = reset_times(directory, clock)
            print(f"{changed} {'record' if changed == 1 else 'records'} changed")
        stored = data_directory.read_timeline(directory, Config())
    _print(stored, clock)
    is_plausible = timeline.ticks_ahead(stored, clock) <= timeline.AHEAD_TICKS_MAX
    return CLEAN if is_plausible else FINDINGS


def _show_cluster(settings: Settings, clock: Clock, *, reset: bool) -> int:
    """Shows the date of a cluster, which follows the clock of PostgreSQL."""
    if reset:
        raise CommandError("--reset is for data directories, not for clusters")
    with open_store(settings) as store:
        now = store.read(_date, None)
    wall = clock.wall()
    for title, ticks in (("clock of this machine", wall), ("date of the store", now)):
        print(f"{title:<25} {format_instant(ticks)}  {_difference(ticks - wall)}".rstrip())
    return CLEAN if abs(now - wall) <= timeline.AHEAD_TICKS_MAX else FINDINGS


def _date(txn: ReadTxn, _nothing: None) -> int:
    return txn.now


def reset_times(directory: Path, clock: Clock) -> int:
    """Sets the store's date to the clock; returns the number of changed records."""
    if clock.wall() < PLAUSIBLE_SINCE:
        shown = format_instant(clock.wall())
        raise CommandError(f"the clock of this machine shows {shown}; set it before a reset")
    try:
        claimed = data_directory.claim(directory)
    except data_directory.DirectoryInUse as error:
        raise CommandError(f"{error}; stop the server before a reset") from error
    try:
        reserve.release_if_full(directory)
        stored = ledger.create(directory, Config(), clock)
        wall = clock.wall()
        ahead = timeline.instant_from(stored, clock).now - wall
        done = _write(directory, clock, ResetClock(wall, ahead))
        mended = timeline.reset(stored, clock, done.last_stamp)
        ledger.store_timeline(directory, Config(), mended)
        return done.records
    finally:
        os.close(claimed)


def _write(directory: Path, clock: Clock, command: ResetClock) -> TimesReset:
    request = wire.Request(0, registered(reset_clock).wire_name, memoryview(ENCODE(command)))
    writer = Writer(directory, Config(), clock)
    try:
        (answer,) = writer.run_group([request])
    finally:
        writer.close()
    if answer.outcome is not wire.Outcome.RESULT:
        raise CommandError(f"the reset failed; its outcome is {answer.outcome.name.lower()}")
    return _decode_result(answer.payload)


@contextmanager
def _raising_command_error(directory: Path) -> Iterator[None]:
    try:
        yield
    except (CannotCheck, data_directory.CannotUse, ledger.NotALedger, ledger.SchemaTooNew) as error:
        raise CommandError(str(error)) from error
    except (ledger.DatabaseError, msgspec.DecodeError) as error:
        raise CommandError(f"the ledger in {directory} cannot be used: {error}") from error
    except OSError as error:
        raise CommandError(
            f"{error.filename or directory} cannot be used: {error.strerror}"
        ) from error


def _print(stored: Timeline, clock: Clock) -> None:
    wall = clock.wall()
    for title, ticks in (
        ("clock of this machine", wall),
        ("date of the store", timeline.instant_from(stored, clock).now),
        ("stamp of the last change", stored.last_stamp),
    ):
        print(f"{title:<25} {format_instant(ticks)}  {_difference(ticks - wall)}".rstrip())


def _difference(ticks: int) -> str:
    seconds = abs(ticks) / TICKS_PER_SECOND
    if seconds < 1:
        return ""
    side = "ahead" if ticks > 0 else "ago"
    return f"{seconds / 86_400:.1f} days {side}" if seconds >= 86_400 else f"{seconds:.0f} s {side}"
