"""Queries: they cost what they find, and their pages go on whatever happens in between."""

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
from tests.operations.counting import Counting
from tests.operations.table.cabinet import (
    PEOPLE,
    Cabinet,
    at_a_cabinet,
    filter_of,
    insert,
)

PARTITIONS: Final = ("a", "b", "ba", "c")
ROWS_EACH: Final = 300
STEP_MIN: Final = 64
"""What is read at once at least: a query never costs less than this, if there is so much."""
EVERYBODY: Final = [Keys(p, f"{row:03}") for p in PARTITIONS for row in range(ROWS_EACH)]


def counted(txn: ReadTxn, query: Query) -> tuple[EntityPage | None, int]:
    counting = Counting(txn)
    return query_entities(counting, query), counting.rows


async def filled(cabinet: Cabinet) -> None:
    for first in range(0, len(EVERYBODY), 100):
        share = EVERYBODY[first : first + 100]
        await cabinet.change(*(insert(keys, Number=int(keys.row)) for keys in share))


def asking(text: str = "", **options: Any) -> Query:
    """With all the time in the world: how fast an engine is in tests is not what they are about."""
    defaults = {"limit": 1_000, "filter": filter_of(text) if text else None, "seconds_max": 60.0}
    return Query(PEOPLE, **{**defaults, **options})


def keys_of(page: EntityPage) -> list[Keys]:
    return [keys for keys, _ in page.entities]


# Costs: a filter, and the rows that must be looked at to answer it

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
    # What keys cannot tell takes all that there is.
    "Number eq 5": len(EVERYBODY),
    "RowKey eq '123'": len(EVERYBODY),
    "not (PartitionKey eq 'b')": len(EVERYBODY),
    "PartitionKey eq 'b' or Number eq 5": len(EVERYBODY),
}


@at_a_cabinet
async def test_costs(cabinet: Cabinet) -> None:
    await filled(cabinet)
    everybody = await cabinet.contents()
    for text, rows in COSTS.items():
        page, seen = await cabinet.shelf.read(counted, asking(text, limit=10_000))
        assert seen == rows, text
        assert page is not None
        matches = filter_of(text).matches
        expected = [keys for keys, entity in everybody.items() if matches(keys, entity)]
        assert keys_of(page) == expected, text
        assert page.following is None


@at_a_cabinet
async def test_a_page_costs_its_size_wherever_it_begins(cabinet: Cabinet) -> None:
    await filled(cabinet)
    for at in (0, 1, 500, len(EVERYBODY) - 11):
        query = asking(limit=10, start=EVERYBODY[at])
        page, seen = await cabinet.shelf.read(counted, query)
        assert page is not None
        assert keys_of(page) == EVERYBODY[at : at + 10]
        assert page.following == EVERYBODY[at + 10]
        assert seen <= STEP_MIN


@at_a_cabinet
async def test_a_reach_bounds_the_scan(cabinet: Cabinet) -> None:
    await filled(cabinet)
    key_limits = KeyLimits("b", "290", "ba", "009")
    page, seen = await cabinet.shelf.read(counted, asking(key_limits=key_limits))
    assert page is not None
    assert keys_of(page) == [
        keys for keys in EVERYBODY if Keys("b", "290") <= keys <= Keys("ba", "009")
    ]
    # The last partition is read to its end: what is in it is told apart by its rows.
    assert seen <= 10 + ROWS_EACH


# Pages


async def pages(cabinet: Cabinet, query: Query) -> list[list[Keys]]:
    found = []
    while True:
        page = await cabinet.query(query)
        found.append(keys_of(page))
        if page.following is None:
            return found
        query = query._replace(start=page.following)


@at_a_cabinet
async def test_every_size_of_page(cabinet: Cabinet) -> None:
    everybody = [Keys(partition, row) for partition in ("", "p", "pp") for row in ("", "r", "s")]
    await cabinet.change(*map(insert, everybody))
    for limit in range(1, len(everybody) + 2):
        found = await pages(cabinet, asking(limit=limit))
        assert [keys for page in found for keys in page] == everybody
        # No page is empty, and none but the last is not full.
        assert all(len(page) == limit for page in found[:-1])
        assert 0 < len(found[-1]) <= limit


@at_a_cabinet
async def test_pages_of_what_a_filter_lets_through(cabinet: Cabinet) -> None:
    await filled(cabinet)
    text = "Number ge 295 and PartitionKey ne 'ba'"
    expected = [k for k in EVERYBODY if int(k.row) >= 295 and k.partition != "ba"]
    for limit in (1, 4, len(expected) - 1, len(expected), 1_000):
        found = await pages(cabinet, asking(text, limit=limit))
        assert [keys for page in found for keys in page] == expected
        assert len(found) == -(-len(expected) // limit)


@at_a_cabinet
async def test_pages_go_on_though_things_come_and_go(cabinet: Cabinet) -> None:
    """What was there all the time is shown once; what begins the next page may be gone."""
    stays = [Keys("p", f"{number:02}") for number in range(0, 40, 2)]
    for limit in (1, 3, 7):
        comes_and_goes = [Keys("p", f"{number:02}") for number in range(1, 40, 4)]
        await cabinet.change(*map(insert, (*stays, *comes_and_goes)))
        query, found, turn = asking(limit=limit), list[Keys](), 0
        while True:
            page = await cabinet.query(query)
            found += keys_of(page)
            if page.following is None:
                break
            query = query._replace(start=page.following)
            turn += 1
            if page.following in comes_and_goes:
                await cabinet.delete(page.following)
            await cabinet.put(Keys("p", f"{turn % 40:02}x"))
        assert found == sorted(set(found))
        assert set(stays) <= set(found)
        for keys in await cabinet.contents():
            await cabinet.delete(keys)


@at_a_cabinet
async def test_a_start_outside_of_the_bounds_widens_nothing(cabinet: Cabinet) -> None:
    await filled(cabinet)
    within = "PartitionKey eq 'b' and RowKey lt '010'"
    for start in (Keys("", ""), Keys("a", "123"), Keys("b", ""), Keys("b", "\x00")):
        assert len(keys_of(await cabinet.query(asking(within, start=start)))) == 10
    for start in (Keys("b", "010"), Keys("c", ""), Keys("z", "\U0010ffff")):
        assert keys_of(await cabinet.query(asking(within, start=start))) == []


# What a token reaches

ENDS: Final = (None, "", "b", "ba", "c")
ROW_ENDS: Final = (None, "", "100", "299", "z")


def reaches() -> Iterable[KeyLimits]:
    for start in ENDS:
        for end in ENDS:
            for start_row in ROW_ENDS if start is not None else (None,):
                for end_row in ROW_ENDS if end is not None else (None,):
                    yield KeyLimits(start, start_row, end, end_row)


@at_a_cabinet
async def test_reaches(cabinet: Cabinet) -> None:
    rows = ("", "099", "100", "101", "299", "300")
    everybody = [Keys(partition, row) for partition in ("", *PARTITIONS) for row in rows]
    await cabinet.change(*map(insert, everybody))
    for key_limits in reaches():
        found = keys_of(await cabinet.query(asking(key_limits=key_limits)))
        assert found == [keys for keys in everybody if key_limits.contains(keys)], key_limits
        paged = await pages(cabinet, asking(key_limits=key_limits, limit=2))
        assert [keys for page in paged for keys in page] == found
    assert keys_of(await cabinet.query(asking(key_limits=NO_KEY_LIMITS))) == everybody


def test_a_reach_holds_both_of_its_ends() -> None:
    key_limits = KeyLimits("b", "1", "d", "8")
    within = [("b", "1"), ("b", "9"), ("c", ""), ("c", "9"), ("d", ""), ("d", "8")]
    without = [("a", "9"), ("b", "0"), ("b", ""), ("d", "81"), ("d", "9"), ("da", ""), ("e", "1")]
    assert all(key_limits.contains(Keys(*keys)) for keys in within)
    assert not any(key_limits.contains(Keys(*keys)) for keys in without)


# Long queries


@at_a_cabinet
async def test_who_must_not_take_long_gives_up(cabinet: Cabinet) -> None:
    """By what is looked at; with another limit, by the time that it takes."""
    await filled(cabinet)
    with limited(brief_seconds_max=60.0):
        await _require_brevity(cabinet)
    with limited(brief_seconds_max=0.0):
        assert await cabinet.shelf.read(query_entities, asking(rows_max=ROWS_EACH)) is None
        point = await cabinet.shelf.read(query_entities, asking(POINT, rows_max=ROWS_EACH))
        assert point is not None


@contextmanager
def limited(**limits: Any) -> Iterator[None]:
    with patch.object(queries, "LIMITS", replace(queries.LIMITS, **limits)):
        yield


async def _require_brevity(cabinet: Cabinet) -> None:

    async def brief(text: str, rows_max: int) -> EntityPage | None:
        query = asking(text, rows_max=rows_max)
        return await cabinet.shelf.read(query_entities, query)

    assert await brief("Number eq 5", 256) is None
    assert await brief(POINT, 1) is not None
    assert await brief("PartitionKey eq 'b'", ROWS_EACH - 1) is None
    assert await brief("PartitionKey eq 'b'", ROWS_EACH) is not None


@at_a_cabinet
async def test_aside_the_same_is_found(cabinet: Cabinet) -> None:
    await filled(cabinet)
    query = asking("Number eq 5")
    page = await cabinet.shelf.engine.read_in_thread(query_entities, query)
    assert page is not None
    assert keys_of(page) == [Keys(partition, "005") for partition in PARTITIONS]


@at_a_cabinet
async def test_a_page_ends_when_its_time_is_over(cabinet: Cabinet) -> None:
    """Full or not, even without a find: but each makes some way."""
    await filled(cabinet)
    query, found, starts = asking("Number eq 299", seconds_max=-1.0), list[Keys](), list[Keys]()
    while True:
        page = await cabinet.query(query)
        found += keys_of(page)
        if page.following is None:
            break
        starts.append(page.following)
        query = query._replace(start=page.following)
    assert found == [Keys(partition, "299") for partition in PARTITIONS]
    assert starts == sorted(set(starts))
    assert len(starts) >= len(EVERYBODY) // STEP_MIN - 1


@pytest.mark.parametrize("text", ["PartitionKey eq 'b' and PartitionKey eq 'c'", "RowKey eq 5"])
def test_filters_that_nothing_matches_bound_everything(text: str) -> None:
    assert filter_of(text).bounds().is_empty


# What a page may cost


@at_a_cabinet
async def test_a_step_asks_no_more_than_its_share(cabinet: Cabinet) -> None:
    """Rows times terms: with a long filter, few entities are looked at in one step."""
    await filled(cabinet)
    text = " or ".join(f"Number eq {number}" for number in range(200))
    steps: list[int] = []

    def look(txn: ReadTxn, query: Query) -> EntityPage | None:
        with patch.object(TableScan, "take", _noting(steps)):
            return query_entities(txn, query)

    with limited(step_terms_max=2_000):
        page = await cabinet.shelf.read(look, asking(text, limit=10_000))
    assert page is not None
    assert len(page.entities) == len(PARTITIONS) * 200
    assert max(steps) == 10


def _noting(steps: list[int]) -> Callable[[Any, int, int], Any]:
    take = TableScan.take

    def noted(self: TableScan, count: int, bytes_max: int) -> Any:
        steps.append(count)
        return take(self, count, bytes_max)

    return noted


@at_a_cabinet
async def test_large_entities_behind_small_ones_are_not_read_together(cabinet: Cabinet) -> None:
    await cabinet.fill([Keys("a", f"{row:03}") for row in range(100)])
    for row in range(40):
        await cabinet.put(Keys("b", f"{row:03}"), Text="x" * 30_000)
    seen: list[int] = []

    def look(txn: ReadTxn, query: Query) -> EntityPage | None:
        counting = Counting(txn)
        page = query_entities(counting, query)
        seen.append(counting.bytes_max)
        return page

    with limited(step_bytes_max=200_000):
        page = await cabinet.shelf.read(look, asking(limit=10_000))
    assert page is not None
    assert len(page.entities) == 140
    assert max(seen) < 200_000 + 31_000


@at_a_cabinet
async def test_what_is_shown_beside_an_entity_counts(cabinet: Cabinet) -> None:
    await filled(cabinet)
    with limited(page_bytes_max=100_000):
        page = await cabinet.query(asking(shown_bytes=10_000))
    assert len(page.entities) == 9
    assert page.following == EVERYBODY[9]
