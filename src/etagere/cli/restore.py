"""`etagere restore`: restores a point of a backup to a data directory."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import Final

from etagere import data_directory
from etagere.backup.points import Point
from etagere.backup.repository import CannotBackUp, Repository, locked_for_reading
from etagere.backup.restoring import require_target, restore
from etagere.cli import CLEAN, FINDINGS, CommandError, directory_of, notify
from etagere.cli.backup import raising_command_error
from etagere.cli.output import print_json
from etagere.cli.progress import ProgressBar
from etagere.coordination.interface import PinnedSegments
from etagere.coordination.local import pinned
from etagere.engine import ledger
from etagere.settings.loading import add_arguments as add_settings

NAME = "restore"
SUMMARY = "restore a point of a backup"
DESCRIPTION = """\
Restores a point of the backup in DIR, by default the last one, to a new data directory. All
checksums are verified. If the backup is damaged or the command is interrupted, there is no
data directory afterwards; run it again.

The directory must be empty or missing. With --replace, the command restores the point beside
an existing store, and then removes that store. The server must be stopped, and the disk needs
room for both.

The restored store continues at the time of the clock. Leases and messages expire as if the
server had been stopped meanwhile. Accounts have the keys that they had, and signatures that
were made with these keys are valid.

Exit status: 0 if the point was restored, 1 if it was and some data had been damaged before the
backup, 2 if the command failed."""
EXAMPLES = """\
etagere restore /mnt/backup --data /srv/restored
etagere backup /mnt/backup --list                    # shows the points
etagere restore /mnt/backup --data /srv/restored --point 20260314T020000Z
etagere check --data /srv/restored
etagere serve --data /srv/restored"""

_NOTHING_PINNED: Final = PinnedSegments(None, frozenset())


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_settings(parser, "data")
    parser.add_argument("backup", metavar="DIR", type=Path, help="the directory of the backup")
    parser.add_argument("--point", metavar="NAME", help="the point (default: the last one)")
    parser.add_argument(
        "--replace", action="store_true", help="remove the store that is in the data directory"
    )
    parser.add_argument("--json", action="store_true", help="print the result as JSON")


def run(arguments: argparse.Namespace) -> int:
    directory = directory_of(
        arguments, "restore the database with the tools of PostgreSQL, and keep the bodies"
    )
    with raising_command_error(), locked_for_reading(arguments.backup) as repository:
        point = _chosen(repository, arguments.point)
        require_target(directory, replace=arguments.replace)
        try:
            claimed = data_directory.claim(directory, may_be_incomplete=True)
        except data_directory.DirectoryInUse as error:
            raise CommandError(f"{error}; stop the server first") from error
        except data_directory.CannotUse as error:
            raise CommandError(str(error)) from error
        try:
            if pinned(directory) != _NOTHING_PINNED:
                raise CommandError(f"a backup or check of {directory} is running; try again later")
            with ProgressBar(sys.stderr) as bar:
                restore(repository, point, directory, bar)
        except (ledger.NotALedger, ledger.SchemaTooNew) as error:
            raise CommandError(str(error)) from error
        finally:
            os.close(claimed)
    if arguments.json:
        print_json({"data": str(directory), "point": point.name, "lost": len(point.lost)})
    else:
        print(f"{point.name} was restored to {directory}")
    if point.lost:
        notify(f"{len(point.lost)} extents were damaged before the backup; run `etagere check`")
        return FINDINGS
    return CLEAN


def _chosen(repository: Repository, name: str | None) -> Point:
    if name is not None:
        return repository.find(name)
    points, damages = repository.points()
    for damage in damages:
        notify(f"warning: {damage}")
    if not points:
        raise CannotBackUp(f"{repository.directory} has no point that can be restored")
    return points[-1]
