"""Small services for measuring the store: named items, and objects with bodies."""

from __future__ import annotations

import mmap
from collections.abc import Iterable

from etagere.bodies.contents import (
    adopt_body,
    compose,
    create_extents,
    declare_holder,
    release,
    share,
)
from etagere.engine.interface import EXCLUSIVE, ReadTxn, Refused, WriteTxn, operation
from etagere.engine.records import BYTES, ID, TEXT, Collection
from etagere.errors import Refusal
from etagere.model.base import Command, Record
from etagere.model.bodies import Block, Body, Content, Piece

# Items: records under names that are changed conditionally


class Item(Record, frozen=True):
    etag: int
    payload: bytes


ItemKey = tuple[bytes, str]
ITEMS: Collection[ItemKey, Item] = Collection("bench_items", Item, (ID, TEXT))
FEW: Collection[ItemKey, Item] = Collection("bench_few", Item, (ID, TEXT))
MANY: Collection[ItemKey, Item] = Collection("bench_many", Item, (ID, TEXT))
TABLES = {table.name: table for table in (ITEMS, FEW, MANY)}
PARENT = bytes(16)


def item_key(number: int) -> ItemKey:
    return PARENT, f"folder/item-{number:08}"


class PutItem(Command, frozen=True):
    key: ItemKey
    if_match: int
    payload: bytes


@operation
def put_item(txn: WriteTxn, command: PutItem) -> int:
    old = txn.get(ITEMS, command.key, EXCLUSIVE)
    if command.if_match != (old.etag if old else 0):
        raise Refused(Refusal("ConditionNotMet"))
    stamp = txn.stamp
    txn.put(ITEMS, command.key, Item(stamp, command.payload))
    return stamp


# Hooks run after the commit of a group, before the next group: the first hook after an operation
# marks the end of a group.
_COUNTS = memoryview(mmap.mmap(-1, 24)).cast("q")
_OPERATIONS, _GROUPS, _OPEN = range(3)


@operation
def put_item_counted(txn: WriteTxn, command: PutItem) -> int:
    _COUNTS[_OPERATIONS] += 1
    _COUNTS[_OPEN] = 1
    txn.on_commit(_count_group, None)
    return put_item(txn, command)


def _count_group(_: None) -> None:
    _COUNTS[_GROUPS] += _COUNTS[_OPEN]
    _COUNTS[_OPEN] = 0


def operations_per_group() -> float:
    return _COUNTS[_OPERATIONS] / max(1, _COUNTS[_GROUPS])


def get_item(txn: ReadTxn, key: ItemKey) -> Item | None:
    return txn.get(ITEMS, key)


class Seed(Command, frozen=True):
    table: str
    first: int
    stop: int
    payload: bytes


@operation
def seed(txn: WriteTxn, command: Seed) -> None:
    """Stores many items at once."""
    table = TABLES[command.table]
    item = Item(1, command.payload)
    for number in range(command.first, command.stop):
        txn.put(table, item_key(number), item)


# Objects with bodies


class Object(Record, frozen=True):
    content: Content


class Staged(Record, frozen=True):
    block: Block


OBJECTS: Collection[tuple[str], Object] = Collection("bench_objects", Object, (TEXT,))
STAGED: Collection[tuple[bytes, bytes], Staged] = Collection("bench_staged", Staged, (ID, BYTES))


def _contents(record: Object) -> Iterable[Content]:
    return (record.content,)


def _pieces(record: Staged) -> Iterable[Piece]:
    return record.block.pieces


declare_holder(OBJECTS, contents=_contents)
declare_holder(STAGED, pieces=_pieces)


class PutObject(Command, frozen=True):
    name: str
    body: Body


@operation
def put_object(txn: WriteTxn, command: PutObject) -> None:
    _replace(txn, command.name, adopt_body(txn, command.body))


class CopyObject(Command, frozen=True):
    source: str
    target: str


@operation
def copy_object(txn: WriteTxn, command: CopyObject) -> None:
    source = txn.get(OBJECTS, (command.source,), EXCLUSIVE)
    if source is None:
        raise Refused(Refusal("BlobNotFound"))
    _replace(txn, command.target, share(txn, source.content))


class StageBlocks(Command, frozen=True):
    upload: bytes
    blocks: tuple[Block, ...]


@operation
def stage_blocks(txn: WriteTxn, command: StageBlocks) -> None:
    for block in command.blocks:
        create_extents(txn, block.pieces)
        txn.put(STAGED, (command.upload, block.name), Staged(block))


class CommitBlocks(Command, frozen=True):
    name: str
    upload: bytes
    content_id: bytes
    blocks: tuple[bytes, ...]
    """The names of staged blocks, in their order in the object."""


@operation
def commit_blocks(txn: WriteTxn, command: CommitBlocks) -> None:
    """Creates an object from staged blocks, and drops the others."""
    span = STAGED.under((command.upload,))
    staged = {key[1]: record.block for key, record in txn.scan(STAGED, span, 100_000)}
    blocks = [staged[name] for name in command.blocks]
    _replace(txn, command.name, compose(txn, command.content_id, blocks))
    for name in staged:
        txn.delete(STAGED, (command.upload, name))


def _replace(txn: WriteTxn, name: str, content: Content) -> None:
    old = txn.get(OBJECTS, (name,), EXCLUSIVE)
    txn.put(OBJECTS, (name,), Object(content))
    if old is not None:
        release(txn, old.content)
