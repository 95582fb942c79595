"""Byte-range locks of SMB handles."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from etagere.engine.interface import Refused
from etagere.errors import Refusal
from etagere.nt_status import NtStatus
from etagere.opens.admission import RestAdmission
from etagere.opens.breaking import break_for_write
from etagere.opens.changes import ChangeSignal
from etagere.opens.handles import Handle, LockRange, LockWaiter, OpenEntry
from etagere.rules.opens import (
    LOCK_NOT_GRANTED,
    RANGE_LOCKS_MAX,
    LockIndex,
    RangeLock,
    check_lock,
)

OFFSETS_END: Final = 1 << 64
"""Behind the last byte that can be locked."""
LOCK_WAITERS_MAX: Final = 1_024
"""The maximum number of requests that wait for locks on one file. All of them may get their locks
at once, which takes about 20 µs each."""
RANGE_NOT_LOCKED: Final = Refusal("FileLockConflict", nt_status_override=NtStatus.RANGE_NOT_LOCKED)
_TOO_MANY_WAITERS: Final = Refusal(
    "FileLockConflict", nt_status_override=NtStatus.INSUFFICIENT_RESOURCES
)
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
        if await _wait(handle, ranges, exclusive, rest):
            return


async def _wait(
    handle: Handle, ranges: Sequence[LockRange], exclusive: bool, rest: RestAdmission
) -> bool:
    """Waits in the queue of the file. Returns whether the ranges are locked; otherwise the caller
    tries again."""
    queue = handle.entry.lock_queue
    if len(queue) >= LOCK_WAITERS_MAX:
        raise Refused(_TOO_MANY_WAITERS)
    waiter = LockWaiter(handle, ranges, exclusive, asyncio.get_running_loop().create_future())
    queue[waiter] = None
    try:
        return await waiter.end
    except asyncio.CancelledError:
        if waiter.end.done() and not waiter.end.cancelled() and waiter.end.result():
            # It was cancelled at the moment when it got its locks.
            unlock(handle, [(start, end) for start, end, _ in ranges], rest)
        raise
    finally:
        queue.pop(waiter, None)


def _add(handle: Handle, ranges: Sequence[LockRange]) -> Refusal | None:
    """Adds all locks, or none: then returns why. Each of them counts for those that follow."""
    locks = handle.entry.locks
    asked = [RangeLock(handle.id, *one) for one in ranges]
    refusal = _check(asked, locks)
    if refusal is None:
        locks += asked
    return refusal


def _check(asked: Sequence[RangeLock], locks: Sequence[RangeLock]) -> Refusal | None:
    if len(asked) == 1:
        return check_lock(asked[0], locks)
    if len(locks) + len(asked) > RANGE_LOCKS_MAX:
        return LOCK_NOT_GRANTED
    index = LockIndex(locks)
    for at, one in enumerate(asked):
        if index.excludes(one) or check_lock(one, asked[:at]) is not None:
            return LOCK_NOT_GRANTED
    return None


def unlock(handle: Handle, ranges: Iterable[tuple[int, int]], rest: RestAdmission) -> bool:
    """Removes the oldest lock of this handle on exactly each range, up to the first range that has
    none; returns whether all had one. An exclusive lock is always older than the shared ones on its
    range."""
    removed, found_all = _remove(handle, ranges)
    if removed:
        _serve_queue(handle.entry, removed, rest)
    return found_all


def _remove(handle: Handle, ranges: Iterable[tuple[int, int]]) -> tuple[Sequence[RangeLock], bool]:
    """Removes locks; returns them, and whether all were found."""
    locks = handle.entry.locks
    own: dict[tuple[int, int], list[int]] = {}
    for at, known in enumerate(locks):
        if known.handle == handle.id:
            own.setdefault((known.start, known.end), []).append(at)
    # The oldest one is taken from the end.
    for places in own.values():
        places.reverse()
    taken: list[int] = []
    found_all = True
    for one in ranges:
        places = own.get(one, [])
        if not places:
            found_all = False
            break
        taken.append(places.pop())
    removed = [locks[at] for at in taken]
    for at in sorted(taken, reverse=True):
        del locks[at]
    return removed, found_all


def release_locks(handle: Handle, rest: RestAdmission) -> None:
    """Removes the locks of a handle that was closed, and ends its waiting for more
    ([MS-SMB2] 3.3.5.14.2)."""
    entry = handle.entry
    removed = [one for one in entry.locks if one.handle == handle.id]
    if removed:
        entry.locks[:] = [one for one in entry.locks if one.handle != handle.id]
    if entry.lock_queue:
        for waiter in [one for one in entry.lock_queue if one.handle is handle]:
            _end(waiter, False)
        _serve_queue(entry, removed, rest)


def _serve_queue(entry: OpenEntry, removed: Sequence[RangeLock], rest: RestAdmission) -> None:
    """Gives locks to those who wait for them, in their order. Only those can get them that overlap
    a lock which was removed, or wait because there were too many locks."""
    if not entry.lock_queue or not removed:
        return
    was_full = len(entry.locks) + len(removed) >= RANGE_LOCKS_MAX
    freed = LockIndex([one._replace(exclusive=True) for one in removed])
    index = LockIndex(entry.locks)
    added: list[RangeLock] = []
    for waiter in list(entry.lock_queue):
        asked = [RangeLock(waiter.handle.id, *one) for one in waiter.ranges]
        if not was_full and not any(freed.excludes(one._replace(exclusive=True)) for one in asked):
            continue
        if rest.is_lock_delayed(entry.id, exclusive=waiter.exclusive):
            _end(waiter, False)
            continue
        if any(index.excludes(one) for one in asked) or _check(asked, added) is not None:
            continue
        if len(entry.locks) + len(asked) > RANGE_LOCKS_MAX:
            return
        entry.locks += asked
        added += asked
        _end(waiter, True)


def _end(waiter: LockWaiter, is_locked: bool) -> None:
    waiter.handle.entry.lock_queue.pop(waiter, None)
    if not waiter.end.done():
        waiter.end.set_result(is_locked)
