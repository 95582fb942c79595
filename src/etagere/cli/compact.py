"""`etagere compact`: rewrites the ledger without its free pages."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from etagere import data_directory
from etagere.bodies.audit.snapshot import CannotCheck, require_ledger
from etagere.cli import CLEAN, CommandError, directory_of
from etagere.config import Config
from etagere.engine import ledger
from etagere.settings.loading import add_arguments as add_settings

NAME = "compact"
SUMMARY = "rewrite the ledger without its free pages"
DESCRIPTION = """\
Rewrites the ledger, the database in a data directory, without its free pages. A running
server returns free pages to the file system by itself, unless an older version created the
ledger; compact such a ledger once. Stop the server first. The disk needs free space for two
more copies of the ledger's contents.

If the command is interrupted, the ledger is unchanged."""
EXAMPLES = "etagere compact --data /srv/etagere"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_settings(parser, "data")


def run(arguments: argparse.Namespace) -> int:
    directory = directory_of(arguments, "PostgreSQL removes dead rows by itself (autovacuum)")
    try:
        require_ledger(directory)
        claimed = data_directory.claim(directory)
    except data_directory.DirectoryInUse as error:
        raise CommandError(f"{error}; stop the server first") from error
    except (data_directory.CannotUse, CannotCheck) as error:
        raise CommandError(str(error)) from error
    try:
        before = _bytes(directory)
        _compact(directory)
        print(f"{before} bytes before, {_bytes(directory)} bytes after")
    finally:
        os.close(claimed)
    return CLEAN


def _compact(directory: Path) -> None:
    try:
        ledger.compact(directory, Config())
    except (ledger.NotALedger, ledger.SchemaTooNew) as error:
        raise CommandError(str(error)) from error
    except ledger.DatabaseError as error:
        raise CommandError(f"the ledger in {directory} was not compacted: {error}") from error


def _bytes(directory: Path) -> int:
    return ledger.database_path(directory).stat().st_size + ledger.log_bytes(directory)
