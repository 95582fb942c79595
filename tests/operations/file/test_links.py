"""Symbolic and hard links."""

from __future__ import annotations

from etagere.model.common import ContentHeaders
from etagere.model.files import (
    FileNode,
    NewEntry,
    NewTimes,
    PosixChange,
    PosixOwner,
    SymbolicLinkNode,
)
from etagere.model.leases import Acquire
from tests.operations.file.fixture import FileFixture, file_test
from tests.operations.fixture import code_of

LEASE = b"\xaa" * 16


async def _linked(files: FileFixture) -> None:
    """Creates the directories d and e, the file d/f with ten bytes, and the link e/g to it."""
    await files.create_nfs()
    for path in ("d", "e"):
        await files.mkdir(path)
    await files.put("d/f", b"0123456789")
    await files.link("e/g", "d/f")


# Symbolic links


@file_test
async def test_a_symbolic_link_has_the_text_it_was_created_with(files: FileFixture) -> None:
    await files.create_nfs()
    new = NewEntry(
        NewTimes(created=5, written=6),
        0,
        metadata=(("Key", "value"),),
        posix=PosixChange(owner="345", group="123"),
    )
    created = await files.symlink("link", "../%C3%A9/nowhere", new)
    assert created == await files.readlink("link") == await files.entry("link")
    assert created.node == SymbolicLinkNode("../%C3%A9/nowhere")
    assert created.posix == PosixOwner("345", "123", 0o777)
    assert (created.times.created, created.times.written) == (5, 6)
    assert created.link_count == 1
    assert await files.usage() == 0
    assert await files.names() == ["link"]


@file_test
async def test_symbolic_links_are_not_followed(files: FileFixture) -> None:
    await files.create_nfs()
    await files.mkdir("d")
    await files.put("d/f", b"data")
    await files.symlink("link", "d")
    assert await code_of(files.entry("link/f")) == "ParentNotFound"
    for refused in (
        files.get("link"),
        files.put("link", b"data"),
        files.put_range("link", 0, b"data"),
        files.set("link", length=1),
        files.lease("link", Acquire(LEASE, None)),
        files.link("hard", "link"),
        files.rmdir("link"),
        files.readlink("d"),
        files.readlink("d/f"),
    ):
        assert await code_of(refused) == "ResourceTypeMismatch"
    assert await code_of(files.readlink("nothing")) == "ResourceNotFound"
    assert await code_of(files.readlink("nothing/link")) == "ParentNotFound"


@file_test
async def test_symbolic_links_are_changed_moved_and_deleted_as_files(files: FileFixture) -> None:
    await files.create_nfs()
    await files.symlink("link", "target")
    snapshot = await files.snapshot()
    await files.describe("link")
    await files.set("link", posix=PosixChange(owner="7"))
    await files.rename("link", "other")
    assert await code_of(files.symlink("other", "x")) == "ResourceAlreadyExists"
    moved = await files.readlink("other")
    assert (moved.metadata, moved.posix) == ((("Key", "value"),), PosixOwner("7", "0", 0o777))
    shown = await files.readlink("link", snapshot)
    assert (shown.metadata, shown.posix) == ((), PosixOwner(mode=0o777))
    await files.put("file")
    await files.rename("other", "file", replace=True)
    assert (await files.readlink("file")).node == SymbolicLinkNode("target")
    assert await files.delete("file") == 0
    assert await files.tree(snapshot) == {"link": b"target"}
    await files.delete_snapshot(snapshot)
    await files.require_empty()


# Hard links


@file_test
async def test_all_links_show_the_same_file(files: FileFixture) -> None:
    await _linked(files)
    one, other = await files.entry("d/f"), await files.entry("e/g")
    assert (one.name, other.name) == ("f", "g")
    assert (one.id, one.stamp, one.times) == (other.id, other.stamp, other.times)
    assert one.parent_id == (await files.entry("d")).id
    assert other.parent_id == (await files.entry("e")).id
    assert one.link_count == other.link_count == 2
    assert await files.usage() == 10
    changed = await files.put_range("e/g", 5, b"XY")
    assert (changed.name, changed.parent_id) == ("g", other.parent_id)
    assert await files.get("d/f") == b"01234XY789"
    await files.clear("d/f", 0, 2)
    await files.set("e/g", headers=ContentHeaders("text/plain"), length=8)
    await files.describe("d/f")
    ((listed,), _) = await files.page("e")
    assert listed == await files.entry("e/g")
    assert isinstance(listed.node, FileNode)
    assert listed.node.headers == ContentHeaders("text/plain")
    assert listed.metadata == (("Key", "value"),)
    assert await files.usage() == 8
    assert await files.tree() == {
        "d": None,
        "d/f": b"\0\x00234XY7",
        "e": None,
        "e/g": b"\0\x00234XY7",
    }
    await files.require_sound()


@file_test
async def test_a_link_leaves_the_name_of_the_file(files: FileFixture) -> None:
    await files.create_nfs()
    await files.put("File", b"data")
    for link in ("other", "third"):
        await files.link(link, "fILE")
        assert "File" in await files.names()


@file_test
async def test_a_link_is_a_change_of_the_file(files: FileFixture) -> None:
    files.clock.freeze()
    await files.create_nfs()
    before = await files.put("f", b"data")
    files.clock.advance(10)
    linked = await files.link("g", "F")
    assert linked.link_count == 2
    assert linked.stamp > before.stamp
    assert linked.times.changed > before.times.changed
    assert linked.times.written == before.times.written
    assert (await files.link("h", "g")).link_count == 3
    assert await files.delete("f") == 2
    assert (await files.entry("g")).stamp > linked.stamp


@file_test
async def test_the_file_is_deleted_with_its_last_link(files: FileFixture) -> None:
    await _linked(files)
    await files.link("h", "e/g")
    assert await files.delete("d/f") == 2
    assert await files.delete("e/g") == 1
    assert (await files.entry("h")).link_count == 1
    assert await files.get("h") == b"0123456789"
    assert await files.usage() == 10
    await files.require_sound()
    assert (await files.link("d/f", "h")).link_count == 2
    assert await files.delete("d/f") == 1
    assert await files.delete("h") == 0
    assert await files.usage() == 0
    await files.rmdir("d")
    await files.rmdir("e")
    await files.require_empty()


@file_test
async def test_what_cannot_be_linked(files: FileFixture) -> None:
    await _linked(files)
    for link, target, code in (
        ("x", "d", "ResourceTypeMismatch"),
        ("x", "", "ResourceTypeMismatch"),
        ("x", "nothing", "ResourceNotFound"),
        ("x", "nothing/f", "ParentNotFound"),
        ("nothing/x", "d/f", "ParentNotFound"),
        ("d/f/x", "d/f", "ParentNotFound"),
        ("d", "d/f", "ResourceAlreadyExists"),
        ("d/f", "d/f", "ResourceAlreadyExists"),
        ("e/G", "d/f", "ResourceAlreadyExists"),
        ("", "d/f", "ResourceAlreadyExists"),
    ):
        assert await code_of(files.link(link, target)) == code, (link, target)
    assert (await files.entry("d/f")).link_count == 2


@file_test
async def test_smb_shares_have_no_links(files: FileFixture) -> None:
    await files.create()
    await files.put("f")
    assert await code_of(files.link("g", "f")) == "UnsupportedQueryParameter"
    assert await code_of(files.symlink("g", "f")) == "UnsupportedQueryParameter"
    assert await code_of(files.readlink("f")) == "UnsupportedQueryParameter"
    assert await files.names() == ["f"]


@file_test
async def test_all_links_have_the_same_lease(files: FileFixture) -> None:
    await _linked(files)
    await files.lease("d/f", Acquire(LEASE, None))
    assert await code_of(files.link("x", "e/g")) == "LeaseIdMissing"
    assert await code_of(files.put_range("e/g", 0, b"x")) == "LeaseIdMissing"
    assert await code_of(files.delete("e/g")) == "LeaseIdMissing"
    assert await code_of(files.rename("e/g", "x")) == "LeaseIdMissing"
    other = b"\xbb" * 16
    code = "LeaseIdMismatchWithFileOperation"
    assert await code_of(files.link("x", "e/g", lease_id=other)) == code
    await files.link("x", "e/g", lease_id=LEASE)
    await files.rename("x", "y", source_lease_id=LEASE)
    assert await files.delete("d/f", lease_id=LEASE) == 2
    entry = await files.entry("y", lease_id=LEASE)
    assert isinstance(entry.node, FileNode)
    await files.put("y", b"new", lease_id=LEASE)
    assert await files.get("e/g") == b"new"
    assert await code_of(files.delete("e/g")) == "LeaseIdMissing"


@file_test
async def test_links_are_renamed_one_by_one(files: FileFixture) -> None:
    await _linked(files)
    moved = await files.rename("e/g", "d/G", content_type="text/plain")
    assert (moved.name, moved.link_count) == ("G", 2)
    assert isinstance(moved.node, FileNode)
    assert moved.node.headers.content_type == "text/plain"
    assert moved.parent_id == (await files.entry("d")).id
    await files.rename("d/G", "d/g")
    assert await files.names("d") == ["f", "g"]
    assert (await files.entry("d/f")).stamp == (await files.entry("d/g")).stamp
    await files.require_sound()


@file_test
async def test_a_link_replaces_another_link_to_its_file(files: FileFixture) -> None:
    await _linked(files)
    assert await code_of(files.rename("e/g", "d/f")) == "ResourceAlreadyExists"
    moved = await files.rename("e/g", "d/f", replace=True)
    assert moved.link_count == 1
    assert await files.tree() == {"d": None, "d/f": b"0123456789", "e": None}
    assert await files.usage() == 10
    await files.require_sound()


@file_test
async def test_a_link_is_replaced_by_another_file(files: FileFixture) -> None:
    await _linked(files)
    await files.put("h", b"other")
    await files.rename("h", "d/f", replace=True)
    assert (await files.get("d/f"), await files.get("e/g")) == (b"other", b"0123456789")
    assert (await files.entry("e/g")).link_count == 1
    await files.put("h", b"another")
    await files.rename("e/g", "h", replace=True)
    assert await files.get("h") == b"0123456789"
    assert await files.usage() == 15
    await files.require_sound()


@file_test
async def test_creating_a_file_over_a_link_replaces_it_for_all(files: FileFixture) -> None:
    await _linked(files)
    created = await files.put("e/g", b"new")
    assert created.link_count == 2
    assert await files.get("d/f") == b"new"
    assert await files.usage() == 3
    await files.require_sound()


@file_test
async def test_snapshots_show_files_as_they_were_linked(files: FileFixture) -> None:
    await files.create_nfs()
    await files.put("a", b"one")
    first = await files.snapshot()
    await files.link("b", "a")
    second = await files.snapshot()
    await files.put_range("b", 0, b"two")
    await files.link("c", "b")
    await files.rename("a", "d")
    third = await files.snapshot()
    for name in ("b", "c", "d"):
        await files.delete(name)
    await files.require_sound()
    for snapshot, tree, links in (
        (first, {"a": b"one"}, 1),
        (second, {"a": b"one", "b": b"one"}, 2),
        (third, {"b": b"two", "c": b"two", "d": b"two"}, 3),
    ):
        assert await files.tree(snapshot) == tree
        (*_, last), _ = await files.page("", snapshot)
        assert last.link_count == links
        assert last == await files.entry(last.name, snapshot)
    assert await files.tree() == {}
    await files.delete_snapshot(second)
    await files.purge(1)
    await files.require_sound()
    assert await files.tree(first) == {"a": b"one"}
    assert await files.tree(third) == {"b": b"two", "c": b"two", "d": b"two"}
    await files.delete_snapshot(first)
    await files.delete_snapshot(third)
    await files.require_empty()


@file_test
async def test_a_share_is_purged_with_its_links(files: FileFixture) -> None:
    await _linked(files)
    await files.symlink("s", "d")
    await files.snapshot()
    await files.put_range("e/g", 0, b"x")
    await files.delete_share()
    await files.require_empty()


# Owner, group and mode


@file_test
async def test_entries_of_nfs_shares_have_an_owner(files: FileFixture) -> None:
    await files.create_nfs()
    posix = PosixChange("345", "123", 0o7777)
    new = NewEntry(NewTimes(), 0, posix=posix)
    assert (await files.mkdir("d")).posix == PosixOwner("0", "0", 0o755)
    assert (await files.put("f")).posix == PosixOwner("0", "0", 0o664)
    assert (await files.mkdir("e", new)).posix == PosixOwner("345", "123", 0o7777)
    assert (await files.put("g", new=new)).posix == PosixOwner("345", "123", 0o7777)
    assert (await files.entry("")).posix == PosixOwner("0", "0", 0o755)
    changed = await files.set("g", posix=PosixChange(mode=0o600))
    assert changed.posix == PosixOwner("345", "123", 0o600)
    changed = await files.set("e", is_directory=True, posix=PosixChange(owner="1"))
    assert changed.posix == PosixOwner("1", "123", 0o7777)
    assert (await files.rename("g", "h")).posix == PosixOwner("345", "123", 0o600)


@file_test
async def test_entries_of_smb_shares_have_no_owner(files: FileFixture) -> None:
    await files.create()
    assert (await files.put("f")).posix is None
    assert (await files.entry("")).posix is None
    new = NewEntry(NewTimes(), 0, posix=PosixChange(mode=0o600))
    assert await code_of(files.put("g", new=new)) == "UnsupportedHeader"
    assert await code_of(files.set("f", posix=PosixChange(group="1"))) == "UnsupportedHeader"
