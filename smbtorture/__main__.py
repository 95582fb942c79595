"""Runs suites of smbtorture, Samba's test program for SMB servers, against this server, and
compares the outcomes with those of Samba itself, which are recorded in samba.json.
"""

from __future__ import annotations

import argparse
import contextlib
import fnmatch
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from smbtorture import samba
from smbtorture.report import Record, compare, shortfalls, table
from smbtorture.run import Outcome, run
from smbtorture.servers import SmbServer, etagere
from smbtorture.suites import SUITES, TortureTest, list_tests

OUTPUT: Final = Path(__file__).parents[1] / ".smbtorture"
PERCENT_MIN: Final = 70.0

_EXAMPLES: Final = f"""\
The output of each test and the log of the server are kept in {OUTPUT.name}/.

examples:
  python -m smbtorture                     # the suites of the features that the server has
  python -m smbtorture lock lease -k '*r*' # only tests whose names match
  python -m smbtorture session             # another suite
  python -m smbtorture --samba             # run smbd instead, and record its outcomes
"""


def _arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m smbtorture",
        description=__doc__,
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("suites", nargs="*", metavar="suite", help="suites, without `smb2.` (default: see docs)")
    add("-k", metavar="PATTERN", help="run only tests whose names match, with * for anything")
    add("--samba", action="store_true", help="run smbd, and record its outcomes")
    add("--runners", type=int, default=4, help="tests at a time (default: 4); many only wait")
    add("--test-seconds-max", type=float, default=120.0, help="limit of one test (default: 120)")
    add("--percent-min", type=float, default=PERCENT_MIN, help="fail below (default: 70)")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    parsed = _arguments(arguments)
    if shutil.which("smbtorture") is None:
        print("smbtorture is missing; it is in Debian's samba-testsuite", file=sys.stderr)
        return 2
    if parsed.samba and not samba.is_installed():
        print("smbd is missing; it is in Debian's samba", file=sys.stderr)
        return 2
    tests = [
        test
        for test in list_tests(parsed.suites or SUITES)
        if parsed.k is None or fnmatch.fnmatchcase(test.name, parsed.k)
    ]
    if not tests:
        print("no test matches", file=sys.stderr)
        return 2
    outcomes = _run(tests, parsed)
    record = Record.load()
    if parsed.samba:
        if parsed.k is None:
            record = record.updated(samba.version(), outcomes)
            record.store()
        print(table(compare(outcomes, record), record.version))
        return 0
    rows = compare(outcomes, record)
    print("\n\n".join(filter(None, (shortfalls(outcomes, record), table(rows, record.version)))))
    return 0 if rows[-1].percent >= parsed.percent_min else 1


def _run(tests: list[TortureTest], parsed: argparse.Namespace) -> list[Outcome]:
    shutil.rmtree(OUTPUT, ignore_errors=True)
    OUTPUT.mkdir()
    shares = [f"torture{number}" for number in range(parsed.runners)]
    with _server(shares, with_samba=parsed.samba) as server:
        return run(
            tests,
            server,
            OUTPUT / "tests",
            test_seconds_max=parsed.test_seconds_max,
            progress=_progress,
        )


@contextlib.contextmanager
def _server(shares: Sequence[str], *, with_samba: bool) -> Iterator[SmbServer]:
    if with_samba:
        # A user of its own must be able to enter the directory.
        with tempfile.TemporaryDirectory(prefix="smbtorture-") as name:
            Path(name).chmod(0o755)
            with samba.samba(Path(name), shares) as server:
                yield server
        return
    with etagere(OUTPUT / "data", shares) as server:
        yield server
    shutil.rmtree(OUTPUT / "data")


def _progress(text: str) -> None:
    if sys.stderr.isatty():
        print(f"\r\x1b[K{text}", end="\r", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
