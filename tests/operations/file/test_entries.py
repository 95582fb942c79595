"""Directories and files with every engine: creation, properties, rename, deletion and leases."""

from __future__ import annotations

from collections.abc import Awaitable

from etagere.model.common import ContentHeaders
from etagere.model.files import (
    ChangedTimes,
    CreateDirectory,
    FileNode,
    NewEntry,
    NewTimes,
)
from etagere.model.leases import Acquire, Break, Change, Release, new_lease_id
from etagere.operations.file.entries import create_directory
from etagere.rules.file_attributes import FileAttributes
from tests.operations.file.fixture import NEW, SHARE, FileFixture, file_test, path_of
from tests.operations.fixture import code_of

READ_ONLY = NewEntry(NewTimes(), int(FileAttributes.READ_ONLY))
A, B = new_lease_id(), new_lease_id()


@file_test
async def test_files_are_created_read_and_deleted(files: FileFixture) -> None:
    await files.create()
    made = await files.put("a.txt", b"hello", length=10)
    assert await files.get("a.txt") == b"hello" + bytes(5)
    assert await files.get("a.txt", first=3, last=6) == b"lo\0\0"
    assert await code_of(files.get("a.txt", first=10)) == "InvalidRange"
    assert (await files.entry("a.txt")) == made
    await files.put("empty")
    assert await files.get("empty") == b""
    assert await code_of(files.get("empty", first=0, last=3)) == "InvalidRange"
    await files.delete("a.txt")
    await files.delete("empty")
    assert await code_of(files.entry("a.txt")) == "ResourceNotFound"
    await files.require_empty()


@file_test
async def test_an_overwritten_file_keeps_its_id_and_nothing_else(files: FileFixture) -> None:
    await files.create()
    first = await files.put("a", b"first")
    await files.describe("a")
    second = await files.put("A", b"second one")
    assert (second.id, second.name, second.metadata) == (first.id, "A", ())
    assert second.stamp > first.stamp
    assert await files.get("a") == b"second one"
    assert await files.names() == ["A"]
    assert await files.usage() == 10
    await files.require_sound()


@file_test
async def test_names_are_compared_without_case_and_keep_it(files: FileFixture) -> None:
    await files.create()
    await files.mkdir("Süd")
    await files.put("sÜD/Ärger.TXT", b"x")
    assert await files.get("süd/ärger.txt") == b"x"
    assert (await files.entry("SÜD/ärger.txt")).name == "Ärger.TXT"
    assert await code_of(files.mkdir("SÜD")) == "ResourceAlreadyExists"
    await files.put("straße")
    await files.put("STRASSE")
    assert await files.names() == ["STRASSE", "straße", "Süd"]
    await files.require_sound()


@file_test
async def test_missing_parents_and_wrong_kinds_are_refused(files: FileFixture) -> None:
    await files.create()
    await files.put("file")
    await files.mkdir("dir")
    assert await code_of(files.put("none/a")) == "ParentNotFound"
    assert await code_of(files.mkdir("file/a")) == "ParentNotFound"
    assert await code_of(files.entry("none/a")) == "ParentNotFound"
    assert await code_of(files.delete("none/a")) == "ParentNotFound"
    assert await code_of(files.mkdir("file")) == "ResourceAlreadyExists"
    assert await code_of(files.put("dir")) == "ResourceTypeMismatch"
    assert await code_of(files.get("dir")) == "ResourceNotFound"
    assert await code_of(files.delete("dir")) == "ResourceTypeMismatch"
    assert await code_of(files.rmdir("file")) == "ResourceTypeMismatch"
    assert await code_of(files.describe("file", is_directory=True)) == "ResourceTypeMismatch"
    assert await code_of(files.put_range("dir", 0, b"x")) == "ResourceTypeMismatch"
    assert await code_of(files.page("file")) == "ResourceNotFound"
    for call in (files.delete("none"), files.describe("none"), files.rename("none", "b")):
        assert await code_of(call) == "ResourceNotFound"
    await files.require_sound()


@file_test
async def test_only_empty_directories_are_deleted(files: FileFixture) -> None:
    await files.create()
    await files.mkdir("dir")
    await files.mkdir("dir/sub")
    assert await code_of(files.rmdir("dir")) == "DirectoryNotEmpty"
    await files.rmdir("dir/sub")
    await files.rmdir("dir")
    assert await files.names() == []
    await files.require_sound()


@file_test
async def test_the_root_is_a_directory_that_stays(files: FileFixture) -> None:
    share = await files.create()
    await files.put("file")
    root = await files.entry("")
    assert (root.name, root.id, root.times.created) == ("", 0, share.created)
    taken = await files.snapshot()
    changed = await files.describe("", is_directory=True)
    assert (await files.entry("")).metadata == changed.metadata == (("Key", "value"),)
    assert await files.entry("", taken) == root
    assert await files.names() == await files.names("", taken) == ["file"]
    assert await code_of(files.mkdir("")) == "ResourceAlreadyExists"
    assert await code_of(files.put("")) == "ResourceTypeMismatch"
    assert await code_of(files.rmdir("")) == "InvalidInput"
    assert await code_of(files.rename("", "a", is_directory=True)) == "InvalidInput"
    assert await code_of(files.rename("file", "")) == "InvalidInput"
    await files.require_sound()


@file_test
async def test_snapshots_cannot_be_changed(files: FileFixture) -> None:
    await files.create()
    taken = await files.snapshot()
    command = CreateDirectory(path_of("a", taken), NEW)
    refused = await code_of(files.write(create_directory, command))
    assert refused == "ShareSnapshotOperationNotSupported"


# Rename


@file_test
async def test_a_rename_moves_an_entry_with_everything_below(files: FileFixture) -> None:
    await files.create()
    await files.mkdir("a")
    await files.mkdir("a/b")
    made = await files.put("a/b/f", b"bytes")
    await files.mkdir("c")
    moved = await files.rename("a", "c/d", is_directory=True)
    assert await files.tree() == {"c": None, "c/d": None, "c/d/b": None, "c/d/b/f": b"bytes"}
    assert moved.parent_id == (await files.entry("c")).id
    renamed = await files.rename("c/d/b/f", "g")
    assert renamed.id == made.id
    assert (renamed.times.created, renamed.times.written) == (
        made.times.created,
        made.times.written,
    )
    assert renamed.stamp > made.stamp
    await files.require_sound()


@file_test
async def test_a_rename_can_change_the_case_alone(files: FileFixture) -> None:
    await files.create()
    await files.put("readme", b"text")
    taken = await files.snapshot()
    assert (await files.rename("readme", "README")).name == "README"
    assert await files.tree() == {"README": b"text"}
    assert await files.tree(taken) == {"readme": b"text"}
    await files.mkdir("dir")
    assert (await files.rename("dir", "Dir", is_directory=True)).name == "Dir"
    await files.require_sound()
    await files.delete_snapshot(taken)
    await files.delete("readme")
    await files.require_empty()


@file_test
async def test_a_rename_replaces_files_if_asked_to(files: FileFixture) -> None:
    await files.create()
    await files.put("a", b"from")
    await files.put("b", b"over")
    await files.mkdir("dir")
    assert await code_of(files.rename("a", "b")) == "ResourceAlreadyExists"
    assert await code_of(files.rename("a", "dir", replace=True)) == "ResourceAlreadyExists"
    await files.rename("a", "b", replace=True)
    assert await files.tree() == {"b": b"from", "dir": None}
    assert await files.usage() == 4
    await files.rename("dir", "b", is_directory=True, replace=True)
    assert await files.tree() == {"b": None}
    assert await files.usage() == 0
    await files.require_empty()


@file_test
async def test_a_directory_is_not_moved_below_itself(files: FileFixture) -> None:
    await files.create()
    for path in ("a", "a/b", "a/b/c"):
        await files.mkdir(path)
    for target in ("a/x", "A/b/x", "a/b/c/x"):
        assert await code_of(files.rename("a", target, is_directory=True)) == "InvalidInput"
    assert await code_of(files.rename("a", "x")) == "ResourceTypeMismatch"
    await files.require_sound()


@file_test
async def test_two_entries_are_swapped_in_three_renames(files: FileFixture) -> None:
    await files.create()
    for name in "ab":
        await files.mkdir(name)
        await files.put(f"{name}/f", name.encode())
    taken = await files.snapshot()
    for source, target in (("a", "t"), ("b", "a"), ("t", "b")):
        await files.rename(source, target, is_directory=True)
    assert await files.tree() == {"a": None, "a/f": b"b", "b": None, "b/f": b"a"}
    assert await files.tree(taken) == {"a": None, "a/f": b"a", "b": None, "b/f": b"b"}
    await files.require_sound()


# Attributes and times


@file_test
async def test_read_only_files_are_protected(files: FileFixture) -> None:
    await files.create()
    await files.put("f", b"bytes", new=READ_ONLY)
    await files.put("other")
    for call in (
        files.put("f"),
        files.put_range("f", 0, b"x"),
        files.clear("f", 0, 1),
        files.describe("f"),
        files.set("f", headers=ContentHeaders("text/plain")),
        files.delete("f"),
        files.rename("other", "f", replace=True),
    ):
        assert await code_of(call) == "ReadOnlyAttribute"
    await files.rename("other", "f", replace=True, ignore_read_only=True)
    await files.put("g", b"bytes", new=READ_ONLY)
    assert (await files.rename("g", "h")).attributes & FileAttributes.READ_ONLY
    assert await code_of(files.set("h", attributes=0, length=1)) == "ReadOnlyAttribute"
    assert await code_of(files.set("h", length=1)) == "ReadOnlyAttribute"
    await files.set("h", attributes=0, headers=ContentHeaders("text/plain"))
    await files.delete("h")
    await files.require_sound()


@file_test
async def test_read_only_directories_are_protected_from_deletion(files: FileFixture) -> None:
    await files.create()
    await files.mkdir("dir", READ_ONLY)
    await files.put("dir/f")
    await files.describe("dir", is_directory=True)
    await files.delete("dir/f")
    assert await code_of(files.rmdir("dir")) == "ReadOnlyAttribute"
    await files.rename("dir", "other", is_directory=True)
    await files.set("other", is_directory=True, attributes=0)
    await files.rmdir("other")
    await files.require_sound()


@file_test
async def test_times_follow_the_changes(files: FileFixture) -> None:
    files.clock.freeze()
    await files.create()
    made = (await files.put("f", b"0123456789")).times
    assert made.created == made.written == made.changed
    files.clock.advance(1_000)
    written = (await files.put_range("f", 0, b"x")).times
    assert written.created == made.created
    assert written.written == written.changed > made.written
    files.clock.advance(1_000)
    cleared = (await files.clear("f", 0, 5, preserve_written=True)).times
    assert cleared.written == written.written
    assert cleared.changed > written.changed
    files.clock.advance(1_000)
    described = (await files.describe("f")).times
    assert (described.created, described.written) == (cleared.created, cleared.written)
    assert described.changed > cleared.changed
    files.clock.advance(1_000)
    resized = (await files.set("f", length=3)).times
    assert resized.written == described.written
    files.clock.advance(1_000)
    renamed = (await files.rename("f", "g")).times
    assert (renamed.created, renamed.written) == (resized.created, resized.written)
    assert renamed.changed > resized.changed
    own = ChangedTimes(created=17, written=18, changed=19)
    asked = (await files.set("g", times=own)).times
    assert (asked.created, asked.written, asked.changed) == (17, 18, 19)
    kept = (await files.set("g", times=ChangedTimes(written=None))).times
    assert kept.created == 17
    assert kept.written == kept.changed > 19
    exact = (await files.put("h", new=NewEntry(NewTimes(1, 2, 3), 0))).times
    assert (exact.created, exact.written, exact.changed) == (1, 2, 3)


# Leases


@file_test
async def test_a_lease_protects_a_file(files: FileFixture) -> None:
    await files.create()
    await files.put("f", b"bytes")
    await files.put("other")
    before = await files.entry("f")
    await files.lease("f", Acquire(A, None))
    leased = await files.entry("f", lease_id=A)
    assert (leased.stamp, leased.times) == (before.stamp, before.times)

    def changes(lease_id: bytes | None) -> list[Awaitable[object]]:
        return [
            files.put("f", b"bytes", lease_id=lease_id),
            files.put_range("f", 0, b"x", lease_id=lease_id),
            files.clear("f", 0, 1, lease_id=lease_id),
            files.describe("f", lease_id=lease_id),
            files.set("f", lease_id=lease_id),
            files.rename("f", "g", source_lease_id=lease_id),
            files.rename("g", "f", source_lease_id=lease_id),
            files.rename("other", "f", replace=True, destination_lease_id=lease_id),
        ]

    for lease_id, expected in ((None, "LeaseIdMissing"), (B, "LeaseIdMismatchWithFileOperation")):
        found = [await code_of(call) for call in changes(lease_id)]
        assert [code for code in found if code != "ResourceNotFound"] == [expected] * 7
    assert await code_of(files.delete("f")) == "LeaseIdMissing"
    assert await code_of(files.entry("f", lease_id=B)) == "LeaseIdMismatchWithFileOperation"
    assert [await code_of(call) for call in changes(A)] == [""] * 8
    # The lease was on the file that was replaced.
    refused = await code_of(files.entry("f", lease_id=A))
    assert refused == "LeaseNotPresentWithFileOperation"
    await files.require_sound()


@file_test
async def test_the_table_of_file_leases(files: FileFixture) -> None:
    await files.create()
    await files.put("f")
    for action in (Break(), Change(A, B), Release(A)):
        assert await code_of(files.lease("f", action))
    await files.lease("f", Acquire(A, None))
    await files.lease("f", Acquire(A, None))
    assert await code_of(files.lease("f", Acquire(B, None))) == "LeaseAlreadyPresent"
    await files.lease("f", Change(A, B))
    await files.lease("f", Change(A, B))
    await files.lease("f", Break())
    await files.lease("f", Break())
    assert await code_of(files.describe("f", lease_id=B)) == "LeaseLost"
    await files.describe("f")  # makes the lease available
    assert await code_of(files.lease("f", Release(B)))
    assert await code_of(files.describe("f", lease_id=B)) == "LeaseNotPresentWithFileOperation"
    await files.lease("f", Acquire(B, None))
    await files.lease("f", Release(B))
    await files.mkdir("dir")
    assert await code_of(files.lease("dir", Acquire(A, None))) == "ResourceTypeMismatch"
    assert await code_of(files.put("new", lease_id=A)) == "LeaseNotPresentWithFileOperation"


@file_test
async def test_snapshots_show_no_leases(files: FileFixture) -> None:
    await files.create()
    await files.put("f", b"bytes")
    taken = await files.snapshot()
    await files.lease("f", Acquire(A, None))
    node = (await files.entry("f", taken)).node
    assert isinstance(node, FileNode)
    assert node.lease == FileNode(node.content).lease
    assert node == (await files.page("", taken))[0][0].node
    await files.describe("f", lease_id=A)
    assert (await files.entry("f", taken)).node == node
    await files.require_sound()


# Usage


@file_test
async def test_the_quota_is_enforced(files: FileFixture) -> None:
    gib = 1 << 30
    await files.create(quota_gib=1)
    await files.put("a", length=gib - 10)
    await files.put("b", length=10)
    assert await code_of(files.put("c", length=1)) == "ShareSizeLimitReached"
    assert await code_of(files.set("b", length=11)) == "ShareSizeLimitReached"
    assert await code_of(files.put("b", length=11)) == "ShareSizeLimitReached"
    await files.set("a", length=5)
    await files.put("c", length=gib - 15)
    assert await files.usage() == gib
    await files.put("c", length=gib - 15)
    await files.delete("c")
    assert await files.usage() == 15
    await files.require_sound()
    assert await code_of(files.delete_share(SHARE)) == ""
    await files.require_empty()
