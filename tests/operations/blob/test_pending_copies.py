"""Pending copies with every engine."""

from __future__ import annotations

from etagere.clock import TICKS_PER_SECOND
from etagere.model.blobs import (
    BlobName,
    CopyStatus,
    DeleteBlob,
    GetBlob,
    SetBlobMetadata,
    SnapshotBlob,
)
from etagere.model.common import ContentHeaders
from etagere.model.containers import DeleteContainer
from etagere.model.copies import (
    AbortCopy,
    BeginCopy,
    BegunCopy,
    Destination,
    FailCopy,
    FinishCopy,
    PutCopy,
    RecordProgress,
)
from etagere.model.ids import new_id
from etagere.model.leases import Acquire, new_lease_id
from etagere.operations.blob import copies, pending_copies
from etagere.operations.blob.blobs import (
    delete_blob,
    set_blob_metadata,
)
from etagere.operations.blob.containers import delete_container
from etagere.operations.blob.snapshots import snapshot_blob
from etagere.operations.blob.tags import get_blob_tags
from tests.operations.blob.fixture import BOX, NOTHING_SENT, BlobFixture, blob_test
from tests.operations.blob.test_copies import COPY, LARGE, SOURCE, copy, of, show, to
from tests.operations.fixture import code_of

PENDING = "PendingCopyOperation"


async def begin(blobs: BlobFixture, destination: Destination | None = None) -> BegunCopy:
    command = BeginCopy(
        destination or to(), 1000, ContentHeaders("text/plain"), (("a", "b"),), b"p" * 16
    )
    return await blobs.write(pending_copies.begin_copy, command)


async def finish(blobs: BlobFixture, begun: BegunCopy, data: bytes) -> bool:
    async with blobs.store.writer(len(data)) as writer:
        await writer.append(data)
        command = FinishCopy(begun.copy_ref, await writer.seal())
        return await blobs.write(pending_copies.finish_copy, command)


async def pending(blobs: BlobFixture) -> int:
    return len(await blobs.read(pending_copies.pending_copies, None))


@blob_test
async def test_a_pending_copy_becomes_the_blob_when_it_finishes(blobs: BlobFixture) -> None:
    await blobs.create()
    await blobs.put("copy", LARGE)
    begun = await begin(blobs)
    held = await show(blobs)
    assert held == begun.blob
    assert held.copied is not None
    assert (held.copied.status, held.copied.copied, held.copied.total) == (
        CopyStatus.PENDING,
        0,
        1000,
    )
    assert (held.content.length, held.metadata) == (0, (("a", "b"),))
    assert await pending(blobs) == 1
    assert await blobs.write(pending_copies.record_progress, RecordProgress(begun.copy_ref, 400))
    noted = await show(blobs)
    assert noted.copied is not None
    assert (noted.copied.copied, noted.stamp) == (400, held.stamp)
    assert await finish(blobs, begun, LARGE[:1000])
    done = await show(blobs)
    assert done.copied is not None
    assert (done.copied.status, done.copied.copied) == (CopyStatus.SUCCESS, 1000)
    assert done.copied.ended > 0
    assert done.stamp > held.stamp
    assert await blobs.get("copy") == LARGE[:1000]
    assert await pending(blobs) == 0
    assert not await finish(blobs, begun, b"again")
    assert not await blobs.write(pending_copies.fail_copy, FailCopy(begun.copy_ref, "why"))
    assert await show(blobs) == done
    await blobs.write(delete_blob, DeleteBlob(COPY))
    await blobs.require_empty()


@blob_test
async def test_a_pending_copy_cannot_be_changed(blobs: BlobFixture) -> None:
    await blobs.create()
    await blobs.put("source", b"data")
    begun = await begin(blobs)
    before = await show(blobs)
    assert await code_of(blobs.put("copy", b"other")) == PENDING
    assert await code_of(copy(blobs, to())) == PENDING
    assert await code_of(begin(blobs)) == PENDING
    assert await code_of(blobs.stage("copy", b"a", b"block")) == PENDING
    put = PutCopy(to(), NOTHING_SENT, ContentHeaders(), ())
    assert await code_of(blobs.write(copies.put_copy, put)) == PENDING
    assert await code_of(blobs.lease("copy", Acquire(new_lease_id(), 15))) == PENDING
    assert await code_of(blobs.write(delete_blob, DeleteBlob(COPY))) == PENDING
    assert await code_of(blobs.write(snapshot_blob, SnapshotBlob(COPY))) == PENDING
    metadata = SetBlobMetadata(COPY, ())
    assert await code_of(blobs.write(set_blob_metadata, metadata)) == PENDING
    assert await show(blobs) == before
    tags = await blobs.read(get_blob_tags, GetBlob(COPY))
    assert tags.blob == before
    # Nor can it be a source: it has no bytes yet.
    onward = to(BlobName(BOX, "onward")), of(COPY)
    assert await code_of(copy(blobs, *onward)) == PENDING
    assert await finish(blobs, begun, b"data")
    assert await code_of(copy(blobs, *onward)) == ""
    assert await code_of(blobs.write(delete_blob, DeleteBlob(COPY))) == ""


@blob_test
async def test_a_pending_copy_needs_an_infinite_lease(blobs: BlobFixture) -> None:
    await blobs.create()
    await blobs.put("copy", b"old")
    mine = new_lease_id()
    blobs.clock.freeze()
    await blobs.lease("copy", Acquire(mine, 15))
    assert await code_of(begin(blobs, to(lease_id=mine))) == "InfiniteLeaseDurationRequired"
    assert await code_of(begin(blobs)) == "LeaseIdMissing"
    blobs.clock.advance(16 * TICKS_PER_SECOND)
    await blobs.lease("copy", Acquire(mine, None))
    begun = await begin(blobs, to(lease_id=mine))
    abort = AbortCopy(COPY, begun.copy_ref.copy_id)
    assert await code_of(blobs.write(pending_copies.abort_copy, abort)) == "LeaseIdMissing"
    assert await finish(blobs, begun, b"new")
    assert (await show(blobs)).lease == begun.blob.lease


@blob_test
async def test_aborting(blobs: BlobFixture) -> None:
    await blobs.create()
    await blobs.put("copy", b"old")

    async def abort(copy_id: bytes, name: BlobName = COPY) -> str:
        return await code_of(blobs.write(pending_copies.abort_copy, AbortCopy(name, copy_id)))

    assert await abort(new_id(), SOURCE) == "BlobNotFound"
    assert await abort(new_id()) == "NoPendingCopyOperation"
    begun = await begin(blobs)
    assert await abort(new_id()) == "CopyIdMismatch"
    assert await abort(begun.copy_ref.copy_id) == ""
    left = await show(blobs)
    assert left.copied is not None
    assert left.copied.status is CopyStatus.ABORTED
    assert (left.content.length, left.metadata) == (0, (("a", "b"),))
    assert left.stamp > begun.blob.stamp
    assert await abort(begun.copy_ref.copy_id) == "NoPendingCopyOperation"
    assert not await blobs.write(pending_copies.record_progress, RecordProgress(begun.copy_ref, 1))
    assert not await finish(blobs, begun, LARGE)
    assert await show(blobs) == left
    assert await pending(blobs) == 0
    # The next copy has another ID.
    again = await begin(blobs)
    assert not await finish(blobs, begun, b"late")
    assert await finish(blobs, again, b"right")
    assert await blobs.get("copy") == b"right"
    await blobs.require_sound()


@blob_test
async def test_a_failed_copy_leaves_an_empty_blob(blobs: BlobFixture) -> None:
    await blobs.create()
    begun = await begin(blobs)
    assert await blobs.write(pending_copies.fail_copy, FailCopy(begun.copy_ref, "404 BlobNotFound"))
    left = await show(blobs)
    assert left.copied is not None
    assert left.copied.status is CopyStatus.FAILED
    assert left.copied.description == "404 BlobNotFound"
    assert left.content.length == 0
    assert await pending(blobs) == 0
    await blobs.put("copy", b"new")
    assert (await show(blobs)).copied is None


@blob_test
async def test_deleting_the_container_ends_the_copy(blobs: BlobFixture) -> None:
    await blobs.create()
    begun = await begin(blobs)
    await blobs.write(delete_container, DeleteContainer(BOX))
    await blobs.create()
    other = await begin(blobs)
    assert await pending(blobs) == 2
    assert not await finish(blobs, begun, LARGE)
    assert await pending(blobs) == 1
    assert await finish(blobs, other, b"data")
    assert await blobs.get("copy") == b"data"
    await blobs.purge()
    await blobs.require_sound()


@blob_test
async def test_pending_copies_are_listed_in_pages(blobs: BlobFixture) -> None:
    await blobs.create()
    names = [BlobName(BOX, f"{number:03}") for number in range(250)]
    for name in names:
        await begin(blobs, to(name))
    found, after = [], None
    while rows := await blobs.read(pending_copies.pending_copies, after):
        found += [copy_ref.name for copy_ref, process in rows if process == b"p" * 16]
        after, _ = rows[-1]
    assert found == [name.name for name in names]
