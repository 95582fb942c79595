"""Reads that are recorded, over every engine."""

from __future__ import annotations

import msgspec

from etagere.clock import TICKS_PER_SECOND
from etagere.engine.interface import ReadTxn
from etagere.engine.memory import MemoryEngine
from etagere.model.blobs import (
    Blob,
    BlobName,
    BlobRead,
    DeleteBlob,
    GetBlob,
    OpenBlob,
    RecordReads,
    SetBlobMetadata,
)
from etagere.model.containers import ContainerName, DeleteContainer
from etagere.model.copies import BlobSource, CopyBlob, Destination
from etagere.model.ids import new_id
from etagere.model.leases import Acquire
from etagere.operations.blob.blobs import delete_blob, get_blob, open_blob, set_blob_metadata
from etagere.operations.blob.collections import BLOBS
from etagere.operations.blob.containers import delete_container
from etagere.operations.blob.copies import copy_blob
from etagere.operations.blob.last_access import record_reads
from tests.operations.blob.shelf import BOX, Shelf, on_a_shelf

HOUR = 3600 * TICKS_PER_SECOND
DAY = 24 * HOUR
NAME = BlobName(BOX, "blob")


async def found(shelf: Shelf, name: BlobName = NAME, snapshot: int | None = None) -> Blob:
    return (await shelf.read(get_blob, GetBlob(name, snapshot=snapshot))).blob


async def is_to_record(shelf: Shelf, *, tracks: bool = True, snapshot: int | None = None) -> bool:
    """Reads a blob; returns whether that is to be recorded."""
    opened = await shelf.read(
        open_blob, OpenBlob(GetBlob(NAME, snapshot=snapshot), tracks_access=tracks)
    )
    assert opened is not None
    return opened.is_read_to_record


async def record(shelf: Shelf, *blobs: Blob) -> int:
    reads = tuple(BlobRead(NAME, blob.stamp) for blob in blobs)
    return await shelf.write(record_reads, RecordReads(reads))


async def date(shelf: Shelf) -> int:
    return await shelf.read(lambda txn, _: txn.now, None)


@on_a_shelf
async def test_one_read_of_24_hours_is_recorded(shelf: Shelf) -> None:
    shelf.clock.freeze()
    await shelf.create()
    blob = await shelf.put("blob", b"content")
    assert await is_to_record(shelf)
    shelf.clock.advance(HOUR)
    assert await record(shelf, blob) == 1
    first = await date(shelf)
    assert await found(shelf) == msgspec.structs.replace(blob, read_at=first)
    for ticks in (0, HOUR, 22 * HOUR):
        shelf.clock.advance(ticks)
        assert not await is_to_record(shelf)
        # Another front end may have noted the same read.
        assert await record(shelf, blob) == 0
    assert (await found(shelf)).read_at == first
    shelf.clock.advance(HOUR)
    assert await is_to_record(shelf)
    assert await record(shelf, blob) == 1
    assert (await found(shelf)).read_at == await date(shelf) == first + DAY
    assert (await found(shelf)).stamp == blob.stamp


@on_a_shelf
async def test_nothing_is_recorded_unless_it_is_tracked(shelf: Shelf) -> None:
    await shelf.create()
    await shelf.put("blob", b"content")
    assert not await is_to_record(shelf, tracks=False)


@on_a_shelf
async def test_a_lease_does_not_matter_and_stays(shelf: Shelf) -> None:
    await shelf.create()
    blob = await shelf.put("blob", b"content")
    await shelf.lease("blob", Acquire(b"\xaa" * 16, None))
    leased = await found(shelf)
    assert await record(shelf, blob) == 1
    assert (await found(shelf)).lease == leased.lease


@on_a_shelf
async def test_what_was_changed_since_it_was_read_is_left_alone(shelf: Shelf) -> None:
    await shelf.create()
    read = await shelf.put("blob", b"content")
    replaced = await shelf.put("blob", b"other")
    assert await record(shelf, read) == 0
    assert await found(shelf) == replaced
    described = await shelf.write(set_blob_metadata, SetBlobMetadata(NAME, (("a", "b"),)))
    assert await record(shelf, replaced) == 0
    assert await found(shelf) == described
    await shelf.write(delete_blob, DeleteBlob(NAME))
    assert await record(shelf, described) == 0
    assert await shelf.read(_count_blobs, None) == 0
    again = await shelf.put("blob", b"content")
    assert await record(shelf, described) == 0
    assert await found(shelf) == again
    await shelf.write(delete_container, DeleteContainer(BOX))
    assert await record(shelf, again) == 0
    await shelf.create()
    assert await record(shelf, again) == 0
    await shelf.write(delete_container, DeleteContainer(BOX))
    await shelf.require_bare()


def _count_blobs(txn: ReadTxn, _: None) -> int:
    return len(txn.scan(BLOBS, BLOBS.all(), 10))


@on_a_shelf
async def test_many_blobs_are_recorded_at_once(shelf: Shelf) -> None:
    other = ContainerName(BOX.account, "another")
    await shelf.create()
    await shelf.create(other)
    reads = []
    for container, name in ((other, "b"), (BOX, "b"), (BOX, "a"), (other, "a")):
        blob = await shelf.put(name, b"content", container=container)
        reads.append(BlobRead(BlobName(container, name), blob.stamp))
    reads.append(BlobRead(BlobName(BOX, "missing"), 1))
    reads.append(BlobRead(BlobName(ContainerName(BOX.account, "missing"), "a"), 1))
    assert await shelf.write(record_reads, RecordReads(tuple(reads))) == 4
    assert all([(await found(shelf, read.blob)).read_at for read in reads[:4]])


@on_a_shelf
async def test_an_overwrite_keeps_the_last_read_and_a_snapshot_has_none(shelf: Shelf) -> None:
    shelf.clock.freeze()
    await shelf.create()
    blob = await shelf.put("blob", b"content")
    await record(shelf, blob)
    read_at = (await found(shelf)).read_at
    assert read_at
    moment = await shelf.snapshot("blob")
    assert (await found(shelf, snapshot=moment)).read_at == 0
    shelf.clock.advance(DAY)
    assert not await is_to_record(shelf, snapshot=moment)
    assert (await shelf.put("blob", b"other")).read_at == read_at
    copied = await _copied(shelf, BlobName(BOX, "copy"))
    assert copied.read_at == 0
    await shelf.put("new", b"content")
    assert (await _copied(shelf, NAME, BlobName(BOX, "new"))).read_at == read_at


async def _copied(shelf: Shelf, name: BlobName, source: BlobName = NAME) -> Blob:
    destination = Destination(name, new_id(), "http://source")
    copy = await shelf.write(copy_blob, CopyBlob(destination, BlobSource(source)))
    assert copy is not None
    return copy


def test_records_without_the_date_are_read() -> None:
    """As they were stored before there was one."""
    engine = MemoryEngine()
    blob = BLOBS.decode(_stored_before())
    assert blob.read_at == 0
    assert blob.metadata == (("a", "b"),)
    txn = engine.begin()
    txn.put(BLOBS, (bytes(16), "blob"), blob)
    txn.commit()
    assert engine.begin_read().get(BLOBS, (bytes(16), "blob")) == blob


def _stored_before() -> bytes:
    fields = [1, "BlockBlob", 5, 6, [0], ["text/plain", "", "", "", "", None], [["a", "b"]], [0]]
    fields += ["", 0, [], None, None, None]
    return msgspec.msgpack.encode(fields)
