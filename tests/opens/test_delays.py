"""Writes and opens that have to wait: what has happened by the time they end counts."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

import pytest

from etagere.engine.interface import Refused
from etagere.nt_status import NtStatus
from etagere.opens.handles import Handle
from etagere.opens.requests import Disposition
from etagere.rules.caching import Caching
from tests.opens.contents_fixture import ContentsFixture, contents_test
from tests.opens.fixture import R, W, opened
from tests.opens.test_caches import CachingClient
from tests.operations.fixture import code_of


class DelayedWrite:
    """A write to a file whose writers are held until the context ends."""

    def __init__(self, f: ContentsFixture, handle: Handle, data: bytes) -> None:
        self._gathered, self._entry_id = f.client.share.gathered, handle.entry.id
        self._write = f.contents.write(f.client.share, handle, 0, data)

    async def __aenter__(self) -> asyncio.Task[int]:
        self._gathered.hold(self._entry_id)
        task = asyncio.ensure_future(self._write)
        await asyncio.sleep(0.01)
        assert not task.done()
        return task

    async def __aexit__(self, *_: object) -> None:
        self._gathered.end_hold(self._entry_id)


async def require_closed(request: Awaitable[object]) -> None:
    """Expects a request to fail because its handle is closed."""
    with pytest.raises(Refused) as raised:
        await request
    assert raised.value.refusal.nt_status == NtStatus.FILE_CLOSED


@contents_test
async def test_locks(f: ContentsFixture) -> None:
    await f.start()
    handle = await f.opened_file(data=b"0123456789")
    other = await opened(f.client, "f", R)
    async with DelayedWrite(f, handle, b"x") as write:
        await f.client.lock(other, 0, 1, exclusive=True)
    assert await code_of(write) == "FileLockConflict"
    assert f.memory.used == 0
    assert await f.smb_read(handle) == b"0123456789"


@contents_test
async def test_closed_handles(f: ContentsFixture) -> None:
    await f.start()
    handle = await f.opened_file(data=b"0123456789")
    async with DelayedWrite(f, handle, b"x") as write:
        f.client.share.force_close([handle])
    await require_closed(write)
    assert await f.rest_bytes() == b"0123456789"


@contents_test
async def test_caches(f: ContentsFixture) -> None:
    await f.start()
    handle = await f.opened_file(data=b"0123456789")
    reader = CachingClient(Caching.READ)
    async with DelayedWrite(f, handle, b"x") as write:
        await reader.opened(await f.connect(), "f")
        assert reader.grant.state == Caching.READ
    await write
    assert reader.breaks == [Caching.NONE]


@contents_test
async def test_appends(f: ContentsFixture) -> None:
    """Each of them finds the end where the one before has left it."""
    await f.start()
    handle = await f.opened_file(data=b">")
    share = f.client.share
    writes = (f.contents.write(share, handle, None, b"%d" % number) for number in range(10))
    assert sorted(await asyncio.gather(*writes)) == list(range(2, 12))
    assert sorted(await f.rest_bytes()) == sorted(b">0123456789")


@contents_test
async def test_opens_that_are_closed_at_once(f: ContentsFixture) -> None:
    """An open that overwrites a file stores what was written before."""
    await f.start()
    handle = await f.opened_file(data=b"0123456789")
    await f.smb_write(handle, 0, b"x")
    f.watched.gate.clear()
    client = await f.connect()
    opening = asyncio.ensure_future(opened(client, "f", W, disposition=Disposition.OVERWRITE))
    while len(handle.entry.handles) < 2:
        await asyncio.sleep(0)
    client.share.force_close(list(handle.entry.handles.values()))
    f.watched.gate.set()
    await require_closed(opening)
    assert not client.handles


@contents_test
async def test_opens_that_overwrite(f: ContentsFixture) -> None:
    """Nobody keeps what the file was when the overwrite began."""
    await f.start()
    handle = await f.opened_file(data=b"0123456789")
    await f.smb_write(handle, 0, b"x")
    f.watched.gate.clear()
    overwriter, reader = CachingClient(Caching.READ), CachingClient(Caching.READ)
    request = overwriter.request
    overwriting = asyncio.ensure_future(
        opened(f.client, "f", R, disposition=Disposition.OVERWRITE, caching=request)
    )
    while len(handle.entry.handles) < 2:
        await asyncio.sleep(0)
    reading = asyncio.ensure_future(reader.opened(await f.connect(), "f"))
    while len(handle.entry.handles) < 3:
        await asyncio.sleep(0)
    f.watched.gate.set()
    await reading
    overwritten = await overwriting
    assert reader.breaks == [Caching.NONE]
    assert overwritten.grant is not None
    assert (overwritten.grant.state, overwriter.breaks) == (Caching.READ, [])
    assert await f.smb_read(handle) == b""
