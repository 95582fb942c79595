"""`etagere backup`: backs up a data directory, and manages the points of a backup."""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from etagere.backup.packs import BackupDamaged
from etagere.backup.points import Point
from etagere.backup.repository import (
    CannotBackUp,
    NoSpace,
    locked_for_reading,
    locked_for_writing,
)
from etagere.backup.taking import take
from etagere.backup.verifying import Verified, verify
from etagere.cli import CLEAN, FINDINGS, CommandError, directory_of, notify
from etagere.cli.output import print_json
from etagere.cli.progress import ProgressBar
from etagere.engine.writer import is_served
from etagere.jobs.status import size_text
from etagere.opens.remote import store_writes
from etagere.settings.loading import add_arguments as add_settings

NAME = "backup"
SUMMARY = "back up a data directory"
DESCRIPTION = """\
Adds a point to the backup in DIR: the state of the data directory at one instant, with all
accounts, blobs, queues, tables and files. A server may be running, and is not held up.

DIR is created by the first backup. Later ones copy only what has changed, and each point can
be restored by itself with `etagere restore`. The name of a point is the time at which it was
taken, in UTC. An interrupted backup adds no point, and leaves the others as they are.

DIR contains the keys of the accounts; only its owner can read it. Keep it on another disk. It
needs room for all data and, while a backup is taken, for another copy of the ledger.

Exit status: 0 if everything is in order, 1 if data was damaged (in the data directory, or with
--verify in the backup), 2 if the command failed."""
EXAMPLES = """\
etagere backup /mnt/backup                            # of ./etagere-data, or $ETAGERE_DATA
etagere backup /mnt/backup --data /srv/etagere --keep 14
etagere backup /mnt/backup --list
etagere backup /mnt/backup --verify                   # reads all of it
etagere restore /mnt/backup --data /srv/restored      # see etagere restore --help"""

_NICENESS: Final = 10
_STORE_SECONDS_MAX: Final = 10.0
"""How long the server may take to store what SMB clients have written."""
_LINES_MAX: Final = 50


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_settings(parser, "data")
    parser.add_argument("backup", metavar="DIR", type=Path, help="the directory of the backup")
    parser.add_argument(
        "--keep",
        metavar="N",
        type=_count,
        help="after the backup, remove all but the last N points; nothing is removed if data was "
        "damaged. If DIR is full, remove old points before",
    )
    parser.add_argument(
        "--full",
        action="store_true",
        help="copy everything again, for example if --verify has found damage",
    )
    actions = parser.add_mutually_exclusive_group()
    actions.add_argument("--list", action="store_true", help="list the points")
    actions.add_argument("--verify", action="store_true", help="verify all checksums of the backup")
    actions.add_argument("--remove", metavar="POINT", help="remove a point and what only it uses")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")


def _count(text: str) -> int:
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError("must be a number of at least 1")
    return int(text)


def run(arguments: argparse.Namespace) -> int:
    takes = not (arguments.list or arguments.verify or arguments.remove)
    if not takes and (arguments.keep is not None or arguments.full):
        raise CommandError("--keep and --full are for taking a backup; see `etagere backup --help`")
    with raising_command_error():
        if arguments.list:
            return _list(arguments.backup, as_json=arguments.json)
        if arguments.verify:
            return _verify(arguments.backup, as_json=arguments.json)
        if arguments.remove:
            return _remove(arguments.backup, arguments.remove, as_json=arguments.json)
        return _take(arguments)


@contextmanager
def raising_command_error() -> Iterator[None]:
    """Turns errors of backups and of the file system into `CommandError`."""
    try:
        yield
    except (CannotBackUp, BackupDamaged) as error:
        raise CommandError(str(error)) from error
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        raise CommandError(f"{where}{error.strerror}") from error


def _take(arguments: argparse.Namespace) -> int:
    directory = directory_of(
        arguments, "back up the database with the tools of PostgreSQL, then the bodies"
    )
    target = arguments.backup
    # Requests of clients come first.
    os.nice(_NICENESS)
    if is_served(directory) and not asyncio.run(store_writes(directory, _STORE_SECONDS_MAX)):
        notify("warning: what SMB clients have written and not flushed may not be in the backup")
    removed: list[str] = []
    try:
        point = _take_point(directory, target, full=arguments.full)
    except NoSpace as error:
        removed = _make_room(target, arguments.keep, error)
        point = _take_point(directory, target, full=arguments.full)
    if arguments.keep is not None and not point.lost:
        removed += _keep(target, arguments.keep)
    if arguments.json:
        print_json({"backup": str(target), "point": _as_json(point), "removed": removed})
    else:
        for lost in point.lost[:_LINES_MAX]:
            notify(f"segment {lost.segment} at {lost.offset}: {lost.reason}")
        print(f"{point.name}: {_sizes(point)}")
        if removed:
            print(f"removed {', '.join(removed)}")
    if point.lost:
        notify(
            f"{len(point.lost)} extents of {directory} are damaged or missing, and are not in the "
            "backup; run `etagere check`"
        )
        return FINDINGS
    return CLEAN


def _take_point(directory: Path, target: Path, *, full: bool) -> Point:
    with ProgressBar(sys.stderr) as bar:
        return take(directory, target, bar, full=full)


def _make_room(target: Path, kept_count: int | None, error: NoSpace) -> list[str]:
    """Removes the points that would be removed after the backup; raises `NoSpace` if there are
    none."""
    if kept_count is None:
        raise NoSpace(f"{error}. Free some space, or remove points with --keep or --remove")
    with locked_for_writing(target) as repository:
        names = repository.superseded(kept_count)
        if not names:
            raise NoSpace(f"{error}. Free some space: no point could be removed by --keep")
        repository.remove(names)
    notify(f"warning: {error}; removed {', '.join(names)}, and tries again")
    return names


def _keep(target: Path, count: int) -> list[str]:
    """Removes all points but the last ones."""
    with locked_for_writing(target) as repository:
        points, damages = repository.points()
        for damage in damages:
            notify(f"warning: {damage}")
        removed = [point.name for point in points[:-count]]
        if removed:
            repository.remove(removed)
        return removed


def _list(target: Path, *, as_json: bool) -> int:
    with locked_for_reading(target) as repository:
        points, damages = repository.points()
    if as_json:
        shown = [_as_json(point) for point in points]
        unreadable = [str(damage) for damage in damages]
        print_json({"backup": str(target), "points": shown, "unreadable": unreadable})
    else:
        for point in points:
            lost = f", {len(point.lost)} extents lost" if point.lost else ""
            print(f"{point.name}  {point.taken}  {_sizes(point)}{lost}")
        for damage in damages:
            notify(str(damage))
    return FINDINGS if damages else CLEAN


def _verify(target: Path, *, as_json: bool) -> int:
    with locked_for_reading(target) as repository, ProgressBar(sys.stderr) as bar:
        verified = verify(repository, bar)
    if as_json:
        print_json(
            {
                "backup": str(target),
                "clean": verified.is_clean,
                "points": [
                    {"name": name, "damages": damages} for name, damages in verified.damages.items()
                ],
                "unreadable": verified.unreadable,
                "bytes_read": verified.bytes_read,
            }
        )
    else:
        _print_verified(verified)
    return CLEAN if verified.is_clean else FINDINGS


def _print_verified(verified: Verified) -> None:
    for name, damages in verified.damages.items():
        print(f"{name}: {'damaged' if damages else 'intact'}")
        for damage in damages[:_LINES_MAX]:
            print(f"  {damage}")
        if len(damages) > _LINES_MAX:
            print(f"  … and {len(damages) - _LINES_MAX} more; --json lists them all")
    for text in verified.unreadable:
        print(text)
    print(f"{size_text(verified.bytes_read)} read: {'clean' if verified.is_clean else 'damaged'}")
    if not verified.is_clean:
        print("Damaged points cannot be restored. Take a new backup with --full.")


def _remove(target: Path, name: str, *, as_json: bool) -> int:
    with locked_for_reading(target):
        pass  # a directory that is not a backup is not made one
    with locked_for_writing(target) as repository:
        if name not in repository.point_names():
            raise CannotBackUp(f"{target} has no point {name}; see --list")
        repository.remove([name])
    if as_json:
        print_json({"backup": str(target), "removed": [name]})
    else:
        print(f"removed {name}")
    return CLEAN


def _sizes(point: Point) -> str:
    return f"{size_text(point.total_bytes)}, {size_text(point.added_bytes)} of them new"


def _as_json(point: Point) -> dict[str, object]:
    return {
        "name": point.name,
        "taken": point.taken,
        "ended": point.ended,
        "etagere": point.etagere,
        "schema": point.schema,
        "ledger_bytes": point.ledger.length,
        "extents": point.extents,
        "extent_bytes": point.extent_bytes,
        "added_bytes": point.added_bytes,
        "lost": [
            {"segment": lost.segment, "offset": lost.offset, "bytes": lost.length}
            for lost in point.lost
        ],
    }
