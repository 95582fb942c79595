"""A queue on a clock that stands still: for tests of the queue operations."""

from __future__ import annotations

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
from tests.operations.blob.shelf import (
    ACCOUNT,
    Shelf,
    Test,
    code_of,
    on_a_shelf,
    on_a_shelf_for_any,
)
from tests.operations.queue.ledger import left_behind, require_consistent

WEEK_SECONDS: Final = 7 * 24 * 3600
TRAY: Final = QueueName(ACCOUNT, "tray")
_READ_CLASS: Final = ReadClass("test")
LONG: Final = "0123456789abcdef" * 4_096
"""A text of 64 KiB, which is kept apart."""


class Desk:
    """What a test does with a queue, in a few words each. Times are in seconds."""

    def __init__(self, shelf: Shelf, name: QueueName) -> None:
        self.shelf = shelf
        self.name = name

    @classmethod
    async def at(cls, shelf: Shelf, name: QueueName = TRAY) -> Desk:
        """With a queue. From here on `now` is exactly what the frozen clock says."""
        shelf.clock.freeze()
        desk = cls(shelf, name)
        await desk.create()
        # By then the engine has made up for what its two clocks differed by when they stopped.
        desk.wait(3600)
        assert await shelf.read(_now, None) == desk.now
        return desk

    @property
    def now(self) -> int:
        return self.shelf.clock.wall()

    def wait(self, seconds: float = 0, *, ticks: int = 0) -> None:
        self.shelf.clock.advance(round(seconds * TICKS_PER_SECOND) + ticks)

    def after(self, seconds: int) -> int:
        return self.now + seconds * TICKS_PER_SECOND

    # Queues

    async def create(self, metadata: Metadata = ()) -> bool:
        return await self.shelf.write(create_queue, CreateQueue(self.name, new_id(), metadata))

    async def delete_queue(self) -> None:
        await self.shelf.write(delete_queue, DeleteQueue(self.name))

    async def clear(self) -> None:
        await self.shelf.write(clear_messages, ClearMessages(self.name, new_id()))

    async def count(self) -> int:
        return (await self.shelf.read(count_messages, CountMessages(self.name))).messages

    # Messages

    async def put(
        self, text: str = "text", *, hidden: int = 0, lives: int | None = WEEK_SECONDS
    ) -> MessageResult:
        return await self.shelf.write(
            put_message, PutMessage(self.name, new_id(), text, hidden, lives)
        )

    async def get(self, count: int = 1, *, hidden: int = 30) -> tuple[MessageResult, ...]:
        command = GetMessages(self.name, count, hidden)
        return await take_messages(self.shelf.engine, command, _READ_CLASS)

    async def get_one(self, *, hidden: int = 30) -> MessageResult:
        (taken,) = await self.get(hidden=hidden)
        return taken

    async def peek(self, count: int = 32) -> tuple[MessageResult, ...]:
        return await peek_all_messages(self.shelf.engine, self.name, count, _READ_CLASS)

    async def texts(self) -> list[str]:
        """Of what can be seen."""
        return [shown.text for shown in await self.peek()]

    async def update(
        self, held: MessageResult, text: str | None = None, *, hidden: int = 0
    ) -> MessageResult:
        command = UpdateMessage(self.name, held.id, held.message.receipt, hidden, text)
        return await self.shelf.write(update_message, command)

    async def delete(self, held: MessageResult) -> None:
        await self.shelf.write(
            delete_message, DeleteMessage(self.name, held.id, held.message.receipt)
        )

    async def is_lost(self, held: MessageResult) -> bool:
        """Whether this receipt is worth nothing any more; if it is, the message is deleted."""
        code = await code_of(self.delete(held))
        assert code in {"", "MessageNotFound"}
        return code == "MessageNotFound"

    # What is removed later

    async def purge(self, rows_max: int = 100) -> None:
        """Removes what is over and what no queue has any more."""
        while await self.expire_step(rows_max):
            pass
        while await self.purge_step(rows_max):
            pass

    async def purge_step(self, rows_max: int) -> int:
        return await self.shelf.write(purge_contents, PurgeMessages(rows_max))

    async def expire_step(self, rows_max: int) -> int:
        return await self.shelf.write(expire_messages, PurgeMessages(rows_max))

    async def require_consistent(self) -> None:
        await self.shelf.read(require_consistent, None)

    async def left_behind(self) -> dict[str, int]:
        return await self.shelf.read(left_behind, None)

    async def require_bare(self) -> None:
        """Nothing is left of any message."""
        await self.purge()
        assert await self.left_behind() == {}


def _now(txn: ReadTxn, _: None) -> int:
    return txn.now


# How a coroutine becomes a test


def on_a_desk(body: Callable[[Desk], Awaitable[None]]) -> Test:
    """Makes a coroutine a plain test that is run against every engine."""

    async def on_shelf(shelf: Shelf) -> None:
        await body(await Desk.at(shelf))

    on_shelf.__name__ = getattr(body, "__name__", "test")
    on_shelf.__doc__ = body.__doc__
    return on_a_shelf(on_shelf)


def on_a_desk_for_any(
    examples: SearchStrategy[T], *, count: int
) -> Callable[[Callable[[Desk, T], Awaitable[None]]], Test]:
    """The same for a coroutine of an example as well: all examples share one engine and one
    clock, which goes on from one to the next."""

    def decorate(body: Callable[[Desk, T], Awaitable[None]]) -> Test:
        desks: dict[Shelf, Desk] = {}

        async def on_shelf(shelf: Shelf, example: T) -> None:
            if shelf not in desks:
                desks[shelf] = await Desk.at(shelf)
            await body(desks[shelf], example)

        on_shelf.__name__ = getattr(body, "__name__", "test")
        on_shelf.__doc__ = body.__doc__
        return on_a_shelf_for_any(examples, count=count)(on_shelf)

    return decorate
