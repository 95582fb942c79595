"""`etagere clock`: the times in a data directory, and how to mend them."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import msgspec

from etagere import app
from etagere.bodies.audit.snapshot import CannotCheck, require_ledger
from etagere.cli import CLEAN, FINDINGS, Unusable, settings_of
from etagere.clock import TICKS_PER_SECOND, Clock, SystemClock
from etagere.config import Config
from etagere.engine import ledger, reserve, timeline, wire
from etagere.engine.groups import Writer
from etagere.engine.interface import registered
from etagere.engine.records import ENCODE
from etagere.engine.timeline import Timeline
from etagere.operations.clock_reset import ResetClock, TimesReset, reset_clock
from etagere.rules.dates import format_instant
from etagere.settings import add_arguments as add_settings

NAME = "clock"
SUMMARY = "show the times in a data directory, and mend them"
DESCRIPTION = """\
Shows the date that a store goes by and the stamp of its last change, beside the clock of this
machine. The date follows the clock by itself, but never goes back: a store that was used while
the clock was years ahead stays there, and a server does not start over it.

With --reset, which needs a clock that is right and no running server, the store goes by the
clock again. What was changed while it was ahead gets new stamps: other ETags, other dates of
change, other names of snapshots. Messages that were put, taken or hidden then are shifted by as
much as the date was ahead. Leases go on. What had expired by the wrong date and was removed is
gone.

Ends with 0 if the times are plausible, 1 if they are not, 2 if it could not look or mend."""
EXAMPLES = """\
etagere clock --data /srv/etagere         # a server may be running
etagere clock --data /srv/etagere --reset"""

PLAUSIBLE_SINCE: Final = 1_767_225_600 * TICKS_PER_SECOND
"""2026: a clock that shows an earlier date than that of this program is not right."""

_decode_result = msgspec.msgpack.Decoder(TimesReset).decode


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_settings(parser, "data")
    parser.add_argument("--reset", action="store_true", help="go by the clock of this machine")


def run(arguments: argparse.Namespace) -> int:
    directory, clock = settings_of(arguments).data, SystemClock()
    with _told_in_one_line(directory):
        require_ledger(directory)
        if arguments.reset:
            changed = reset_times(directory, clock)
            print(f"{changed} {'record' if changed == 1 else 'records'} changed")
        stored = app.read_timeline(directory, Config())
    _print(stored, clock)
    is_plausible = timeline.ticks_ahead(stored, clock) <= timeline.AHEAD_TICKS_MAX
    return CLEAN if is_plausible else FINDINGS


def reset_times(directory: Path, clock: Clock) -> int:
    """Has the store go by the clock again; returns how many records were changed."""
    if clock.wall() < PLAUSIBLE_SINCE:
        shown = format_instant(clock.wall())
        raise Unusable(f"the clock of this machine shows {shown}: set it before a reset")
    try:
        claimed = app.claim(directory)
    except app.DirectoryInUse as error:
        raise Unusable(f"{error}: stop the server before a reset") from error
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
        (answer,) = writer.settle([request])
    finally:
        writer.close()
    if answer.outcome is not wire.Outcome.RESULT:
        raise Unusable(f"nothing was reset: the change ended as {answer.outcome.name.lower()}")
    return _decode_result(answer.payload)


@contextmanager
def _told_in_one_line(directory: Path) -> Iterator[None]:
    try:
        yield
    except (CannotCheck, app.CannotUse, ledger.NotALedger, ledger.SchemaTooNew) as error:
        raise Unusable(str(error)) from error
    except (ledger.DatabaseError, msgspec.DecodeError) as error:
        raise Unusable(f"the ledger in {directory} cannot be used: {error}") from error
    except OSError as error:
        raise Unusable(f"{error.filename or directory} cannot be used: {error.strerror}") from error


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
