"""Copies that wait for their bytes, over every engine."""

from __future__ import annotations

from etagere.clock import TICKS_PER_SECOND
from etagere.model.blobs import (
    BlobHeaders,
    BlobName,
    CopyStatus,
    DeleteBlob,
    GetBlob,
    SetBlobMetadata,
    SnapshotBlob,
)
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
from tests.operations.blob.shelf import BOX, NOTHING_SENT, Shelf, code_of, on_a_shelf
from tests.operations.blob.test_copies import COPY, LARGE, SOURCE, copy, of, show, to

PENDING = "PendingCopyOperation"


async def begin(shelf: Shelf, destination: Destination | None = None) -> BegunCopy:
    command = BeginCopy(
        destination or to(), 1000, BlobHeaders("text/plain"), (("a", "b"),), b"p" * 16
    )
    return await shelf.write(pending_copies.begin_copy, command)


async def finish(shelf: Shelf, begun: BegunCopy, data: bytes) -> bool:
    async with shelf.store.writer(len(data)) as writer:
        await writer.append(data)
        command = FinishCopy(begun.copy_ref, await writer.seal())
        return await shelf.write(pending_copies.finish_copy, command)


async def pending(shelf: Shelf) -> int:
    return len(await shelf.read(pending_copies.pending_copies, None))


@on_a_shelf
async def test_a_place_is_held_until_the_bytes_are_there(shelf: Shelf) -> None:
    await shelf.create()
    await shelf.put("copy", LARGE)
    begun = await begin(shelf)
    held = await show(shelf)
    assert held == begun.blob
    assert held.copied is not None
    assert (held.copied.status, held.copied.copied, held.copied.total) == (
        CopyStatus.PENDING,
        0,
        1000,
    )
    assert (held.content.length, held.metadata) == (0, (("a", "b"),))
    assert await pending(shelf) == 1
    assert await shelf.write(pending_copies.record_progress, RecordProgress(begun.copy_ref, 400))
    noted = await show(shelf)
    assert noted.copied is not None
    assert (noted.copied.copied, noted.stamp) == (400, held.stamp)
    assert await finish(shelf, begun, LARGE[:1000])
    done = await show(shelf)
    assert done.copied is not None
    assert (done.copied.status, done.copied.copied) == (CopyStatus.SUCCESS, 1000)
    assert done.copied.ended > 0
    assert done.stamp > held.stamp
    assert await shelf.get("copy") == LARGE[:1000]
    assert await pending(shelf) == 0
    assert not await finish(shelf, begun, b"again")
    assert not await shelf.write(pending_copies.fail_copy, FailCopy(begun.copy_ref, "why"))
    assert await show(shelf) == done
    await shelf.write(delete_blob, DeleteBlob(COPY))
    await shelf.require_bare()


@on_a_shelf
async def test_nobody_changes_what_is_waited_for(shelf: Shelf) -> None:
    await shelf.create()
    await shelf.put("source", b"data")
    begun = await begin(shelf)
    before = await show(shelf)
    assert await code_of(shelf.put("copy", b"other")) == PENDING
    assert await code_of(copy(shelf, to())) == PENDING
    assert await code_of(begin(shelf)) == PENDING
    assert await code_of(shelf.stage("copy", b"a", b"block")) == PENDING
    put = PutCopy(to(), NOTHING_SENT, BlobHeaders(), ())
    assert await code_of(shelf.write(copies.put_copy, put)) == PENDING
    assert await code_of(shelf.lease("copy", Acquire(new_lease_id(), 15))) == PENDING
    assert await code_of(shelf.write(delete_blob, DeleteBlob(COPY))) == PENDING
    assert await code_of(shelf.write(snapshot_blob, SnapshotBlob(COPY))) == PENDING
    metadata = SetBlobMetadata(COPY, ())
    assert await code_of(shelf.write(set_blob_metadata, metadata)) == PENDING
    assert await show(shelf) == before
    tags = await shelf.read(get_blob_tags, GetBlob(COPY))
    assert tags.blob == before
    # Nor is it copied: it has no bytes yet.
    onward = to(BlobName(BOX, "onward")), of(COPY)
    assert await code_of(copy(shelf, *onward)) == PENDING
    assert await finish(shelf, begun, b"data")
    assert await code_of(copy(shelf, *onward)) == ""
    assert await code_of(shelf.write(delete_blob, DeleteBlob(COPY))) == ""


@on_a_shelf
async def test_a_lease_must_not_end_before_the_copy(shelf: Shelf) -> None:
    await shelf.create()
    await shelf.put("copy", b"old")
    mine = new_lease_id()
    shelf.clock.freeze()
    await shelf.lease("copy", Acquire(mine, 15))
    assert await code_of(begin(shelf, to(lease_id=mine))) == "InfiniteLeaseDurationRequired"
    assert await code_of(begin(shelf)) == "LeaseIdMissing"
    shelf.clock.advance(16 * TICKS_PER_SECOND)
    await shelf.lease("copy", Acquire(mine, None))
    begun = await begin(shelf, to(lease_id=mine))
    abort = AbortCopy(COPY, begun.copy_ref.copy_id)
    assert await code_of(shelf.write(pending_copies.abort_copy, abort)) == "LeaseIdMissing"
    assert await finish(shelf, begun, b"new")
    assert (await show(shelf)).lease == begun.blob.lease


@on_a_shelf
async def test_aborting(shelf: Shelf) -> None:
    await shelf.create()
    await shelf.put("copy", b"old")

    async def abort(copy_id: bytes, name: BlobName = COPY) -> str:
        return await code_of(shelf.write(pending_copies.abort_copy, AbortCopy(name, copy_id)))

    assert await abort(new_id(), SOURCE) == "BlobNotFound"
    assert await abort(new_id()) == "NoPendingCopyOperation"
    begun = await begin(shelf)
    assert await abort(new_id()) == "CopyIdMismatch"
    assert await abort(begun.copy_ref.copy_id) == ""
    left = await show(shelf)
    assert left.copied is not None
    assert left.copied.status is CopyStatus.ABORTED
    assert (left.content.length, left.metadata) == (0, (("a", "b"),))
    assert left.stamp > begun.blob.stamp
    assert await abort(begun.copy_ref.copy_id) == "NoPendingCopyOperation"
    assert not await shelf.write(pending_copies.record_progress, RecordProgress(begun.copy_ref, 1))
    assert not await finish(shelf, begun, LARGE)
    assert await show(shelf) == left
    assert await pending(shelf) == 0
    # The next one is another one.
    again = await begin(shelf)
    assert not await finish(shelf, begun, b"late")
    assert await finish(shelf, again, b"right")
    assert await shelf.get("copy") == b"right"
    await shelf.require_sound()


@on_a_shelf
async def test_failing_leaves_a_place_without_bytes(shelf: Shelf) -> None:
    await shelf.create()
    begun = await begin(shelf)
    assert await shelf.write(pending_copies.fail_copy, FailCopy(begun.copy_ref, "404 BlobNotFound"))
    left = await show(shelf)
    assert left.copied is not None
    assert left.copied.status is CopyStatus.FAILED
    assert left.copied.description == "404 BlobNotFound"
    assert left.content.length == 0
    assert await pending(shelf) == 0
    await shelf.put("copy", b"new")
    assert (await show(shelf)).copied is None


@on_a_shelf
async def test_a_container_that_goes_takes_the_place_along(shelf: Shelf) -> None:
    await shelf.create()
    begun = await begin(shelf)
    await shelf.write(delete_container, DeleteContainer(BOX))
    await shelf.create()
    other = await begin(shelf)
    assert await pending(shelf) == 2
    assert not await finish(shelf, begun, LARGE)
    assert await pending(shelf) == 1
    assert await finish(shelf, other, b"data")
    assert await shelf.get("copy") == b"data"
    await shelf.purge()
    await shelf.require_sound()


@on_a_shelf
async def test_many_under_way_are_shown_in_turns(shelf: Shelf) -> None:
    await shelf.create()
    names = [BlobName(BOX, f"{number:03}") for number in range(250)]
    for name in names:
        await begin(shelf, to(name))
    found, after = [], None
    while rows := await shelf.read(pending_copies.pending_copies, after):
        found += [copy_ref.name for copy_ref, process in rows if process == b"p" * 16]
        after = rows[-1][0].key
    assert found == [name.name for name in names]
