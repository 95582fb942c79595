"""Copies with every engine: synchronous copies that share bytes, and incremental copies."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from msgspec.structs import replace

from etagere.bodies.contents import BLOCK_LISTS, CHUNKS
from etagere.bodies.maps import INTERVAL_MAPS
from etagere.engine.interface import ReadTxn, WriteTxn, operation
from etagere.model.base import Command
from etagere.model.blobs import (
    AppendTraits,
    Blob,
    BlobKind,
    BlobName,
    CopyStatus,
    DeleteBlob,
    DeleteSnapshots,
    GetBlob,
    OpenBlob,
    PageTraits,
    PutBlob,
    SetBlobMetadata,
    SnapshotBlob,
    Tags,
)
from etagere.model.bodies import Chunked
from etagere.model.common import ContentHeaders
from etagere.model.conditions import ANY, Conditions
from etagere.model.containers import ContainerName
from etagere.model.copies import (
    BlobSource,
    CopyBlob,
    CopyIncrementally,
    Destination,
    PutCopy,
)
from etagere.model.ids import new_id
from etagere.model.leases import Acquire, new_lease_id
from etagere.operations.blob import copies
from etagere.operations.blob.blobs import (
    delete_blob,
    get_blob,
    open_blob,
    put_blob,
    set_blob_metadata,
)
from etagere.operations.blob.collections import BLOBS, CONTAINERS
from etagere.operations.blob.snapshots import snapshot_blob
from etagere.rules.conditions import format_etag
from etagere.rules.dates import format_instant
from tests.operations.blob.consistency import rows
from tests.operations.blob.fixture import BOX, NOTHING_SENT, BlobFixture, blob_test, latest
from tests.operations.fixture import code_of

LARGE = bytes(range(256)) * 800
SOURCE, COPY = BlobName(BOX, "source"), BlobName(BOX, "copy")
ADDRESS = "http://127.0.0.1:10000/shelf/box/source"
FORBIDDEN = "OperationNotAllowedOnIncrementalCopyBlob"


def to(name: BlobName = COPY, **terms: Any) -> Destination:
    return replace(Destination(name, new_id(), ADDRESS), **terms)


def of(name: BlobName = SOURCE, **terms: Any) -> BlobSource:
    return replace(BlobSource(name), **terms)


async def copy(
    blobs: BlobFixture, destination: Destination, source: BlobSource | None = None
) -> Blob:
    made = await blobs.write(copies.copy_blob, CopyBlob(destination, source or of()))
    assert made is not None
    return made


async def show(blobs: BlobFixture, name: BlobName = COPY) -> Blob:
    return (await blobs.read(get_blob, GetBlob(name))).blob


async def put_kind(blobs: BlobFixture, name: BlobName, kind: BlobKind, length: int = 0) -> Blob:
    command = PutBlob(name, NOTHING_SENT, kind=kind, content_id=new_id(), length=length)
    return await blobs.write(put_blob, command)


def maps_held(txn: ReadTxn, _: None) -> int:
    """Counts the interval maps of page and append blobs."""
    return len(rows(txn, INTERVAL_MAPS))


# Synchronous copies


@blob_test
async def test_a_copy_has_the_content_and_properties_of_its_source(blobs: BlobFixture) -> None:
    await blobs.create()
    source = await blobs.put("source", LARGE, headers=ContentHeaders("text/plain", "gzip"))
    source = await blobs.write(set_blob_metadata, SetBlobMetadata(SOURCE, (("Key", "value"),)))
    destination = to()
    made = await copy(blobs, destination)
    assert (made.kind, made.headers, made.metadata) == (
        source.kind,
        source.headers,
        (("Key", "value"),),
    )
    assert made.stamp > source.stamp
    assert made.copied is not None
    assert made.copied.id == destination.copy_id
    assert (made.copied.status, made.copied.source) == (CopyStatus.SUCCESS, ADDRESS)
    assert (made.copied.copied, made.copied.total) == (len(LARGE), len(LARGE))
    assert made.copied.ended > 0
    assert await blobs.get("copy") == LARGE
    # The copy outlives the source.
    await blobs.put("source", b"other")
    await blobs.write(delete_blob, DeleteBlob(SOURCE))
    assert await blobs.get("copy") == LARGE
    await blobs.require_sound()
    await blobs.write(delete_blob, DeleteBlob(COPY))
    await blobs.require_empty()


@blob_test
async def test_the_request_overrides_properties_of_the_source(blobs: BlobFixture) -> None:
    await blobs.create()
    await blobs.put("source", b"data")
    await blobs.write(set_blob_metadata, SetBlobMetadata(SOURCE, (("Key", "value"), ("b", "c"))))
    tags: Tags = (("a", "b"),)
    made = await copy(blobs, to(metadata=(("Other", "1"),), tier="Cool", tags=tags))
    assert made.metadata == (("Other", "1"),)
    assert (made.tier, made.tags) == ("Cool", tags)
    assert made.tier_changed == made.stamp
    again = await copy(blobs, to(BlobName(BOX, "again")), of(COPY))
    assert (again.tier, again.tags) == ("", ())
    with_tags = await copy(blobs, to(BlobName(BOX, "third"), source_tags=True), of(COPY))
    assert with_tags.tags == tags


@blob_test
async def test_blocks_are_copied_and_staged_ones_of_the_destination_are_dropped(
    blobs: BlobFixture,
) -> None:
    await blobs.create()
    await blobs.stage_all("source", {b"1": b"one", b"2": LARGE})
    await blobs.commit("source", latest(b"1", b"2"))
    await blobs.stage("source", b"3", b"three")
    await blobs.stage("copy", b"9", b"nine")
    await copy(blobs, to())
    listed = await blobs.block_list("copy")
    assert [block.name for block in listed.committed] == [b"1", b"2"]
    assert listed.uncommitted == ()
    assert await blobs.staged("source") == [b"3"]
    assert await blobs.get("copy") == b"one" + LARGE
    for name in (SOURCE, COPY):
        await blobs.write(delete_blob, DeleteBlob(name))
    await blobs.require_empty()


@blob_test
async def test_onto_itself_and_from_a_snapshot(blobs: BlobFixture) -> None:
    await blobs.create()
    await blobs.put("source", LARGE)
    await blobs.stage("source", b"1", b"one")
    taken = await blobs.snapshot("source")
    made = await copy(blobs, to(SOURCE, metadata=(("a", "b"),), tier="Cool"))
    assert (made.metadata, made.tier) == ((("a", "b"),), "Cool")
    assert await blobs.staged("source") == []
    assert await blobs.get("source") == LARGE
    await blobs.put("source", b"other")
    promoted = await copy(blobs, to(SOURCE), of(snapshot=taken))
    assert promoted.metadata == ()
    assert await blobs.get("source") == LARGE
    assert await blobs.get("source", snapshot=taken) == LARGE
    await blobs.require_sound()
    await blobs.write(delete_blob, DeleteBlob(SOURCE, snapshots=DeleteSnapshots.INCLUDE))
    await blobs.require_empty()


@blob_test
async def test_snapshots_of_the_destination_stay(blobs: BlobFixture) -> None:
    await blobs.create()
    await blobs.put("source", b"new")
    old = await blobs.put("copy", b"old")
    taken = await blobs.snapshot("copy")
    made = await copy(blobs, to())
    assert made.created == old.created
    assert await blobs.get("copy") == b"new"
    assert await blobs.get("copy", snapshot=taken) == b"old"
    await blobs.require_sound()


@blob_test
async def test_kinds(blobs: BlobFixture) -> None:
    await blobs.create()
    await put_kind(blobs, SOURCE, BlobKind.PAGE, 1024)
    append = BlobName(BOX, "append")
    await put_kind(blobs, append, BlobKind.APPEND)
    page = await copy(blobs, to())
    assert (page.kind, page.traits, page.content.length) == (BlobKind.PAGE, PageTraits(), 1024)
    sealed = await copy(blobs, to(BlobName(BOX, "sealed"), seals=True), of(append))
    assert sealed.traits == AppendTraits(sealed=True)
    assert await code_of(copy(blobs, to(), of(append))) == "InvalidBlobType"
    await blobs.put("block", b"data")
    block = BlobName(BOX, "block")
    assert await code_of(copy(blobs, to(block))) == "InvalidBlobType"
    assert await code_of(copy(blobs, to(), of(block))) == "InvalidBlobType"
    wrong_tier = to(BlobName(BOX, "new"), tier="P10")
    result = await code_of(copy(blobs, wrong_tier, of(block)))
    assert result == "AccessTierNotSupportedForBlobType"
    assert await blobs.read(maps_held, None) == 2
    for name, left in ((SOURCE, 2), (append, 2), (COPY, 1), (BlobName(BOX, "sealed"), 0)):
        await blobs.write(delete_blob, DeleteBlob(name))
        await blobs.purge()
        assert await blobs.read(maps_held, None) == left


@blob_test
async def test_preconditions_of_source_and_destination(blobs: BlobFixture) -> None:
    await blobs.create()
    assert await code_of(copy(blobs, to())) == "BlobNotFound"
    nowhere = BlobName(ContainerName("shelf", "nowhere"), "blob")
    assert await code_of(copy(blobs, to(), of(nowhere))) == "ContainerNotFound"
    assert await code_of(copy(blobs, to(nowhere), of(SOURCE))) == "ContainerNotFound"
    source, old = await blobs.put("source", b"data"), await blobs.put("copy", b"old")
    assert await code_of(copy(blobs, to(), of(snapshot=1))) == "BlobNotFound"
    etag = (format_etag(source.stamp),)
    other = Conditions(if_match=('"0x1"',))

    async def code(destination: Destination, source: BlobSource | None = None) -> str:
        return await code_of(copy(blobs, destination, source))

    assert await code(to(), of(conditions=other)) == "SourceConditionNotMet"
    unless = Conditions(if_none_match=etag)
    assert await code(to(), of(conditions=unless)) == "SourceConditionNotMet"
    assert await code(to(conditions=other)) == "ConditionNotMet"
    assert await code(to(conditions=Conditions(if_none_match=ANY))) == "BlobAlreadyExists"
    assert await code(to(only_if_absent=True)) == "UnauthorizedBlobOverwrite"
    mine = new_lease_id()
    assert await code(to(lease_id=mine)) == "LeaseNotPresentWithBlobOperation"
    await blobs.lease("copy", Acquire(mine, 15))
    assert await code(to()) == "LeaseIdMissing"
    assert await code(to(lease_id=new_lease_id())) == "LeaseIdMismatchWithBlobOperation"
    assert await show(blobs) == replace(old, lease=(await show(blobs)).lease)
    # A finite lease is enough, because the copy is synchronous.
    matching = to(lease_id=mine, conditions=Conditions(if_match=(format_etag(old.stamp),)))
    assert await code(matching, of(conditions=Conditions(if_match=etag))) == ""
    assert (await show(blobs)).lease != source.lease
    await blobs.lease("source", Acquire(new_lease_id(), None))
    assert await code(to(lease_id=mine)) == ""
    await blobs.require_sound()


@blob_test
async def test_only_the_checked_version_of_the_source_is_copied(blobs: BlobFixture) -> None:
    await blobs.create()
    first = await blobs.put("source", b"one")
    second = await blobs.put("source", b"two")
    command = CopyBlob(to(), of(stamp=first.stamp))
    assert await blobs.write(copies.copy_blob, command) is None
    assert await code_of(blobs.read(get_blob, GetBlob(COPY))) == "BlobNotFound"
    await copy(blobs, to(), of(stamp=second.stamp))
    assert await blobs.get("copy") == b"two"


class _Widen(Command, frozen=True):
    blob: BlobName
    times: int


@operation
def _widen(txn: WriteTxn, command: _Widen) -> int:
    """Repeats one chunk in a list, which gives a huge blob of few bytes. Its counts are wrong
    afterwards."""
    container = txn.get(CONTAINERS, command.blob.container.key)
    assert container is not None
    key = (container.id, command.blob.name)
    blob = txn.get(BLOBS, key)
    assert blob is not None
    content = blob.content
    assert isinstance(content, Chunked)
    listed = txn.get(BLOCK_LISTS, (content.id,))
    assert listed is not None
    assert txn.get(CHUNKS, listed.chunks[0].key) is not None
    txn.put(BLOCK_LISTS, (content.id,), replace(listed, chunks=listed.chunks * command.times))
    wide = replace(content, length=content.length * command.times)
    txn.put(BLOBS, key, replace(blob, content=wide))
    return wide.length


@blob_test
async def test_ten_gibibytes_are_copied_without_their_bytes(blobs: BlobFixture) -> None:
    await blobs.create()
    await blobs.stage("source", b"1", b"x" * (1 << 20))
    await blobs.commit("source", latest(b"1"))
    length = await blobs.write(_widen, _Widen(SOURCE, 10 << 10))
    assert length == 10 << 30
    page = BlobName(BOX, "page")
    await put_kind(blobs, page, BlobKind.PAGE, 10 << 30)
    for source in (SOURCE, page):
        started = time.perf_counter()
        made = await copy(blobs, to(BlobName(BOX, f"of-{source.name}")), of(source))
        assert time.perf_counter() - started < 20.0
        assert made.content.length == 10 << 30


@blob_test
async def test_put_copy_of_uploaded_bytes(blobs: BlobFixture) -> None:
    await blobs.create()
    async with blobs.store.writer(len(LARGE)) as writer:
        await writer.append(LARGE)
        command = PutCopy(
            to(tags=(("a", "b"),)), await writer.seal(), ContentHeaders("text/plain"), ()
        )
        made = await blobs.write(copies.put_copy, command)
    assert made.copied is not None
    assert (made.copied.status, made.copied.total) == (CopyStatus.SUCCESS, len(LARGE))
    assert await blobs.get("copy") == LARGE
    await blobs.require_sound()


@blob_test
async def test_a_changing_source_is_copied_atomically(blobs: BlobFixture) -> None:
    await blobs.create()
    versions = [bytes([number]) * 50_000 for number in range(8)]
    await blobs.put("source", versions[0])
    names = [BlobName(BOX, f"copy-{number}") for number in range(8)]

    async def drop() -> None:
        await code_of(blobs.write(delete_blob, DeleteBlob(SOURCE)))

    codes = await asyncio.gather(
        *(blobs.put("source", version) for version in versions),
        *(code_of(copy(blobs, to(name))) for name in names),
        drop(),
        *(code_of(copy(blobs, to(names[0]))) for _ in range(4)),
    )
    assert {code for code in codes if isinstance(code, str)} <= {"", "BlobNotFound"}
    for name in names:
        if not await code_of(blobs.read(get_blob, GetBlob(name))):
            assert await blobs.get(name.name) in versions
    await blobs.require_sound()
    for name in (SOURCE, *names):
        await code_of(blobs.write(delete_blob, DeleteBlob(name)))
    await blobs.require_empty()


# Incremental copies


@blob_test
async def test_incremental_copies(blobs: BlobFixture) -> None:
    await blobs.create()
    await put_kind(blobs, SOURCE, BlobKind.PAGE, 1024)
    moments = [await blobs.snapshot("source") for _ in range(3)]

    async def step(moment: int | None, source: BlobName = SOURCE) -> Blob:
        query = f"?snapshot={format_instant(moment)}" if moment else ""
        address = f"http://127.0.0.1:10000/shelf/box/{source.name}{query}"
        found = of(source, snapshot=moment)
        command = CopyIncrementally(to(source=address), found)
        return await blobs.write(copies.copy_incrementally, command)

    assert await code_of(step(None)) == "IncrementalCopySourceMustBeSnapshot"
    first = await step(moments[1])
    assert first.copied is not None
    assert first.copied.incremental
    taken = first.copied.snapshot
    shown = await blobs.read(get_blob, GetBlob(COPY, snapshot=taken))
    assert shown.blob.content == first.content
    opened = await blobs.read(open_blob, OpenBlob(GetBlob(COPY, snapshot=taken)))
    assert opened is not None
    assert opened.length == 1024
    assert await code_of(step(moments[1])) == "IncrementalCopyOfEarlierSnapshotNotAllowed"
    assert await code_of(step(moments[0])) == "IncrementalCopyOfEarlierSnapshotNotAllowed"
    await put_kind(blobs, BlobName(BOX, "other"), BlobKind.PAGE, 512)
    other = await blobs.snapshot("other")
    assert await code_of(step(other, BlobName(BOX, "other"))) == "IncrementalCopyBlobMismatch"
    second = await step(moments[2])
    assert second.copied is not None
    assert second.copied.snapshot > taken

    # Other operations on an incremental copy are refused, but it can be deleted.
    assert await code_of(blobs.read(open_blob, OpenBlob(GetBlob(COPY)))) == FORBIDDEN
    assert await code_of(copy(blobs, to(BlobName(BOX, "third")), of(COPY))) == FORBIDDEN
    assert await code_of(copy(blobs, to(), of(SOURCE))) == FORBIDDEN
    assert await code_of(blobs.lease("copy", Acquire(new_lease_id(), 15))) == FORBIDDEN
    assert await code_of(blobs.write(snapshot_blob, SnapshotBlob(COPY))) == FORBIDDEN
    metadata = SetBlobMetadata(COPY, ())
    assert await code_of(blobs.write(set_blob_metadata, metadata)) == FORBIDDEN
    assert await code_of(put_kind(blobs, COPY, BlobKind.PAGE, 512)) == FORBIDDEN
    await copy(blobs, to(BlobName(BOX, "third")), of(COPY, snapshot=taken))
    assert await show(blobs) == second
    only = DeleteBlob(COPY, snapshots=DeleteSnapshots.ONLY)
    assert await code_of(blobs.write(delete_blob, only)) == ""
    assert await code_of(blobs.write(delete_blob, DeleteBlob(COPY))) == ""
    for name in ("source", "other", "third"):
        gone = DeleteBlob(BlobName(BOX, name), snapshots=DeleteSnapshots.INCLUDE)
        await blobs.write(delete_blob, gone)
    await blobs.purge()
    assert await blobs.read(maps_held, None) == 0


@blob_test
async def test_only_page_blobs_are_copied_incrementally(blobs: BlobFixture) -> None:
    await blobs.create()
    await blobs.put("source", b"data")
    moment = await blobs.snapshot("source")
    command = CopyIncrementally(to(), of(snapshot=moment))
    result = await code_of(blobs.write(copies.copy_incrementally, command))
    assert result == "InvalidSourceBlobType"
    await put_kind(blobs, BlobName(BOX, "page"), BlobKind.PAGE, 512)
    moment = await blobs.snapshot("page")
    await blobs.put("copy", b"block")
    command = CopyIncrementally(to(), of(BlobName(BOX, "page"), snapshot=moment))
    assert await code_of(blobs.write(copies.copy_incrementally, command)) == "InvalidBlobType"
