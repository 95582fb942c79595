"""Caches of SMB clients, which REST operations break before they run."""

from __future__ import annotations

import asyncio
from os import urandom

from etagere.nt_status import NtStatus
from etagere.opens.caches import CacheGrant
from etagere.opens.client import ShareClient
from etagere.opens.handles import Handle
from etagere.opens.requests import CachingRequest
from etagere.rules.caching import Caching
from etagere.rules.opens import EVERYTHING, Access, RestAccess
from tests.opens.fixture import NONE, OpensFixture, R, opened, opens_test
from tests.operations.file.fixture import path_of
from tests.operations.fixture import code_of

FILE = "notes.txt"
CR, CRW, CRH = Caching.READ, Caching.READ | Caching.WRITE, Caching.READ | Caching.HANDLE
CRWH = CRW | Caching.HANDLE


class CachingClient:
    """A client that is told of breaks, and acknowledges them when it likes."""

    def __init__(self, state: Caching, *, acknowledges: bool = True) -> None:
        self.breaks: list[Caching] = []
        self.acknowledges = acknowledges
        self.request = CachingRequest(state, urandom(16), b"client", self._told)

    async def opened(
        self, client: ShareClient, path: str, access: Access = R, share: Access = EVERYTHING
    ) -> Handle:
        handle = await opened(client, path, access, share, caching=self.request)
        assert handle.grant is not None
        self.grant = handle.grant
        return handle

    def _told(self, grant: CacheGrant, state: Caching, is_acknowledged: bool) -> None:
        self.breaks.append(state)
        if self.acknowledges:
            asyncio.get_running_loop().call_later(0.01, self._answer, state)

    def _answer(self, state: Caching) -> None:
        assert self.grant.acknowledge(state) is None


# The operation, what the client caches, what it may still cache, and whether the operation waits.
ROWS = [
    *((name, CRWH, CRH, True) for name in ("read", "get")),
    *((name, CRW, CR, True) for name in ("read", "get")),
    *((name, CRH, None, False) for name in ("read", "get")),
    *((name, CRWH, Caching.NONE, True) for name in ("write", "set")),
    *((name, CRW, Caching.NONE, True) for name in ("write", "set")),
    *((name, CRH, Caching.NONE, False) for name in ("write", "set")),
]


@opens_test
async def test_operations_break_caches(f: OpensFixture) -> None:
    await f.create()
    await f.put(FILE)
    client = await f.connect()
    operations = {
        "read": f.rest_read,
        "get": f.rest_get,
        "write": f.rest_write,
        "set": f.rest_set,
    }
    for name, held, left, waits in ROWS:
        caching = CachingClient(held, acknowledges=False)
        handle = await caching.opened(client, FILE, R)
        operation = asyncio.ensure_future(operations[name](FILE))
        if waits:
            while not caching.breaks:
                await asyncio.sleep(0)
            await asyncio.sleep(0.01)
            assert not operation.done()
            assert left is not None
            assert caching.grant.acknowledge(left) is None
        await operation
        assert caching.breaks == ([] if left is None else [left]), (name, held)
        assert caching.grant.effective == (held if left is None else left)
        await client.close(handle)


@opens_test
async def test_deletion_breaks_handle_caches(f: OpensFixture) -> None:
    await f.create()
    client = await f.connect()
    for held, left in ((CRWH, CRW), (CRH, CR), (CRW, None)):
        await f.put(FILE)
        caching = CachingClient(held)
        handle = await caching.opened(client, FILE, R, EVERYTHING)
        # The program has the file open.
        assert await code_of(f.rest_delete(FILE)) == "SharingViolation"
        assert caching.breaks == ([] if left is None else [left])
        await client.close(handle)
        if left is None:
            continue
        caching = CachingClient(held, acknowledges=False)
        handle = await caching.opened(client, FILE, R, EVERYTHING)
        deletion = asyncio.ensure_future(f.rest_delete(FILE))
        while not caching.breaks:
            await asyncio.sleep(0)
        assert not deletion.done()
        # The program has closed the file before; the client closes it now.
        await client.close(handle)
        await deletion
        assert await f.names() == []


@opens_test
async def test_a_share_conflict_asks_whether_the_handle_is_in_use(f: OpensFixture) -> None:
    await f.create()
    await f.put(FILE)
    client = await f.connect()
    caching = CachingClient(CRH)
    handle = await caching.opened(client, FILE, R, NONE)
    assert await code_of(f.rest_read(FILE)) == "SharingViolation"
    assert caching.breaks == [CR]
    # Without a cached handle there is nothing to ask.
    assert await code_of(f.rest_read(FILE)) == "SharingViolation"
    assert caching.breaks == [CR]
    await client.close(handle)
    caching = CachingClient(CRH, acknowledges=False)
    handle = await caching.opened(client, FILE, R, NONE)
    reading = asyncio.ensure_future(f.rest_read(FILE))
    while not caching.breaks:
        await asyncio.sleep(0)
    await client.close(handle)
    await reading


@opens_test
async def test_a_break_that_is_not_acknowledged_in_time(f: OpensFixture) -> None:
    await f.create()
    await f.put(FILE)
    client = await f.connect()
    caching = CachingClient(CRW, acknowledges=False)
    await caching.opened(client, FILE, R)
    for _ in range(2):
        code = await code_of(f.rest_write(FILE, seconds_max=0.02))
        assert code == "ClientCacheFlushDelay"
    # It was told once, and may still acknowledge.
    assert caching.breaks == [Caching.NONE]
    assert caching.grant.is_breaking
    waiting = [asyncio.ensure_future(f.rest_write(FILE)) for _ in range(3)]
    await asyncio.sleep(0.01)
    too_much, too_late = NtStatus.REQUEST_NOT_ACCEPTED, NtStatus.UNSUCCESSFUL
    assert caching.grant.acknowledge(CR) is too_much
    assert caching.grant.acknowledge(Caching.NONE) is None
    assert caching.grant.acknowledge(Caching.NONE) is too_late
    await asyncio.gather(*waiting)
    assert caching.breaks == [Caching.NONE]


@opens_test
async def test_breaks_follow_each_other(f: OpensFixture) -> None:
    """A write that meets a break to RH demands the rest afterwards."""
    await f.create()
    await f.put(FILE)
    client = await f.connect()
    caching = CachingClient(CRWH, acknowledges=False)
    await caching.opened(client, FILE, R)
    reading = asyncio.ensure_future(f.rest_read(FILE))
    while not caching.breaks:
        await asyncio.sleep(0)
    writing = asyncio.ensure_future(f.rest_write(FILE))
    await asyncio.sleep(0.01)
    assert caching.breaks == [CRH]
    assert not writing.done()
    assert caching.grant.acknowledge(CRH) is None
    await asyncio.gather(reading, writing)
    assert caching.breaks == [CRH, Caching.NONE]
    # The break that nobody waited for is acknowledged, too.
    assert caching.grant.acknowledge(Caching.NONE) is None


@opens_test
async def test_force_close_ends_caches_without_a_break(f: OpensFixture) -> None:
    await f.create()
    await f.put(FILE)
    client = await f.connect()
    caching = CachingClient(CRWH, acknowledges=False)
    handles = [await caching.opened(client, FILE, R) for _ in range(2)]
    writing = asyncio.ensure_future(f.rest_write(FILE))
    while not caching.breaks:
        await asyncio.sleep(0)
    client.share.force_close(handles[:1])
    await asyncio.sleep(0.01)
    assert not writing.done()
    client.share.force_close(handles)
    await writing
    assert caching.grant.state is Caching.NONE
    assert caching.breaks == [Caching.NONE]


@opens_test
async def test_caches_of_several_clients_are_broken_at_once(f: OpensFixture) -> None:
    await f.create()
    await f.put(FILE)
    client = await f.connect()
    several = [CachingClient(CRH, acknowledges=False) for _ in range(3)]
    handles = [await one.opened(client, FILE, R) for one in several]
    deleting = asyncio.ensure_future(f.rest_delete(FILE))
    while not several[0].breaks:
        await asyncio.sleep(0)
    assert [one.breaks for one in several] == [[CR]] * 3
    for handle in handles:
        assert not deleting.done()
        await client.close(handle)
        await asyncio.sleep(0)
    await deleting


@opens_test
async def test_a_directory_with_cached_handles_below_is_renamed(f: OpensFixture) -> None:
    await f.create()
    await f.mkdir("dir")
    await f.put("dir/file")
    client = await f.connect()
    caching = CachingClient(CRWH, acknowledges=False)
    handles = [await caching.opened(client, "dir/file", R) for _ in range(2)]
    own = await opened(client, "dir", R)
    renaming = asyncio.ensure_future(f.rest_rename("dir", "other", is_directory=True))
    while not caching.breaks:
        await asyncio.sleep(0)
    assert caching.breaks == [CRW]
    for handle in handles:
        assert not renaming.done()
        await client.close(handle)
    await renaming
    assert own.entry.path == "other"
    # One that is in use is not asked, and neither are the others.
    caching = CachingClient(CRH)
    await caching.opened(client, "other/file", R)
    await opened(client, "other/file", R)
    assert await code_of(f.rest_rename("other", "dir", is_directory=True)) == "SharingViolation"
    assert caching.breaks == []


@opens_test
async def test_a_client_that_still_uses_a_handle_below_a_directory(f: OpensFixture) -> None:
    await f.create()
    await f.mkdir("dir")
    await f.put("dir/file")
    client = await f.connect()
    caching = CachingClient(CRH)
    await caching.opened(client, "dir/file", R)
    assert await code_of(f.rest_delete("dir", is_directory=True)) == "SharingViolation"
    assert caching.breaks == [CR]


@opens_test
async def test_nobody_caches_what_is_being_changed(f: OpensFixture) -> None:
    """A client that reads the old bytes while a REST operation changes them would keep them."""
    await f.create()
    await f.put(FILE)
    client = await f.connect()
    for access, is_granted in (
        (RestAccess.WRITE, False),
        (RestAccess.SET, False),
        (RestAccess.REPLACE, False),
        (RestAccess.READ, True),
        (RestAccess.QUERY, True),
    ):
        asked = CachingClient(CRH)

        async def run(_: object, asked: CachingClient = asked) -> None:
            await asked.opened(client, FILE)

        await f.table.rest(path_of(FILE), access, run)
        assert asked.grant.state == (CRH if is_granted else NONE), access
        later = CachingClient(CRH)
        await later.opened(client, FILE)
        assert later.grant.state == CRH
        for handle in list(client.handles.values()):
            await client.close(handle)
