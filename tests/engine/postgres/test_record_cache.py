"""The cache of records: bounded in number and in bytes."""

from __future__ import annotations

from etagere.engine.postgres.record_cache import (
    ABSENT,
    RECORD_BYTES_MAX,
    CachedRecord,
    RecordCache,
    decode_cached,
)
from etagere.engine.records import RecordKey
from tests.engine.samples import ITEMS, Item


def _record_key(number: int) -> RecordKey:
    return ITEMS, ITEMS.pack((f"{number:06}",))


def test_present_and_absent_records_are_cached() -> None:
    cache = RecordCache()
    assert cache.get(_record_key(1)) is None
    entry = decode_cached(ITEMS, 7, ITEMS.encode(Item("text", 3)))
    assert (entry.version, entry.record) == (7, Item("text", 3))
    assert entry.size == len(ITEMS.encode(Item("text", 3)))
    cache.put(_record_key(1), entry)
    cache.put(_record_key(2), ABSENT)
    assert cache.get(_record_key(1)) is entry
    assert cache.get(_record_key(2)) is ABSENT
    cache.forget(_record_key(1))
    assert cache.get(_record_key(1)) is None
    cache.clear()
    assert cache.get(_record_key(2)) is None


def test_the_number_of_records_is_bounded_and_those_in_use_stay() -> None:
    cache = RecordCache(generation_records_max=10)
    for number in range(1000):
        cache.put(_record_key(number), CachedRecord(number, None, 0))
        assert cache.get(_record_key(0)) == CachedRecord(0, None, 0)
        assert cache.get(_record_key(number)) == CachedRecord(number, None, 0)
        assert len(cache) <= 20
    assert cache.get(_record_key(500)) is None


def test_the_bytes_are_bounded() -> None:
    cache = RecordCache(generation_bytes_max=100_000)
    for number in range(1000):
        cache.put(_record_key(number), CachedRecord(1, None, 10_000))
    held = [number for number in range(1000) if cache.get(_record_key(number)) is not None]
    assert 9 <= len(held) <= 20
    assert held[-1] == 999


def test_the_bytes_of_keys_count() -> None:
    cache = RecordCache(generation_bytes_max=100_000)
    for number in range(1000):
        cache.put((ITEMS, ITEMS.pack((f"{number:08000}",))), ABSENT)
    assert 11 <= len(cache) <= 24


def test_a_record_that_is_replaced_counts_once() -> None:
    cache = RecordCache(generation_bytes_max=100_000)
    cache.put(_record_key(0), CachedRecord(1, None, 10_000))
    for version in range(1000):
        cache.put(_record_key(1), CachedRecord(version, None, 10_000))
    assert cache.get(_record_key(0)) is not None
    assert len(cache) == 2


def test_a_long_record_is_not_cached_and_replaces_the_one_before() -> None:
    cache = RecordCache()
    cache.put(_record_key(0), CachedRecord(1, None, 10))
    cache.put(_record_key(0), CachedRecord(2, None, RECORD_BYTES_MAX + 1))
    assert cache.get(_record_key(0)) is None
