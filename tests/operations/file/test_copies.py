"""Copies to files with every engine."""

from __future__ import annotations

import hashlib

from etagere.engine.interface import ReadTxn, T
from etagere.model.blobs import Blob, BlobKind, BlobName, CopyStatus, PutBlob
from etagere.model.bodies import Body, Mapped
from etagere.model.file_copies import CopyTimes
from etagere.model.files import (
    ChangedTimes,
    CreateHardLink,
    CreatePermission,
    FileTimes,
    GetPermission,
    NewEntry,
    NewPermission,
    NewTimes,
    PosixChange,
    PosixOwner,
)
from etagere.model.ids import new_id
from etagere.model.leases import Acquire, InfiniteLease, new_lease_id
from etagere.model.shares import ShareName, ShareProtocol
from etagere.model.sources import FindPieces, SourceFile
from etagere.operations.blob.blobs import put_blob
from etagere.operations.file import copies, links, permissions
from etagere.operations.file.changes import file_node
from etagere.operations.sources import find_pieces
from etagere.rules.file_attributes import FileAttributes
from tests.engine.conftest import start
from tests.operations.counting import CountingTxn
from tests.operations.file.copying import (
    BOX,
    HEADERS,
    METADATA,
    copied,
    copy,
    create_box,
    of,
    of_blob,
    put_copy,
    put_source,
    to,
)
from tests.operations.file.fixture import SHARE, FileFixture, file_test, path_of
from tests.operations.fixture import ACCOUNT, code_of

__all__ = ["start"]

LARGE = bytes(range(256)) * 800
OTHER = ShareName(ACCOUNT, "other")
HIDDEN = int(FileAttributes.HIDDEN)
ARCHIVE = int(FileAttributes.ARCHIVE)


def present(found: T | None) -> T:
    assert found is not None
    return found


@file_test
async def test_a_copy_shares_the_bytes_of_its_source(files: FileFixture) -> None:
    await files.create()
    await files.mkdir("a")
    source = await files.put("a/source", LARGE, length=1 << 40, headers=HEADERS)
    await files.describe("a/source")
    entry = present(await copy(files, of("A/SOURCE"), to("Copy")))
    node = file_node(entry)
    assert node.content == file_node(source).content
    assert (entry.name, node.headers, entry.metadata) == ("Copy", HEADERS, METADATA)
    state = await copied(files, "copy")
    assert (state.status, state.copied, state.total) == (CopyStatus.SUCCESS, 1 << 40, 1 << 40)
    await files.put_range("copy", 1, b"new")
    await files.delete("a/source")
    assert await files.get("copy", first=0, last=9) == LARGE[:1] + b"new" + LARGE[4:10]
    assert await files.usage() == 1 << 40
    await files.delete("copy")
    await files.require_empty()


@file_test
async def test_a_file_can_be_copied_onto_itself(files: FileFixture) -> None:
    await files.create()
    old = await files.put("f", LARGE)
    await files.snapshot()
    entry = present(await copy(files, of("f"), to("f")))
    assert (entry.id, entry.stamp > old.stamp) == (old.id, True)
    assert await files.get("f") == LARGE
    assert await files.usage() == len(LARGE)
    await files.delete("f")
    await files.require_sound()


@file_test
async def test_a_copy_replaces_a_file_but_not_what_a_snapshot_shows(files: FileFixture) -> None:
    await files.create()
    await files.put("source", LARGE)
    old = await files.put("copy", b"old")
    taken = await files.snapshot()
    entry = present(await copy(files, of("source"), to("copy")))
    assert entry.id == old.id
    assert await files.get("copy") == LARGE
    assert await files.get("copy", taken) == b"old"
    await files.put("source", b"other")
    assert present(await copy(files, of("source", taken), to("again"))).stamp
    assert await files.get("again") == LARGE
    await files.delete_snapshot(taken)
    await files.purge()
    await files.require_sound()


@file_test
async def test_sources_that_cannot_be_copied(files: FileFixture) -> None:
    await files.create()
    await create_box(files)
    await files.mkdir("d")
    taken = await files.snapshot()
    await files.put("later")
    for source, code in (
        (of("missing"), "ResourceNotFound"),
        (of("d/missing"), "ResourceNotFound"),
        (of("missing/file"), "ParentNotFound"),
        (of("later", taken), "ResourceNotFound"),
        (of("later", taken + 1), "ShareSnapshotNotFound"),
        (of("later", share=OTHER), "ShareNotFound"),
        (of("d"), "ResourceTypeMismatch"),
        (of_blob("missing"), "BlobNotFound"),
    ):
        assert await code_of(copy(files, source, to("copy"))) == code
    assert await files.names() == ["d", "later"]


@file_test
async def test_what_protects_the_destination(files: FileFixture) -> None:
    await files.create()
    await files.put("source", LARGE)
    await files.mkdir("d")
    source = of("source")
    assert await code_of(copy(files, source, to("d"))) == "ResourceTypeMismatch"
    assert await code_of(copy(files, source, to("x/copy"))) == "ParentNotFound"
    assert await code_of(copy(files, source, to("copy", OTHER))) == "ShareNotFound"
    lease = new_lease_id()
    absent = await code_of(copy(files, source, to("copy", lease_id=lease)))
    assert absent == "LeaseNotPresentWithFileOperation"
    await files.put("copy", new=NewEntry(NewTimes(), int(FileAttributes.READ_ONLY)))
    assert await code_of(copy(files, source, to("copy"))) == "ReadOnlyAttribute"
    assert await copy(files, source, to("copy", ignore_read_only=True)) is not None
    only_new = to("copy", only_if_absent=True)
    assert await code_of(copy(files, source, only_new)) == "AuthorizationPermissionMismatch"
    assert await copy(files, source, to("new", only_if_absent=True)) is not None
    await files.lease("copy", Acquire(lease, None))
    assert await code_of(copy(files, source, to("copy"))) == "LeaseIdMissing"
    other = to("copy", lease_id=new_lease_id())
    assert await code_of(copy(files, source, other)) == "LeaseIdMismatchWithFileOperation"
    leased = present(await copy(files, source, to("copy", lease_id=lease)))
    assert file_node(leased).lease == InfiniteLease(lease)
    await files.require_sound()


@file_test
async def test_a_copy_counts_against_the_quota(files: FileFixture) -> None:
    await files.create(quota_gib=1)
    await files.create(OTHER, quota_gib=1_000)
    await files.put("source", length=(1 << 30) - 10)
    assert await code_of(copy(files, of("source"), to("copy"))) == "ShareSizeLimitReached"
    assert await copy(files, of("source"), to("source")) is not None
    assert await copy(files, of("source"), to("copy", OTHER)) is not None
    assert await code_of(put_copy(files, to("copy"), b"x" * 11)) == "ShareSizeLimitReached"
    await put_copy(files, to("copy"), b"x" * 10)
    await files.require_sound()


@file_test
async def test_times_and_attributes_of_a_copy(files: FileFixture) -> None:
    await files.create()
    times = NewTimes(10, 20, 30)
    await files.put("source", b"x", new=NewEntry(times, HIDDEN))
    await files.set("source", attributes=HIDDEN, times=ChangedTimes(changed=30))
    entry = present(await copy(files, of("source"), to("a")))
    assert len({*_ticks(entry.times)}) == 1
    assert entry.times.created > 30
    assert entry.attributes == ARCHIVE
    asked = CopyTimes("source", "source", "source")
    entry = present(await copy(files, of("source"), to("b", times=asked, attributes="source")))
    assert (_ticks(entry.times), entry.attributes) == ((10, 20, 30), HIDDEN)
    asked = CopyTimes(1, 2, 3)
    entry = present(await copy(files, of("source"), to("c", times=asked, attributes=HIDDEN)))
    assert (_ticks(entry.times), entry.attributes) == ((1, 2, 3), HIDDEN | ARCHIVE)
    archived = to("d", attributes="source", sets_archive=True)
    assert present(await copy(files, of("source"), archived)).attributes == HIDDEN | ARCHIVE


def _ticks(times: FileTimes) -> tuple[int, int, int]:
    return times.created, times.written, times.changed


@file_test
async def test_a_permission_is_copied_to_another_share(files: FileFixture) -> None:
    await files.create()
    await files.create(OTHER)
    new = NewPermission(b"descriptor", hashlib.sha256(b"descriptor").digest())
    number = await files.write(permissions.create_permission, CreatePermission(SHARE, new))
    await files.put("source", new=NewEntry(NewTimes(), 0, number))
    for share in (SHARE, OTHER):
        asked = to("copy", share, permission="source")
        entry = present(await copy(files, of("source"), asked))
        ask = GetPermission(share, entry.permission)
        assert await files.read(permissions.get_permission, ask) == b"descriptor"
    inherited = present(await copy(files, of("source"), to("inherited")))
    plain = await files.put("plain")
    assert inherited.permission == plain.permission != number
    given = present(await copy(files, of("source"), to("given", permission=number)))
    assert given.permission == number


@file_test
async def test_owner_and_mode_of_a_copy(files: FileFixture) -> None:
    await files.create(protocol=ShareProtocol.NFS)
    await files.create(OTHER)
    new = NewEntry(NewTimes(), 0, posix=PosixChange("1", "2", 0o640))
    await files.put("source", new=new)
    source = of("source")
    assert present(await copy(files, source, to("a"))).posix == PosixOwner()
    both = to("b", copies_owner=True, copies_mode=True)
    assert present(await copy(files, source, both)).posix == PosixOwner("1", "2", 0o640)
    some = to("c", copies_owner=True, posix=PosixChange(mode=0o600))
    assert present(await copy(files, source, some)).posix == PosixOwner("1", "2", 0o600)
    elsewhere = to("d", OTHER, copies_owner=True)
    assert await code_of(copy(files, source, elsewhere)) == "UnsupportedHeader"
    assert present(await copy(files, source, to("d", OTHER))).posix is None


@file_test
async def test_a_copy_keeps_the_links_of_its_destination(files: FileFixture) -> None:
    await files.create(protocol=ShareProtocol.NFS)
    await files.put("source", LARGE)
    await files.put("a", b"old")
    command = CreateHardLink(path_of("b"), ("a",))
    await files.write(links.create_hard_link, command)
    await copy(files, of("source"), to("b"))
    assert await files.get("a") == await files.get("b") == LARGE
    await copy(files, of("b"), to("c"))
    await files.delete("a")
    assert await files.get("c") == await files.get("b") == LARGE
    await files.delete("b")
    await files.require_sound()


# Blobs


@file_test
async def test_a_copy_of_a_blob_shares_its_pieces(files: FileFixture) -> None:
    await files.create()
    await create_box(files)
    await put_source(files, "blob", LARGE)
    entry = present(await copy(files, of_blob("blob"), to("copy", times=CopyTimes("source"))))
    node = file_node(entry)
    assert (node.headers, entry.metadata) == (HEADERS, METADATA)
    assert entry.times.created == entry.times.written
    await put_source(files, "blob", b"other")
    await files.put_range("copy", 0, b"new")
    assert await files.get("copy") == b"new" + LARGE[3:]
    ranges = (await files.ranges("copy")).ranges
    assert [(one.start, one.end) for one in ranges] == [(0, len(LARGE))]
    await files.delete("copy")
    await files.purge()
    await files.require_sound()


@file_test
async def test_an_empty_blob_is_copied(files: FileFixture) -> None:
    await files.create()
    await create_box(files)
    await put_source(files, "blob", b"")
    assert await copy(files, of_blob("blob"), to("copy")) is not None
    await files.set("copy", length=3)
    await files.put_range("copy", 0, b"abc")
    assert await files.get("copy") == b"abc"


@file_test
async def test_bytes_in_the_ledger_cannot_be_shared(files: FileFixture) -> None:
    await files.create()
    await create_box(files)
    await put_source(files, "blob", b"few bytes", inline=True)
    await files.put("copy", b"old")
    taken = await files.snapshot()
    before = await files.entry("copy")
    assert await copy(files, of_blob("blob"), to("copy")) is None
    assert await files.entry("copy") == before
    entry = await put_copy(files, to("copy"), b"few bytes")
    assert isinstance(file_node(entry).content, Mapped)
    assert (await files.get("copy"), await files.get("copy", taken)) == (b"few bytes", b"old")
    await files.require_sound()


@file_test
async def test_a_copy_of_a_page_blob_keeps_its_holes(files: FileFixture) -> None:
    await files.create()
    await create_box(files)
    command = PutBlob(
        BlobName(BOX, "pages"),
        Body(new_id(), 0, 0),
        HEADERS,
        kind=BlobKind.PAGE,
        content_id=new_id(),
        length=1 << 30,
    )
    blob: Blob = await files.write(put_blob, command)
    entry = present(await copy(files, of_blob("pages"), to("copy")))
    assert file_node(entry).content == blob.content
    assert (await files.ranges("copy")).ranges == ()
    await files.put_range("copy", 5, b"x")
    await files.delete("copy")
    await files.require_sound()


@file_test
async def test_a_copy_is_checked_before_its_source_is_read(files: FileFixture) -> None:
    await files.create()
    await files.put("copy", new=NewEntry(NewTimes(), int(FileAttributes.READ_ONLY)))
    code = await code_of(files.read(copies.precheck_file_copy, to("copy")))
    assert code == "ReadOnlyAttribute"
    await files.read(copies.precheck_file_copy, to("copy", ignore_read_only=True))
    await files.read(copies.precheck_file_copy, to("new"))
    code = await code_of(files.read(copies.precheck_file_copy, to("new/file")))
    assert code == "ParentNotFound"


@file_test
async def test_looking_for_pieces_reads_few_rows_of_a_hole(files: FileFixture) -> None:
    """The snapshot shows none of the ranges that were written after it."""
    await files.create()
    file = await files.put("file", length=1 << 20)
    snapshot = await files.snapshot()
    for offset in range(0, 1_000, 2):
        await files.put_range("file", offset, b"x")

    def rows_read(txn: ReadTxn, command: FindPieces) -> int:
        counting = CountingTxn(txn)
        assert find_pieces(counting, command) == ()
        return counting.rows

    source = SourceFile(path_of("file", snapshot), file.stamp)
    assert await files.read(rows_read, FindPieces(source, 0, 1 << 20)) < 200
