"""Figures, and the table that reports them."""

from __future__ import annotations

import json
import statistics
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import NamedTuple

Round = dict[str, float]
"""The results of one round, by the key of the figure."""


class Settings(NamedTuple):
    """Options of the measurement."""

    rounds: int
    quick: bool
    directory: Path

    def scaled(self, usual: int, quick: int) -> int:
        return quick if self.quick else usual


Measure = Callable[[Settings], AsyncIterator[Round]]
"""Yields the results of each round; a round need not have all figures."""


class Figure(NamedTuple):
    """One line of the table. A target is a limit; a figure without one is informational."""

    key: str
    text: str
    unit: str = ""
    at_least: float | None = None
    at_most: float | None = None

    @property
    def target(self) -> str:
        if self.at_least is not None:
            return f"≥ {self.at_least:g}{self.unit}"
        return "" if self.at_most is None else f"≤ {self.at_most:g}{self.unit}"

    def verdict(self, value: float) -> str:
        if self.at_least is None and self.at_most is None:
            return ""
        too_little = self.at_least is not None and value < self.at_least
        too_much = self.at_most is not None and value > self.at_most
        return "MISSED" if too_little or too_much else "ok"


class Group(NamedTuple):
    """Figures that are measured together."""

    name: str
    measure: Measure
    figures: tuple[Figure, ...]
    on_request: bool = False
    """Whether it is measured only if named, because it takes long."""


class Measured(NamedTuple):
    """The values of a figure in all rounds."""

    figure: Figure
    values: tuple[float, ...]

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    @property
    def verdict(self) -> str:
        return self.figure.verdict(self.median)


async def measure(
    group: Group, settings: Settings, progress: Callable[[str], None]
) -> list[Measured]:
    values: defaultdict[str, list[float]] = defaultdict(list)
    progress(f"{group.name}: preparing")
    number = 0
    async for round_ in group.measure(settings):
        number += 1
        progress(f"{group.name}: round {number} done")
        for key, value in round_.items():
            values[key].append(value)
    # Figures without values, for example without Azurite, are omitted.
    return [
        Measured(figure, tuple(values[figure.key]))
        for figure in group.figures
        if figure.key in values
    ]


def table(measured: Sequence[Measured]) -> str:
    """Formats the figures as a table."""
    rows = [("figure", "measured", "target", "")]
    for one in measured:
        value = f"{one.median:,.{_decimals(one.median)}f}{one.figure.unit}"
        rows.append((one.figure.text, value, one.figure.target, one.verdict))
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    lines = [
        f"{text:<{widths[0]}}  {value:>{widths[1]}}  {target:>{widths[2]}}  {verdict}".rstrip()
        for text, value, target, verdict in rows
    ]
    lines.insert(1, "-" * max(map(len, lines)))
    return "\n".join(lines)


def _decimals(value: float) -> int:
    return 0 if value >= 1_000 else 1 if value >= 100 else 2


def as_json(measured: Sequence[Measured]) -> str:
    rows = [
        {
            "key": one.figure.key,
            "text": one.figure.text,
            "unit": one.figure.unit.strip(),
            "median": one.median,
            "values": one.values,
            "at_least": one.figure.at_least,
            "at_most": one.figure.at_most,
            "verdict": one.verdict,
        }
        for one in measured
    ]
    return json.dumps(rows, indent=2, ensure_ascii=False) + "\n"
