"""The command line of histories: runs, checks and replays them.

python -m tests.history.blob run --seconds 60 --workers 2 --seed 7
python -m tests.history.blob replay FILE
"""

from __future__ import annotations

import argparse
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.history.clients import Assignment, run_clients
from tests.history.events import History
from tests.history.live import Plan, run
from tests.history.service import HistoryService


def main(service: HistoryService[Any], arguments: Sequence[str] | None = None) -> int:
    """Runs a command and returns its exit status."""
    program = f"python -m tests.history.{service.name}"
    parser = argparse.ArgumentParser(prog=program)
    commands = parser.add_subparsers(required=True, dest="command")

    running = commands.add_parser("run", help="run clients against a server, and check")
    running.add_argument("--seconds", type=float, default=60.0)
    running.add_argument("--workers", type=int, default=1)
    running.add_argument("--seed", type=int, default=1)
    running.add_argument("--workloads", nargs="+", choices=service.workloads, default=[])

    replaying = commands.add_parser("replay", help="check a recorded history")
    replaying.add_argument("file", type=Path)

    working = commands.add_parser("clients", help="the clients of a run; started by `run`")
    working.add_argument("directory", type=Path)
    working.add_argument("seed", type=int)
    working.add_argument("until", type=int)
    working.add_argument("workloads", nargs="*")
    working.add_argument("--no-kills", dest="kills", action="store_false")

    given = parser.parse_args(arguments)
    if given.command == "run":
        plan = Plan(given.seed, given.seconds, given.workers, tuple(given.workloads))
        recorded = run(Path(tempfile.mkdtemp(prefix="history-")), plan, service)
        print(f"recorded in {recorded.path}")
        return _check(service, recorded.history)
    if given.command == "replay":
        return _check(service, service.log.read_history(given.file))
    workloads = tuple(given.workloads)
    assignment = Assignment(given.directory, given.seed, given.until, workloads, given.kills)
    return run_clients(service, assignment)


def _check(service: HistoryService[Any], history: History[Any]) -> int:
    outcomes = Counter(
        f"{each.request.verb.value} {type(each.outcome).__name__.lower()}"
        for each in history.operations
    )
    counts = ", ".join(f"{count} {outcome}" for outcome, count in sorted(outcomes.items()))
    print(f"{len(history.operations)} operations ({counts}), {len(history.kills)} kills")
    findings = service.check(history)
    for finding in findings:
        print(finding)
    print("OK" if not findings else f"{len(findings)} findings")
    return 1 if findings else 0
