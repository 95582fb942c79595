"""A sample service with objects whose contents are interval maps."""

from __future__ import annotations

from collections.abc import Callable

from etagere.bodies import folding, intervals
from etagere.bodies.store import BodyStore
from etagere.engine.interface import EXCLUSIVE, Engine, ReadTxn, Refused, WriteTxn, operation
from etagere.errors import Refusal
from etagere.model.base import Command
from etagere.model.bodies import Body, Mapped, Piece
from etagere.model.ids import new_id
from tests.bodies.objects import OBJECTS, Object


class BeginMap(Command, frozen=True):
    name: str
    map_id: bytes
    length: int


@operation
def begin_map(txn: WriteTxn, command: BeginMap) -> None:
    if txn.get(OBJECTS, (command.name,), EXCLUSIVE) is not None:
        raise Refused(Refusal("BlobAlreadyExists"))
    content = intervals.begin(txn, command.map_id, command.length)
    txn.put(OBJECTS, (command.name,), Object(content, txn.stamp))


def change(txn: WriteTxn, name: str, work: Callable[[Mapped], Mapped]) -> None:
    found = txn.get(OBJECTS, (name,), EXCLUSIVE)
    if found is None or not isinstance(found.content, Mapped):
        raise Refused(Refusal("BlobNotFound"))
    txn.put(OBJECTS, (name,), Object(work(found.content), txn.stamp))


class WriteMap(Command, frozen=True):
    name: str
    offset: int | None
    pieces: tuple[Piece, ...]
    child_id: bytes


@operation
def write_map(txn: WriteTxn, command: WriteMap) -> None:
    def work(content: Mapped) -> Mapped:
        if command.offset is None:
            return intervals.append(txn, content, command.pieces, command.child_id)
        offset = min(command.offset, content.length)
        return intervals.write(txn, content, offset, command.pieces, command.child_id)

    change(txn, command.name, work)


class AppendInline(Command, frozen=True):
    name: str
    data: bytes
    child_id: bytes


@operation
def append_inline(txn: WriteTxn, command: AppendInline) -> None:
    data, child_id = command.data, command.child_id
    change(
        txn,
        command.name,
        lambda found: intervals.write_inline(txn, found, found.length, data, child_id),
    )


class FoldMap(Command, frozen=True):
    name: str
    fold: folding.Fold
    body: Body
    child_id: bytes


def find_fold(txn: ReadTxn, name: str) -> folding.Found | None:
    found = txn.get(OBJECTS, (name,))
    if found is None or not isinstance(found.content, Mapped):
        return None
    return folding.find(txn, found.content)


@operation
def fold_map(txn: WriteTxn, command: FoldMap) -> None:
    fold, body, child_id = command.fold, command.body, command.child_id
    change(
        txn,
        command.name,
        lambda found: folding.fold(txn, found, fold, body, child_id) or found,
    )


class ClearMap(Command, frozen=True):
    name: str
    start: int
    end: int
    child_id: bytes


@operation
def clear_map(txn: WriteTxn, command: ClearMap) -> None:
    start, end, child_id = command.start, command.end, command.child_id
    change(txn, command.name, lambda found: intervals.clear(txn, found, start, end, child_id))


class ResizeMap(Command, frozen=True):
    name: str
    length: int
    child_id: bytes


@operation
def resize_map(txn: WriteTxn, command: ResizeMap) -> None:
    change(
        txn,
        command.name,
        lambda found: intervals.resize(txn, found, command.length, command.child_id),
    )


async def begin(engine: Engine, name: str, length: int) -> None:
    await engine.write(begin_map, BeginMap(name, new_id(), length))


async def write(
    engine: Engine, store: BodyStore, name: str, offset: int | None, data: bytes
) -> None:
    """Uploads bytes and writes them at an offset, or at the end."""
    async with store.writer(len(data), inline=False) as writer:
        await writer.append(data)
        body = await writer.seal()
        await engine.write(write_map, WriteMap(name, offset, body.pieces, new_id()))


async def write_inline(engine: Engine, name: str, data: bytes) -> None:
    """Appends bytes in the ledger."""
    await engine.write(append_inline, AppendInline(name, data, new_id()))


async def fold(engine: Engine, store: BodyStore, name: str) -> None:
    """Moves the first inline intervals of an object to a segment."""
    found = await engine.read(find_fold, name)
    assert found is not None
    async with store.writer(inline=False) as writer:
        for data in found.data:
            await writer.append(data)
        command = FoldMap(name, found.fold, await writer.seal(), new_id())
        await engine.write(fold_map, command)


async def clear(engine: Engine, name: str, start: int, end: int) -> None:
    await engine.write(clear_map, ClearMap(name, start, end, new_id()))


async def resize(engine: Engine, name: str, length: int) -> None:
    await engine.write(resize_map, ResizeMap(name, length, new_id()))
