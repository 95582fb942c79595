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
from tests.operations.blob.fixture import BOX, BlobFixture, blob_test

HOUR = 3600 * TICKS_PER_SECOND
DAY = 24 * HOUR
NAME = BlobName(BOX, "blob")


async def found(blobs: BlobFixture, name: BlobName = NAME, snapshot: int | None = None) -> Blob:
    return (await blobs.read(get_blob, GetBlob(name, snapshot=snapshot))).blob


async def is_to_record(
    blobs: BlobFixture, *, tracks: bool = True, snapshot: int | None = None
) -> bool:
    """Reads a blob; returns whether that is to be recorded."""
    opened = await blobs.read(
        open_blob, OpenBlob(GetBlob(NAME, snapshot=snapshot), tracks_access=tracks)
    )
    assert opened is not None
    return opened.is_read_to_record


async def record(blobs: BlobFixture, *stored: Blob) -> int:
    reads = tuple(BlobRead(NAME, blob.stamp) for blob in stored)
    return await blobs.write(record_reads, RecordReads(reads))


async def date(blobs: BlobFixture) -> int:
    return await blobs.read(lambda txn, _: txn.now, None)


@blob_test
async def test_one_read_of_24_hours_is_recorded(blobs: BlobFixture) -> None:
    blobs.clock.freeze()
    await blobs.create()
    blob = await blobs.put("blob", b"content")
    assert await is_to_record(blobs)
    blobs.clock.advance(HOUR)
    assert await record(blobs, blob) == 1
    first = await date(blobs)
    assert await found(blobs) == msgspec.structs.replace(blob, read_at=first)
    for ticks in (0, HOUR, 22 * HOUR):
        blobs.clock.advance(ticks)
        assert not await is_to_record(blobs)
        # Another front end may have noted the same read.
        assert await record(blobs, blob) == 0
    assert (await found(blobs)).read_at == first
    blobs.clock.advance(HOUR)
    assert await is_to_record(blobs)
    assert await record(blobs, blob) == 1
    assert (await found(blobs)).read_at == await date(blobs) == first + DAY
    assert (await found(blobs)).stamp == blob.stamp


@blob_test
async def test_nothing_is_recorded_unless_it_is_tracked(blobs: BlobFixture) -> None:
    await blobs.create()
    await blobs.put("blob", b"content")
    assert not await is_to_record(blobs, tracks=False)


@blob_test
async def test_a_lease_does_not_matter_and_stays(blobs: BlobFixture) -> None:
    await blobs.create()
    blob = await blobs.put("blob", b"content")
    await blobs.lease("blob", Acquire(b"\xaa" * 16, None))
    leased = await found(blobs)
    assert await record(blobs, blob) == 1
    assert (await found(blobs)).lease == leased.lease


@blob_test
async def test_what_was_changed_since_it_was_read_is_left_alone(blobs: BlobFixture) -> None:
    await blobs.create()
    read = await blobs.put("blob", b"content")
    replaced = await blobs.put("blob", b"other")
    assert await record(blobs, read) == 0
    assert await found(blobs) == replaced
    described = await blobs.write(set_blob_metadata, SetBlobMetadata(NAME, (("a", "b"),)))
    assert await record(blobs, replaced) == 0
    assert await found(blobs) == described
    await blobs.write(delete_blob, DeleteBlob(NAME))
    assert await record(blobs, described) == 0
    assert await blobs.read(_count_blobs, None) == 0
    again = await blobs.put("blob", b"content")
    assert await record(blobs, described) == 0
    assert await found(blobs) == again
    await blobs.write(delete_container, DeleteContainer(BOX))
    assert await record(blobs, again) == 0
    await blobs.create()
    assert await record(blobs, again) == 0
    await blobs.write(delete_container, DeleteContainer(BOX))
    await blobs.require_empty()


def _count_blobs(txn: ReadTxn, _: None) -> int:
    return len(txn.scan(BLOBS, BLOBS.all(), 10))


@blob_test
async def test_many_blobs_are_recorded_at_once(blobs: BlobFixture) -> None:
    other = ContainerName(BOX.account, "another")
    await blobs.create()
    await blobs.create(other)
    reads = []
    for container, name in ((other, "b"), (BOX, "b"), (BOX, "a"), (other, "a")):
        blob = await blobs.put(name, b"content", container=container)
        reads.append(BlobRead(BlobName(container, name), blob.stamp))
    reads.append(BlobRead(BlobName(BOX, "missing"), 1))
    reads.append(BlobRead(BlobName(ContainerName(BOX.account, "missing"), "a"), 1))
    assert await blobs.write(record_reads, RecordReads(tuple(reads))) == 4
    assert all([(await found(blobs, read.blob)).read_at for read in reads[:4]])


@blob_test
async def test_an_overwrite_keeps_the_last_read_and_a_snapshot_has_none(blobs: BlobFixture) -> None:
    blobs.clock.freeze()
    await blobs.create()
    blob = await blobs.put("blob", b"content")
    await record(blobs, blob)
    read_at = (await found(blobs)).read_at
    assert read_at
    moment = await blobs.snapshot("blob")
    assert (await found(blobs, snapshot=moment)).read_at == 0
    blobs.clock.advance(DAY)
    assert not await is_to_record(blobs, snapshot=moment)
    assert (await blobs.put("blob", b"other")).read_at == read_at
    copied = await _copied(blobs, BlobName(BOX, "copy"))
    assert copied.read_at == 0
    await blobs.put("new", b"content")
    assert (await _copied(blobs, NAME, BlobName(BOX, "new"))).read_at == read_at


async def _copied(blobs: BlobFixture, name: BlobName, source: BlobName = NAME) -> Blob:
    destination = Destination(name, new_id(), "http://source")
    copy = await blobs.write(copy_blob, CopyBlob(destination, BlobSource(source)))
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
