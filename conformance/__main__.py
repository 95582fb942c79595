"""Runs Microsoft's own live tests of an SDK against our server, and holds the outcomes against two
lists: what can never apply to us (SUITE/never.toml; not run) and what we miss today
(SUITE/missing.toml; run, and has to fail). Any other outcome makes the run red.
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
The tests come with the source distributions of the SDKs on PyPI, in the versions that
requirements/dev.txt pins. They, the environment they run in, and the logs of the last run are
kept in {CACHE.name}/, which may be removed at any time.

examples:
  python -m conformance                          # all suites
  python -m conformance blob -k lease            # only tests with this in their names
  python -m conformance blob --failures now.toml # what fails, by error, in the form of a list
  python -m conformance blob --workers 2 --keep  # look at {CACHE.name}/blob/data afterwards
"""


def _arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m conformance",
        description=__doc__,
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("suites", nargs="*", metavar="suite", help=f"of {', '.join(SUITES)} (default: all)")
    add("-k", metavar="EXPRESSION", help="only tests with such names, as pytest understands it")
    add("--failures", type=Path, metavar="FILE", help="write the failures there, by error")
    add("--keep", action="store_true", help="keep the server's data")
    add("--workers", type=int, default=1, help="processes of the server (default: 1)")
    add("--runners", type=int, default=2, help="processes that run tests (default: 2)")
    add("--test-seconds-max", type=float, default=180.0, help="for one test (default: 180)")
    add("--seconds-max", type=float, default=1200.0, help="for a suite (default: 1200)")
    parsed = parser.parse_args(arguments)
    if unknown := set(parsed.suites) - set(SUITES):
        parser.error(f"there is no suite {', '.join(sorted(unknown))}")
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
