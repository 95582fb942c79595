"""Optimistic reads without a database: each returns what a snapshot would, and not an old one."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from etagere.engine.interface import ReadTxn, Refused
from etagere.engine.postgres.optimistic import (
    GETS_MAX,
    ROUNDS_MAX,
    NeedsSnapshot,
    RecordingTxn,
    Validation,
    run_optimistically,
)
from etagere.engine.postgres.record_cache import ABSENT, CachedRecord, RecordCache
from etagere.engine.records import RecordKey, Span
from etagere.engine.timeline import Instant
from etagere.errors import Refusal
from tests.engine.samples import ITEMS, Item

KEY_BYTES_MAX = 2_000
Reading = Generator[RecordingTxn, Validation, Any]


class ModelDatabase:
    """Records with versions, and a clock; every state is kept."""

    def __init__(self) -> None:
        self.now = 0
        self._version = 0
        self.states: list[dict[str, tuple[int, Item]]] = [{}]

    def commit(self, changes: dict[str, Item | None]) -> None:
        self._version += 1
        state = dict(self.states[-1])
        for key, item in changes.items():
            if item is None:
                state.pop(key, None)
            else:
                state[key] = self._version, item
        self.states.append(state)

    def current(self, key: str) -> CachedRecord:
        row = self.states[-1].get(key)
        return ABSENT if row is None else CachedRecord(*row, size=1)

    def validate(self, txn: RecordingTxn, cache: RecordCache) -> Validation:
        """Does what the statement does: returns new records only where the version differs."""
        entries: dict[RecordKey, CachedRecord] = dict(txn.seen)
        for record_key in (*txn.seen, *txn.unknown):
            current = self.current(ITEMS.unpack(record_key[1])[0])
            known = entries.get(record_key)
            if known is None or known.version != current.version:
                entries[record_key] = current
                cache.put(record_key, current)
        return Validation(entries, Instant(self.now, self.now + 1))


class ModelTxn:
    """A snapshot of the model."""

    def __init__(self, state: dict[str, tuple[int, Item]], now: int) -> None:
        self._state = state
        self.now = now

    def get(self, _collection: object, key: tuple[str]) -> Item | None:
        row = self._state.get(key[0])
        return None if row is None else row[1]


def _start(
    operation: Callable[[ReadTxn, Any], Any],
    command: object,
    cache: RecordCache,
    last: int = 0,
) -> Reading:
    return run_optimistically(operation, command, cache, Instant(last, last), KEY_BYTES_MAX)


def _finish(reading: Reading, database: ModelDatabase, cache: RecordCache) -> Any:
    """Validates until the read ends."""
    try:
        txn = next(reading)
        while True:
            txn = reading.send(database.validate(txn, cache))
    except StopIteration as ended:
        return ended.value


def follow(txn: ReadTxn, start: str) -> list[tuple[str, int]]:
    """Follows the chain of keys that the records name, and refuses where it is broken."""
    path: list[tuple[str, int]] = []
    key = start
    while key:
        item = txn.get(ITEMS, (key,))
        if item is None:
            raise Refused(Refusal("BlobNotFound", {"path": f"{path} {key}"}))
        if item.number < 0:
            raise ValueError("negative")
        path.append((key, item.number))
        if len(path) > 6:
            return path
        key = item.text
    return path


def follow_and_tell_time(txn: ReadTxn, start: str) -> tuple[list[tuple[str, int]], int]:
    return follow(txn, start), txn.now


def _outcome(run: Callable[[], Any]) -> object:
    try:
        return run()
    except Refused as refused:
        return refused.refusal
    except ValueError as error:
        return str(error)


_KEYS = "abcd"
_changes = st.dictionaries(
    st.sampled_from(_KEYS),
    st.none() | st.builds(Item, st.sampled_from(["", *_KEYS]), st.integers(-1, 3)),
    min_size=1,
)
_steps = st.lists(
    st.tuples(st.just("commit"), _changes)
    | st.tuples(st.just("begin"), st.tuples(st.sampled_from(_KEYS), st.booleans()))
    | st.tuples(st.just("validate"), st.integers(0, 7))
    | st.tuples(st.just("evict"), st.sampled_from(_KEYS)),
    max_size=40,
)


@settings(max_examples=400, deadline=None)
@given(_steps)
def test_a_read_returns_the_result_of_one_snapshot_that_is_not_older(steps: Any) -> None:
    """Any interleaving of commits, reads and evictions. The expected result is that of the state at
    the last validation of a read, which is never before its beginning."""
    database, cache = ModelDatabase(), RecordCache()
    running: list[tuple[Reading, RecordingTxn, Any, str]] = []
    for step, argument in steps:
        database.now += 10
        if step == "commit":
            database.commit(argument)
        elif step == "evict":
            cache.forget((ITEMS, ITEMS.pack((argument,))))
        elif step == "begin":
            start, with_time = argument
            operation = follow_and_tell_time if with_time else follow
            reading = _start(operation, start, cache, database.now - 5)
            running.append((reading, next(reading), operation, start))
        elif running:
            reading, txn, operation, start = running.pop(argument % len(running))
            validation = database.validate(txn, cache)

            def proceed(reading: Reading = reading, validation: Validation = validation) -> Any:
                try:
                    return reading.send(validation)
                except StopIteration as ended:
                    return ended.value

            got = _outcome(proceed)
            if isinstance(got, RecordingTxn):
                running.append((reading, got, operation, start))
                continue
            snapshot: Any = ModelTxn(database.states[-1], database.now)
            expected = _outcome(lambda: operation(snapshot, start))  # noqa: B023 (called at once)
            assert got == expected


def test_what_is_cached_costs_one_validation_and_one_run() -> None:
    database, cache = ModelDatabase(), RecordCache()
    database.commit({"a": Item("b", 1), "b": Item("", 2)})
    runs = 0

    def counted(txn: ReadTxn, start: str) -> object:
        nonlocal runs
        runs += 1
        return follow(txn, start)

    assert _finish(_start(counted, "a", cache), database, cache) == [("a", 1), ("b", 2)]
    assert runs == 3
    runs = 0
    reading = _start(counted, "a", cache)
    txn = next(reading)
    assert not txn.unknown
    with pytest.raises(StopIteration):
        reading.send(database.validate(txn, cache))
    assert runs == 1


def test_time_is_that_of_the_validation() -> None:
    database, cache = ModelDatabase(), RecordCache()
    database.now = 70

    def both(txn: ReadTxn, _: None) -> tuple[int, int]:
        return txn.now, txn.steady_now

    assert _finish(_start(both, None, cache, last=60), database, cache) == (70, 71)


def test_a_read_of_nothing_needs_no_validation() -> None:
    reading = _start(lambda _txn, command: command, 5, RecordCache())
    with pytest.raises(StopIteration) as ended:
        next(reading)
    assert ended.value.value == 5


def test_an_exception_on_stale_records_is_not_raised() -> None:
    database, cache = ModelDatabase(), RecordCache()
    database.commit({"a": Item("", -1)})
    with pytest.raises(ValueError, match="negative"):
        _finish(_start(follow, "a", cache), database, cache)
    database.commit({"a": Item("", 1)})
    assert _finish(_start(follow, "a", cache), database, cache) == [("a", 1)]


def test_several_unknown_records_are_asked_for_together() -> None:
    database, cache = ModelDatabase(), RecordCache()
    database.commit({"a": Item("x", 1), "c": Item("y", 2)})
    keys = [("a",), ("b",), ("c",)]

    def get_filtered(txn: ReadTxn, _: None) -> object:
        assert len(txn.get_all(ITEMS, keys)) == 3
        return txn.get_filtered(ITEMS, keys, lambda item: item.number > 1)

    reading = _start(get_filtered, None, cache)
    txn = next(reading)
    assert len(txn.unknown) == 3
    with pytest.raises(StopIteration) as ended:
        reading.send(database.validate(txn, cache))
    assert ended.value.value == ([(("c",), Item("y", 2))], [1], 2, 2, None)


def _scan(txn: ReadTxn, _: None) -> object:
    return txn.scan(ITEMS, Span(b"", b"\xff"), 1)


def _scan_filtered(txn: ReadTxn, _: None) -> object:
    return txn.scan_filtered(ITEMS, Span(b"", b"\xff"), 1, lambda _: True)


def _count(txn: ReadTxn, _: None) -> object:
    return txn.count(ITEMS, Span(b"", b"\xff"), 1)


def _get_long_key(txn: ReadTxn, _: None) -> object:
    return txn.get(ITEMS, ("x" * KEY_BYTES_MAX,))


@pytest.mark.parametrize("operation", [_scan, _scan_filtered, _count, _get_long_key])
def test_operations_that_need_a_transaction(operation: Callable[[ReadTxn, None], object]) -> None:
    with pytest.raises(NeedsSnapshot):
        next(_start(operation, None, RecordCache()))


def test_an_operation_that_would_not_end_is_ended() -> None:
    """As on records of different times that refer to each other."""
    database, cache = ModelDatabase(), RecordCache()
    database.commit({"a": Item("b"), "b": Item("a")})
    gets = 0

    def follow_for_ever(txn: ReadTxn, key: str) -> None:
        nonlocal gets
        while True:
            gets += 1
            item = txn.get(ITEMS, (key,))
            assert item is not None
            key = item.text

    with pytest.raises(NeedsSnapshot):
        _finish(_start(follow_for_ever, "a", cache), database, cache)
    assert gets <= GETS_MAX + 10


def test_a_read_that_always_needs_more_is_ended() -> None:
    database, cache = ModelDatabase(), RecordCache()
    database.commit({f"{number}": Item(f"{number + 1}") for number in range(100)})
    rounds = 0

    def follow_far(txn: ReadTxn, _: None) -> None:
        nonlocal rounds
        rounds += 1
        key = "0"
        while item := txn.get(ITEMS, (key,)):
            key = item.text

    with pytest.raises(NeedsSnapshot):
        _finish(_start(follow_far, None, cache), database, cache)
    assert rounds == ROUNDS_MAX
