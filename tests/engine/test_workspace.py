"""The writer's buffered changes and cached records, compared with a dictionary.

Runs groups of random operations, some of which are refused, fail, write more than is buffered, or
lose the whole transaction. Each sees what the previous ones left, and so does the ledger in the
end."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw
import msgspec
import pytest

from etagere.clock import SystemClock
from etagere.config import Config
from etagere.engine import ledger, wire, workspace, write_transaction
from etagere.engine.group_writer import Answer
from etagere.engine.groups import Writer
from etagere.engine.interface import Refused, WriteTxn, operation, registered
from etagere.engine.records import ENCODE, RecordKey
from etagere.engine.wire import Outcome
from etagere.errors import Refusal
from etagere.model.base import Command, Part
from tests.engine.samples import ITEMS, NAMED, Item

PARENT = bytes(16)
KEYS = [f"key {number}" for number in range(12)]
MANY = 1_100
"""More writes than are buffered."""


class Step(Part, frozen=True):
    """One action on one key: put, delete, get, get all, scan."""

    kind: str
    key: str = ""
    text: str = ""


class Act(Command, frozen=True):
    """Some steps, followed by success, refusal, failure or the loss of the transaction."""

    steps: tuple[Step, ...]
    ending: str = ""


Shown = list[tuple[str, str]]


@operation
def act(txn: WriteTxn, command: Act) -> Shown:
    shown: Shown = []
    for step in command.steps:
        match step.kind:
            case "put":
                txn.put(ITEMS, (step.key,), Item(step.text))
                txn.put(NAMED, (PARENT, step.key), Item(step.text))
            case "put many":
                for number in range(MANY):
                    txn.put(NAMED, (PARENT, f"many {number}"), Item(step.text))
            case "delete":
                txn.delete(ITEMS, (step.key,))
                txn.delete(NAMED, (PARENT, step.key))
            case "get":
                found = txn.get(ITEMS, (step.key,))
                shown.append((step.key, "" if found is None else found.text))
                assert txn.get(NAMED, (PARENT, step.key)) == found
            case "get all":
                keys = KEYS * 2
                for key, item in zip(
                    keys, txn.get_all(ITEMS, [(key,) for key in keys]), strict=True
                ):
                    shown.append((key, "" if item is None else item.text))
            case "scan":
                shown += [(key, item.text) for (key,), item in txn.scan(ITEMS, ITEMS.all(), 100)]
    if command.ending == "refuse":
        raise Refused(Refusal("BlobNotFound"))
    if command.ending == "fail":
        raise RuntimeError("as asked")
    if command.ending == "lose":
        cursor: apsw.Cursor = txn._cursor  # type: ignore[attr-defined]
        cursor.execute("ROLLBACK")
        raise apsw.IOError("as asked")
    return shown


def expected(ledger_now: dict[str, str], command: Act) -> Shown | None:
    """Returns what the operation sees and its effect on the ledger; None unless it succeeds."""
    after = dict(ledger_now)
    shown: Shown = []
    for step in command.steps:
        match step.kind:
            case "put":
                after[step.key] = step.text
            case "delete":
                after.pop(step.key, None)
            case "get":
                shown.append((step.key, after.get(step.key, "")))
            case "get all":
                shown += [(key, after.get(key, "")) for key in KEYS * 2]
            case "scan":
                shown += sorted(after.items(), key=lambda row: row[0].encode())
    if command.ending:
        return None
    ledger_now.clear()
    ledger_now.update(after)
    return shown


def chosen(dice: random.Random, *endings: str) -> Act:
    kinds = ["put"] * 4 + ["delete", "get", "get", "get all", "scan"]
    if dice.random() < 0.02:
        kinds.append("put many")
    # Some are just too long to be cached, some just not.
    texts = ["x", "short", "y" * 8_100, "z" * 8_300, "w" * 20_000]
    steps = [
        Step(dice.choice(kinds), dice.choice(KEYS), dice.choice(texts) + str(dice.random()))
        for _ in range(dice.randrange(1, 6))
    ]
    return Act(tuple(steps), dice.choice(endings))


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[Writer]:
    config, clock = Config(durable=False, reserve_bytes=0), SystemClock()
    ledger.create(tmp_path, config, clock)
    made = Writer(tmp_path, config, clock)
    yield made
    made.close()


def settle(writer: Writer, *commands: Act) -> list[Answer]:
    name = registered(act).wire_name
    answers: list[Answer] = []
    while len(answers) < len(commands):
        rest = commands[len(answers) :]
        answers += writer.run_group(
            [wire.Request(0, name, memoryview(ENCODE(one))) for one in rest]
        )
    return answers


def put_each(writer: Writer, keys: list[str], text: str) -> None:
    """Puts each by its own operation."""
    for first in range(0, len(keys), 400):
        some = keys[first : first + 400]
        settle(writer, *[Act((Step("put", key, text),)) for key in some])


def shown_by(answer: Answer) -> Any:
    if answer.outcome is not Outcome.RESULT:
        return None
    return msgspec.msgpack.decode(answer.payload, type=Shown)


def stored(tmp_path: Path) -> dict[str, str]:
    connection = ledger.open_for_reading(tmp_path, Config())
    rows = ledger.scan(connection.cursor(), ITEMS, ITEMS.all(), 100, False)
    connection.close()
    return {key: item.text for (key,), item in rows}


@pytest.mark.parametrize("seed", range(6))
def test_every_operation_sees_earlier_changes(writer: Writer, tmp_path: Path, seed: int) -> None:
    dice = random.Random(seed)
    left: dict[str, str] = {}
    endings = ("", "", "", "refuse", "fail")
    for _ in range(60):
        commands = [chosen(dice, *endings) for _ in range(dice.randrange(1, 12))]
        for command, answer in zip(commands, settle(writer, *commands), strict=True):
            assert shown_by(answer) == expected(left, command)
        assert stored(tmp_path) == left


@pytest.mark.parametrize("seed", range(4))
def test_a_lost_transaction_leaves_nothing_behind(
    writer: Writer, tmp_path: Path, seed: int
) -> None:
    """The others of its group are run again, one by one."""
    dice = random.Random(seed)
    left: dict[str, str] = {}
    for _ in range(60):
        commands = [chosen(dice, "", "", "", "refuse", "lose") for _ in range(dice.randrange(1, 8))]
        for command, answer in zip(commands, settle(writer, *commands), strict=True):
            assert shown_by(answer) == expected(left, command)
        assert stored(tmp_path) == left


@pytest.mark.parametrize("fails", ["puts", "deletes"])
def test_a_failed_store_refuses_the_whole_group(
    writer: Writer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: str
) -> None:
    """At the commit as well as before a scan, which is not the fault of the scanning operation."""
    settle(writer, Act((Step("put", "kept", "before"),)))
    broken = "REPLACE INTO nowhere VALUES (?, ?)" if fails == "puts" else "DELETE FROM nowhere"
    sound = ledger.statements(ITEMS)
    with monkeypatch.context() as patch:
        changed = sound._replace(**{"put" if fails == "puts" else "delete": broken})
        patch.setitem(ledger._STATEMENTS, ITEMS, changed)
        change = Step("put" if fails == "puts" else "delete", "kept", "after")
        for others in ((), (Act((Step("scan"),)),)):
            first, *rest = settle(writer, Act((change,)), *others)
            assert first.outcome is Outcome.FAULT
            assert [shown_by(answer) for answer in rest] == [[("kept", "before")] for _ in others]
    (answer,) = settle(writer, Act((Step("get", "kept"),)))
    assert shown_by(answer) == [("kept", "before")]
    assert stored(tmp_path) == {"kept": "before"}


def test_the_cache_is_bounded(writer: Writer) -> None:
    for text, count in (("x", 3 * workspace._CACHED_MAX), ("y" * 8_000, 2_000)):
        put_each(writer, [f"{number}" for number in range(count)], text)
        remembered = writer._workspace
        for records in (remembered._recent, remembered._less_recent):
            assert 0 < len(records) <= workspace._CACHED_MAX
            size = sum(len(ENCODE(record)) for record in records.values())
            assert size <= workspace._CACHED_BYTES_MAX
        assert not remembered._changed


def test_bulk_changes_do_not_evict_the_cache(writer: Writer) -> None:
    settle(writer, Act((Step("put", "hot", "x"), Step("put", "1", "y"))))
    remembered = dict(writer._workspace._recent)
    settle(writer, Act(tuple([Step("put", f"{number}", "z") for number in range(100)])))
    recent = writer._workspace._recent
    assert set(recent) == {(place, key) for place, key in remembered if b"1" not in key}
    (answer,) = settle(writer, Act((Step("get", "hot"), Step("get", "1"))))
    assert shown_by(answer) == [("hot", "x"), ("1", "z")]


def test_buffered_changes_are_bounded(writer: Writer) -> None:
    """A group is not cut before this much has accumulated; one operation is enough."""
    most = 0
    change = workspace.Workspace.change

    def watch(
        self: workspace.Workspace, record_key: RecordKey, row: workspace.Row | None, *, cache: bool
    ) -> None:
        nonlocal most
        change(self, record_key, row, cache=cache)
        waiting = [row for rows in self._changed.values() for row in rows.values()]
        most = max(most, sum(len(row[1]) for row in waiting if row is not None))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(workspace.Workspace, "change", watch)
        steps = [Step("put", f"{number}", "x" * 100_000) for number in range(100)]
        settle(writer, Act(tuple(steps)))
    assert 1_000_000 < most <= workspace._CHANGED_BYTES_MAX + 100_100


def test_cached_records_cost_no_statement(writer: Writer) -> None:
    settle(writer, Act((Step("put", "hot", "x"),)))
    executed: list[str] = []

    def trace(_cursor: apsw.Cursor, sql: str, _bindings: object) -> bool:
        executed.append(sql)
        return True

    writer._cursor.exec_trace = trace
    (answer,) = settle(writer, Act((Step("get", "hot"),)))
    assert shown_by(answer) == [("hot", "x")]
    assert not [sql for sql in executed if sql.startswith("SELECT")]


def test_an_object_that_a_group_changes_often_is_stored_once(writer: Writer) -> None:
    executed: list[str] = []

    def trace(_cursor: apsw.Cursor, sql: str, _bindings: object) -> bool:
        executed.append(sql)
        return True

    writer._cursor.exec_trace = trace
    settle(writer, *[Act((Step("put", "hot", str(number)),)) for number in range(20)])
    stores = [sql for sql in executed if sql == ledger.statements(ITEMS).put]
    assert len(stores) <= executed.count("COMMIT") <= 20
    assert write_transaction._BUFFERED_MAX < MANY


def test_rolled_back_changes_are_not_cached(writer: Writer) -> None:
    """The record is read again after so much was written that nothing is buffered any more."""
    settle(writer, Act((Step("put", "hot", "before"),)))
    steps = (Step("put many"), Step("put", "hot", "after"), Step("get", "hot"))
    (refused, found) = settle(writer, Act(steps, "refuse"), Act((Step("get", "hot"),)))
    assert refused.outcome is Outcome.REFUSED
    assert shown_by(found) == [("hot", "before")]


@pytest.mark.parametrize("change", [Step("delete", "old"), Step("put", "old", "z" * 9_000)])
def test_unused_records_are_evicted(writer: Writer, change: Step) -> None:
    settle(writer, Act((Step("put", "old", "x"),)))
    # Each is put twice.
    put_each(writer, [f"{number}" for number in range(workspace._CACHED_MAX // 2)], "x")
    assert any(key == ITEMS.pack(("old",)) for _, key in writer._workspace._less_recent)
    (_, found) = settle(writer, Act((change,)), Act((Step("get", "old"),)))
    assert shown_by(found) == [("old", change.text)]
