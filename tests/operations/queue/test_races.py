"""Pairs of operations on one queue, one of them run at every step of the other.

The memory engine exposes decisions that rest on unguarded records: each pair must have the result
of one of the two serial orders, and no two operations ever get the same message."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, NamedTuple

import pytest

from etagere.clock import TICKS_PER_SECOND
from etagere.engine.interface import Conflict, ReadTxn, Refused, WriteTxn
from etagere.engine.memory import MemoryEngine, MemoryReadTxn, MemoryWriteTxn
from etagere.model.ids import new_id
from etagere.model.queues import (
    ClearMessages,
    CreateQueue,
    DeleteMessage,
    DeleteQueue,
    GetMessages,
    MessageResult,
    PutMessage,
    QueueName,
    SetQueueMetadata,
    UpdateMessage,
)
from etagere.operations.queue import messages, queues
from etagere.operations.queue.collections import MESSAGES, QUEUES, TEXTS
from tests.clocks import SharedClock
from tests.operations.blob.consistency import rows
from tests.operations.queue.consistency import message_records, require_consistent
from tests.operations.queue.fixture import LONG, TRAY

OTHER: Final = QueueName(TRAY.account, "other")
RED: Final = (("Colour", "red"),)


class Call(NamedTuple):
    """An operation and its command."""

    operation: Callable[[WriteTxn, Any], Any]
    command: Any


class World(NamedTuple):
    """A queue with messages of every kind, and the calls to run on it."""

    engine: MemoryEngine
    calls: dict[str, Call]


class Outcome(NamedTuple):
    """The result of two operations: what each returned, and the state afterwards."""

    told: dict[str, object]
    left: object


def _put(text: str, *, hidden: int = 0, lives: int | None = None) -> Call:
    return Call(messages.put_message, PutMessage(TRAY, new_id(), text, hidden, lives))


def _get(count: int) -> Call:
    return Call(messages.get_messages, GetMessages(TRAY, count, 30))


def _do(engine: MemoryEngine, call: Call) -> Any:
    txn = engine.begin()
    answer = call.operation(txn, call.command)
    txn.commit()
    return answer


def _world() -> World:
    """Puts three visible messages, a hidden one and two expired ones, in this order."""
    clock = SharedClock()
    clock.freeze()
    engine = MemoryEngine(clock)
    _do(engine, Call(queues.create_queue, CreateQueue(TRAY, new_id())))
    held: list[MessageResult] = []
    for call in (
        _put("first"),
        _put(LONG, lives=100),
        _put("third"),
        _put("hidden", hidden=100),
        _put("over", lives=1),
        _put(LONG[::-1], lives=1),
    ):
        held.append(_do(engine, call))
        clock.advance(TICKS_PER_SECOND)
    first, long, _, hidden, over, _ = held
    calls = {
        "put": _put("new"),
        "put long": _put(LONG.upper(), lives=100),
        "get one": _get(1),
        "get two": _get(2),
        "get all": _get(32),
        # This hides the visible messages, as if it had run before an operation that skips them.
        "shorten": Call(messages.update_message, _update(long, "short", 20)),
        "lengthen": Call(messages.update_message, _update(first, LONG.title(), 20)),
        "show": Call(messages.update_message, _update(hidden, None, 0)),
        "delete": Call(messages.delete_message, _delete(first)),
        "delete long": Call(messages.delete_message, _delete(long)),
        "delete what is over": Call(messages.delete_message, _delete(over)),
        "describe": Call(queues.set_queue_metadata, SetQueueMetadata(TRAY, RED)),
        "clear": Call(queues.clear_messages, ClearMessages(TRAY, new_id())),
        "delete queue": Call(queues.delete_queue, DeleteQueue(TRAY)),
        "create queue": Call(queues.create_queue, CreateQueue(TRAY, new_id())),
        "create another": Call(queues.create_queue, CreateQueue(OTHER, new_id())),
        "create it in red": Call(queues.create_queue, CreateQueue(OTHER, new_id(), RED)),
        **_LATER,
    }
    return World(engine, calls)


def _visible(txn: ReadTxn, _: None) -> messages.FoundMessages:
    return messages.find_messages(txn, messages.FindMessages(TRAY, 32))


def _update(held: MessageResult, text: str | None, hidden: int) -> UpdateMessage:
    return UpdateMessage(TRAY, held.id, held.message.receipt, hidden, text)


def _delete(held: MessageResult) -> DeleteMessage:
    return DeleteMessage(TRAY, held.id, held.message.receipt)


_LATER: Final = {
    "expire": Call(messages.expire_messages, messages.PurgeMessages()),
    "purge": Call(messages.purge_contents, messages.PurgeMessages()),
}
"""What nobody sees, whenever it is done."""

OPERATIONS: Final = (
    "put",
    "put long",
    "get one",
    "get two",
    "get all",
    "shorten",
    "lengthen",
    "show",
    "delete",
    "delete long",
    "delete what is over",
    "describe",
    "clear",
    "delete queue",
    "create queue",
    "create another",
    "create it in red",
    *_LATER,
)


# Outcomes


def _run(engine: MemoryEngine, call: Call) -> object:
    return _finish(engine.begin(), call)


def _finish(txn: MemoryWriteTxn, call: Call) -> object:
    """Runs a call and returns the code of its refusal, or its result without timestamps."""
    try:
        answer = call.operation(txn, call.command)
        txn.commit()
    except Refused as refused:
        return refused.refusal.code
    finally:
        txn.rollback()
    if isinstance(answer, tuple):
        return [(shown.text, shown.message.taken) for shown in answer]
    return answer.text if isinstance(answer, MessageResult) else answer


def _look(engine: MemoryEngine, question: Callable[[MemoryReadTxn, None], Any]) -> Any:
    txn = engine.begin_read()
    try:
        return question(txn, None)
    finally:
        txn.close()


def _left(txn: ReadTxn, _: None) -> object:
    """Returns the state of the queues after a purge; receipts are left out, because they differ by
    run."""
    described = {name: queue.metadata for name, queue in rows(txn, QUEUES).items()}
    texts = {key: apart.text for (key,), apart in rows(txn, TEXTS).items()}
    found = [
        (message.text or texts.get(key, ""), message.visible, message.expires, message.taken)
        for (_, key), message in rows(txn, MESSAGES).items()
    ]
    return described, sorted(found, key=repr)


def _settled(engine: MemoryEngine, told: dict[str, object]) -> Outcome:
    _look(engine, require_consistent)
    for call in _LATER.values():
        while _do(engine, call):
            pass
    _look(engine, require_consistent)
    shown = {name: answer for name, answer in told.items() if name not in _LATER}
    return Outcome(shown, _look(engine, _left))


def _run_serially(world: World, names: tuple[str, str]) -> Outcome:
    engine = world.engine.restarted()
    return _settled(engine, {name: _run(engine, world.calls[name]) for name in names})


def _run_interleaved(world: World, outer: str, inner: str, step: int) -> Outcome | None:
    """Runs `inner` before a step of `outer` and returns the outcome, or None if `outer` has no such
    step. A call that meets a conflict is run again afterwards, as the engine does."""
    engine = world.engine.restarted()
    told: dict[str, object] = {}
    steps = 0

    def interrupt() -> None:
        nonlocal steps
        steps += 1
        if steps == step:
            with suppress(Conflict):
                told[inner] = _run(engine, world.calls[inner])

    try:
        told[outer] = _finish(engine.begin(interrupt), world.calls[outer])
    except Conflict:
        told[outer] = _run(engine, world.calls[outer])
    if steps < step:
        return None
    if inner not in told:
        told[inner] = _run(engine, world.calls[inner])
    return _settled(engine, told)


@pytest.mark.parametrize("outer", OPERATIONS)
def test_pairs_of_operations_are_serializable(outer: str) -> None:
    world = _world()
    assert list(world.calls) == list(OPERATIONS)
    for inner in OPERATIONS:
        if inner == outer:
            continue
        serial = [_run_serially(world, order) for order in ((outer, inner), (inner, outer))]
        step = 1
        while (found := _run_interleaved(world, outer, inner, step)) is not None:
            assert found in serial, (outer, inner, step)
            step += 1
        assert step > 2


def _taken(txn: MemoryWriteTxn, command: GetMessages) -> tuple[MessageResult, ...]:
    taken = messages.get_messages(txn, command)
    assert taken is not None
    return taken


def test_concurrent_receivers_skip_each_others_messages() -> None:
    """Neither waits for the other."""
    engine = _world().engine
    one, other = engine.begin(), engine.begin()
    mine = _taken(one, GetMessages(TRAY, 2, 30))
    theirs = _taken(other, GetMessages(TRAY, 2, 30))
    assert [shown.text for shown in mine] == ["first", LONG]
    assert [shown.text for shown in theirs] == ["third"]
    one.commit()
    other.commit()
    assert _do(engine, _get(32)) == ()


def test_messages_found_before_another_receiver_took_them() -> None:
    engine = _world().engine
    found = GetMessages(TRAY, 32, 30, _look(engine, _visible).places)
    one, other = engine.begin(), engine.begin()
    mine = _taken(one, GetMessages(TRAY, 1, 30))
    theirs = _taken(other, found)
    assert [shown.text for shown in mine] == ["first"]
    assert [shown.text for shown in theirs] == [LONG, "third"]
    one.commit()
    other.commit()
    # They are hidden now, wherever the scan found them.
    assert _do(engine, Call(messages.get_messages, found)) == ()


def test_messages_of_a_rolled_back_receive_can_be_received() -> None:
    engine = _world().engine
    one = engine.begin()
    taken = _taken(one, GetMessages(TRAY, 32, 30))
    assert _do(engine, _get(32)) == ()
    one.rollback()
    assert len(_do(engine, _get(32))) == len(taken) == 3


def test_concurrent_purges_leave_nothing() -> None:
    """An expired message may be removed while its deleted queue is purged."""
    world = _world()
    _do(world.engine, world.calls["delete queue"])
    for outer, inner in (("expire", "purge"), ("purge", "expire")):
        step = 1
        while _run_interleaved(world, outer, inner, step) is not None:
            step += 1
        assert step > 2
    engine = world.engine.restarted()
    for call in _LATER.values():
        while _do(engine, call):
            pass
    assert _look(engine, message_records) == {}
