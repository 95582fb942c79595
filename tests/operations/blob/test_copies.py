"""Copies over every engine: at once, by sharing, and of snapshots in a row."""

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
    BlobHeaders,
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
from tests.operations.blob.accounts import rows
from tests.operations.blob.shelf import BOX, NOTHING_SENT, Shelf, code_of, latest, on_a_shelf

LARGE = bytes(range(256)) * 800
SOURCE, COPY = BlobName(BOX, "source"), BlobName(BOX, "copy")
ADDRESS = "http://127.0.0.1:10000/shelf/box/source"
FORBIDDEN = "OperationNotAllowedOnIncrementalCopyBlob"


def to(name: BlobName = COPY, **terms: Any) -> Destination:
    return replace(Destination(name, new_id(), ADDRESS), **terms)


def of(name: BlobName = SOURCE, **terms: Any) -> BlobSource:
    return replace(BlobSource(name), **terms)


async def copy(shelf: Shelf, destination: Destination, source: BlobSource | None = None) -> Blob:
    made = await shelf.write(copies.copy_blob, CopyBlob(destination, source or of()))
    assert made is not None
    return made


async def show(shelf: Shelf, name: BlobName = COPY) -> Blob:
    return (await shelf.read(get_blob, GetBlob(name))).blob


async def put_kind(shelf: Shelf, name: BlobName, kind: BlobKind, length: int = 0) -> Blob:
    command = PutBlob(name, NOTHING_SENT, kind=kind, content_id=new_id(), length=length)
    return await shelf.write(put_blob, command)


def maps_held(txn: ReadTxn, _: None) -> int:
    """How many maps of pages or appended blocks there are."""
    return len(rows(txn, INTERVAL_MAPS))


# At once


@on_a_shelf
async def test_a_copy_is_the_source_as_it_is(shelf: Shelf) -> None:
    await shelf.create()
    source = await shelf.put("source", LARGE, headers=BlobHeaders("text/plain", "gzip"))
    source = await shelf.write(set_blob_metadata, SetBlobMetadata(SOURCE, (("Key", "value"),)))
    destination = to()
    made = await copy(shelf, destination)
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
    assert await shelf.get("copy") == LARGE
    # The source goes, the copy stays.
    await shelf.put("source", b"other")
    await shelf.write(delete_blob, DeleteBlob(SOURCE))
    assert await shelf.get("copy") == LARGE
    await shelf.require_sound()
    await shelf.write(delete_blob, DeleteBlob(COPY))
    await shelf.require_bare()


@on_a_shelf
async def test_what_the_request_says_counts_before_the_source(shelf: Shelf) -> None:
    await shelf.create()
    await shelf.put("source", b"data")
    await shelf.write(set_blob_metadata, SetBlobMetadata(SOURCE, (("Key", "value"), ("b", "c"))))
    tags: Tags = (("a", "b"),)
    made = await copy(shelf, to(metadata=(("Other", "1"),), tier="Cool", tags=tags))
    assert made.metadata == (("Other", "1"),)
    assert (made.tier, made.tags) == ("Cool", tags)
    assert made.tier_changed == made.stamp
    again = await copy(shelf, to(BlobName(BOX, "again")), of(COPY))
    assert (again.tier, again.tags) == ("", ())
    with_tags = await copy(shelf, to(BlobName(BOX, "third"), source_tags=True), of(COPY))
    assert with_tags.tags == tags


@on_a_shelf
async def test_blocks_are_copied_and_staged_ones_of_the_destination_are_dropped(
    shelf: Shelf,
) -> None:
    await shelf.create()
    await shelf.stage_all("source", {b"1": b"one", b"2": LARGE})
    await shelf.commit("source", latest(b"1", b"2"))
    await shelf.stage("source", b"3", b"three")
    await shelf.stage("copy", b"9", b"nine")
    await copy(shelf, to())
    listed = await shelf.block_list("copy")
    assert [block.name for block in listed.committed] == [b"1", b"2"]
    assert listed.uncommitted == ()
    assert await shelf.staged("source") == [b"3"]
    assert await shelf.get("copy") == b"one" + LARGE
    for name in (SOURCE, COPY):
        await shelf.write(delete_blob, DeleteBlob(name))
    await shelf.require_bare()


@on_a_shelf
async def test_onto_itself_and_from_a_snapshot(shelf: Shelf) -> None:
    await shelf.create()
    await shelf.put("source", LARGE)
    await shelf.stage("source", b"1", b"one")
    taken = await shelf.snapshot("source")
    made = await copy(shelf, to(SOURCE, metadata=(("a", "b"),), tier="Cool"))
    assert (made.metadata, made.tier) == ((("a", "b"),), "Cool")
    assert await shelf.staged("source") == []
    assert await shelf.get("source") == LARGE
    await shelf.put("source", b"other")
    promoted = await copy(shelf, to(SOURCE), of(snapshot=taken))
    assert promoted.metadata == ()
    assert await shelf.get("source") == LARGE
    assert await shelf.get("source", snapshot=taken) == LARGE
    await shelf.require_sound()
    await shelf.write(delete_blob, DeleteBlob(SOURCE, snapshots=DeleteSnapshots.INCLUDE))
    await shelf.require_bare()


@on_a_shelf
async def test_snapshots_of_the_destination_stay(shelf: Shelf) -> None:
    await shelf.create()
    await shelf.put("source", b"new")
    old = await shelf.put("copy", b"old")
    taken = await shelf.snapshot("copy")
    made = await copy(shelf, to())
    assert made.created == old.created
    assert await shelf.get("copy") == b"new"
    assert await shelf.get("copy", snapshot=taken) == b"old"
    await shelf.require_sound()


@on_a_shelf
async def test_kinds(shelf: Shelf) -> None:
    await shelf.create()
    await put_kind(shelf, SOURCE, BlobKind.PAGE, 1024)
    append = BlobName(BOX, "append")
    await put_kind(shelf, append, BlobKind.APPEND)
    page = await copy(shelf, to())
    assert (page.kind, page.traits, page.content.length) == (BlobKind.PAGE, PageTraits(), 1024)
    sealed = await copy(shelf, to(BlobName(BOX, "sealed"), seals=True), of(append))
    assert sealed.traits == AppendTraits(sealed=True)
    assert await code_of(copy(shelf, to(), of(append))) == "InvalidBlobType"
    await shelf.put("block", b"data")
    block = BlobName(BOX, "block")
    assert await code_of(copy(shelf, to(block))) == "InvalidBlobType"
    assert await code_of(copy(shelf, to(), of(block))) == "InvalidBlobType"
    wrong_tier = to(BlobName(BOX, "new"), tier="P10")
    told = await code_of(copy(shelf, wrong_tier, of(block)))
    assert told == "AccessTierNotSupportedForBlobType"
    assert await shelf.read(maps_held, None) == 2
    for name, left in ((SOURCE, 2), (append, 2), (COPY, 1), (BlobName(BOX, "sealed"), 0)):
        await shelf.write(delete_blob, DeleteBlob(name))
        await shelf.purge()
        assert await shelf.read(maps_held, None) == left


@on_a_shelf
async def test_terms_of_both_ends(shelf: Shelf) -> None:
    await shelf.create()
    assert await code_of(copy(shelf, to())) == "BlobNotFound"
    nowhere = BlobName(ContainerName("shelf", "nowhere"), "blob")
    assert await code_of(copy(shelf, to(), of(nowhere))) == "ContainerNotFound"
    assert await code_of(copy(shelf, to(nowhere), of(SOURCE))) == "ContainerNotFound"
    source, old = await shelf.put("source", b"data"), await shelf.put("copy", b"old")
    assert await code_of(copy(shelf, to(), of(snapshot=1))) == "BlobNotFound"
    etag = (format_etag(source.stamp),)
    other = Conditions(if_match=('"0x1"',))

    async def code(destination: Destination, source: BlobSource | None = None) -> str:
        return await code_of(copy(shelf, destination, source))

    assert await code(to(), of(conditions=other)) == "SourceConditionNotMet"
    unless = Conditions(if_none_match=etag)
    assert await code(to(), of(conditions=unless)) == "SourceConditionNotMet"
    assert await code(to(conditions=other)) == "ConditionNotMet"
    assert await code(to(conditions=Conditions(if_none_match=ANY))) == "BlobAlreadyExists"
    assert await code(to(only_if_absent=True)) == "UnauthorizedBlobOverwrite"
    mine = new_lease_id()
    assert await code(to(lease_id=mine)) == "LeaseNotPresentWithBlobOperation"
    await shelf.lease("copy", Acquire(mine, 15))
    assert await code(to()) == "LeaseIdMissing"
    assert await code(to(lease_id=new_lease_id())) == "LeaseIdMismatchWithBlobOperation"
    assert await show(shelf) == replace(old, lease=(await show(shelf)).lease)
    # The lease need not be without end: the copy is made at once.
    matching = to(lease_id=mine, conditions=Conditions(if_match=(format_etag(old.stamp),)))
    assert await code(matching, of(conditions=Conditions(if_match=etag))) == ""
    assert (await show(shelf)).lease != source.lease
    await shelf.lease("source", Acquire(new_lease_id(), None))
    assert await code(to(lease_id=mine)) == ""
    await shelf.require_sound()


@on_a_shelf
async def test_a_version_that_was_looked_at_is_copied_or_none(shelf: Shelf) -> None:
    await shelf.create()
    first = await shelf.put("source", b"one")
    second = await shelf.put("source", b"two")
    command = CopyBlob(to(), of(stamp=first.stamp))
    assert await shelf.write(copies.copy_blob, command) is None
    assert await code_of(shelf.read(get_blob, GetBlob(COPY))) == "BlobNotFound"
    await copy(shelf, to(), of(stamp=second.stamp))
    assert await shelf.get("copy") == b"two"


class _Widen(Command, frozen=True):
    blob: BlobName
    times: int


@operation
def _widen(txn: WriteTxn, command: _Widen) -> int:
    """Makes a list say the same chunk again and again: a huge blob of few bytes. Not to be
    counted afterwards."""
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


@on_a_shelf
async def test_ten_gibibytes_take_milliseconds(shelf: Shelf) -> None:
    await shelf.create()
    await shelf.stage("source", b"1", b"x" * (1 << 20))
    await shelf.commit("source", latest(b"1"))
    length = await shelf.write(_widen, _Widen(SOURCE, 10 << 10))
    assert length == 10 << 30
    page = BlobName(BOX, "page")
    await put_kind(shelf, page, BlobKind.PAGE, 10 << 30)
    for source in (SOURCE, page):
        started = time.perf_counter()
        made = await copy(shelf, to(BlobName(BOX, f"of-{source.name}")), of(source))
        assert time.perf_counter() - started < 0.5
        assert made.content.length == 10 << 30


@on_a_shelf
async def test_what_was_read_while_the_client_waited(shelf: Shelf) -> None:
    await shelf.create()
    async with shelf.store.writer(len(LARGE)) as writer:
        await writer.append(LARGE)
        command = PutCopy(
            to(tags=(("a", "b"),)), await writer.seal(), BlobHeaders("text/plain"), ()
        )
        made = await shelf.write(copies.put_copy, command)
    assert made.copied is not None
    assert (made.copied.status, made.copied.total) == (CopyStatus.SUCCESS, len(LARGE))
    assert await shelf.get("copy") == LARGE
    await shelf.require_sound()


@on_a_shelf
async def test_a_source_that_changes_is_copied_in_one_version(shelf: Shelf) -> None:
    await shelf.create()
    versions = [bytes([number]) * 50_000 for number in range(8)]
    await shelf.put("source", versions[0])
    names = [BlobName(BOX, f"copy-{number}") for number in range(8)]

    async def drop() -> None:
        await code_of(shelf.write(delete_blob, DeleteBlob(SOURCE)))

    codes = await asyncio.gather(
        *(shelf.put("source", version) for version in versions),
        *(code_of(copy(shelf, to(name))) for name in names),
        drop(),
        *(code_of(copy(shelf, to(names[0]))) for _ in range(4)),
    )
    assert {code for code in codes if isinstance(code, str)} <= {"", "BlobNotFound"}
    for name in names:
        if not await code_of(shelf.read(get_blob, GetBlob(name))):
            assert await shelf.get(name.name) in versions
    await shelf.require_sound()
    for name in (SOURCE, *names):
        await code_of(shelf.write(delete_blob, DeleteBlob(name)))
    await shelf.require_bare()


# Snapshots in a row


@on_a_shelf
async def test_snapshots_in_a_row(shelf: Shelf) -> None:
    await shelf.create()
    await put_kind(shelf, SOURCE, BlobKind.PAGE, 1024)
    moments = [await shelf.snapshot("source") for _ in range(3)]

    async def step(moment: int | None, source: BlobName = SOURCE) -> Blob:
        query = f"?snapshot={format_instant(moment)}" if moment else ""
        address = f"http://127.0.0.1:10000/shelf/box/{source.name}{query}"
        found = of(source, snapshot=moment)
        command = CopyIncrementally(to(source=address), found)
        return await shelf.write(copies.copy_incrementally, command)

    assert await code_of(step(None)) == "IncrementalCopySourceMustBeSnapshot"
    first = await step(moments[1])
    assert first.copied is not None
    assert first.copied.incremental
    taken = first.copied.snapshot
    shown = await shelf.read(get_blob, GetBlob(COPY, snapshot=taken))
    assert shown.blob.content == first.content
    opened = await shelf.read(open_blob, OpenBlob(GetBlob(COPY, snapshot=taken)))
    assert opened is not None
    assert opened.length == 1024
    assert await code_of(step(moments[1])) == "IncrementalCopyOfEarlierSnapshotNotAllowed"
    assert await code_of(step(moments[0])) == "IncrementalCopyOfEarlierSnapshotNotAllowed"
    await put_kind(shelf, BlobName(BOX, "other"), BlobKind.PAGE, 512)
    other = await shelf.snapshot("other")
    assert await code_of(step(other, BlobName(BOX, "other"))) == "IncrementalCopyBlobMismatch"
    second = await step(moments[2])
    assert second.copied is not None
    assert second.copied.snapshot > taken

    # It is good for nothing else, but goes like any other blob.
    assert await code_of(shelf.read(open_blob, OpenBlob(GetBlob(COPY)))) == FORBIDDEN
    assert await code_of(copy(shelf, to(BlobName(BOX, "third")), of(COPY))) == FORBIDDEN
    assert await code_of(copy(shelf, to(), of(SOURCE))) == FORBIDDEN
    assert await code_of(shelf.lease("copy", Acquire(new_lease_id(), 15))) == FORBIDDEN
    assert await code_of(shelf.write(snapshot_blob, SnapshotBlob(COPY))) == FORBIDDEN
    metadata = SetBlobMetadata(COPY, ())
    assert await code_of(shelf.write(set_blob_metadata, metadata)) == FORBIDDEN
    assert await code_of(put_kind(shelf, COPY, BlobKind.PAGE, 512)) == FORBIDDEN
    await copy(shelf, to(BlobName(BOX, "third")), of(COPY, snapshot=taken))
    assert await show(shelf) == second
    only = DeleteBlob(COPY, snapshots=DeleteSnapshots.ONLY)
    assert await code_of(shelf.write(delete_blob, only)) == ""
    assert await code_of(shelf.write(delete_blob, DeleteBlob(COPY))) == ""
    for name in ("source", "other", "third"):
        gone = DeleteBlob(BlobName(BOX, name), snapshots=DeleteSnapshots.INCLUDE)
        await shelf.write(delete_blob, gone)
    await shelf.purge()
    assert await shelf.read(maps_held, None) == 0


@on_a_shelf
async def test_only_pages_are_copied_in_a_row(shelf: Shelf) -> None:
    await shelf.create()
    await shelf.put("source", b"data")
    moment = await shelf.snapshot("source")
    command = CopyIncrementally(to(), of(snapshot=moment))
    told = await code_of(shelf.write(copies.copy_incrementally, command))
    assert told == "InvalidSourceBlobType"
    await put_kind(shelf, BlobName(BOX, "page"), BlobKind.PAGE, 512)
    moment = await shelf.snapshot("page")
    await shelf.put("copy", b"block")
    command = CopyIncrementally(to(), of(BlobName(BOX, "page"), snapshot=moment))
    assert await code_of(shelf.write(copies.copy_incrementally, command)) == "InvalidBlobType"
