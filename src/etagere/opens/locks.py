"""Byte-range locks of SMB handles."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from etagere.engine.interface import Refused
from etagere.errors import Refusal
from etagere.nt_status import NtStatus
from etagere.opens.admission import RestAdmission
from etagere.opens.breaking import break_for_write
from etagere.opens.changes import ChangeSignal
from etagere.opens.handles import Handle, OpenEntry
from etagere.rules.opens import RangeLock, check_lock

OFFSETS_END: Final = 1 << 64
"""Behind the last byte that can be locked."""
RANGE_NOT_LOCKED: Final = Refusal("FileLockConflict", nt_status_override=NtStatus.RANGE_NOT_LOCKED)
_INVALID_RANGE: Final = Refusal("InvalidInput", nt_status_override=NtStatus.INVALID_LOCK_RANGE)


class LockRange(NamedTuple):
    """A range to lock. The end is exclusive; an empty range is a lock, too."""

    start: int
    end: int
    exclusive: bool


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
            # Closed while it waited, as [MS-SMB2] 3.3.5.14.2 has it.
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
        if entry.unlocked is None:
            entry.unlocked = ChangeSignal()
        await entry.unlocked.next()


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


def unlock(handle: Handle, start: int, end: int) -> bool:
    """Removes the oldest lock of this handle on exactly this range; returns whether there was
    one."""
    entry = handle.entry
    for at, known in enumerate(entry.locks):
        if known[:3] == (handle.id, start, end):
            del entry.locks[at]
            _notify(entry)
            return True
    return False


def unlock_all(handle: Handle, ranges: Sequence[LockRange]) -> None:
    """Removes one lock per range. Refuses at the first range without one; those before it are
    unlocked by then ([MS-SMB2] 3.3.5.14.1)."""
    for start, end, _ in ranges:
        if not unlock(handle, start, end):
            raise Refused(RANGE_NOT_LOCKED)


def release_locks(handle: Handle) -> None:
    """Removes the locks of a handle that was closed, and ends its waiting for more."""
    entry = handle.entry
    if entry.locks:
        left = [one for one in entry.locks if one.handle != handle.id]
        if len(left) != len(entry.locks):
            entry.locks[:] = left
    _notify(entry)


def _notify(entry: OpenEntry) -> None:
    if entry.unlocked is not None:
        entry.unlocked.notify()
