"""Operations on many records at once, with every engine."""

from __future__ import annotations

import itertools

from etagere.engine.interface import Engine
from etagere.engine.records import Span
from tests.engine import samples
from tests.engine.harness import Harness, conformance
from tests.engine.samples import (
    ITEMS,
    ChangeAndGetAll,
    FilterKeys,
    FilterSpan,
    Item,
    PutItem,
    PutItems,
)


async def put(engine: Engine, *keys: str) -> None:
    await engine.write(samples.put_items, PutItems([PutItem(key, Item(key)) for key in keys]))


@conformance
async def test_get_all_keeps_the_requested_order(harness: Harness) -> None:
    engine = await harness.open()
    for count in (0, 1, 16, 17, 64, 65, 200):
        there = [f"{count}/{number:03}" for number in range(0, 2 * count, 2)]
        await put(engine, *there)
        # Every other one is absent, the order is not key order, and some are repeated.
        keys = [f"{count}/{number:03}" for number in reversed(range(2 * count))]
        keys += keys[: count // 2]
        found = await engine.write(samples.change_and_get_all, ChangeAndGetAll([], [], keys))
        assert found == [Item(key) if key in set(there) else None for key in keys]
        assert await engine.read(samples.get_items, keys) == found


@conformance
async def test_get_all_sees_own_changes(harness: Harness) -> None:
    """Even if so much was changed that it is no longer buffered."""
    engine = await harness.open()
    for count in (4, 40, 1_400):
        keys = [f"{count}/{number:04}" for number in range(count)]
        await put(engine, *keys[: count // 2])
        puts = [PutItem(key, Item("new")) for key in keys[count // 4 :]]
        left = {key: Item(key) for key in keys[: count // 2]}
        left |= {key: Item("new") for key in keys[count // 4 :]}
        for key in keys[::4]:
            del left[key]
        command = ChangeAndGetAll(puts, keys[::4], keys)
        expected = [left.get(key) for key in keys]
        assert await engine.write(samples.change_and_get_all, command) == expected
        # And so they are stored.
        again = await engine.write(samples.change_and_get_all, ChangeAndGetAll([], [], keys))
        assert again == expected


@conformance
async def test_sift_reads_are_bounded(harness: Harness) -> None:
    engine = await harness.open()
    keys = [f"{kind}{number}" for number, kind in itertools.product(range(10), "ab")]
    await put(engine, *keys)
    ordered = sorted(keys)
    for limit in (1, 3, 7, 20, 50):
        found: list[str] = []
        seen = 0
        rest: Span | None = ITEMS.all()
        while rest is not None:
            filtered = await engine.read(samples.filter_items, FilterSpan(rest, limit, "b"))
            assert filtered.seen <= limit
            assert len(filtered.sizes) == len(filtered.rows)
            assert all(size > 0 for size in filtered.sizes)
            assert sum(filtered.sizes) <= filtered.seen_bytes
            for (key,), item in filtered.rows:
                assert item == Item(key)
                found.append(key)
            seen += filtered.seen
            rest = filtered.rest
        assert found == [key for key in ordered if key.startswith("b")]
        assert seen == len(keys)


@conformance
async def test_sift_stays_within_its_span(harness: Harness) -> None:
    engine = await harness.open()
    await put(engine, "a", "b/1", "b/2", "c")
    filtered = await engine.read(samples.filter_items, FilterSpan(ITEMS.under((), "b/"), 10, ""))
    assert [key for (key,), _ in filtered.rows] == ["b/1", "b/2"]
    assert filtered.rest is None
    assert filtered.seen == 2
    nothing = await engine.read(samples.filter_items, FilterSpan(ITEMS.under((), "d"), 10, ""))
    assert (nothing.rows, nothing.seen, nothing.rest) == ([], 0, None)


@conformance
async def test_sift_keys_keeps_their_order(harness: Harness) -> None:
    engine = await harness.open()
    for count in (0, 1, 63, 64, 65, 200):
        there = [f"{kind}{count}/{number:03}" for number in range(count) for kind in "ab"]
        await put(engine, *there)
        # Every third is absent.
        keys = [f"{kind}{count}/{number:03}" for number in reversed(range(count)) for kind in "abc"]
        filtered = await engine.read(samples.filter_item_keys, FilterKeys(keys, "b"))
        passed = [key for key in keys if key.startswith("b")]
        assert filtered.rows == [((key,), Item(key)) for key in passed]
        assert filtered.seen == len(there)
        assert filtered.rest is None
        span = FilterSpan(ITEMS.all(), 10_000, "")
        everything = await engine.read(samples.filter_items, span)
        sizes = {
            key: size for (key, _), size in zip(everything.rows, everything.sizes, strict=True)
        }
        assert filtered.sizes == [sizes[key,] for key in passed]
        assert filtered.seen_bytes == sum(sizes[key,] for key in there)


@conformance
async def test_sift_ends_with_the_record_that_exceeds_the_limit(harness: Harness) -> None:
    engine = await harness.open()
    keys = [f"{number:03}" for number in range(50)]
    large = [PutItem(key, Item("x" * 1_000)) for key in keys]
    await engine.write(samples.put_items, PutItems(large))
    rest: Span | None = ITEMS.all()
    found: list[str] = []
    while rest is not None:
        filtered = await engine.read(samples.filter_items, FilterSpan(rest, 40, "x", 5_000))
        assert filtered.seen <= 5
        found += [key for (key,), _ in filtered.rows]
        rest = filtered.rest
    assert found == keys
