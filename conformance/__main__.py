"""Runs the live tests of Microsoft's SDKs against this server, and compares the outcomes with two
lists: tests that cannot apply to this server (SUITE/never.toml; not run) and tests of missing
features (SUITE/missing.toml; run, and must fail). Any other outcome fails the run.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from conformance.lists import Lists
from conformance.report import as_list, judge, reasons, table
from conformance.run import Options, run
from conformance.sources import CACHE
from conformance.suites import SUITES

_EXAMPLES = f"""\
The tests are part of the source distributions of the SDKs on PyPI, in the versions that
requirements/dev.txt pins. The tests, their environment and the logs of the last run are kept
in {CACHE.name}/, which you can remove at any time.

examples:
  python -m conformance                          # all suites
  python -m conformance blob -k lease            # only tests whose names match
  python -m conformance blob --failures now.toml # write the failures, by error, as a list
  python -m conformance blob --workers 2 --keep  # keep {CACHE.name}/blob/data
  python -m conformance --nodes 3                # three nodes on PostgreSQL and S3; needs the
                                                 # packages of `make cluster-packages`
"""


def _arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m conformance",
        description=__doc__,
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("suites", nargs="*", metavar="suite", help=f"one of {', '.join(SUITES)} (default: all)")
    add("-k", metavar="EXPRESSION", help="run only tests that match the pytest expression")
    add("--failures", type=Path, metavar="FILE", help="write the failures, by error, to a file")
    add("--keep", action="store_true", help="keep the server's data")
    add("--workers", type=int, default=1, help="front ends of the server (default: 1)")
    add("--nodes", type=int, default=0, help="run a cluster of so many nodes behind HAProxy")
    add("--bodies", choices=("s3", "ceph", "directory"), default="s3", help="those of the cluster")
    add("--runners", type=int, default=2, help="test processes (default: 2)")
    add("--test-seconds-max", type=float, default=180.0, help="limit of one test (default: 180)")
    add("--seconds-max", type=float, default=1200.0, help="limit of a suite (default: 1200)")
    parsed = parser.parse_args(arguments)
    if unknown := set(parsed.suites) - set(SUITES):
        parser.error(f"unknown suite: {', '.join(sorted(unknown))}")
    return parsed


def main(arguments: Sequence[str] | None = None) -> int:
    parsed = _arguments(arguments)
    options = Options(
        workers=parsed.workers,
        runners=parsed.runners,
        test_seconds_max=parsed.test_seconds_max,
        seconds_max=parsed.seconds_max,
        selection=("-k", parsed.k) if parsed.k else (),
        keep=parsed.keep,
        nodes=parsed.nodes,
        bodies=parsed.bodies,
    )
    red = False
    failures = []
    for name in parsed.suites or SUITES:
        suite = SUITES[name]
        outcomes, problem = run(suite, options)
        verdict = judge(outcomes, Lists.load(suite.lists), whole=not (parsed.k or problem))
        surprises = verdict.surprises + ([problem] if problem else [])
        parts = (table(verdict), reasons(verdict), "\n".join(surprises))
        print("\n\n".join(filter(None, parts)), flush=True)
        failures.append(as_list(outcomes))
        red = red or bool(surprises)
    if parsed.failures is not None:
        parsed.failures.write_text("\n".join(failures), "utf-8")
    return 1 if red else 0


if __name__ == "__main__":
    sys.exit(main())
