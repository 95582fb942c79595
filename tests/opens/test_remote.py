"""Reads of files by another process: they see what was written, and respect open handles."""

from __future__ import annotations

import asyncio
import stat
from pathlib import Path

import pytest

from etagere.engine.interface import Fault, FaultReason
from etagere.model.files import EntryPath
from etagere.opens.remote import SOCKET_NAME, OpensServer, RemoteOpens, store_writes
from etagere.rules.opens import Access, RestAccess
from tests.loops import in_event_loop
from tests.opens.contents_fixture import ContentsFixture, contents_test
from tests.opens.fixture import R, W, opened
from tests.operations.file.fixture import path_of
from tests.operations.fixture import code_of


async def _read(f: ContentsFixture, opens: RemoteOpens, path: str = "f") -> bytes:
    async def run(asked: EntryPath) -> bytes:
        return await f.stored_bytes("/".join(asked.components), asked.ref.snapshot)

    return await opens.rest(path_of(path), RestAccess.READ, run)


@contents_test
async def test_another_process_sees_gathered_writes(f: ContentsFixture) -> None:
    await f.start()
    server, remote = OpensServer(f.directory, f.table), RemoteOpens(f.directory)
    handle = await f.opened_file(data=b"0123")
    await f.smb_write(handle, 0, b"ab")
    assert await f.stored_bytes() == b"0123"
    assert await _read(f, remote) == b"ab23"
    await f.smb_write(handle, 0, b"x")
    f.watched.fault = Fault(FaultReason.DISK_FULL, "no space")
    with pytest.raises(Fault, match="no space"):
        await _read(f, remote)
    f.watched.fault = None
    assert await _read(f, remote) == b"xb23"
    await server.close()


@contents_test
async def test_another_process_learns_whether_everything_is_stored(f: ContentsFixture) -> None:
    await f.start()
    server = OpensServer(f.directory, f.table, f.contents)
    handle = await f.opened_file(data=b"0123")
    await f.smb_write(handle, 0, b"ab")
    f.watched.fault = Fault(FaultReason.DISK_FULL, "no space")
    assert not await store_writes(f.directory, 0.05)
    f.watched.fault = None
    assert await store_writes(f.directory, 5.0)
    assert await f.stored_bytes() == b"ab23"
    await server.close()
    assert not await store_writes(f.directory, 5.0)


@contents_test
async def test_another_process_respects_open_handles(f: ContentsFixture) -> None:
    await f.start()
    server, remote = OpensServer(f.directory, f.table), RemoteOpens(f.directory)
    await f.put("f", b"0123")
    handle = await opened(f.client, "f", R | W, Access.NONE)
    assert await code_of(_read(f, remote)) == "SharingViolation"
    await f.client.close(handle)
    assert await _read(f, remote) == b"0123"
    assert await code_of(_read(f, remote, "missing")) == "ResourceNotFound"
    moment = await f.snapshot()

    async def run(path: EntryPath) -> EntryPath:
        return path

    shown = path_of("f", moment)
    assert await remote.rest(shown, RestAccess.READ, run) == shown
    await server.close()


@contents_test
async def test_an_open_waits_for_a_read_of_another_process(f: ContentsFixture) -> None:
    await f.start()
    server, remote = OpensServer(f.directory, f.table), RemoteOpens(f.directory)
    await f.put("f", b"0123")
    begun, end = asyncio.Event(), asyncio.Event()

    async def run(_: EntryPath) -> bytes:
        begun.set()
        await end.wait()
        return await f.stored_bytes()

    read = asyncio.ensure_future(remote.rest(path_of("f"), RestAccess.READ, run))
    await begun.wait()
    opening = asyncio.ensure_future(opened(f.client, "f", R | W, Access.NONE))
    await asyncio.sleep(0.1)
    assert not opening.done()
    end.set()
    assert await read == b"0123"
    assert (await opening).is_open
    await server.close()


@contents_test
async def test_nothing_is_open_before_files_are_served(f: ContentsFixture) -> None:
    await f.start()
    await f.put("f", b"0123")
    assert await _read(f, RemoteOpens(f.directory)) == b"0123"
    server = OpensServer(f.directory, f.table)
    await server.close()
    assert await _read(f, RemoteOpens(f.directory)) == b"0123"


@contents_test
async def test_messages_that_make_no_sense_end_the_connection(f: ContentsFixture) -> None:
    await f.start()
    server = OpensServer(f.directory, f.table)
    path = f.directory / SOCKET_NAME
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    for message in (b"", b"\xff\xff\xff\xff", b"\x03\0\0\0abc", b"\x01\0\0\0\x80"):
        assert await _answer(path, message) == b""
    await server.close()


@in_event_loop
async def test_a_process_that_hangs_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("etagere.opens.remote._STORE_SECONDS_MAX", 0.1)
    asked = asyncio.Event()

    async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.set()
        await reader.read()  # until the other side gives up
        writer.close()

    async def run(_: EntryPath) -> None:
        raise AssertionError("it was not admitted")

    async with await asyncio.start_unix_server(hang, tmp_path / SOCKET_NAME):
        read = RemoteOpens(tmp_path).rest(path_of("f"), RestAccess.READ, run, seconds_max=0.1)
        assert await asyncio.wait_for(code_of(read), 10) == "ServerBusy"
        assert asked.is_set()


async def _answer(path: Path, message: bytes) -> bytes:
    reader, writer = await asyncio.open_unix_connection(path)
    writer.write(message)
    writer.write_eof()
    answer = await reader.read()
    writer.close()
    return answer
