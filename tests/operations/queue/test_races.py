"""Pairs of concurrent operations on one queue: serializable, and no two get the same message."""

from __future__ import annotations

from typing import Final

import pytest

from etagere.clock import TICKS_PER_SECOND
from etagere.engine.interface import ReadTxn
from etagere.engine.memory import MemoryEngine
from etagere.engine.memory_transactions import MemoryWriteTxn
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
from tests.operations.interleaving import Call, Interleavings, execute, execute_until_done, look
from tests.operations.queue.consistency import message_records, require_consistent
from tests.operations.queue.fixture import LONG, TRAY

OTHER: Final = QueueName(TRAY.account, "other")
RED: Final = (("Colour", "red"),)


def _put(text: str, *, hidden: int = 0, lives: int | None = None) -> Call:
    return Call(messages.put_message, PutMessage(TRAY, new_id(), text, hidden, lives))


def _get(count: int) -> Call:
    return Call(messages.get_messages, GetMessages(TRAY, count, 30))


def _populated() -> Interleavings:
    """Puts three visible messages, a hidden one and two expired ones, in this order."""
    clock = SharedClock()
    clock.freeze()
    engine = MemoryEngine(clock)
    execute(engine, Call(queues.create_queue, CreateQueue(TRAY, new_id())))
    held: list[MessageResult] = []
    for call in (
        _put("first"),
        _put(LONG, lives=100),
        _put("third"),
        _put("hidden", hidden=100),
        _put("over", lives=1),
        _put(LONG[::-1], lives=1),
    ):
        held.append(execute(engine, call))
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
        **_BACKGROUND,
    }
    return Interleavings(engine, calls, _show_result, _show_outcome)


def _visible(txn: ReadTxn, _: None) -> messages.FoundMessages:
    return messages.find_messages(txn, messages.FindMessages(TRAY, 32))


def _update(held: MessageResult, text: str | None, hidden: int) -> UpdateMessage:
    return UpdateMessage(TRAY, held.id, held.message.receipt, hidden, text)


def _delete(held: MessageResult) -> DeleteMessage:
    return DeleteMessage(TRAY, held.id, held.message.receipt)


_BACKGROUND: Final = {
    "expire": Call(messages.expire_messages, messages.PurgeMessages()),
    "purge": Call(messages.purge_contents, messages.PurgeMessages()),
}
"""Background removal, which is invisible to clients."""

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
    *_BACKGROUND,
)


# Outcomes


def _show_result(result: object) -> object:
    """Leaves out timestamps."""
    if isinstance(result, tuple):
        return [(shown.text, shown.message.taken) for shown in result]
    return result.text if isinstance(result, MessageResult) else result


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


def _show_outcome(engine: MemoryEngine, results: dict[str, object]) -> object:
    look(engine, require_consistent)
    for call in _BACKGROUND.values():
        execute_until_done(engine, call)
    look(engine, require_consistent)
    shown = {name: result for name, result in results.items() if name not in _BACKGROUND}
    return shown, look(engine, _left)


@pytest.mark.parametrize("outer", OPERATIONS)
def test_pairs_of_operations_are_serializable(outer: str) -> None:
    pairs = _populated()
    assert list(pairs.calls) == list(OPERATIONS)
    for inner in OPERATIONS:
        if inner != outer:
            pairs.require_serializable(outer, inner)


def _taken(txn: MemoryWriteTxn, command: GetMessages) -> tuple[MessageResult, ...]:
    taken = messages.get_messages(txn, command)
    assert taken is not None
    return taken


def test_concurrent_receivers_skip_each_others_messages() -> None:
    """Neither waits for the other."""
    engine = _populated().engine
    one, other = engine.begin(), engine.begin()
    mine = _taken(one, GetMessages(TRAY, 2, 30))
    theirs = _taken(other, GetMessages(TRAY, 2, 30))
    assert [shown.text for shown in mine] == ["first", LONG]
    assert [shown.text for shown in theirs] == ["third"]
    one.commit()
    other.commit()
    assert execute(engine, _get(32)) == ()


def test_messages_found_before_another_receiver_took_them() -> None:
    engine = _populated().engine
    found = GetMessages(TRAY, 32, 30, look(engine, _visible).places)
    one, other = engine.begin(), engine.begin()
    mine = _taken(one, GetMessages(TRAY, 1, 30))
    theirs = _taken(other, found)
    assert [shown.text for shown in mine] == ["first"]
    assert [shown.text for shown in theirs] == [LONG, "third"]
    one.commit()
    other.commit()
    # They are hidden now, wherever the scan found them.
    assert execute(engine, Call(messages.get_messages, found)) == ()


def test_messages_of_a_rolled_back_receive_can_be_received() -> None:
    engine = _populated().engine
    one = engine.begin()
    taken = _taken(one, GetMessages(TRAY, 32, 30))
    assert execute(engine, _get(32)) == ()
    one.rollback()
    assert len(execute(engine, _get(32))) == len(taken) == 3


def test_concurrent_purges_leave_nothing() -> None:
    """An expired message may be removed while its deleted queue is purged."""
    pairs = _populated()
    execute(pairs.engine, pairs.calls["delete queue"])
    for outer, inner in (("expire", "purge"), ("purge", "expire")):
        step = 1
        while pairs.run_interleaved(outer, inner, step) is not None:
            step += 1
        assert step > 2
    engine = pairs.engine.restarted()
    for call in _BACKGROUND.values():
        execute_until_done(engine, call)
    assert look(engine, message_records) == {}
