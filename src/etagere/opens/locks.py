"""Byte-range locks of SMB handles."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from etagere.engine.interface import Refused
from etagere.errors import Refusal
from etagere.nt_status import NtStatus
from etagere.opens.admission import RestAdmission
from etagere.opens.breaking import break_for_write
from etagere.opens.changes import ChangeSignal
from etagere.opens.handles import Handle, LockRange, LockWaiter, OpenEntry
from etagere.rules.opens import RangeLock, check_lock

OFFSETS_END: Final = 1 << 64
"""Behind the last byte that can be locked."""
RANGE_NOT_LOCKED: Final = Refusal("FileLockConflict", nt_status_override=NtStatus.RANGE_NOT_LOCKED)
_INVALID_RANGE: Final = Refusal("InvalidInput", nt_status_override=NtStatus.INVALID_LOCK_RANGE)


def ignore_wait() -> None:
    """For callers who need not know that they wait."""


async def lock(
    handle: Handle,
    ranges: Sequence[LockRange],
    rest: RestAdmission,
    changes: ChangeSignal,
    *,
    waits: bool,
    on_wait: Callable[[], None] = ignore_wait,
) -> None:
    """Locks all ranges, or none of them if it is refused or cancelled. Waits for REST operations in
    progress, and, if `waits`, until the locks that are in the way are removed."""
    entry = handle.entry
    if any(not 0 <= one.start <= one.end <= OFFSETS_END for one in ranges):
        raise Refused(_INVALID_RANGE)
    exclusive = any(one.exclusive for one in ranges)
    while True:
        if not handle.is_open:
            raise Refused(RANGE_NOT_LOCKED)
        if rest.is_lock_delayed(entry.id, exclusive=exclusive):
            await changes.next()
            continue
        break_for_write(entry, handle)
        refusal = _add(handle, ranges)
        if refusal is None:
            return
        if not waits:
            raise Refused(refusal)
        on_wait()
        if await _wait(handle, ranges, exclusive):
            return


async def _wait(handle: Handle, ranges: Sequence[LockRange], exclusive: bool) -> bool:
    """Waits in the queue of the file. Returns whether the ranges are locked; otherwise the caller
    tries again."""
    queue = handle.entry.lock_queue
    waiter = LockWaiter(handle, ranges, exclusive, asyncio.get_running_loop().create_future())
    queue.append(waiter)
    try:
        return await waiter.end
    except asyncio.CancelledError:
        if waiter.end.done() and not waiter.end.cancelled() and waiter.end.result():
            # It was cancelled at the moment when it got its locks.
            for start, end, _ in ranges:
                _remove(handle, start, end)
        raise
    finally:
        if waiter in queue:
            queue.remove(waiter)


def _add(handle: Handle, ranges: Sequence[LockRange]) -> Refusal | None:
    """Adds all locks, or none: then returns why. Each of them counts for those that follow."""
    locks = handle.entry.locks
    before = len(locks)
    for start, end, exclusive in ranges:
        new = RangeLock(handle.id, start, end, exclusive)
        refusal = check_lock(new, locks)
        if refusal is not None:
            del locks[before:]
            return refusal
        locks.append(new)
    return None


def unlock(handle: Handle, start: int, end: int, rest: RestAdmission) -> bool:
    """Removes the oldest lock of this handle on exactly this range; returns whether there was
    one. An exclusive lock is always older than the shared ones on its range."""
    if not _remove(handle, start, end):
        return False
    _serve_queue(handle.entry, rest)
    return True


def _remove(handle: Handle, start: int, end: int) -> bool:
    locks = handle.entry.locks
    for at, known in enumerate(locks):
        if known[:3] == (handle.id, start, end):
            del locks[at]
            return True
    return False


def release_locks(handle: Handle, rest: RestAdmission) -> None:
    """Removes the locks of a handle that was closed, and ends its waiting for more
    ([MS-SMB2] 3.3.5.14.2)."""
    entry = handle.entry
    if entry.locks:
        entry.locks[:] = [one for one in entry.locks if one.handle != handle.id]
    if entry.lock_queue:
        for waiter in [one for one in entry.lock_queue if one.handle is handle]:
            _end(waiter, False)
        _serve_queue(entry, rest)


def _serve_queue(entry: OpenEntry, rest: RestAdmission) -> None:
    """Gives locks to those who wait for them, in their order."""
    for waiter in list(entry.lock_queue):
        if rest.is_lock_delayed(entry.id, exclusive=waiter.exclusive):
            _end(waiter, False)
        elif _add(waiter.handle, waiter.ranges) is None:
            _end(waiter, True)


def _end(waiter: LockWaiter, is_locked: bool) -> None:
    waiter.handle.entry.lock_queue.remove(waiter)
    if not waiter.end.done():
        waiter.end.set_result(is_locked)
