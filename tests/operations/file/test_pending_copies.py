"""Pending copies to files with every engine."""

from __future__ import annotations

from etagere.model.blobs import Copied, CopyStatus
from etagere.model.copies import FailCopy, RecordProgress
from etagere.model.file_copies import AbortFileCopy
from etagere.model.files import CreateHardLink, GetEntry
from etagere.model.ids import new_id
from etagere.model.leases import Acquire, InfiniteLease, new_lease_id
from etagere.model.shares import RestoreShare, ShareName, ShareProtocol
from etagere.operations.file import entries, links, pending_copies, shares
from etagere.operations.file.changes import file_node
from tests.engine.conftest import start
from tests.operations.file.copying import (
    HEADERS,
    METADATA,
    PROCESS,
    begin,
    copied,
    copy,
    finish,
    of,
    put_copy,
    to,
)
from tests.operations.file.fixture import SHARE, FileFixture, file_test, path_of
from tests.operations.fixture import ACCOUNT, code_of

__all__ = ["start"]

PENDING = "PendingCopyOperation"
LARGE = bytes(range(256)) * 800


async def pending(files: FileFixture) -> int:
    return len(await files.read(pending_copies.pending_file_copies, None))


async def abort(
    files: FileFixture, path: str, copy_id: bytes, lease_id: bytes | None = None
) -> str:
    command = AbortFileCopy(path_of(path), copy_id, lease_id)
    return await code_of(files.write(pending_copies.abort_file_copy, command))


@file_test
async def test_a_pending_copy_becomes_the_file_when_it_finishes(files: FileFixture) -> None:
    await files.create()
    await files.mkdir("d")
    await files.put("d/copy", LARGE)
    begun = await begin(files, to("d/Copy"))
    assert await files.usage() == 0
    state = await copied(files, "d/copy")
    assert (state.status, state.copied, state.total) == (CopyStatus.PENDING, 0, 1_000)
    progress = RecordProgress(begun.copy_ref, 400)
    assert await files.write(pending_copies.record_file_progress, progress)
    entry = await files.entry("d/copy")
    assert (await copied(files, "d/copy")).copied == 400
    assert entry.stamp == begun.entry.stamp
    # The path to the destination may change.
    await files.rename("d", "e", is_directory=True)
    assert await finish(files, begun, LARGE)
    entry = await files.entry("e/copy")
    assert entry.stamp > begun.entry.stamp
    assert entry.times == begun.entry.times
    assert (file_node(entry).headers, entry.metadata) == (HEADERS, METADATA)
    state = await copied(files, "e/copy")
    assert (state.status, state.copied, state.total) == (CopyStatus.SUCCESS, *[len(LARGE)] * 2)
    assert state.ended
    assert await files.get("e/copy") == LARGE
    assert (await files.usage(), await pending(files)) == (len(LARGE), 0)
    assert not await finish(files, begun, b"again")
    await files.delete("e/copy")
    await files.require_sound()


@file_test
async def test_nothing_else_changes_a_pending_destination(files: FileFixture) -> None:
    await files.create()
    await files.put("source", b"source")
    begun = await begin(files, to("copy"))
    for attempt in (
        files.put("copy", b"x"),
        files.put_range("copy", 0, b"x"),
        files.clear("copy", 0, 0),
        files.set("copy", length=3),
        files.describe("copy"),
        files.delete("copy"),
        files.rename("copy", "other"),
        files.rename("source", "copy", replace=True),
        files.lease("copy", Acquire(new_lease_id(), None)),
        copy(files, of("source"), to("copy")),
        copy(files, of("copy"), to("other")),
        put_copy(files, to("copy"), b"x"),
        begin(files, to("copy")),
    ):
        assert await code_of(attempt) == PENDING
    assert await files.entry("copy") == begun.entry
    assert await files.names() == ["copy", "source"]
    assert await pending(files) == 1


@file_test
async def test_a_copy_is_aborted(files: FileFixture) -> None:
    await files.create()
    assert await abort(files, "copy", new_id()) == "ResourceNotFound"
    await files.put("copy", LARGE)
    assert await abort(files, "copy", new_id()) == "NoPendingCopyOperation"
    lease = new_lease_id()
    await files.lease("copy", Acquire(lease, None))
    destination = to("copy", lease_id=lease)
    begun = await begin(files, destination)
    assert await abort(files, "copy", destination.copy_id) == "LeaseIdMissing"
    assert await abort(files, "copy", new_id(), lease) == "CopyIdMismatch"
    assert await abort(files, "copy", destination.copy_id, lease) == ""
    assert await abort(files, "copy", destination.copy_id, lease) == "NoPendingCopyOperation"
    entry = await files.entry("copy")
    assert file_node(entry).content.length == 0
    assert (entry.metadata, file_node(entry).lease) == (METADATA, InfiniteLease(lease))
    assert (await copied(files, "copy")).status is CopyStatus.ABORTED
    assert not await finish(files, begun, LARGE)
    progress = RecordProgress(begun.copy_ref, 1)
    assert not await files.write(pending_copies.record_file_progress, progress)
    assert await pending(files) == 0
    await files.require_sound()


@file_test
async def test_a_copy_fails(files: FileFixture) -> None:
    await files.create()
    begun = await begin(files, to("copy"))
    failure = FailCopy(begun.copy_ref, "404 BlobNotFound")
    assert await files.write(pending_copies.fail_file_copy, failure)
    assert not await files.write(pending_copies.fail_file_copy, failure)
    state = await copied(files, "copy")
    assert (state.status, state.description) == (CopyStatus.FAILED, "404 BlobNotFound")
    await files.put("copy", b"x")
    assert file_node(await files.entry("copy")).copied is None


@file_test
async def test_a_copy_that_exceeds_the_quota_is_refused_at_its_end(files: FileFixture) -> None:
    await files.create(quota_gib=1)
    begun = await begin(files, to("copy"))
    await files.put("other", length=(1 << 30) - 10)
    assert await code_of(finish(files, begun, b"x" * 11)) == "ShareSizeLimitReached"
    assert await files.write(pending_copies.fail_file_copy, FailCopy(begun.copy_ref, "full"))
    await files.require_sound()


@file_test
async def test_a_snapshot_of_a_pending_copy(files: FileFixture) -> None:
    await files.create()
    begun = await begin(files, to("copy"))
    taken = await files.snapshot()
    assert await _state(files, taken) is not None
    assert await finish(files, begun, LARGE)
    assert (await files.get("copy"), await files.get("copy", taken)) == (LARGE, b"")
    assert await _state(files, taken) is None
    await files.delete_snapshot(taken)
    await files.purge()
    await files.require_sound()


async def _state(files: FileFixture, snapshot: int) -> Copied | None:
    return file_node(await files.entry("copy", snapshot)).copied


@file_test
async def test_a_pending_copy_to_a_file_with_links(files: FileFixture) -> None:
    await files.create(protocol=ShareProtocol.NFS)
    await files.put("a", b"old")
    link = CreateHardLink(path_of("b"), ("a",))
    await files.write(links.create_hard_link, link)
    begun = await begin(files, to("b"))
    another = CreateHardLink(path_of("c"), ("a",))
    assert await code_of(files.write(links.create_hard_link, another)) == PENDING
    assert await code_of(files.delete("a")) == PENDING
    taken = await files.snapshot()
    assert await finish(files, begun, LARGE)
    assert await files.get("a") == await files.get("b") == LARGE
    assert await files.get("b", taken) == b""
    assert await pending(files) == 0
    destination = to("a")
    await begin(files, destination)
    assert await abort(files, "b", destination.copy_id) == ""
    assert await pending(files) == 0
    await files.require_sound()


@file_test
async def test_a_copy_in_a_deleted_share_fails_before_it_is_restored(files: FileFixture) -> None:
    await files.create()
    begun = await begin(files, to("copy"))
    await files.delete_share(retention_days=1)
    progress = RecordProgress(begun.copy_ref, 1)
    assert not await files.write(pending_copies.record_file_progress, progress)
    assert await pending(files) == 1
    assert not await finish(files, begun, LARGE)
    assert await pending(files) == 0
    (row,) = await files.shares(deleted=True)
    other = ShareName(ACCOUNT, "restored")
    await files.write(shares.restore_share, RestoreShare(other, SHARE.name, row.version))
    ask = GetEntry(path_of("copy", share=other))
    restored = (await files.read(entries.get_file_or_directory, ask)).entry
    state = file_node(restored).copied
    assert state is not None
    assert state.status is CopyStatus.FAILED
    await files.require_sound()


@file_test
async def test_the_copies_of_a_purged_share_are_forgotten(files: FileFixture) -> None:
    await files.create()
    begun = await begin(files, to("copy"))
    await files.delete_share()
    await files.create()
    await files.put("copy", b"new")
    await files.purge()
    assert await pending(files) == 0
    assert not await finish(files, begun, LARGE)
    assert await files.get("copy") == b"new"
    await files.require_sound()


@file_test
async def test_pending_copies_are_listed_in_pages(files: FileFixture) -> None:
    await files.create()
    names = [f"{number:03}" for number in range(201)]
    for name in names:
        await begin(files, to(name))
    found, after = [], None
    while rows := await files.read(pending_copies.pending_file_copies, after):
        found += [copy_ref.name for copy_ref, process in rows if process == PROCESS]
        after, _ = rows[-1]
    assert found == names
