"""The fixture of the tests of the queue operations: one queue and a frozen clock."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable
from typing import Final

from hypothesis.strategies import SearchStrategy

from etagere.clock import TICKS_PER_SECOND
from etagere.engine.interface import ReadClass, ReadTxn, T
from etagere.model.common import Metadata
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
    UpdateMessage,
)
from etagere.operations.queue.messages import (
    PurgeMessages,
    delete_message,
    expire_messages,
    purge_contents,
    put_message,
    update_message,
)
from etagere.operations.queue.queues import (
    CountMessages,
    clear_messages,
    count_messages,
    create_queue,
    delete_queue,
)
from etagere.protocol.queue.messages import peek_all_messages, take_messages
from tests.operations.fixture import (
    ACCOUNT,
    EngineFixture,
    Test,
    code_of,
    engine_property_test,
    engine_test,
)
from tests.operations.queue.consistency import message_records, require_consistent

WEEK_SECONDS: Final = 7 * 24 * 3600
TRAY: Final = QueueName(ACCOUNT, "tray")
_READ_CLASS: Final = ReadClass("test")
LONG: Final = "0123456789abcdef" * 4_096
"""A text of 64 KiB, which is stored in its own record."""


class QueueFixture:
    """Queue operations with short signatures, on one queue. Times are in seconds."""

    def __init__(self, base: EngineFixture, name: QueueName) -> None:
        self.base = base
        self.clock = base.clock
        self.engine = base.engine
        self.read = base.read
        self.write = base.write
        self.name = name

    @classmethod
    async def created(cls, base: EngineFixture, name: QueueName = TRAY) -> QueueFixture:
        """Creates the queue. Afterwards `now` is exactly the time of the frozen clock."""
        base.clock.freeze()
        queue = cls(base, name)
        await queue.create()
        # By then the engine has slewed away the difference of its two clocks at the freeze, which
        # may be seconds on a busy machine.
        queue.wait(24 * 3600)
        assert await base.read(_now, None) == queue.now
        return queue

    @property
    def now(self) -> int:
        return self.clock.wall()

    def wait(self, seconds: float = 0, *, ticks: int = 0) -> None:
        self.clock.advance(round(seconds * TICKS_PER_SECOND) + ticks)

    def after(self, seconds: int) -> int:
        return self.now + seconds * TICKS_PER_SECOND

    # Queues

    async def create(self, metadata: Metadata = ()) -> bool:
        return await self.write(create_queue, CreateQueue(self.name, new_id(), metadata))

    async def delete_queue(self) -> None:
        await self.write(delete_queue, DeleteQueue(self.name))

    async def clear(self) -> None:
        await self.write(clear_messages, ClearMessages(self.name, new_id()))

    async def count(self) -> int:
        return (await self.read(count_messages, CountMessages(self.name))).messages

    # Messages

    async def put(
        self, text: str = "text", *, hidden: int = 0, lives: int | None = WEEK_SECONDS
    ) -> MessageResult:
        return await self.write(put_message, PutMessage(self.name, new_id(), text, hidden, lives))

    async def get(self, count: int = 1, *, hidden: int = 30) -> tuple[MessageResult, ...]:
        command = GetMessages(self.name, count, hidden)
        return await take_messages(self.engine, command, _READ_CLASS)

    async def get_one(self, *, hidden: int = 30) -> MessageResult:
        (taken,) = await self.get(hidden=hidden)
        return taken

    async def peek(self, count: int = 32) -> tuple[MessageResult, ...]:
        return await peek_all_messages(self.engine, self.name, count, _READ_CLASS)

    async def texts(self) -> list[str]:
        """Returns the texts of the visible messages."""
        return [shown.text for shown in await self.peek()]

    async def update(
        self, held: MessageResult, text: str | None = None, *, hidden: int = 0
    ) -> MessageResult:
        command = UpdateMessage(self.name, held.id, held.message.receipt, hidden, text)
        return await self.write(update_message, command)

    async def delete(self, held: MessageResult) -> None:
        await self.write(delete_message, DeleteMessage(self.name, held.id, held.message.receipt))

    async def is_void(self, held: MessageResult) -> bool:
        """Reports whether a receipt is no longer valid; if it is valid, deletes the message."""
        code = await code_of(self.delete(held))
        assert code in {"", "MessageNotFound"}
        return code == "MessageNotFound"

    # Background removal

    async def purge(self, rows_max: int = 100) -> None:
        """Removes expired messages and those of deleted queues."""
        while await self.expire_step(rows_max):
            pass
        while await self.purge_step(rows_max):
            pass

    async def purge_step(self, rows_max: int) -> int:
        return await self.write(purge_contents, PurgeMessages(rows_max))

    async def expire_step(self, rows_max: int) -> int:
        return await self.write(expire_messages, PurgeMessages(rows_max))

    async def require_consistent(self) -> None:
        await self.read(require_consistent, None)

    async def message_records(self) -> dict[str, int]:
        return await self.read(message_records, None)

    async def require_empty(self) -> None:
        """Nothing is left of any message."""
        await self.purge()
        assert await self.message_records() == {}


def _now(txn: ReadTxn, _: None) -> int:
    return txn.now


def queue_test(body: Callable[[QueueFixture], Awaitable[None]]) -> Test:
    """Turns a coroutine into a test that runs with every engine."""

    async def on_engine(base: EngineFixture) -> None:
        await body(await QueueFixture.created(base))

    return engine_test(EngineFixture, functools.wraps(body)(on_engine))


def queue_property_test(
    examples: SearchStrategy[T], *, count: int
) -> Callable[[Callable[[QueueFixture, T], Awaitable[None]]], Test]:
    """Turns a coroutine into a property test; all examples share one queue and one clock."""

    def decorate(body: Callable[[QueueFixture, T], Awaitable[None]]) -> Test:
        fixtures: dict[EngineFixture, QueueFixture] = {}

        async def on_engine(base: EngineFixture, example: T) -> None:
            if base not in fixtures:
                fixtures[base] = await QueueFixture.created(base)
            await body(fixtures[base], example)

        return engine_property_test(
            EngineFixture, examples, count, functools.wraps(body)(on_engine)
        )

    return decorate
