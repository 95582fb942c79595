"""Runs and judges histories of a queue from the command line.

python -m tests.history.queue run --seconds 60 --workers 2 --seed 7
python -m tests.history.queue replay FILE
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from pathlib import Path

from tests.history.queue.clients import Assignment, work_all
from tests.history.queue.events import History, read_history
from tests.history.queue.judge import judge
from tests.history.queue.live import Plan, run


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.history.queue", description=__doc__)
    commands = parser.add_subparsers(required=True)

    running = commands.add_parser("run", help="run clients against a server, and judge")
    running.add_argument("--seconds", type=float, default=60.0)
    running.add_argument("--workers", type=int, default=1)
    running.add_argument("--seed", type=int, default=1)
    running.set_defaults(call=_run)

    replaying = commands.add_parser("replay", help="judge a history that was recorded")
    replaying.add_argument("file", type=Path)
    replaying.set_defaults(call=_replay)

    working = commands.add_parser("clients", help="the clients of a run, which starts them itself")
    working.add_argument("directory", type=Path)
    working.add_argument("seed", type=int)
    working.add_argument("until", type=int)
    working.set_defaults(call=_work)

    arguments = parser.parse_args()
    status: int = arguments.call(arguments)
    return status


def _run(arguments: argparse.Namespace) -> int:
    plan = Plan(arguments.seed, arguments.seconds, arguments.workers)
    recorded = run(Path(tempfile.mkdtemp(prefix="history-")), plan)
    print(f"recorded in {recorded.path}")
    return _judge(recorded.history)


def _replay(arguments: argparse.Namespace) -> int:
    return _judge(read_history(arguments.file))


def _work(arguments: argparse.Namespace) -> int:
    return work_all(Assignment(arguments.directory, arguments.seed, arguments.until))


def _judge(history: History) -> int:
    outcomes = Counter(
        f"{each.request.verb.value} {type(each.outcome).__name__.lower()}"
        for each in history.operations
    )
    counts = ", ".join(f"{count} {outcome}" for outcome, count in sorted(outcomes.items()))
    print(f"{len(history.operations)} operations ({counts}), {len(history.deaths)} kills")
    findings = judge(history)
    for finding in findings:
        print(finding)
    print("OK" if not findings else f"{len(findings)} findings")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
