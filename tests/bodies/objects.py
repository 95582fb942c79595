"""A sample service on bodies: named objects that are put, copied, listed in blocks and deleted."""

from __future__ import annotations

from etagere.bodies.contents import (
    adopt_body,
    blocks_of,
    compose,
    create_extents,
    declare_holder,
    release,
    share,
)
from etagere.bodies.plans import Plan, locate
from etagere.bodies.store import BodyStore
from etagere.engine.interface import EXCLUSIVE, Engine, ReadTxn, Refused, WriteTxn, operation
from etagere.engine.records import TEXT, Collection
from etagere.errors import Refusal
from etagere.model.base import Command, Record
from etagere.model.bodies import Block, Body, Chunked, Content, Piece
from etagere.model.ids import new_id


class Object(Record, frozen=True):
    content: Content
    etag: int


class StagedBlocks(Record, frozen=True):
    blocks: tuple[Block, ...]


OBJECTS: Collection[tuple[str], Object] = Collection("test_objects", Object, (TEXT,))
STAGED: Collection[tuple[str], StagedBlocks] = Collection("test_staged", StagedBlocks, (TEXT,))
LATER: Collection[tuple[str], Object] = Collection("test_later", Object, (TEXT,))
"""Always empty."""
declare_holder(OBJECTS, contents=lambda record: (record.content,))
declare_holder(STAGED, pieces=lambda record: (p for block in record.blocks for p in block.pieces))


class PutObject(Command, frozen=True):
    name: str
    body: Body
    if_match: int | None = None


@operation
def put_object(txn: WriteTxn, command: PutObject) -> int:
    """Stores an upload under a name; with `if_match` only over that version of it."""
    old = txn.get(OBJECTS, (command.name,), EXCLUSIVE)
    if command.if_match is not None and command.if_match != (old.etag if old else 0):
        raise Refused(Refusal("ConditionNotMet"))
    txn.put(OBJECTS, (command.name,), Object(adopt_body(txn, command.body), txn.stamp))
    if old is not None:
        release(txn, old.content)
    return txn.stamp


class CopyObject(Command, frozen=True):
    source: str
    target: str


@operation
def copy_object(txn: WriteTxn, command: CopyObject) -> int:
    source = txn.get(OBJECTS, (command.source,), EXCLUSIVE)
    if source is None:
        raise Refused(Refusal("BlobNotFound"))
    old = txn.get(OBJECTS, (command.target,), EXCLUSIVE)
    txn.put(OBJECTS, (command.target,), Object(share(txn, source.content), txn.stamp))
    if old is not None:
        release(txn, old.content)
    return txn.stamp


@operation(reclaims=True)
def delete_object(txn: WriteTxn, name: str) -> None:
    old = txn.get(OBJECTS, (name,), EXCLUSIVE)
    if old is None:
        raise Refused(Refusal("BlobNotFound"))
    txn.delete(OBJECTS, (name,))
    release(txn, old.content)


class StageBlocks(Command, frozen=True):
    name: str
    blocks: tuple[Block, ...]


@operation
def stage_blocks(txn: WriteTxn, command: StageBlocks) -> None:
    """Adds blocks to the staged ones."""
    waiting = txn.get(STAGED, (command.name,), EXCLUSIVE)
    for block in command.blocks:
        create_extents(txn, block.pieces)
    blocks = (waiting.blocks if waiting else ()) + command.blocks
    txn.put(STAGED, (command.name,), StagedBlocks(blocks))


class ListBlocks(Command, frozen=True):
    name: str
    content_id: bytes
    keep: tuple[int, ...] = ()
    """The numbers of the blocks of the current object that come first."""


@operation
def list_blocks(txn: WriteTxn, command: ListBlocks) -> int:
    """Makes the object of blocks it has and, after them, all staged ones."""
    old = txn.get(OBJECTS, (command.name,), EXCLUSIVE)
    base = old.content if old and isinstance(old.content, Chunked) else None
    listed = list(blocks_of(txn, base)) if base else []
    staged = txn.get(STAGED, (command.name,), EXCLUSIVE)
    blocks = [listed[number] for number in command.keep] + list(staged.blocks if staged else ())
    content = compose(
        txn,
        command.content_id,
        blocks,
        base=base,
        borrowed={piece.extent for block in listed for piece in block.pieces},
    )
    txn.delete(STAGED, (command.name,))
    txn.put(OBJECTS, (command.name,), Object(content, txn.stamp))
    if old is not None:
        release(txn, old.content)
    return txn.stamp


def find_object(txn: ReadTxn, name: str) -> tuple[int, Plan] | None:
    """Returns the version of an object and where its bytes are."""
    found = txn.get(OBJECTS, (name,))
    return None if found is None else (found.etag, locate(txn, found.content))


async def upload(
    engine: Engine, store: BodyStore, name: str, data: bytes, if_match: int | None = None
) -> int:
    """Puts bytes as a client's upload does; returns the new version."""
    async with store.writer(len(data)) as writer:
        for start in range(0, len(data), 65_536):
            await writer.append(data[start : start + 65_536])
        return await engine.write(put_object, PutObject(name, await writer.seal(), if_match))


async def stage(engine: Engine, store: BodyStore, name: str, blocks: list[bytes]) -> None:
    """Uploads blocks, one extent each, and stages them."""
    for data in blocks:
        async with store.writer(len(data), inline=False) as writer:
            await writer.append(data)
            body = await writer.seal()
            block = Block(new_id(), body.pieces)
            await engine.write(stage_blocks, StageBlocks(name, (block,)))


async def download(engine: Engine, store: BodyStore, name: str) -> bytes | None:
    """Returns all bytes of an object, or None if there is none."""
    with store.open_reader() as reader:
        found = await engine.read(find_object, name)
        if found is None:
            return None
        return b"".join([chunk async for chunk in reader.chunks(found[1])])


def split(body: Body, size: int) -> tuple[Piece, ...]:
    """Returns the pieces of a one-piece body as if it had been written `size` bytes at a time: many
    pieces without as many uploads."""
    (whole,) = body.pieces
    return tuple(
        Piece(whole.segment, whole.offset + at, min(size, whole.length - at))
        for at in range(0, whole.length, size)
    )
