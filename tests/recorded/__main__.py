"""`python -m tests.recorded`: reports how far our responses agree with the recorded ones."""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from tests import server as servers
from tests.recorded.digest import SERVICES, digest
from tests.recorded.run import Result, agreement, merged, run, served, target, uncovered


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.recorded", description=__doc__)
    parser.add_argument("services", nargs="*", default=SERVICES, help="default: all")
    parser.add_argument("--root", type=Path, help="of the sources to run; default: this one's")
    arguments = parser.parse_args()
    if arguments.root is not None:
        servers.ROOT = arguments.root.resolve()  # type: ignore[misc]
    services = tuple(arguments.services)
    with (
        tempfile.TemporaryDirectory() as directory,
        target(Path(directory) / "data") as running,
    ):
        results = run(running, services)
        log = running.server.log()
    sys.stdout.write("\n".join(report(results, services)) + "\n")
    if "Traceback" in log:
        sys.stdout.write(f"\nThe server's log:\n\n{log}\n")
    return 0


def report(results: list[Result], services: tuple[str, ...]) -> Iterator[str]:
    yield "| | recorded | compared | headers | status, code, message | bodies | reason | all |"
    yield "|---|---|---|---|---|---|---|---|"
    for service in services:
        of_service = [result for result in results if result.case.service == service]
        sums = agreement(of_service)
        recorded = sum(one.n for one in digest(service).answers)
        shares = (sums.headers, sums.verdict, sums.body, sums.reason, sums.everything)
        figures = " | ".join(f"{share / max(sums.total, 1e-9):.1%}" for share in shares)
        yield f"| {service} | {recorded} | {sums.total:.0f} | {figures} |"
    yield from _by_cause(results, services)
    yield from _by_case(results, services)
    yield from _left_out(services)


def _by_cause(results: list[Result], services: tuple[str, ...]) -> Iterator[str]:
    """Counts the responses per kind of difference."""
    for service in services:
        weights: dict[str, float] = defaultdict(float)
        operations: dict[str, set[str]] = defaultdict(set)
        for result in results:
            if result.case.service == service:
                for kind, text in result.differences:
                    cause = f"{kind}: {text[:160]}"
                    weights[cause] += result.weight
                    operations[cause].add(f"{result.case.operation} {result.case.status}")
        yield from ("", f"## {service}: causes, by weight", "")
        for cause, weight in sorted(weights.items(), key=lambda row: -row[1]):
            named = sorted(operations[cause])
            more = f" and {len(named) - 4} more" if len(named) > 4 else ""
            yield f"- {weight:.1f} `{cause}` ({', '.join(named[:4])}{more})"


def _by_case(results: list[Result], services: tuple[str, ...]) -> Iterator[str]:
    for service in services:
        yield from ("", f"## {service}: answers that differ, by weight", "")
        differing = [r for r in results if r.case.service == service and r.differences]
        for result in sorted(merged(differing), key=lambda result: -result.weight):
            yield f"- {result.weight:.1f} **{result.title}**"
            yield from (f"    - {kind}: {text}" for kind, text in result.differences)


def _left_out(services: tuple[str, ...]) -> Iterator[str]:
    for service in services:
        yield from ("", f"## {service}: not compared", "")
        for recorded, reason in uncovered(service):
            title = f"{recorded.operation} {recorded.status} {recorded.code}".strip()
            yield f"- {recorded.n} {title}: {reason or 'NO CASE'}"
        for recorded in digest(service).answers:
            if served(recorded) < recorded.n:
                left = recorded.n - served(recorded)
                yield f"- {left} of {recorded.n} {recorded.operation} {recorded.status}: features"


if __name__ == "__main__":
    sys.exit(main())
