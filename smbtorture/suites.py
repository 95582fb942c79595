"""The suites of smbtorture that are run, and their tests."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

SUITES: Final = (
    "connect",
    "tcon",
    "session-id",
    "mkdir",
    "rw",
    "read",
    "create",
    "dir",
    "fileid",
    "sharemode",
    "deny",
    "delete-on-close-perms",
    "lock",
    "oplock",
    "lease",
    "compound",
    "credits",
    "maxfid",
    "rename",
    "timestamps",
)
"""Those of the features that the server has. smbtorture has more, which can be named."""

SLOW_SUITES: Final = ("maxfid", "lease", "oplock", "timestamps", "dir")
"""Started first, because their tests wait for minutes."""

_PREFIX: Final = "smb2."


class TortureTest(NamedTuple):
    """A test of smbtorture."""

    suite: str
    name: str
    """Unique, without the prefix that all tests have."""
    full_name: str
    """As smbtorture lists it."""


def list_tests(suites: Sequence[str]) -> list[TortureTest]:
    """Asks smbtorture for the tests of suites; in the order of the suites."""
    listed = subprocess.run(
        ["smbtorture", "--list"], check=True, capture_output=True, text=True, timeout=60
    )
    return select_tests(suites, listed.stdout.split("\n"))


def select_tests(suites: Sequence[str], listed: Iterable[str]) -> list[TortureTest]:
    """Returns the tests of suites in a list of smbtorture."""
    by_suite: dict[str, list[TortureTest]] = {suite: [] for suite in suites}
    for line in listed:
        full_name = line.strip()
        name = full_name.removeprefix(_PREFIX)
        suite, _, rest = name.partition(".")
        if name == full_name or suite not in by_suite or not rest:
            continue
        # The last part is the test in its test case; most test cases have only one, of their name.
        case, _, last = name.rpartition(".")
        if case == last or case.endswith(f".{last}"):
            name = case
        by_suite[suite].append(TortureTest(suite, name, full_name))
    return [test for tests in by_suite.values() for test in tests]
