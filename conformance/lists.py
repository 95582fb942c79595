"""The two lists of a suite: tests that cannot apply to this server, and tests that fail today.

A list is a TOML file with groups, each with its reason:

    [[group]]
    reason = "append blobs"
    tests = ["append_blob::*", "container::walk_blobs_with_append"]

A test is identified by its file and its name, both without `test_`. `*` matches anything. An entry
under `tests` applies to the synchronous and the asynchronous form of a test; an entry under
`sync_tests` or `async_tests` applies to one of them.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple


class Name(NamedTuple):
    """The name of a test in a list; both forms of a test have the same name."""

    name: str
    asynchronous: bool

    @classmethod
    def of(cls, node: str) -> Name:
        """Converts a pytest node ID: `test_file_async.py::TestClass::test_name_async[case]`."""
        path, *_, function = node.split("::")
        file = path.removesuffix(".py").rpartition("/")[2].removeprefix("test_")
        function, bracket, case = function.removeprefix("test_").partition("[")
        name = f"{file.removesuffix('_async')}::{function.removesuffix('_async')}{bracket}{case}"
        return cls(name, file.endswith("_async"))

    @property
    def variable_prefix(self) -> str:
        """The prefix of environment variables that are meant for this test only."""
        form = "async" if self.asynchronous else "sync"
        return f"{self.name}_{form}".upper()


class Pattern(NamedTuple):
    """A pattern with `*` for anything, for both forms of a test or one of them."""

    text: str
    asynchronous: bool | None = None

    def matches(self, test: Name) -> bool:
        if self.asynchronous is not None and self.asynchronous is not test.asynchronous:
            return False
        # Not fnmatch, which would interpret the brackets around the case of a test.
        expression = ".*".join(map(re.escape, self.text.split("*")))
        return re.fullmatch(expression, test.name) is not None


@dataclass(frozen=True)
class Group:
    """Tests that are listed for one reason."""

    reason: str
    patterns: tuple[Pattern, ...]

    def holds(self, test: Name) -> bool:
        return any(pattern.matches(test) for pattern in self.patterns)


_KEYS = {"tests": None, "sync_tests": False, "async_tests": True}


def parse(text: str) -> tuple[Group, ...]:
    """Parses a list."""
    groups = []
    for table in tomllib.loads(text).get("group", []):
        if unknown := table.keys() - {"reason", *_KEYS}:
            raise ValueError(f"unknown keys in a group: {', '.join(sorted(unknown))}")
        patterns = tuple(
            Pattern(pattern, asynchronous)
            for key, asynchronous in _KEYS.items()
            for pattern in table.get(key, ())
        )
        groups.append(Group(table["reason"], patterns))
    return tuple(groups)


@dataclass(frozen=True)
class Lists:
    """Both lists of a suite."""

    never: tuple[Group, ...]
    missing: tuple[Group, ...]

    @classmethod
    def load(cls, directory: Path) -> Lists:
        never, missing = (directory / f"{name}.toml" for name in ("never", "missing"))
        return cls(parse(never.read_text("utf-8")), parse(missing.read_text("utf-8")))

    def why_never(self, node: str) -> str | None:
        return _reason(self.never, Name.of(node))

    def why_missing(self, node: str) -> str | None:
        return _reason(self.missing, Name.of(node))

    def idle(self, nodes: Iterable[str]) -> list[str]:
        """Returns the patterns that match none of these tests."""
        names = {Name.of(node) for node in nodes}
        return [
            pattern.text
            for group in (*self.never, *self.missing)
            for pattern in group.patterns
            if not any(map(pattern.matches, names))
        ]


def _reason(groups: Iterable[Group], test: Name) -> str | None:
    return next((group.reason for group in groups if group.holds(test)), None)
