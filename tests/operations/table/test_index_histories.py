"""Queries with and without indexes find the same entities on the same pages, after any history."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from itertools import product
from random import Random
from typing import Any, Final
from unittest.mock import patch

from hypothesis import strategies as st

from etagere.engine.interface import Refused
from etagere.model.tables import (
    NO_KEY_LIMITS,
    ChangeKind,
    EntityChange,
    KeyLimits,
    Keys,
    Properties,
)
from etagere.operations.table import queries
from etagere.operations.table.queries import Query
from tests.operations.table.fixture import (
    TableFixture,
    filter_of,
    insert,
    table_property_test,
    table_test,
)
from tests.operations.table.test_queries import asking, pages

INDEXED: Final = ("A", "B", "RowKey")

# Thresholds for using an index.
HURRY: Final[tuple[dict[str, int], ...]] = (
    {},
    {"step_rows_min": 1},
    {
        "_FEW_ROWS_MAX": 0,
        "step_rows_min": 1,
        "_SCANNED_FIRST_ROWS": 1,
        "_DENSE_RATIO": 0,
        "_MANY_ROWS_MAX": 2,
    },
    {"_FEW_ROWS_MAX": 0, "step_rows_min": 1, "_SCANNED_FIRST_ROWS": 2, "_DENSE_RATIO": 0},
    {"_FEW_ROWS_MAX": 2, "step_rows_min": 2, "_SCANNED_FIRST_ROWS": 3, "step_rows_max": 2},
    {"_FEW_ROWS_MAX": 0, "_SCANNED_FIRST_ROWS": 1, "page_bytes_max": 60},
)


@contextmanager
def hurrying(hurry: dict[str, int]) -> Iterator[None]:
    with ExitStack() as stack:
        limits = {name: value for name, value in hurry.items() if not name.startswith("_")}
        stack.enter_context(patch.object(queries, "LIMITS", replace(queries.LIMITS, **limits)))
        for name in hurry.keys() - limits.keys():
            stack.enter_context(patch.object(queries, name, hurry[name]))
        yield


# Random histories


@dataclass(frozen=True)
class Group:
    partition: str
    wishes: tuple[tuple[ChangeKind, str, Properties], ...]


@dataclass(frozen=True)
class Build:
    name: str
    rows_max: int


@dataclass(frozen=True)
class Look:
    filter: str
    limit: int
    key_limits: KeyLimits
    start: Keys | None
    hurry: dict[str, int]


Step = Group | Build | Look

PARTITIONS: Final = ("", "p", "q")
ROWS: Final = ("", "r", "r ", "x" * 70, "x" * 70 + "y", "é", "\U0001f984")
_PARTITIONS: Final = st.sampled_from(PARTITIONS)
_ROWS: Final = st.sampled_from(ROWS)
_CELLS: Final = (
    ("i", 1),
    ("i", 1),
    ("i", 2),
    ("s", "1"),
    ("l", 2**53 + 1),
    ("d", 2.0**53),
    ("d", -0.0),
    ("d", float("nan")),
    ("s", "1"),
    ("s", "a" * 80),
    ("s", "a" * 79 + "b"),
    ("s", "\0"),
    ("b", True),
    ("x", b"\xff" * 70),
    ("x", b"\0\xff"),
    ("t", 630_000_000_000_000_000),
    ("g", bytes(16)),
)


def _properties(seed: int) -> Properties:
    chosen = Random(seed)
    cells = {name: chosen.choice(_CELLS) for name in "ABC" if chosen.random() < 0.7}
    types = "".join(letter for letter, _ in cells.values())
    return Properties(tuple(cells), types, tuple(value for _, value in cells.values()))


_PROPERTIES: Final = st.integers(0, 1_000).map(_properties)
_WISH: Final = st.tuples(st.sampled_from(ChangeKind), _ROWS, _PROPERTIES)
_GROUP: Final = st.builds(
    Group,
    _PARTITIONS,
    st.lists(_WISH, min_size=1, max_size=5, unique_by=lambda missing_index: missing_index[1]).map(
        tuple
    ),
)
_LITERALS: Final = st.sampled_from(
    (
        "1",
        "1",
        "2",
        "0",
        "0.5",
        "9007199254740992L",
        "9007199254740993L",
        "NaN",
        "-INF",
        "true",
        "'1'",
        "'r'",
        f"'{'a' * 70}'",
        f"'{'a' * 80}'",
        f"'{'x' * 70}'",
        "X'00ff'",
        "guid'00000000-0000-0000-0000-000000000000'",
        "datetime'1998-01-01T00:00:00Z'",
    )
)
_COMPARISONS: Final = st.builds(
    lambda name, operator, literal: f"{name} {operator} {literal}",
    st.sampled_from((*INDEXED, "A", "C")),
    st.sampled_from(("eq", "eq", "ne", "gt", "ge", "lt", "le")),
    _LITERALS,
) | st.sampled_from(("PartitionKey eq 'p'", "PartitionKey gt ''"))
_FILTERS: Final = st.recursive(
    _COMPARISONS,
    lambda parts: st.one_of(
        st.lists(parts, min_size=2, max_size=3).map(lambda some: f"({' and '.join(some)})"),
        st.lists(parts, min_size=2, max_size=3).map(lambda some: f"({' or '.join(some)})"),
        parts.map(lambda part: f"not ({part})"),
    ),
    max_leaves=4,
)
_REACHES: Final = st.sampled_from(
    (
        NO_KEY_LIMITS,
        NO_KEY_LIMITS,
        KeyLimits("p"),
        KeyLimits("", "r", "p", "r"),
        KeyLimits(None, None, "p", "é"),
    )
)
_LOOK: Final = st.builds(
    Look,
    _FILTERS,
    st.integers(1, 4) | st.just(1_000),
    _REACHES,
    st.none() | st.none() | st.builds(Keys, _PARTITIONS, _ROWS),
    st.sampled_from(HURRY),
)
_STEP: Final = st.one_of(
    _GROUP,
    st.builds(Build, st.sampled_from(INDEXED), st.integers(1, 12) | st.just(100)),
    _LOOK,
    _LOOK,
    _LOOK,
)


@dataclass(frozen=True)
class History:
    seed: int
    """The seed of the initial entities."""
    ready: tuple[str, ...]
    """The indexes that exist from the start."""
    steps: list[Step]


HISTORIES: Final = st.builds(
    History,
    st.integers(0, 1_000),
    st.sampled_from((("A",), ("A", "B"), ("RowKey",), ("A", "B", "RowKey"), ())),
    st.lists(_STEP, min_size=4, max_size=20),
)


class TablePair:
    """Two tables with the same entities, one of which has indexes."""

    def __init__(self, indexed: TableFixture, plain: TableFixture) -> None:
        self._indexed = indexed
        self._plain = plain

    async def step(self, step: Step) -> None:
        match step:
            case Group():
                outcomes = [await self._group(one, step) for one in (self._indexed, self._plain)]
                assert outcomes[0] == outcomes[1]
            case Build():
                await self._indexed.request_index(step.name)
                await self._indexed.build_step(step.name, step.rows_max)
            case Look():
                with hurrying(step.hurry):
                    pages = [await self._look(one, step) for one in (self._indexed, self._plain)]
                assert pages[0] == pages[1]

    async def _group(self, table: TableFixture, group: Group) -> str:
        changes = [
            EntityChange(change, Keys(group.partition, row), properties)
            for change, row, properties in group.wishes
        ]
        try:
            await table.change(*changes)
        except Refused as refused:
            return refused.refusal.code
        return "done"

    async def _look(self, table: TableFixture, look: Look) -> list[tuple[list[Any], Keys | None]]:
        """Returns all pages as the client sees them."""
        chosen = filter_of(look.filter)
        query = Query(table.name, look.limit, chosen, look.start, look.key_limits)
        found = []
        while True:
            page = await table.query(query)
            output = [(keys, repr(entity.properties)) for keys, entity in page.entities]
            found.append((output, page.following))
            if page.following is None:
                return found
            query = query._replace(start=page.following)


@table_property_test(HISTORIES, count=40)
async def test_random_histories(table: TableFixture, history: History) -> None:
    plain = table.named("Plain")
    await plain.create()
    twins = TablePair(table, plain)
    for number, partition in enumerate(PARTITIONS):
        first = history.seed + len(ROWS) * number
        group = [(ChangeKind.INSERT, row, _properties(first + at)) for at, row in enumerate(ROWS)]
        await twins.step(Group(partition, tuple(group)))
    await table.index(*history.ready)
    for step in history.steps:
        await twins.step(step)
        await table.require_index_consistency()
    await plain.delete_table()


# Every access path

SOME: Final = [Keys(partition, f"{row:02}") for partition in "abc" for row in range(12)]
ASKED: Final = (
    "A eq 1",
    "A ge 1 and A le 2",
    "A eq 0 or A eq 2",
    "A eq 1 and B lt 30",
    "A ge 0",
    "A eq 9",
    "RowKey eq '03'",
    "RowKey ge '03' and A eq 0",
    "A eq 1 and PartitionKey eq 'b'",
    "A le 1 and PartitionKey ge 'b'",
)
STARTS: Final = (None, Keys("a", "04"), Keys("b", "04x"), Keys("z", ""))
REACHES: Final = (NO_KEY_LIMITS, KeyLimits("a", "03", "b", "09"), KeyLimits(None, None, "b"))


@table_test
async def test_every_access_path_finds_the_same(table: TableFixture) -> None:
    for at in range(0, len(SOME), 12):
        share = list(enumerate(SOME[at : at + 12], at))
        # Not in key order.
        await table.change(*(insert(keys, A=-n * 7 % 4, B=n) for n, keys in share))
    contents = await table.contents()
    await table.index("A", "RowKey")
    for text, key_limits, start, hurry in product(ASKED, REACHES, STARTS, HURRY):
        matches = filter_of(text).matches
        expected = [
            keys
            for keys, entity in contents.items()
            if matches(keys, entity)
            and key_limits.contains(keys)
            and (start is None or keys >= start)
        ]
        query = asking(text, key_limits=key_limits, start=start)
        with hurrying(hurry):
            for limit, seconds_max in ((1, 5.0), (3, 5.0), (1_000, 5.0), (5, -1.0)):
                asked = query._replace(limit=limit, seconds_max=seconds_max)
                found = await pages(table, asked)
                assert [keys for page in found for keys in page] == expected
                if seconds_max > 0 and "page_bytes_max" not in hurry:
                    # No entity is missing from a page, and no page is empty unless nothing matches.
                    assert len(found) == max(1, -(-len(expected) // limit))
