"""`etagere check`: verifies a data directory or a cluster."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from pathlib import Path

from etagere import data_directory
from etagere.bodies.audit.audited_segments import AuditedFiles, AuditedSegments
from etagere.bodies.audit.findings import FAULT, LEAK, LOSS, Finding, Report, Severity
from etagere.bodies.audit.remedies import repair
from etagere.bodies.audit.snapshot import CannotCheck, require_ledger
from etagere.bodies.audit.walk import check
from etagere.bodies.objects.audited_objects import AuditedObjects
from etagere.bodies.objects.opening import open_object_store
from etagere.cli import CLEAN, FINDINGS, CommandError, notify, settings_of
from etagere.cli.output import print_json
from etagere.cli.progress import ProgressBar
from etagere.clock import SystemClock
from etagere.config import Config
from etagere.engine.interface import Fault
from etagere.engine.ledger import NotALedger, SchemaTooNew
from etagere.node.opening import cluster_ledger
from etagere.operations import all_collections
from etagere.operations.index_audits import INDEXES
from etagere.operations.tree_audits import TREE_AUDITS
from etagere.settings import Settings
from etagere.settings.loading import add_arguments as add_settings

NAME = "check"
SUMMARY = "verify a data directory or a cluster"
DESCRIPTION = """\
Verifies a data directory: the consistency of the database, the bytes of every object, every
checksum and every reference count. It changes nothing, and a server may be running.

Findings have one of three severities:

  loss    bytes or records that an object needs are missing or damaged
  fault   the ledger is inconsistent; no bytes are missing yet
  leak    nothing refers to some space or records

With --repair, the command removes the leaks and checks the directory again. It does not
change losses and faults. The server must be stopped.

With --engine, the command checks the ledger of a cluster, of which it makes a temporary copy,
and its bodies, in a directory or an object store. Nodes may be running.

Exit status: 0 if there are no findings, 1 if there are, 2 if the check could not run."""
EXAMPLES = """\
etagere check                             # ./etagere-data, or $ETAGERE_DATA
etagere check --data /srv/etagere --fast  # does not read the segments
etagere check --data /srv/etagere --json  # for programs"""

COLLECTIONS_FROM = all_collections.DECLARED_IN
"""Imported so that their tables are known when a copied ledger is checked."""
_LINES_MAX = 50
"""The most findings of one kind that are printed; --json prints all."""

_PLURALS = {LOSS: "losses", FAULT: "faults", LEAK: "leaks"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_settings(parser, "data", "engine", "bodies")
    parser.add_argument(
        "--repair", action="store_true", help="remove leaks; the server must be stopped"
    )
    parser.add_argument(
        "--fast", action="store_true", help="do not verify the bytes in the segments"
    )
    parser.add_argument("--json", action="store_true", help="print the findings as JSON")


def run(arguments: argparse.Namespace) -> int:
    settings = settings_of(arguments)
    directory = settings.data
    removed: int | None = None
    try:
        if settings.engine is not None:
            report = _check_cluster(settings, arguments)
        elif arguments.repair:
            report, removed = _repair(directory, fast=arguments.fast)
        else:
            report = _check(directory, fast=arguments.fast)
    except (CannotCheck, NotALedger, SchemaTooNew) as error:
        raise CommandError(str(error)) from error
    if arguments.json:
        print_json(_as_json(settings.engine or directory, report, removed))
    else:
        _print(report, removed)
    return FINDINGS if report.findings else CLEAN


def _check(
    directory: Path, *, fast: bool, open_segments: Callable[[], AuditedSegments] | None = None
) -> Report:
    with ProgressBar(sys.stderr) as bar:
        return check(
            directory,
            fast=fast,
            indexes=INDEXES,
            audits=TREE_AUDITS,
            progress=bar,
            open_segments=open_segments,
        )


def _check_cluster(settings: Settings, arguments: argparse.Namespace) -> Report:
    """Checks a copy of the ledger of a cluster."""
    assert settings.engine is not None
    if arguments.repair:
        raise CommandError("--repair is for data directories, not for clusters")
    bodies = settings.data if settings.bodies is None else settings.bodies.path
    try:
        with (
            cluster_ledger(settings.engine) as ledger,
            ledger.pinned_copy(bodies) as directory,
        ):
            open_segments: Callable[[], AuditedSegments] = partial(_open_objects, settings)
            if bodies is not None:
                open_segments = partial(AuditedFiles, directory, may_be_newer=True)
            return _check(directory, fast=arguments.fast, open_segments=open_segments)
    except (data_directory.CannotUse, Fault) as error:
        raise CommandError(str(error)) from error


def _open_objects(settings: Settings) -> AuditedSegments:
    assert settings.bodies is not None
    return AuditedObjects(partial(open_object_store, settings.bodies.url))


def _repair(directory: Path, *, fast: bool) -> tuple[Report, int]:
    """Removes leaks and checks again, while the directory is locked."""
    require_ledger(directory)
    try:
        claimed = data_directory.claim(directory)
    except data_directory.DirectoryInUse as error:
        raise CommandError(f"{error}; stop the server before a repair") from error
    except data_directory.CannotUse as error:
        raise CommandError(str(error)) from error
    try:
        report = _check(directory, fast=fast)
        if not report.count(LEAK):
            return report, 0
        removed, failures = repair(directory, report.findings, Config(), SystemClock())
        for failure in failures:
            notify(f"cannot remove a leak: {failure}")
        return _check(directory, fast=fast), removed
    finally:
        os.close(claimed)


def _print(report: Report, removed: int | None) -> None:
    for severity in (LOSS, FAULT, LEAK):
        findings = [found for found in report.findings if found.kind.severity is severity]
        for kind in dict.fromkeys(found.kind for found in findings):
            print(f"{severity.value.upper()} {kind.name}")
            for line in _lines([found for found in findings if found.kind == kind]):
                print(f"  {line}")
            print(f"  What to do: {kind.advice}\n")
    if not report.is_complete:
        print("Some records are unreadable or refer to missing data. Data that seems unused may")
        print("belong to them, and is neither reported nor removed.\n")
    if removed is not None:
        print(f"{removed} {'leak' if removed == 1 else 'leaks'} removed.")
    print(_summary(report))


def _lines(findings: list[Finding]) -> Iterator[str]:
    for found in islice(findings, _LINES_MAX):
        yield f"{found.where}: {found.what}"
    if len(findings) > _LINES_MAX:
        yield f"… and {len(findings) - _LINES_MAX} more; --json lists them all"


def _summary(report: Report) -> str:
    seen = (
        f"{_number(report.objects, 'object')}, {_number(report.extents, 'extent')}, "
        f"{_number(report.extent_bytes, 'byte')} in {_number(report.segments, 'segment')}"
    )
    if not report.findings:
        return f"{seen}: clean"
    counts = ", ".join(_count(report, severity) for severity in (LOSS, LEAK, FAULT))
    return f"{seen}: {_number(len(report.findings), 'problem')} ({counts})"


def _count(report: Report, severity: Severity) -> str:
    count = report.count(severity)
    return f"{count} {severity.value if count == 1 else _PLURALS[severity]}"


def _number(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _as_json(place: object, report: Report, removed: int | None) -> dict[str, object]:
    return {
        "store": str(place),
        "clean": not report.findings,
        "complete": report.is_complete,
        "objects": report.objects,
        "extents": report.extents,
        "extent_bytes": report.extent_bytes,
        "segments": report.segments,
        "losses": report.count(LOSS),
        "leaks": report.count(LEAK),
        "faults": report.count(FAULT),
        "leaks_removed": removed,
        "findings": [
            {
                "severity": found.kind.severity.value,
                "kind": found.kind.name,
                "where": found.where,
                "what": found.what,
                "advice": found.kind.advice,
            }
            for found in report.findings
        ],
    }
