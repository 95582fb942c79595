"""Several writers on one ledger: whatever they do at the same time could have been done in turn."""

from __future__ import annotations

import itertools
import random
import threading
import time
from typing import Any, NamedTuple

from etagere.engine.interface import Conflict, Refused
from etagere.engine.postgres.stamps import SLOTS_MAX
from tests.engine import samples
from tests.engine.postgres.writers import Operation, TestWriter, rows, writers
from tests.engine.samples import ITEMS, Claim, Instant, Item, Key, PutItem, Transfer

_WRITERS = 3
_GROUPS = 120
_KEYS = "abcd"
_START = 1_000


class Event(NamedTuple):
    """An operation that was answered, with the time before and after."""

    operation: Any
    command: Any
    outcome: Any
    began: float
    ended: float


def _random_operation(rng: random.Random, number: int) -> Operation:
    key = rng.choice(_KEYS)
    kind = rng.randrange(5)
    if kind == 0:
        return samples.count_up, Key(f"count {key}")
    if kind == 1:
        source, target = rng.sample(_KEYS, 2)
        return samples.transfer, Transfer(f"sum {source}", f"sum {target}", rng.randrange(5))
    if kind == 2:
        return samples.create_once, PutItem(f"once {number % 20}", Item(number=number))
    if kind == 3:
        return samples.put_item, PutItem(f"task {number}")
    return samples.stamp_record, Key(key)


def _work(writer: TestWriter, seed: int, history: list[Event]) -> None:
    rng = random.Random(seed)
    numbers = itertools.count(seed * 100_000)
    for _ in range(_GROUPS):
        group = [_random_operation(rng, next(numbers)) for _ in range(rng.randint(1, 6))]
        began = time.monotonic()
        outcomes = writer.group(*group)
        ended = time.monotonic()
        for (operation, command), outcome in zip(group, outcomes, strict=True):
            if not isinstance(outcome, Conflict):
                history.append(Event(operation, command, outcome, began, ended))


def _run_all(made: list[TestWriter]) -> list[Event]:
    histories: list[list[Event]] = [[] for _ in made]
    threads = [
        threading.Thread(target=_work, args=(writer, number, histories[number]))
        for number, writer in enumerate(made)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    return [event for history in histories for event in history]


def test_histories_of_several_writers(postgresql_dsn: str, ledger_schema: str) -> None:
    with writers(postgresql_dsn, ledger_schema, _WRITERS) as made:
        for key in _KEYS:
            made[0].write(samples.put_item, PutItem(f"sum {key}", Item(number=_START)))
        history = _run_all(list(made))
    assert len(history) > _WRITERS * _GROUPS  # few conflicts
    for key in _KEYS:
        _require_chain([each for each in history if each.command == Key(key)])
        _require_count([each for each in history if each.command == Key(f"count {key}")])
    _require_one_creation(history)
    stored = rows(postgresql_dsn, ledger_schema, "SELECT key, version, value FROM test_items")
    assert all(value is not None for _, _, value in stored)
    sums = {
        ITEMS.unpack(key)[0]: ITEMS.decode(value).number
        for key, _, value in stored
        if key.startswith(b"sum")
    }
    moved = [each for each in history if each.operation is samples.transfer]
    assert sums == {f"sum {key}": _START + _balance(moved, f"sum {key}") for key in _KEYS}
    puts = [each.command.key for each in history if each.operation is samples.put_item]
    found = {ITEMS.unpack(key)[0] for key, _, _ in stored if key.startswith(b"task")}
    assert found == set(puts)


def _balance(moved: list[Event], key: str) -> int:
    gained: int = sum(each.command.amount for each in moved if each.command.target == key)
    lost: int = sum(each.command.amount for each in moved if each.command.source == key)
    return gained - lost


def _require_chain(changes: list[Event]) -> None:
    """Each change replaced exactly one other, and none that was made after it."""
    by_stamp: dict[int, Event] = {each.outcome.stamp: each for each in changes}
    assert len(by_stamp) == len(changes)
    previous = [each.outcome.previous for each in changes]
    replaced = [stamped.stamp for stamped in previous if stamped is not None]
    assert len(set(replaced)) == len(replaced) == len(changes) - 1
    for each in changes:
        instant: Instant = each.outcome
        if instant.previous is not None:
            assert instant.stamp > instant.previous.stamp
            assert by_stamp[instant.previous.stamp].began <= each.ended
    in_order = [by_stamp[stamp] for stamp in sorted(by_stamp)]
    for earlier, later in itertools.combinations(in_order, 2):
        assert earlier.began <= later.ended, "a change replaced one that began after it had ended"


def _require_count(counted: list[Event]) -> None:
    in_order = sorted(counted, key=lambda each: each.outcome)
    assert [each.outcome for each in in_order] == list(range(1, len(counted) + 1))
    for earlier, later in itertools.combinations(in_order, 2):
        assert earlier.began <= later.ended


def _require_one_creation(history: list[Event]) -> None:
    tried = [each for each in history if each.operation is samples.create_once]
    for key in {each.command.key for each in tried}:
        made = [each for each in tried if each.command.key == key]
        created = [each for each in made if not isinstance(each.outcome, Refused)]
        assert len(created) == 1
        for refused in made:
            assert created[0].began <= refused.ended


def test_claims_of_several_writers_are_disjoint(postgresql_dsn: str, ledger_schema: str) -> None:
    keys = [f"{number:03}" for number in range(120)]
    with writers(postgresql_dsn, ledger_schema, _WRITERS) as made:
        made[0].write(samples.put_items, samples.PutItems([PutItem(key) for key in keys]))
        taken: list[list[str]] = [[] for _ in made]

        def take(number: int) -> None:
            while claimed := made[number].group(*[(samples.take_items, Claim(3))] * 2):
                if not any(claimed):
                    return
                for each in claimed:
                    taken[number] += each if isinstance(each, list) else []

        threads = [threading.Thread(target=take, args=(number,)) for number in range(_WRITERS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
    assert sorted(itertools.chain(*taken)) == keys


def test_every_writer_has_its_slot(postgresql_dsn: str, ledger_schema: str) -> None:
    with writers(postgresql_dsn, ledger_schema, 3) as made:
        stamps = [writer.write(samples.stamp_record, Key("key")).stamp for writer in [*made, *made]]
        assert stamps == sorted(set(stamps))
        assert {stamp % SLOTS_MAX for stamp in stamps} == {0, 1, 2}
        owners = "SELECT count(DISTINCT owner) FROM writers WHERE owner IS NOT NULL"
        assert rows(postgresql_dsn, ledger_schema, owners) == [(3,)]
        last = rows(postgresql_dsn, ledger_schema, "SELECT version FROM test_stamped")
        assert last[0][0] >= stamps[-1]
    free = "SELECT count(*) FROM writers WHERE owner IS NULL"
    assert rows(postgresql_dsn, ledger_schema, free) == [(3,)]
    with writers(postgresql_dsn, ledger_schema, 1) as made:
        assert made[0].write(samples.stamp_record, Key("key")).stamp > stamps[-1]
