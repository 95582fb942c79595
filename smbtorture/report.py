"""What Samba passes, and how this server compares."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from smbtorture.run import Outcome, Result

RECORD: Final = Path(__file__).with_name("samba.json")


class Record(NamedTuple):
    """The outcomes of a version of Samba."""

    version: str
    results: dict[str, Result]
    """By the name of the test."""

    @classmethod
    def load(cls, path: Path = RECORD) -> Record:
        stored = json.loads(path.read_text("utf-8"))
        results = {name: Result(key) for key, names in stored["tests"].items() for name in names}
        return cls(stored["version"], results)

    def store(self, path: Path = RECORD) -> None:
        by_result: dict[str, list[str]] = {result.value: [] for result in Result}
        for name, result in sorted(self.results.items()):
            by_result[result.value].append(name)
        stored = {"version": self.version, "tests": by_result}
        path.write_text(json.dumps(stored, indent=2) + "\n", "utf-8")

    def updated(self, version: str, outcomes: Iterable[Outcome]) -> Record:
        """Returns the record with new outcomes; those of other suites stay."""
        new = {outcome.test.name: outcome.result for outcome in outcomes}
        suites = {outcome.test.suite for outcome in outcomes}
        kept = {
            name: result
            for name, result in self.results.items()
            if name.partition(".")[0] not in suites
        }
        return Record(version, kept | new)


class Row(NamedTuple):
    """The counts of a suite, or of all."""

    name: str
    tests: int
    samba: int
    """Tests that Samba passes."""
    both: int
    """Of these, the tests that this server passes."""
    more: int
    """Tests that only this server passes."""
    seconds: float

    @property
    def percent(self) -> float:
        return 100.0 * self.both / self.samba if self.samba else 100.0


def compare(outcomes: Sequence[Outcome], record: Record) -> list[Row]:
    """Returns the counts of each suite, then those of all."""
    suites = dict.fromkeys(outcome.test.suite for outcome in outcomes)
    rows = [
        _row(suite, [one for one in outcomes if one.test.suite == suite], record)
        for suite in suites
    ]
    return [*rows, _row("all", outcomes, record)]


def _row(name: str, outcomes: Sequence[Outcome], record: Record) -> Row:
    passed = {one.test.name for one in outcomes if one.result is Result.PASSED}
    by_samba = {
        one.test.name for one in outcomes if record.results.get(one.test.name) is Result.PASSED
    }
    return Row(
        name,
        len(outcomes),
        len(by_samba),
        len(passed & by_samba),
        len(passed - by_samba),
        sum(one.seconds for one in outcomes),
    )


def table(rows: Sequence[Row], version: str) -> str:
    """Formats the counts."""
    width = max(len(row.name) for row in rows)
    titles = ("tests", "Samba", "both", "percent", "only here", "seconds")
    lines = [f"{'':{width}}" + "".join(f"{title:>11}" for title in titles)]
    for row in rows:
        lines.append(
            f"{row.name:{width}}{row.tests:>11}{row.samba:>11}{row.both:>11}{row.percent:>10.0f}%"
            f"{row.more:>11}{row.seconds:>11.0f}"
        )
    lines.append(f"\nSamba: tests that Samba {version} passes; both: those that pass here as well")
    return "\n".join(lines)


def shortfalls(outcomes: Iterable[Outcome], record: Record) -> str:
    """Formats the tests that Samba passes and this server does not, with the reasons."""
    return "\n".join(
        f"{one.test.name}: {one.result.value}: {one.reason}"
        for one in outcomes
        if one.result is not Result.PASSED and record.results.get(one.test.name) is Result.PASSED
    )
