"""Queries: cost in proportion to the results, and pages that continue after changes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Final
from unittest.mock import patch

import pytest

from etagere.engine.interface import ReadTxn
from etagere.model.tables import NO_KEY_LIMITS, KeyLimits, Keys
from etagere.operations.table import queries
from etagere.operations.table.queries import EntityPage, Query, query_entities
from etagere.operations.table.scans import TableScan
from tests.operations.counting import CountingTxn
from tests.operations.table.fixture import (
    PEOPLE,
    TableFixture,
    filter_of,
    insert,
    table_test,
)

PARTITIONS: Final = ("a", "b", "ba", "c")
ROWS_EACH: Final = 300
STEP_MIN: Final = 64
"""The minimum number of rows that one step reads, if there are so many."""
ALL_KEYS: Final = [Keys(p, f"{row:03}") for p in PARTITIONS for row in range(ROWS_EACH)]


def counted(txn: ReadTxn, query: Query) -> tuple[EntityPage | None, int]:
    counting = CountingTxn(txn)
    return query_entities(counting, query), counting.rows


async def filled(table: TableFixture) -> None:
    for first in range(0, len(ALL_KEYS), 100):
        share = ALL_KEYS[first : first + 100]
        await table.change(*(insert(keys, Number=int(keys.row)) for keys in share))


def asking(text: str = "", **options: Any) -> Query:
    """Returns a query without a time limit, so that slow engines do not change results."""
    defaults = {"limit": 1_000, "filter": filter_of(text) if text else None, "seconds_max": 60.0}
    return Query(PEOPLE, **{**defaults, **options})


def keys_of(page: EntityPage) -> list[Keys]:
    return [keys for keys, _ in page.entities]


# Costs: a filter, and the rows that must be read to answer it

POINT: Final = "PartitionKey eq 'b' and RowKey eq '123'"
COSTS: Final = {
    POINT: 1,
    "RowKey eq '123' and PartitionKey eq 'b'": 1,
    f"({POINT}) and Number eq 5": 1,
    f"({POINT}) or ({POINT})": 1,
    "PartitionKey eq 'b' and RowKey eq 'nobody'": 0,
    "PartitionKey eq 'nobody'": 0,
    "PartitionKey eq 'b'": ROWS_EACH,
    "PartitionKey eq 'b' and RowKey ge '100' and RowKey lt '110'": 10,
    "PartitionKey eq 'b' and RowKey gt '100' and RowKey le '110'": 10,
    "PartitionKey eq 'b' and (RowKey eq '100' or RowKey eq '109')": 10,
    "PartitionKey ge 'b' and PartitionKey lt 'c'": 2 * ROWS_EACH,
    "PartitionKey gt 'b' and PartitionKey lt 'c'": ROWS_EACH,
    "PartitionKey gt 'ba'": ROWS_EACH,
    "PartitionKey eq 'b' and PartitionKey eq 'c'": 0,
    "PartitionKey eq 'b' and RowKey gt '200' and RowKey lt '100'": 0,
    "PartitionKey eq 5": 0,
    # Conditions on other properties need a full scan.
    "Number eq 5": len(ALL_KEYS),
    "RowKey eq '123'": len(ALL_KEYS),
    "not (PartitionKey eq 'b')": len(ALL_KEYS),
    "PartitionKey eq 'b' or Number eq 5": len(ALL_KEYS),
}


@table_test
async def test_costs(table: TableFixture) -> None:
    await filled(table)
    all_keys = await table.contents()
    for text, rows in COSTS.items():
        page, seen = await table.read(counted, asking(text, limit=10_000))
        assert seen == rows, text
        assert page is not None
        matches = filter_of(text).matches
        expected = [keys for keys, entity in all_keys.items() if matches(keys, entity)]
        assert keys_of(page) == expected, text
        assert page.following is None


@table_test
async def test_a_page_costs_its_size_wherever_it_begins(table: TableFixture) -> None:
    await filled(table)
    for at in (0, 1, 500, len(ALL_KEYS) - 11):
        query = asking(limit=10, start=ALL_KEYS[at])
        page, seen = await table.read(counted, query)
        assert page is not None
        assert keys_of(page) == ALL_KEYS[at : at + 10]
        assert page.following == ALL_KEYS[at + 10]
        assert seen <= STEP_MIN


@table_test
async def test_a_key_range_bounds_the_scan(table: TableFixture) -> None:
    await filled(table)
    key_limits = KeyLimits("b", "290", "ba", "009")
    page, seen = await table.read(counted, asking(key_limits=key_limits))
    assert page is not None
    assert keys_of(page) == [
        keys for keys in ALL_KEYS if Keys("b", "290") <= keys <= Keys("ba", "009")
    ]
    # The last partition is read to its end; row keys decide there.
    assert seen <= 10 + ROWS_EACH


# Pages


async def pages(table: TableFixture, query: Query) -> list[list[Keys]]:
    found = []
    while True:
        page = await table.query(query)
        found.append(keys_of(page))
        if page.following is None:
            return found
        query = query._replace(start=page.following)


@table_test
async def test_every_size_of_page(table: TableFixture) -> None:
    all_keys = [Keys(partition, row) for partition in ("", "p", "pp") for row in ("", "r", "s")]
    await table.change(*map(insert, all_keys))
    for limit in range(1, len(all_keys) + 2):
        found = await pages(table, asking(limit=limit))
        assert [keys for page in found for keys in page] == all_keys
        # No page is empty, and none but the last is not full.
        assert all(len(page) == limit for page in found[:-1])
        assert 0 < len(found[-1]) <= limit


@table_test
async def test_pages_of_a_filtered_query(table: TableFixture) -> None:
    await filled(table)
    text = "Number ge 295 and PartitionKey ne 'ba'"
    expected = [k for k in ALL_KEYS if int(k.row) >= 295 and k.partition != "ba"]
    for limit in (1, 4, len(expected) - 1, len(expected), 1_000):
        found = await pages(table, asking(text, limit=limit))
        assert [keys for page in found for keys in page] == expected
        assert len(found) == -(-len(expected) // limit)


@table_test
async def test_pages_continue_during_changes(table: TableFixture) -> None:
    """Entities that exist throughout appear once; the first one of the next page may be deleted."""
    stays = [Keys("p", f"{number:02}") for number in range(0, 40, 2)]
    for limit in (1, 3, 7):
        comes_and_goes = [Keys("p", f"{number:02}") for number in range(1, 40, 4)]
        await table.change(*map(insert, (*stays, *comes_and_goes)))
        query, found, turn = asking(limit=limit), list[Keys](), 0
        while True:
            page = await table.query(query)
            found += keys_of(page)
            if page.following is None:
                break
            query = query._replace(start=page.following)
            turn += 1
            if page.following in comes_and_goes:
                await table.delete(page.following)
            await table.put(Keys("p", f"{turn % 40:02}x"))
        assert found == sorted(set(found))
        assert set(stays) <= set(found)
        for keys in await table.contents():
            await table.delete(keys)


@table_test
async def test_a_continuation_token_cannot_widen_the_key_range(table: TableFixture) -> None:
    await filled(table)
    within = "PartitionKey eq 'b' and RowKey lt '010'"
    for start in (Keys("", ""), Keys("a", "123"), Keys("b", ""), Keys("b", "\x00")):
        assert len(keys_of(await table.query(asking(within, start=start)))) == 10
    for start in (Keys("b", "010"), Keys("c", ""), Keys("z", "\U0010ffff")):
        assert keys_of(await table.query(asking(within, start=start))) == []


# Key ranges of tokens

ENDS: Final = (None, "", "b", "ba", "c")
ROW_ENDS: Final = (None, "", "100", "299", "z")


def reaches() -> Iterable[KeyLimits]:
    for start in ENDS:
        for end in ENDS:
            for start_row in ROW_ENDS if start is not None else (None,):
                for end_row in ROW_ENDS if end is not None else (None,):
                    yield KeyLimits(start, start_row, end, end_row)


@table_test
async def test_key_ranges(table: TableFixture) -> None:
    rows = ("", "099", "100", "101", "299", "300")
    all_keys = [Keys(partition, row) for partition in ("", *PARTITIONS) for row in rows]
    await table.change(*map(insert, all_keys))
    for key_limits in reaches():
        found = keys_of(await table.query(asking(key_limits=key_limits)))
        assert found == [keys for keys in all_keys if key_limits.contains(keys)], key_limits
        paged = await pages(table, asking(key_limits=key_limits, limit=2))
        assert [keys for page in paged for keys in page] == found
    assert keys_of(await table.query(asking(key_limits=NO_KEY_LIMITS))) == all_keys


def test_key_ranges_are_inclusive() -> None:
    key_limits = KeyLimits("b", "1", "d", "8")
    within = [("b", "1"), ("b", "9"), ("c", ""), ("c", "9"), ("d", ""), ("d", "8")]
    without = [("a", "9"), ("b", "0"), ("b", ""), ("d", "81"), ("d", "9"), ("da", ""), ("e", "1")]
    assert all(key_limits.contains(Keys(*keys)) for keys in within)
    assert not any(key_limits.contains(Keys(*keys)) for keys in without)


# Long queries


@table_test
async def test_queries_give_up_at_their_limit(table: TableFixture) -> None:
    """By the number of rows, and with another limit, by time."""
    await filled(table)
    with limited(brief_seconds_max=60.0):
        await _require_brevity(table)
    with limited(brief_seconds_max=0.0):
        assert await table.read(query_entities, asking(rows_max=ROWS_EACH)) is None
        point = await table.read(query_entities, asking(POINT, rows_max=ROWS_EACH))
        assert point is not None


@contextmanager
def limited(**limits: Any) -> Iterator[None]:
    with patch.object(queries, "LIMITS", replace(queries.LIMITS, **limits)):
        yield


async def _require_brevity(table: TableFixture) -> None:

    async def brief(text: str, rows_max: int) -> EntityPage | None:
        query = asking(text, rows_max=rows_max)
        return await table.read(query_entities, query)

    assert await brief("Number eq 5", 256) is None
    assert await brief(POINT, 1) is not None
    assert await brief("PartitionKey eq 'b'", ROWS_EACH - 1) is None
    assert await brief("PartitionKey eq 'b'", ROWS_EACH) is not None


@table_test
async def test_results_are_the_same_in_a_background_reader(table: TableFixture) -> None:
    await filled(table)
    query = asking("Number eq 5")
    page = await table.engine.read_in_thread(query_entities, query)
    assert page is not None
    assert keys_of(page) == [Keys(partition, "005") for partition in PARTITIONS]


@table_test
async def test_a_page_ends_at_its_time_limit(table: TableFixture) -> None:
    """Full or not, even without results; but every page makes progress."""
    await filled(table)
    query, found, starts = asking("Number eq 299", seconds_max=-1.0), list[Keys](), list[Keys]()
    while True:
        page = await table.query(query)
        found += keys_of(page)
        if page.following is None:
            break
        starts.append(page.following)
        query = query._replace(start=page.following)
    assert found == [Keys(partition, "299") for partition in PARTITIONS]
    assert starts == sorted(set(starts))
    assert len(starts) >= len(ALL_KEYS) // STEP_MIN - 1


@pytest.mark.parametrize("text", ["PartitionKey eq 'b' and PartitionKey eq 'c'", "RowKey eq 5"])
def test_filters_that_nothing_matches_bound_everything(text: str) -> None:
    assert filter_of(text).bounds().is_empty


# Cost of a page


@table_test
async def test_work_per_step_is_bounded(table: TableFixture) -> None:
    """Rows times terms: with a long filter, a step reads few entities."""
    await filled(table)
    text = " or ".join(f"Number eq {number}" for number in range(200))
    steps: list[int] = []

    def look(txn: ReadTxn, query: Query) -> EntityPage | None:
        with patch.object(TableScan, "take", _noting(steps)):
            return query_entities(txn, query)

    with limited(step_terms_max=2_000):
        page = await table.read(look, asking(text, limit=10_000))
    assert page is not None
    assert len(page.entities) == len(PARTITIONS) * 200
    assert max(steps) == 10


def _noting(steps: list[int]) -> Callable[[Any, int, int], Any]:
    take = TableScan.take

    def noted(self: TableScan, count: int, bytes_max: int) -> Any:
        steps.append(count)
        return take(self, count, bytes_max)

    return noted


@table_test
async def test_large_entities_behind_small_ones_are_not_read_together(table: TableFixture) -> None:
    await table.fill([Keys("a", f"{row:03}") for row in range(100)])
    for row in range(40):
        await table.put(Keys("b", f"{row:03}"), Text="x" * 30_000)
    seen: list[int] = []

    def look(txn: ReadTxn, query: Query) -> EntityPage | None:
        counting = CountingTxn(txn)
        page = query_entities(counting, query)
        seen.append(counting.bytes_max)
        return page

    with limited(step_bytes_max=200_000):
        page = await table.read(look, asking(limit=10_000))
    assert page is not None
    assert len(page.entities) == 140
    assert max(seen) < 200_000 + 31_000


@table_test
async def test_shown_bytes_count_towards_the_page_size(table: TableFixture) -> None:
    await filled(table)
    with limited(page_bytes_max=100_000):
        page = await table.query(asking(shown_bytes=10_000))
    assert len(page.entities) == 9
    assert page.following == ALL_KEYS[9]
