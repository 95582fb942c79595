"""Byte-range locks: arrays, the queue, empty ranges, and the bytes that they protect."""

from __future__ import annotations

import asyncio

import pytest

from etagere.engine.interface import Refused
from etagere.nt_status import NtStatus
from etagere.opens.handles import LockRange
from etagere.rules.opens import RestAccess
from tests.opens.fixture import OpensFixture, R, W, opened, opens_test
from tests.operations.file.fixture import path_of
from tests.operations.fixture import code_of

FILE = "notes.txt"
END = 1 << 64


async def ready(f: OpensFixture) -> None:
    await f.create()
    await f.put(FILE, b"x" * 100)


@opens_test
async def test_arrays_are_all_or_nothing(f: OpensFixture) -> None:
    await ready(f)
    client = await f.connect()
    one, other = await opened(client, FILE, R | W), await opened(client, FILE, R | W)
    await client.lock(other, 20, 30, exclusive=False)
    asked = [LockRange(0, 10, True), LockRange(20, 25, True)]
    with pytest.raises(Refused) as refused:
        await client.lock_all(one, asked)
    assert refused.value.refusal.nt_status == NtStatus.LOCK_NOT_GRANTED
    assert [lock.handle for lock in one.entry.locks] == [other.id]
    # Each counts for those that follow.
    twice = [LockRange(0, 10, True), LockRange(5, 6, True)]
    assert await code_of(client.lock_all(one, twice)) == "FileLockConflict"
    await client.lock_all(one, [LockRange(0, 10, True), LockRange(20, 25, False)])
    assert len(one.entry.locks) == 3
    assert client.unlock(one, [(0, 10)])
    assert not client.unlock(one, [(0, 10)])
    assert not client.unlock(one, [(20, 30)])
    await client.close(other)
    assert [lock.handle for lock in one.entry.locks] == [one.id]


@opens_test
async def test_invalid_ranges(f: OpensFixture) -> None:
    await ready(f)
    client = await f.connect()
    handle = await opened(client, FILE, R | W)
    for start, end in ((5, 4), (0, END + 1), (-1, 1)):
        with pytest.raises(Refused) as refused:
            await client.lock(handle, start, end, exclusive=True)
        assert refused.value.refusal.nt_status == NtStatus.INVALID_LOCK_RANGE
    await client.lock(handle, END - 1, END, exclusive=True)
    await client.lock(handle, END, END, exclusive=True)


@opens_test
async def test_empty_ranges(f: OpensFixture) -> None:
    await ready(f)
    client = await f.connect()
    one, other = await opened(client, FILE, R | W), await opened(client, FILE, R | W)
    for first, second, conflict in (
        ((10, 10), (10, 10), False),
        ((10, 10), (9, 10), False),
        ((10, 10), (10, 11), False),
        ((10, 10), (9, 11), True),
        ((9, 12), (10, 10), True),
        ((10, 12), (10, 10), False),
        ((0, 0), (0, 0), False),
    ):
        await client.lock(one, *first, exclusive=True)
        code = await code_of(client.lock(other, *second, exclusive=True))
        assert code == ("FileLockConflict" if conflict else ""), (first, second)
        assert client.unlock(one, [first])
        assert client.unlock(other, [second]) is not conflict
    # Nothing is read or written there.
    await client.lock(one, 0, 100, exclusive=True)
    client.check_read(other, 10, 10)
    client.check_write(other, 10, 10)


@opens_test
async def test_waiting_locks_get_their_turn(f: OpensFixture) -> None:
    await ready(f)
    client = await f.connect()
    handles = [await opened(client, FILE, R | W) for _ in range(4)]
    await client.lock(handles[0], 0, 10, exclusive=True)
    waits: list[int] = []
    locking = [
        asyncio.ensure_future(
            client.lock(
                handle,
                0,
                10,
                exclusive=True,
                waits=True,
                on_wait=lambda number=number: waits.append(number),  # type: ignore[misc]
            )
        )
        for number, handle in enumerate(handles[1:])
    ]
    await asyncio.sleep(0.01)
    assert waits == [0, 1, 2]
    for at, handle in enumerate(handles[:-1]):
        assert not any(task.done() for task in locking[at:])
        assert client.unlock(handle, [(0, 10)])
        # It has the lock at once, whoever asks now.
        assert [lock.handle for lock in handle.entry.locks] == [handles[at + 1].id]
        assert await code_of(client.lock(handle, 0, 10, exclusive=False)) == "FileLockConflict"
        await locking[at]
    assert not handles[0].entry.lock_queue


@opens_test
async def test_shared_locks_are_granted_together(f: OpensFixture) -> None:
    await ready(f)
    client = await f.connect()
    first, second, third = [await opened(client, FILE, R | W) for _ in range(3)]
    await client.lock(first, 0, 10, exclusive=True)
    # The holder of an exclusive lock may add shared ones, and unlocks the exclusive one first.
    await client.lock(first, 0, 10, exclusive=False)
    waiting = [
        asyncio.ensure_future(client.lock(handle, 5, 6, exclusive=False, waits=True))
        for handle in (second, third)
    ]
    await asyncio.sleep(0.01)
    assert client.unlock(first, [(0, 10)])
    await asyncio.gather(*waiting)
    assert await code_of(client.lock(second, 5, 6, exclusive=True)) == "FileLockConflict"


@opens_test
async def test_waiting_ends_with_the_handle_or_the_request(f: OpensFixture) -> None:
    await ready(f)
    client = await f.connect()
    first, second, third = [await opened(client, FILE, R | W) for _ in range(3)]
    await client.lock(first, 0, 10, exclusive=True)
    closed = asyncio.ensure_future(client.lock(second, 0, 10, exclusive=True, waits=True))
    cancelled = asyncio.ensure_future(client.lock(third, 0, 10, exclusive=True, waits=True))
    await asyncio.sleep(0.01)
    await client.close(second)
    with pytest.raises(Refused) as refused:
        await closed
    assert refused.value.refusal.nt_status == NtStatus.RANGE_NOT_LOCKED
    cancelled.cancel()
    await asyncio.sleep(0)
    assert not first.entry.lock_queue
    # It is cancelled at the moment when it gets the lock.
    late = asyncio.ensure_future(client.lock(third, 0, 10, exclusive=True, waits=True))
    await asyncio.sleep(0.01)
    assert client.unlock(first, [(0, 10)])
    late.cancel()
    with pytest.raises(asyncio.CancelledError):
        await late
    assert first.entry.locks == []


@opens_test
async def test_disconnecting_hands_over_locks(f: OpensFixture) -> None:
    await ready(f)
    client = await f.connect()
    first, second = await opened(client, FILE, R | W), await opened(client, FILE, R | W)
    await client.lock(first, 0, 10, exclusive=True)
    waiting = asyncio.ensure_future(client.lock(second, 0, 10, exclusive=True, waits=True))
    await asyncio.sleep(0.01)
    await client.disconnect()
    # The lock was granted before its own handle was closed, too.
    await waiting
    assert first.entry.locks == []


@opens_test
async def test_a_waiting_lock_waits_for_rest_operations_too(f: OpensFixture) -> None:
    await ready(f)
    client = await f.connect()
    first, second = await opened(client, FILE, R | W), await opened(client, FILE, R | W)
    await client.lock(first, 0, 10, exclusive=False)
    waiting = asyncio.ensure_future(client.lock(second, 0, 10, exclusive=True, waits=True))
    await asyncio.sleep(0.01)
    leave = asyncio.Event()

    async def read(_: object) -> None:
        assert client.unlock(first, [(0, 10)])
        await asyncio.sleep(0.02)
        assert not waiting.done()
        leave.set()

    await f.table.rest(path_of(FILE), RestAccess.READ, read, span=(0, 100))
    assert leave.is_set()
    await waiting


@opens_test
async def test_the_bytes_that_locks_protect(f: OpensFixture) -> None:
    await ready(f)
    client = await f.connect()
    owner, other = await opened(client, FILE, R | W), await opened(client, FILE, R | W)
    for exclusive in (True, False):
        await client.lock(owner, 10, 20, exclusive=exclusive)
        for start, end, overlaps in ((0, 10, False), (0, 11, True), (19, 30, True)):
            for handle in (owner, other):
                reads = not (overlaps and exclusive and handle is other)
                writes = not (overlaps and (handle is other or not exclusive))
                for check, allowed in ((client.check_read, reads), (client.check_write, writes)):
                    if allowed:
                        check(handle, start, end)
                    else:
                        with pytest.raises(Refused, match="FileLockConflict"):
                            check(handle, start, end)
        client.unlock(owner, [(10, 20)])
