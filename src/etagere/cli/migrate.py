"""`etagere migrate`: copies a store between a data directory and a cluster."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Final

from etagere.bodies.transfer import ExtentsDamaged
from etagere.cli import CLEAN, FINDINGS, CommandError, notify, settings_of
from etagere.cli.output import print_json
from etagere.cli.progress import ProgressBar
from etagere.data_directory import CannotUse
from etagere.jobs.status import size_text
from etagere.node.opening import optional_dependencies
from etagere.settings.loading import add_arguments as add_settings

NAME = "migrate"
SUMMARY = "copy a store between a data directory and a cluster"
DESCRIPTION = """\
Copies a store: from a data directory to a cluster, whose ledger is in PostgreSQL (--engine) and
whose bodies are in an object store or a shared directory (--bodies), or from such a cluster to
a data directory. Accounts, blobs, queues, tables, shares, leases, ETags and times stay as they
are. The checksums of all bodies are verified.

Stop the server, or all nodes of the cluster, first. The source is not changed; remove it once
the target is in use. The target must be empty: a database without a ledger and a place without
bodies, or a missing or empty directory. Accounts that are not stored, such as those given with
--account, are not copied: start the target with the same ones.

If the command fails or is interrupted, the target is not a store, and no server starts with
it. Run the same command again; it starts over.

Exit status: 0 if the store was copied, 1 if data of the source is damaged, so that nothing was
migrated (run `etagere check`), 2 if the command failed."""
EXAMPLES = """\
etagere migrate --from /srv/etagere --engine postgresql://db.example/etagere --bodies s3://etagere
etagere check --engine postgresql://db.example/etagere --bodies s3://etagere
etagere migrate --engine postgresql://db.example/etagere --bodies s3://etagere --to /srv/back
etagere check --data /srv/back"""

_LINES_MAX: Final = 50


def add_arguments(parser: argparse.ArgumentParser) -> None:
    direction = parser.add_mutually_exclusive_group(required=True)
    direction.add_argument(
        "--from", dest="source", metavar="DIR", type=Path, help="the data directory to copy"
    )
    direction.add_argument(
        "--to", dest="target", metavar="DIR", type=Path, help="the data directory to create"
    )
    add_settings(parser, "engine", "bodies")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")


def run(arguments: argparse.Namespace) -> int:
    settings = settings_of(arguments)
    if settings.engine is None:
        raise CommandError("set --engine to the database of the cluster")
    if settings.bodies is None:
        raise CommandError("set --bodies to where the bodies of the cluster are")
    engine, bodies, directory = settings.engine, settings.bodies, arguments.source
    try:
        with optional_dependencies():
            from etagere.node import migration  # noqa: PLC0415
        with ProgressBar(sys.stderr) as bar:
            if directory is not None:
                migrated = migration.to_cluster(directory, engine, bodies, bar)
            else:
                migrated = migration.to_directory(engine, bodies, arguments.target, bar)
    except CannotUse as error:
        raise CommandError(str(error)) from error
    except ExtentsDamaged as damaged:
        _report(damaged, as_json=arguments.json)
        return FINDINGS
    copied = migrated.bodies
    if arguments.json:
        print_json(
            {
                "migrated": True,
                "records": migrated.records,
                "extents": copied.extents,
                "extent_bytes": copied.extent_bytes,
                "segments": copied.segments,
                "extents_moved": copied.moved,
                "damaged": [],
            }
        )
    else:
        place = arguments.target or engine
        size = size_text(copied.extent_bytes)
        print(
            f"{migrated.records} records and {size} in {copied.segments} segments: now in {place}"
        )
    return CLEAN


def _report(damaged: ExtentsDamaged, *, as_json: bool) -> None:
    if as_json:
        extents = [each._asdict() for each in damaged.extents]
        print_json({"migrated": False, "damaged": extents})
        return
    for each in damaged.extents[:_LINES_MAX]:
        notify(f"{each.length} bytes of segment {each.segment} at {each.offset} are damaged")
    notify(
        f"{len(damaged.extents)} extents are damaged or missing, and nothing was migrated; find "
        "the objects with `etagere check`, delete or replace them, and try again"
    )
