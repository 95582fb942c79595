"""Renames, properties and deletion through the handles of SMB clients."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from etagere.engine.interface import Refused
from etagere.model.files import ChangedTimes, SetEntryMetadata
from etagere.nt_status import NtStatus
from etagere.opens.client import ShareClient
from etagere.opens.handles import Handle
from etagere.operations.file import entries
from etagere.rules.file_attributes import FileAttributes
from etagere.rules.opens import EVERYTHING
from tests.opens.fixture import NONE, D, OpensFixture, R, W, opened, opens_test
from tests.operations.file.fixture import path_of
from tests.operations.fixture import code_of

READ_ONLY = FileAttributes.READ_ONLY


async def status(client: ShareClient, handle: Handle, path: str, *, replace: bool = False) -> int:
    try:
        await client.rename(handle, tuple(path.split("/")), replace=replace)
    except Refused as refused:
        return refused.refusal.nt_status or 0
    return NtStatus.SUCCESS


# Renames


@opens_test
async def test_handles_follow_the_file(f: OpensFixture) -> None:
    await f.create()
    await f.mkdir("dir")
    old = await f.put("file")
    client = await f.connect()
    handle, other = await opened(client, "file", D, NONE | D), await opened(client, "file", D, D)
    for path in ("moved", "dir/Moved", "dir/moved", "dir/moved", "file"):
        assert await status(client, handle, path) == NtStatus.SUCCESS
        assert handle.entry.path == path
        entry = await client.get_entry(other)
        assert (entry.id, entry.name) == (old.id, path.rpartition("/")[2])
        assert entry.times.written == old.times.written
        assert client.share.page(handle.entry.parent_id, 0, 9, is_recursive=True).handles
    assert await code_of(f.rest_get("dir/moved")) == "ResourceNotFound"
    await f.rest_rename("file", "by rest")
    assert handle.entry.path == "by rest"
    assert await status(client, handle, "back") == NtStatus.SUCCESS


@opens_test
async def test_a_rename_that_is_cancelled_is_carried_out_or_not(f: OpensFixture) -> None:
    await f.create()
    await f.put("file")
    client = await f.connect()
    handle = await opened(client, "file", D)
    for steps in range(40):
        renaming = asyncio.ensure_future(status(client, handle, f"file{steps}"))
        for _ in range(steps):
            await asyncio.sleep(0)
        renaming.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            assert await renaming == NtStatus.SUCCESS
            assert handle.entry.path == f"file{steps}"
        await asyncio.sleep(0.001)
        assert await f.names() == [handle.entry.path]
    assert client.share.rest.is_idle


@opens_test
async def test_renames_that_are_refused(f: OpensFixture) -> None:
    await f.create()
    for path in ("dir", "dir/sub", "other"):
        await f.mkdir(path)
    for path in ("file", "target", "dir/sub/file", "protected"):
        await f.put(path)
    await f.set("protected", attributes=int(READ_ONLY))
    client = await f.connect()
    denied, collision = NtStatus.ACCESS_DENIED, NtStatus.OBJECT_NAME_COLLISION
    reader = await opened(client, "file", R)
    assert await status(client, reader, "x") == denied
    handle = await opened(client, "file", D)
    for path, refusal, replacing in (
        ("target", collision, NtStatus.SUCCESS),
        ("dir", collision, denied),
        ("protected", collision, denied),
        ("missing/x", NtStatus.OBJECT_PATH_NOT_FOUND, NtStatus.OBJECT_PATH_NOT_FOUND),
    ):
        assert await status(client, handle, path) == refusal
        if replacing != NtStatus.SUCCESS:
            assert await status(client, handle, path, replace=True) == replacing
    # A target that is open is not replaced, whatever its handle shares.
    target = await opened(client, "target", NONE, EVERYTHING)
    assert await status(client, handle, "target", replace=True) == denied
    assert await status(client, handle, "target") == collision
    await client.close(target)
    assert await status(client, handle, "target", replace=True) == NtStatus.SUCCESS
    # A directory with open entries below stays where it is.
    below = await opened(client, "dir/sub/file", NONE)
    directory = await opened(client, "dir", D)
    assert await status(client, directory, "elsewhere") == denied
    await client.close(below)
    assert await status(client, directory, "dir/sub/dir") == NtStatus.INVALID_PARAMETER
    assert await status(client, directory, "elsewhere") == NtStatus.SUCCESS
    assert await f.names("elsewhere/sub") == ["file"]
    root = await opened(client, "", D)
    assert await status(client, root, "x") == denied
    # Nobody may be able to delete the directory that the file goes to.
    await client.close(root)
    parent = await opened(client, "other", D)
    assert await status(client, handle, "other/x") == NtStatus.SHARING_VIOLATION
    await client.close(parent)
    parent = await opened(client, "other", R)
    assert await status(client, handle, "other/x") == NtStatus.SUCCESS
    # A file that is about to be deleted stays where it is.
    await client.set_delete_pending(handle)
    assert await status(client, handle, "y") == NtStatus.DELETE_PENDING


@opens_test
async def test_renames_by_handle_and_by_rest_take_turns(f: OpensFixture) -> None:
    await f.create()
    for path in ("a", "b"):
        await f.mkdir(path)
    await f.put("file")
    client = await f.connect()
    handle = await opened(client, "file", D)
    for number in range(10):
        by_handle = [client.rename(handle, ("a", f"h{number}-{at}")) for at in range(2)]
        by_rest = code_of(f.rest_rename(handle.entry.path, f"b/r{number}"))
        changes = client.set_properties(handle, attributes=0)
        await asyncio.gather(*by_handle, by_rest, changes)
        assert (await client.get_entry(handle)).name == handle.entry.names[-1]
        assert (await f.entry(handle.entry.path)).id == handle.entry.id
    assert not client.share.rest.is_moving


# Properties


@opens_test
async def test_properties(f: OpensFixture) -> None:
    await f.create()
    await f.mkdir("dir")
    old = await f.put("file")
    await f.write(entries.set_metadata, SetEntryMetadata(path_of("file"), False, (("k", "v"),)))
    client = await f.connect()
    handle = await opened(client, "file", R)
    times = ChangedTimes(created=11, written=12, changed=13)
    entry = await client.set_properties(handle, times=times, attributes=int(READ_ONLY) | 0x880)
    assert (entry.times.created, entry.times.written, entry.times.changed) == (11, 12, 13)
    assert entry.attributes == READ_ONLY
    assert entry.metadata == (("k", "v"),)
    assert entry.stamp > old.stamp
    assert await client.get_entry(handle) == entry == await f.entry("file")
    # Windows lets clients set the times of read-only files.
    entry = await client.set_properties(handle, times=ChangedTimes(written=20))
    assert entry.times.written == 20
    assert entry.times.created == 11
    assert entry.attributes == READ_ONLY
    # `Normal` clears all attributes; a directory stays one.
    assert (await client.set_properties(handle, attributes=0x80)).attributes == 0
    directory = await opened(client, "dir", R)
    attributes = int(FileAttributes.HIDDEN | FileAttributes.ARCHIVE)
    entry = await client.set_properties(directory, attributes=attributes)
    assert entry.attributes == FileAttributes.HIDDEN | FileAttributes.DIRECTORY
    root = await opened(client, "", R)
    entry = await client.set_properties(root, times=ChangedTimes(created=5))
    assert (await client.get_entry(root)).times.created == 5


# Deletion


@opens_test
async def test_what_is_not_marked_for_deletion(f: OpensFixture) -> None:
    await f.create()
    await f.mkdir("dir")
    await f.put("dir/file")
    client = await f.connect()
    cases = (("dir/file", R, "AuthorizationFailure"), ("", D, "CannotDeleteFileOrDirectory"))
    for path, access, code in (*cases, ("dir", D, "DirectoryNotEmpty")):
        handle = await opened(client, path, access)
        assert await code_of(client.set_delete_pending(handle)) == code
        await client.close(handle)
    handle = await opened(client, "dir/file", D)
    await client.set_properties(handle, attributes=int(READ_ONLY))
    assert await code_of(client.set_delete_pending(handle)) == "CannotDeleteFileOrDirectory"
    await client.set_properties(handle, attributes=0)
    await client.set_delete_pending(handle)
    await client.close(handle)
    assert await f.names("dir") == []
    with pytest.raises(Refused) as refused:
        await opened(client, "", D, deletes_on_close=True)
    assert refused.value.refusal.nt_status == NtStatus.CANNOT_DELETE


@opens_test
async def test_anybody_with_delete_access_clears_the_mark(f: OpensFixture) -> None:
    await f.create()
    await f.put("file")
    client = await f.connect()
    first = await opened(client, "file", D, deletes_on_close=True)
    second, third = await opened(client, "file", D), await opened(client, "file", W)
    assert await code_of(opened(client, "file", R)) == ""
    await client.close(first)
    assert await code_of(opened(client, "file", R)) == "SMBDeletePending"
    with pytest.raises(Refused):
        client.clear_delete_pending(third)
    client.clear_delete_pending(second)
    for handle in list(client.handles.values()):
        await client.close(handle)
    assert await f.names() == ["file"]
