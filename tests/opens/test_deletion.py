"""Deletion on close: pending files, their visibility, and what ends the state."""

from __future__ import annotations

import asyncio

import pytest

from etagere.engine.interface import Refused
from etagere.rules.file_attributes import FileAttributes
from etagere.rules.opens import RestAccess
from tests.opens.fixture import D, OpensFixture, R, opened, opens_test
from tests.operations.file.fixture import path_of
from tests.operations.fixture import code_of

FILE = "dir/notes.txt"


async def listed(f: OpensFixture, path: str = "dir") -> list[str]:
    return await f.names(path, hidden_ids=f.table.pending_ids(path_of(path).ref))


@opens_test
async def test_a_pending_file_refuses_everything_and_is_hidden(f: OpensFixture) -> None:
    await f.create()
    await f.mkdir("dir")
    await f.put(FILE)
    await f.put("dir/other")
    client = await f.connect()
    first, second = await opened(client, FILE, D), await opened(client, FILE)
    await client.set_delete_pending(first)
    for access in RestAccess:

        async def run(_: object) -> None:
            raise AssertionError("not reached")

        assert await code_of(f.table.rest(path_of(FILE), access, run)) == "SMBDeletePending"
    assert await code_of(f.rest_rename(FILE, "elsewhere")) == "SMBDeletePending"
    assert await code_of(f.rest_rename("dir/other", FILE, replace=True)) == "SMBDeletePending"
    assert await code_of(opened(client, FILE)) == "SMBDeletePending"
    assert await listed(f) == ["other"]
    assert await f.names("dir", hidden_ids=f.table.pending_ids(path_of("").ref), limit=1) == [
        "other"
    ]
    await client.close(first)
    assert await listed(f) == ["other"]
    assert await f.names("dir") == ["notes.txt", "other"]
    await client.close(second)
    assert await f.names("dir") == ["other"]
    assert await code_of(f.rest_get(FILE)) == "ResourceNotFound"
    assert f.table.pending_ids(path_of("").ref) == frozenset()


@opens_test
async def test_the_mark_can_be_cleared(f: OpensFixture) -> None:
    await f.create()
    await f.mkdir("dir")
    await f.put(FILE)
    client = await f.connect()
    first, reader = await opened(client, FILE, D), await opened(client, FILE, R)
    await client.set_delete_pending(first)
    assert await code_of(client.set_delete_pending(reader)) == "AuthorizationFailure"
    with pytest.raises(Refused, match="AuthorizationFailure"):
        client.share.clear_delete_pending(reader)
    client.share.clear_delete_pending(first)
    assert await listed(f) == ["notes.txt"]
    assert await code_of(f.rest_set(FILE)) == ""
    await client.close(first)
    await client.close(reader)
    assert await f.names("dir") == ["notes.txt"]


@opens_test
async def test_deletion_on_close_begins_when_that_handle_is_closed(f: OpensFixture) -> None:
    await f.create()
    await f.mkdir("dir")
    await f.put(FILE)
    client = await f.connect()
    assert await code_of(opened(client, FILE, R, deletes_on_close=True)) == "AuthorizationFailure"
    first = await opened(client, FILE, D, deletes_on_close=True)
    second = await opened(client, FILE)
    assert await code_of(f.rest_get(FILE)) == ""
    await client.close(first)
    assert await code_of(f.rest_get(FILE)) == "SMBDeletePending"
    await client.close(second)
    assert await code_of(f.rest_get(FILE)) == "ResourceNotFound"


@opens_test
async def test_only_empty_directories_are_marked(f: OpensFixture) -> None:
    await f.create()
    await f.mkdir("dir")
    await f.put(FILE)
    client = await f.connect()
    handle = await opened(client, "dir", D)
    assert await code_of(client.set_delete_pending(handle)) == "DirectoryNotEmpty"
    assert await code_of(f.rest_delete(FILE)) == ""
    await client.set_delete_pending(handle)
    assert await code_of(f.rest_put(FILE)) == "SMBDeletePending"
    assert await code_of(f.rest_mkdir("dir/sub")) == "SMBDeletePending"
    await f.put("moved")
    assert await code_of(f.rest_rename("moved", FILE)) == "SMBDeletePending"
    assert await listed(f, "") == ["moved"]
    await client.close(handle)
    assert await f.names() == ["moved"]
    root = await opened(client, "", D)
    assert await code_of(client.set_delete_pending(root)) == "CannotDeleteFileOrDirectory"


@opens_test
async def test_marking_a_directory_waits_for_files_that_are_being_created(f: OpensFixture) -> None:
    await f.create()
    await f.mkdir("dir")
    client = await f.connect()
    handle = await opened(client, "dir", D)
    marking: asyncio.Task[None] | None = None

    async def create(_: object) -> None:
        nonlocal marking
        marking = asyncio.ensure_future(client.set_delete_pending(handle))
        await asyncio.sleep(0.01)
        assert not marking.done()
        await f.put(FILE)

    await f.table.rest(path_of(FILE), RestAccess.REPLACE, create)
    assert marking is not None
    assert await code_of(marking) == "DirectoryNotEmpty"
    assert await code_of(f.rest_get("dir")) == ""


@opens_test
async def test_a_file_that_cannot_be_deleted_stays(f: OpensFixture) -> None:
    await f.create()
    await f.mkdir("dir")
    await f.put(FILE)
    client = await f.connect()
    handle = await opened(client, FILE, D)
    await client.set_delete_pending(handle)
    # Past the table, as an SMB client does through another handle.
    await f.set(FILE, attributes=int(FileAttributes.READ_ONLY))
    await client.close(handle)
    assert await code_of(f.rest_get(FILE)) == ""
    assert await listed(f) == ["notes.txt"]


@opens_test
async def test_disconnecting_deletes_what_is_pending(f: OpensFixture) -> None:
    await f.create()
    await f.mkdir("dir")
    await f.put(FILE)
    client = await f.connect()
    await opened(client, FILE, D, deletes_on_close=True)
    await client.disconnect()
    assert await f.names("dir") == []
    assert not f.table._shares
    assert f.table.open_handles == 0


@opens_test
async def test_a_rename_above_waits_for_a_deletion(f: OpensFixture) -> None:
    """The deletion finds the file by its path."""
    await f.create()
    await f.mkdir("dir")
    for number in range(10):
        await f.put(FILE)
        client = await f.connect()
        handle = await opened(client, FILE, D, deletes_on_close=True)
        closing = asyncio.ensure_future(client.close(handle))
        for _ in range(number):
            await asyncio.sleep(0)
        while await code_of(f.rest_rename("dir", "elsewhere", is_directory=True)):
            await asyncio.sleep(0)
        await closing
        assert await f.names("elsewhere") == []
        await f.rest_rename("elsewhere", "dir", is_directory=True)
        await client.disconnect()
