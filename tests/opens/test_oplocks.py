"""Oplocks and SMB leases between clients: grants, breaks, acknowledgements and overdue breaks."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from etagere.engine.interface import Refused
from etagere.nt_status import NtStatus
from etagere.opens.caches import CacheGrant
from etagere.opens.client import ShareClient
from etagere.opens.handles import Handle
from etagere.opens.requests import CachingRequest, Disposition
from etagere.opens.table import OpenTable
from etagere.rules.caching import Caching
from etagere.rules.opens import EVERYTHING
from tests.opens.fixture import NONE, D, OpensFixture, R, W, opened, opens_test
from tests.operations.fixture import code_of

FILE = "notes.txt"
CR, CRW, CRH = Caching.READ, Caching.READ | Caching.WRITE, Caching.READ | Caching.HANDLE
CRWH = CRW | Caching.HANDLE
NOTHING = Caching.NONE


class Cacher:
    """A client that caches, and acknowledges breaks when the test says so."""

    def __init__(self, client: ShareClient, key: bytes | None = None, guid: bytes = b"g") -> None:
        self.client = client
        self.key = key
        self.guid = guid
        self.told: list[tuple[Caching, Caching, bool]] = []
        """What it had, what it may keep, and whether it has to acknowledge."""

    async def open(self, wanted: Caching, path: str = FILE, **asked: Any) -> Handle:
        access, share = asked.pop("access", R | W), asked.pop("share", EVERYTHING)
        caching = CachingRequest(
            wanted, self.key, self.guid, self._tell, epoch=asked.pop("epoch", 0), is_v2=True
        )
        return await opened(self.client, path, access, share, caching=caching, **asked)

    def _tell(self, grant: CacheGrant, left: Caching, is_acknowledged: bool) -> None:
        self.told.append((grant.state, left, is_acknowledged))


def state_of(handle: Handle) -> Caching:
    return NOTHING if handle.grant is None else handle.grant.state


async def until_told(cacher: Cacher) -> None:
    while not cacher.told:
        await asyncio.sleep(0)


async def ready(f: OpensFixture, *keys: bytes | None) -> list[Cacher]:
    await f.create()
    await f.put(FILE)
    client = await f.connect()
    return [Cacher(client, key) for key in keys]


def status_of(refused: pytest.ExceptionInfo[Refused]) -> int | None:
    return refused.value.refusal.nt_status


@opens_test
async def test_an_open_waits_until_writes_are_flushed(f: OpensFixture) -> None:
    holder, lease_holder, other = await ready(f, None, b"1", None)
    for one, held, left in (
        (holder, CRWH, CR),
        (holder, CRW, CR),
        (lease_holder, CRWH, CRH),
        (lease_holder, CRW, CR),
    ):
        one.told.clear()
        first = await one.open(held)
        assert state_of(first) == held
        opening = asyncio.ensure_future(other.open(NOTHING, access=R))
        await until_told(one)
        await asyncio.sleep(0.01)
        assert not opening.done()
        assert one.told == [(held, left, True)]
        if one.key is None:
            one.client.acknowledge(first, left)
        else:
            one.client.acknowledge_lease(one.guid, one.key, left)
        second = await opening
        assert state_of(first) == left
        for handle in (first, second):
            await one.client.close(handle)


@opens_test
async def test_attributes_alone_break_nothing(f: OpensFixture) -> None:
    holder, other = await ready(f, b"1", b"2")
    first = await holder.open(CRWH)
    second = await other.open(CRWH, access=NONE, is_attribute_only=True)
    assert holder.told == []
    assert state_of(first) == CRWH
    assert state_of(second) == NOTHING
    # Such a handle does not prevent that others cache writes,
    await other.client.close(first)
    third = await holder.open(CRWH)
    assert state_of(third) == CRWH
    # unless it caches something itself.
    for handle in (second, third):
        await other.client.close(handle)
    second = await other.open(CRH, access=NONE, is_attribute_only=True)
    assert state_of(second) == CRH
    assert state_of(await holder.open(CRWH)) == CRH


@opens_test
async def test_overwriting_ends_all_caching(f: OpensFixture) -> None:
    holder, other = await ready(f, b"1", None)
    for held, waits in ((CRWH, True), (CRW, True), (CRH, False), (CR, False)):
        holder.told.clear()
        first = await holder.open(held)
        opening = asyncio.ensure_future(other.open(NOTHING, disposition=Disposition.OVERWRITE))
        await until_told(holder)
        _, pending = await asyncio.wait((opening,), timeout=0.01 if waits else 10)
        assert bool(pending) is waits
        assert holder.told == [(held, NOTHING, held != CR)]
        assert first.grant is not None
        if held != CR:
            # Until it acknowledges, the client sees what it had.
            assert state_of(first) == held
            assert first.grant.is_breaking
            assert first.grant.acknowledge(NOTHING) is None
        assert state_of(first) == NOTHING
        for handle in (first, await opening):
            await holder.client.close(handle)


@opens_test
async def test_a_conflict_breaks_handle_caches(f: OpensFixture) -> None:
    holder, other = await ready(f, None, None)
    for key, held, left in ((b"1", CRWH, CRW), (b"1", CRH, CR), (None, CRWH, CR)):
        holder = Cacher(holder.client, key)
        # The program has closed the file, but the client has not.
        first = await holder.open(held, share=NONE)
        opening = asyncio.ensure_future(other.open(NOTHING))
        await until_told(holder)
        assert holder.told == [(held, left, True)]
        await asyncio.sleep(0.01)
        assert not opening.done()
        await holder.client.close(first)
        await holder.client.close(await opening)
        # The program still has it open.
        holder.told.clear()
        first = await holder.open(held, share=NONE)
        opening = asyncio.ensure_future(other.open(NOTHING))
        await until_told(holder)
        assert first.grant is not None
        first.grant.acknowledge(left)
        assert await code_of(opening) == "SharingViolation"
        # Nothing is left to ask for.
        assert await code_of(other.open(NOTHING)) == "SharingViolation"
        assert len(holder.told) == 1
        await holder.client.close(first)


@opens_test
async def test_exclusive_oplocks_are_not_broken_by_conflicts(f: OpensFixture) -> None:
    holder, other = await ready(f, None, None)
    await holder.open(CRW, share=NONE)
    assert await code_of(other.open(NOTHING)) == "SharingViolation"
    assert holder.told == []


@opens_test
async def test_the_handles_of_a_lease(f: OpensFixture) -> None:
    (holder,) = await ready(f, b"1")
    await f.put("other")
    first = await holder.open(CR, epoch=5)
    second = await holder.open(CRWH)
    assert first.grant is second.grant
    assert first.grant is not None
    assert first.grant.state == CRWH
    assert first.grant.epoch == 7
    # They conflict with each other, but are not asked.
    assert await code_of(holder.open(CRWH, share=NONE)) == "SharingViolation"
    assert holder.told == []
    # The key is that of this file.
    with pytest.raises(Refused) as refused:
        await holder.open(CR, "other")
    assert status_of(refused) == NtStatus.INVALID_PARAMETER
    with pytest.raises(Refused) as refused:
        await holder.open(CR, "new", disposition=Disposition.CREATE)
    assert status_of(refused) == NtStatus.INVALID_PARAMETER
    assert await f.names() == [FILE, "other"]
    # Another client has other keys.
    stranger = Cacher(holder.client, b"1", b"h")
    await holder.client.close(await stranger.open(CR, "other"))
    # The lease ends with its last handle.
    await holder.client.close(first)
    assert f.table.leases.find(b"g", b"1") is second.grant
    await holder.client.close(second)
    assert f.table.leases.find(b"g", b"1") is None
    await holder.open(CR, "other")


@opens_test
async def test_writes_and_locks_end_the_caching_of_reads(f: OpensFixture) -> None:
    reader, writer, level_two = await ready(f, b"1", b"2", None)
    client = writer.client
    for change in ("write", "lock"):
        first = await reader.open(CR)
        third = await level_two.open(CR)
        second = await writer.open(CRH)
        assert [state_of(one) for one in (first, second, third)] == [CR, CR, CR]
        if change == "write":
            client.check_write(second, 0, 10)
        else:
            await client.lock(second, 0, 10, exclusive=True)
        assert [state_of(one) for one in (first, second, third)] == [NOTHING, CR, NOTHING]
        assert reader.told == level_two.told == [(CR, NOTHING, False)]
        # An oplock of level II ends with a write through its own handle.
        await client.close(second)
        for handle in (first, third):
            await client.close(handle)
        third = await level_two.open(CR)
        level_two.told.clear()
        client.check_write(third, 0, 1)
        assert level_two.told == [(CR, NOTHING, False)]
        await client.close(third)
        reader.told.clear()
        level_two.told.clear()
    sole = await level_two.open(CRWH)
    client.check_write(sole, 0, 1)
    assert level_two.told == []


@opens_test
async def test_locked_files_are_not_cached_for_reading(f: OpensFixture) -> None:
    first, second = await ready(f, None, b"2")
    handle = await first.open(NOTHING)
    await first.client.lock(handle, 0, 1, exclusive=False)
    for wanted in (CR, CRH, CRWH):
        other = await second.open(wanted)
        assert state_of(other) == NOTHING
        await first.client.close(other)


@opens_test
async def test_acknowledgements_that_do_not_fit(f: OpensFixture) -> None:
    lease, oplock = await ready(f, b"1", None)
    client = lease.client
    with pytest.raises(Refused) as refused:
        client.acknowledge_lease(b"g", b"1", NOTHING)
    assert status_of(refused) == NtStatus.OBJECT_NAME_NOT_FOUND
    first = await lease.open(CRWH)
    with pytest.raises(Refused) as refused:
        client.acknowledge_lease(b"g", b"1", CRH)
    assert status_of(refused) == NtStatus.UNSUCCESSFUL
    with pytest.raises(Refused) as refused:
        client.acknowledge(first, CR)
    assert status_of(refused) == NtStatus.INVALID_OPLOCK_PROTOCOL
    opening = asyncio.ensure_future(oplock.open(NOTHING))
    await until_told(lease)
    with pytest.raises(Refused) as refused:
        client.acknowledge_lease(b"g", b"1", CRWH)
    assert status_of(refused) == NtStatus.REQUEST_NOT_ACCEPTED
    assert not opening.done()
    client.acknowledge_lease(b"g", b"1", NOTHING)
    await client.close(await opening)
    await client.close(first)
    first = await oplock.open(CRWH)
    opening = asyncio.ensure_future(lease.open(NOTHING))
    await until_told(oplock)
    with pytest.raises(Refused) as refused:
        client.acknowledge(first, CRWH)
    assert status_of(refused) == NtStatus.INVALID_OPLOCK_PROTOCOL
    client.acknowledge(first, CR)
    await opening


@opens_test
async def test_breaks_in_steps(f: OpensFixture) -> None:
    """While a break is not acknowledged, others demand more. The client gives it up in steps."""
    holder, reader, writer = await ready(f, b"1", None, None)
    first = await holder.open(CRWH, epoch=0x10)
    assert first.grant is not None
    reading = asyncio.ensure_future(reader.open(NOTHING))
    await until_told(holder)
    epoch = first.grant.epoch
    writing = asyncio.ensure_future(writer.open(NOTHING, disposition=Disposition.OVERWRITE))
    await asyncio.sleep(0.01)
    assert holder.told == [(CRWH, CRH, True)]
    # The client itself is not held up, and sees what it has acknowledged.
    again = await holder.open(CRWH)
    assert state_of(again) == CRWH
    assert first.grant.acknowledge(CRH) is None
    assert holder.told[1:] == [(CRH, CR, True)]
    await asyncio.sleep(0.01)
    assert not reading.done()
    assert not writing.done()
    assert first.grant.acknowledge(CR) is None
    assert holder.told[2:] == [(CR, NOTHING, False)]
    await asyncio.gather(reading, writing)
    assert first.grant.epoch == epoch
    assert state_of(first) == NOTHING


@opens_test
async def test_overdue_breaks(f: OpensFixture) -> None:
    """A client that does not answer loses its cache, and the open goes on."""
    await f.create()
    await f.put(FILE)
    f.table = OpenTable(f.engine, break_seconds_max=0.05)
    client = await f.connect()
    for key in (None, b"1"):
        holder, other = Cacher(client, key), Cacher(client, b"2")
        first = await holder.open(CRWH)
        second = await asyncio.wait_for(other.open(CRWH), 10)
        assert state_of(first) == NOTHING
        assert state_of(second) == CRH
        assert first.grant is not None
        assert first.grant.acknowledge(CR) is not None
        for handle in (first, second):
            await client.close(handle)
        first = await holder.open(CRWH, share=NONE)
        assert await code_of(other.open(NOTHING)) == "SharingViolation"
        assert state_of(first) == NOTHING
        await client.close(first)


@opens_test
async def test_deletion_and_renames_ask_for_handles(f: OpensFixture) -> None:
    holder, other = await ready(f, b"1", b"2")
    client = holder.client
    for number, action in enumerate(("delete", "rename")):
        holder.told.clear()
        name = FILE if not number else "again"
        if number:
            await f.put(name)
        first = await holder.open(CRH, name)
        second = await other.open(CRH, name, access=D)
        if action == "delete":
            acting = asyncio.ensure_future(client.set_delete_pending(second))
        else:
            acting = asyncio.ensure_future(client.rename(second, ("renamed",)))
        await until_told(holder)
        assert holder.told == [(CRH, CR, True)]
        assert other.told == []
        await asyncio.sleep(0.02)
        assert not acting.done()
        assert name in await f.names()
        assert first.grant is not None
        assert first.grant.acknowledge(CR) is None
        await acting
        if action == "rename":
            assert await f.names() == ["renamed"]
            assert first.entry.path == "renamed"
        for handle in (first, second):
            await client.close(handle)
    assert await f.names() == ["renamed"]


@opens_test
async def test_an_open_that_waits_is_cancelled(f: OpensFixture) -> None:
    holder, other = await ready(f, b"1", None)
    first = await holder.open(CRWH)
    waiting = [asyncio.ensure_future(other.open(NOTHING)) for _ in range(3)]
    await until_told(holder)
    await asyncio.sleep(0.01)
    waiting[0].cancel()
    await asyncio.sleep(0.01)
    assert not waiting[1].done()
    assert first.grant is not None
    first.grant.acknowledge(CRH)
    await asyncio.gather(*waiting[1:])
    assert len(first.entry.handles) == 3
