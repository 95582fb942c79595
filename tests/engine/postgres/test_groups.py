"""Groups of operations in PostgreSQL: round trips, predictions, locks of other nodes."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any

import psycopg
import pytest

from etagere.engine import wire
from etagere.engine.group_writer import Answer
from etagere.engine.interface import (
    EXCLUSIVE,
    Conflict,
    Fault,
    FaultReason,
    Refused,
    WriteTxn,
    operation,
)
from etagere.engine.postgres import connecting, transaction
from etagere.engine.postgres.schema import split
from etagere.engine.wire import Outcome
from etagere.metrics.snapshots import Snapshot
from etagere.model.base import Command
from tests.engine import samples
from tests.engine.postgres.writers import Operation, TestWriter, request, rows, writers
from tests.engine.samples import (
    ITEMS,
    ChangeAndGetAll,
    Claim,
    Item,
    Key,
    PutItem,
    PutItems,
    Transfer,
)


@pytest.fixture
def pair(postgresql_dsn: str, ledger_schema: str) -> Iterator[list[TestWriter]]:
    with writers(postgresql_dsn, ledger_schema, 2) as made:
        yield list(made)


class OtherNode:
    """A transaction of another node, which holds locks."""

    def __init__(self, dsn: str, schema: str) -> None:
        self._connection = psycopg.connect(dsn, options=f"-c search_path={schema}")

    def lock(self, key: str) -> None:
        found = self._connection.execute(
            "SELECT FROM test_items WHERE key = %s FOR UPDATE", (ITEMS.pack((key,)),)
        )
        assert found.rowcount == 1

    def place(self, key: str) -> None:
        head, rest, digest = split(ITEMS.pack((key,)))
        self._connection.execute(
            "INSERT INTO test_items VALUES (%s, %s, %s, 0, NULL)", (head, rest, digest)
        )

    def end(self) -> None:
        self._connection.rollback()

    def __enter__(self) -> OtherNode:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()


@pytest.fixture
def other_node(postgresql_dsn: str, ledger_schema: str) -> Iterator[OtherNode]:
    with OtherNode(postgresql_dsn, ledger_schema) as node:
        yield node


def items(dsn: str, schema: str) -> dict[str, int | None]:
    """Returns all rows, placeholders included."""
    found = rows(dsn, schema, "SELECT key, rest, value FROM test_items")
    return {
        ITEMS.unpack(key + rest)[0]: None if value is None else ITEMS.decode(value).number
        for key, rest, value in found
    }


class Copy(Command, frozen=True):
    source: str
    target: str


@operation
def copy_if_present(txn: WriteTxn, command: Copy) -> None:
    """Writes a record without reading it before."""
    item = txn.get(ITEMS, (command.source,))
    if item is not None:
        txn.put(ITEMS, (command.target,), item)


# Round trips


@pytest.mark.parametrize("count", [1, 16, 64])
def test_a_group_costs_two_round_trips(pair: list[TestWriter], count: int) -> None:
    writer = pair[0]
    keys = [f"{number}" for number in range(count)]
    for number in range(1, 4):
        before = writer.round_trips
        assert writer.group(*[(samples.count_up, Key(key)) for key in keys]) == [number] * count
        assert writer.round_trips - before == 2


def test_records_of_other_nodes_cost_no_round_trip(pair: list[TestWriter]) -> None:
    """They come with the locks, and the operation runs again."""
    one, other = pair
    for number in range(1, 7, 2):
        assert one.write(samples.count_up, Key("key")) == number
        before = other.round_trips
        assert other.write(samples.count_up, Key("key")) == number + 1
        assert other.round_trips - before == 2


def test_operations_of_a_group_see_each_other(pair: list[TestWriter]) -> None:
    one, other = pair
    for writer in (one, other):  # the second has everything to learn
        outcomes = writer.group(
            *[(samples.count_up, Key("key"))] * 3,
            (samples.transfer, Transfer("key", "more", 2)),
            (samples.count_up, Key("more")),
            (samples.send_maybe, Key("more")),
        )
        assert outcomes[2] - outcomes[0] == 2
        assert outcomes[5].number == outcomes[4]
    assert other.write(samples.send_maybe, Key("key")) == Item(number=2)
    assert other.write(samples.send_maybe, Key("more")) == Item(number=6)


def test_operations_that_saw_the_result_of_a_wrong_prediction_run_again(
    pair: list[TestWriter],
) -> None:
    """A put that was predicted to succeed is refused, and a later operation must not see it."""
    one, other = pair
    one.write(samples.put_item, PutItem("name", Item(number=1)))
    refused, seen, counted = other.group(
        (samples.create_once, PutItem("name", Item(number=100))),
        (samples.send_maybe, Key("name")),
        (samples.count_up, Key("name")),
    )
    assert isinstance(refused, Refused)
    assert seen == Item(number=1)
    assert counted == 2


def test_a_write_that_was_not_predicted_is_seen(pair: list[TestWriter]) -> None:
    one, other = pair
    one.write(samples.put_item, PutItem("source", Item(number=7)))
    outcomes = other.group(
        (copy_if_present, Copy("source", "target")),
        (samples.send_maybe, Key("target")),
        (copy_if_present, Copy("target", "last")),
        (samples.count_up, Key("last")),
    )
    assert outcomes == [None, Item(number=7), None, 8]


def test_a_deleted_record_is_not_cached(pair: list[TestWriter]) -> None:
    one, other = pair
    one.write(samples.put_item, PutItem("name", Item(number=1)))
    other.write(samples.delete_item, Key("name"))
    assert one.write(samples.send_maybe, Key("name")) is None
    assert one.write(samples.create_once, PutItem("name", Item(number=2))) == Item(number=2)
    assert other.write(samples.send_maybe, Key("name")) == Item(number=2)


def test_long_operations_are_in_groups_of_their_own(pair: list[TestWriter]) -> None:
    puts = PutItems([PutItem(f"{number:05}", Item(number=number)) for number in range(3_000)])
    writer = pair[0]
    requests: list[Operation] = [
        (samples.put_item, PutItem("a")),
        (samples.put_items, puts),
        (samples.put_item, PutItem("b")),
    ]
    left = [request(run, command) for run, command in requests]
    groups = []
    while left:
        answers = writer.run_group(left)
        groups.append(len(answers))
        left = left[len(answers) :]
    assert groups == [1, 1, 1]


class ScriptedRuns:
    """Takes the place of the runs of groups: ends each with the next outcome."""

    def __init__(self, *outcomes: Exception | None) -> None:
        self._outcomes = list(outcomes)
        self.lengths: list[int] = []
        """Of the groups that were run."""

    def __call__(self, group: Sequence[wire.Request], *, skip_locked: bool) -> list[Answer]:
        self.lengths.append(len(group))
        outcome = self._outcomes.pop(0)
        if outcome is not None:
            raise outcome
        return [Answer(Outcome.RESULT, b"")] * len(group)


def test_operations_do_not_wait_one_by_one_for_a_database_that_is_unavailable(
    pair: list[TestWriter], monkeypatch: pytest.MonkeyPatch
) -> None:
    unavailable = Fault(FaultReason.UNAVAILABLE, "no answer")
    failed = Fault(FaultReason.FAILED, "a damaged record")
    done, conflict, fault = Outcome.RESULT, Outcome.CONFLICT, Outcome.FAULT
    group = [request(samples.count_up, Key(str(number))) for number in range(4)]
    for outcomes, lengths, answered in (
        ([Conflict(), unavailable], [4, 4], [fault] * 4),
        ([failed, failed, None, failed, unavailable], [4, 4, 1, 1, 1], [done, fault, fault]),
        (
            [failed, Conflict(), None, Conflict(), None, None],
            [4, 4, 1, 1, 1, 1],
            [done, conflict, done, done],
        ),
    ):
        runs = ScriptedRuns(*outcomes)
        monkeypatch.setattr(pair[0], "_run", runs)
        monkeypatch.setattr(pair[0], "_skip_locked_until", 0.0)
        assert [answer.outcome for answer in pair[0].run_group(group)] == answered
        assert runs.lengths == lengths


def test_round_trips_and_wrong_predictions_are_counted(pair: list[TestWriter]) -> None:
    one, other = pair
    one.write(samples.count_up, Key("key"))
    for _ in range(2):  # the second time, it has cached what it has written itself
        assert other.write(samples.count_up, Key("key")) >= 2
    other.write(samples.take_items, Claim(1))
    counters = other.counters
    assert counters.wrong_predictions == 1
    assert counters.group_round_trips.counts[1] == 2
    assert sum(counters.group_round_trips.counts) == 3
    snapshot = Snapshot()
    counters.report(snapshot)
    reported = {value.metric: value.value for value in snapshot.values}
    assert reported["database_wrong_predictions"] == 1


# Scans


def test_scans_see_the_group(pair: list[TestWriter]) -> None:
    one, other = pair
    one.group(*[(samples.put_item, PutItem(key)) for key in "abcdef"])
    taken = other.group(
        (samples.put_item, PutItem("aa")),
        (samples.delete_item, Key("b")),
        (samples.take_items, Claim(3)),
        (samples.take_items, Claim(2)),
    )
    assert taken[2:] == [["a", "aa", "c"], ["d", "e"]]
    assert one.write(samples.take_items, Claim(9)) == ["f"]


@operation
def count_all(txn: WriteTxn, command: Key) -> int:
    """Counts up every item with a prefix, one by one; then one more that depends on them."""
    for (key,), _ in txn.scan(ITEMS, ITEMS.under((), command.key), 1_000):
        item = txn.get(ITEMS, (f"count of {key}",), EXCLUSIVE) or Item()
        txn.put(ITEMS, (f"count of {key}",), Item(number=item.number + 1))
    last = txn.get(ITEMS, ("last",), EXCLUSIVE) or Item()
    follows = txn.get(ITEMS, (f"follows {last.number}",), EXCLUSIVE) or Item()
    txn.put(ITEMS, ("last",), Item(number=last.number + 1))
    return last.number + follows.number


def test_records_of_a_scan_are_locked_together(
    pair: list[TestWriter], postgresql_dsn: str, ledger_schema: str
) -> None:
    one, other = pair
    keys = [f"{number:03}" for number in range(100)]
    one.write(samples.put_items, PutItems([PutItem(f"x{key}") for key in keys]))
    one.write(samples.put_item, PutItem("follows 1", Item(number=70)))
    for number, writer in enumerate((one, other, one, other)):
        before = writer.round_trips
        assert writer.write(count_all, Key("x")) == number + (70 if number == 1 else 0)
        # To begin, to scan, to lock twice at most, since other nodes have changed what follows,
        # and to commit.
        assert writer.round_trips - before <= 5
    counted = items(postgresql_dsn, ledger_schema)
    assert {counted[f"count of x{key}"] for key in keys} == {4}
    assert None not in counted.values()


def test_claims_skip_what_others_have_locked(
    pair: list[TestWriter], other_node: OtherNode, postgresql_dsn: str, ledger_schema: str
) -> None:
    pair[0].group(*[(samples.put_item, PutItem(key)) for key in "abcd"])
    other_node.lock("b")
    assert pair[1].write(samples.take_items, Claim(2)) == ["a", "c"]
    other_node.end()
    assert pair[1].write(samples.take_items, Claim(9)) == ["b", "d"]
    assert items(postgresql_dsn, ledger_schema) == {}


# Locks of other nodes


@pytest.mark.parametrize("blocked", ["present", "absent"])
def test_a_locked_record_stops_only_its_operations(
    pair: list[TestWriter],
    other_node: OtherNode,
    postgresql_dsn: str,
    ledger_schema: str,
    blocked: str,
) -> None:
    writer = pair[0]
    writer.write(samples.put_item, PutItem("present"))
    if blocked == "present":
        other_node.lock("present")
    else:
        other_node.place("absent")
    for number in range(1, 4):
        began = time.monotonic()
        outcomes = writer.group(
            (samples.count_up, Key("one")),
            (samples.count_up, Key(blocked)),
            (samples.put_item, PutItem(blocked)),
            (samples.count_up, Key("two")),
        )
        assert time.monotonic() - began < 10.0
        assert isinstance(outcomes[1], Conflict)
        assert isinstance(outcomes[2], Conflict)
        assert outcomes[0] == outcomes[3] == number
    other_node.end()
    assert writer.write(samples.count_up, Key(blocked)) == 1
    assert None not in items(postgresql_dsn, ledger_schema).values()


def test_a_short_wait_is_no_conflict(
    postgresql_dsn: str,
    ledger_schema: str,
    other_node: OtherNode,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Long enough for a slow machine.
    monkeypatch.setitem(connecting._WRITER_SESSION, "lock_timeout", "20s")
    monkeypatch.setattr(transaction, "_LIMIT_LOCKING", "SET LOCAL statement_timeout = '20s'")
    with writers(postgresql_dsn, ledger_schema, 1) as (writer,):
        writer.write(samples.put_item, PutItem("key"))
        other_node.lock("key")
        timer = threading.Timer(0.03, other_node.end)
        timer.start()
        assert writer.write(samples.count_up, Key("key")) == 1
        timer.join()


def test_no_placeholder_is_ever_left(
    pair: list[TestWriter], postgresql_dsn: str, ledger_schema: str
) -> None:
    """Keys that were guarded and not written, by operations of every outcome."""
    many = [f"{number}" for number in range(200)]
    outcomes: list[Any] = pair[0].group(
        (samples.change_and_get_all, ChangeAndGetAll([], [], many)),
        (samples.create_once, PutItem("made")),
        (samples.create_once, PutItem("made")),
        (samples.refuse_after_writing, PutItem("refused")),
        (samples.divide_by_zero, PutItem("bug")),
        (samples.change_and_get_all, ChangeAndGetAll([], ["deleted"], ["deleted", "x" * 5_000])),
    )
    assert outcomes[0] == [None] * 200
    assert items(postgresql_dsn, ledger_schema) == {"made": 0}


def test_long_keys_that_begin_alike(pair: list[TestWriter]) -> None:
    one, other = pair
    keys = ["x" * 1_999 + suffix for suffix in ("", "y", "yy", "z", "z" * 6_000)]
    assert one.group(*[(samples.count_up, Key(key)) for key in keys]) == [1] * 5
    assert other.group(*[(samples.count_up, Key(key)) for key in reversed(keys)]) == [2] * 5
    assert other.write(samples.take_items, Claim(9)) == keys


def test_a_record_that_cannot_be_decoded_stops_only_its_operations(
    pair: list[TestWriter], postgresql_dsn: str, ledger_schema: str
) -> None:
    one, other = pair
    one.write(samples.put_item, PutItem("bad"))
    with psycopg.connect(postgresql_dsn, options=f"-c search_path={ledger_schema}") as connection:
        connection.execute("UPDATE test_items SET value = '\\xc1', version = version + 1")
    for writer in (one, other):
        counted, failed, scanned = writer.group(
            (samples.count_up, Key("good")),
            (samples.count_up, Key("bad")),
            (samples.take_items, Claim(1)),
        )
        assert counted >= 1
        for each in (failed, scanned):
            assert isinstance(each, Fault)
            assert each.reason is FaultReason.FAILED
    assert one.write(samples.put_item, PutItem("bad")) == Item()
    assert other.write(samples.count_up, Key("bad")) == 1
