"""Open files: what one open allows others to do.

An open states the access that it wants and the access that it allows others at the same time (its
share mode). REST operations take part as if they opened the file, carried out one step and closed
it again; they never conflict with each other, only with SMB opens.
"""

from __future__ import annotations

import enum
from bisect import bisect_left
from collections.abc import Iterable
from itertools import accumulate
from typing import Final, NamedTuple

from etagere.errors import Refusal
from etagere.nt_status import NtStatus

# Share modes


class Access(enum.IntFlag):
    """Kinds of access that conflict; opens for attributes alone have none of them."""

    NONE = 0
    READ = 1
    WRITE = 2
    DELETE = 4


EVERYTHING: Final = Access.READ | Access.WRITE | Access.DELETE


class OpenMode(NamedTuple):
    """The access of an open, and what it shares."""

    access: Access
    share: Access


def conflicts(one: OpenMode, other: OpenMode) -> bool:
    """Whether two opens of a file exclude each other. It does not matter which came first."""
    if not one.access or not other.access:
        return False
    return bool(one.access & ~other.share or other.access & ~one.share)


class RestAccess(enum.Enum):
    """What a REST operation does to an entry."""

    LIST = enum.auto()
    """List Directories and Files; Lease File, except acquire."""
    CREATE = enum.auto()
    """Create Directory, and anything else that is refused if the entry exists."""
    QUERY = enum.auto()
    """Get Properties, Get Metadata."""
    READ = enum.auto()
    """Get File, List Ranges."""
    WRITE = enum.auto()
    """Put Range, and Set File Properties with another length."""
    SET = enum.auto()
    """Set Properties, Set Metadata."""
    REPLACE = enum.auto()
    """Create File and Copy File over an existing file, which keeps its ID."""
    RENAME = enum.auto()
    """Rename, at the source."""
    DELETE = enum.auto()
    """Delete, and Rename over an existing file. No SMB handle may be open at all, whatever it
    shares."""
    LEASE = enum.auto()
    """Lease File (acquire): held while the file is leased, towards SMB opens."""

    @property
    def mode(self) -> OpenMode:
        """The open that the operation amounts to."""
        return _REST_MODES[self]


_REST_MODES: Final = {
    RestAccess.LIST: OpenMode(Access.NONE, EVERYTHING),
    RestAccess.CREATE: OpenMode(Access.NONE, EVERYTHING),
    RestAccess.QUERY: OpenMode(Access.NONE, EVERYTHING),
    RestAccess.READ: OpenMode(Access.READ, EVERYTHING),
    RestAccess.WRITE: OpenMode(Access.WRITE, EVERYTHING),
    RestAccess.SET: OpenMode(Access.WRITE, EVERYTHING),
    RestAccess.REPLACE: OpenMode(Access.WRITE | Access.DELETE, EVERYTHING),
    RestAccess.RENAME: OpenMode(Access.DELETE, EVERYTHING),
    RestAccess.DELETE: OpenMode(Access.DELETE, EVERYTHING),
    # The documentation lists write and delete access; the table of failing operations follows only
    # if it includes read access.
    RestAccess.LEASE: OpenMode(EVERYTHING, Access.READ),
}


def refused_by(asked: RestAccess, held: OpenMode) -> bool:
    """Whether an SMB open does not allow a REST operation."""
    return asked is RestAccess.DELETE or conflicts(asked.mode, held)


def delays_open(in_progress: RestAccess, asked: OpenMode) -> bool:
    """Whether an SMB open has to wait for a REST operation that is in progress.

    Not only operations that conflict: an entry that is moved or removed may be elsewhere, or gone,
    once the operation has ended.
    """
    if in_progress in (RestAccess.RENAME, RestAccess.DELETE):
        return True
    return conflicts(in_progress.mode, asked)


_WHILE_LEASED: Final = OpenMode(Access.WRITE | Access.DELETE, Access.READ)
"""How an active lease looks to new SMB opens: they may read and see attributes."""


_WHILE_COPIED: Final = OpenMode(Access.WRITE, Access.READ | Access.DELETE)
"""How an asynchronous copy to a file looks to SMB opens: it writes when it ends."""


def check_open(
    asked: OpenMode, opens: Iterable[OpenMode], *, leased: bool, copied: bool = False
) -> Refusal | None:
    """Refuses an SMB open that the other opens of the file, its lease, or a pending copy to it do
    not allow."""
    if leased and asked.access & ~_WHILE_LEASED.share:
        return Refusal("SharingViolation")
    if copied and conflicts(asked, _WHILE_COPIED):
        return Refusal("SharingViolation")
    if any(conflicts(asked, held) for held in opens):
        return Refusal("SharingViolation")
    return None


HANDLES_MAX: Final = 2_000
"""The maximum number of handles on one file or directory."""
ROOT_HANDLES_MAX: Final = 10_000
"""The maximum number of handles on the root directory of a share."""


def check_handle_count(count: int, *, is_root: bool) -> Refusal | None:
    """Refuses one more handle on an entry that has `count` of them."""
    maximum = ROOT_HANDLES_MAX if is_root else HANDLES_MAX
    return Refusal("HandleLimitExceeded") if count >= maximum else None


def check_delete_pending(held: OpenMode) -> Refusal | None:
    """Refuses to mark an entry for deletion, or to clear the mark, through an open without delete
    access."""
    return None if held.access & Access.DELETE else Refusal("AuthorizationFailure")


# Byte-range locks


class RangeLock(NamedTuple):
    """A byte-range lock of a handle. The end is exclusive."""

    handle: int
    start: int
    end: int
    exclusive: bool


LOCK_NOT_GRANTED: Final = Refusal("FileLockConflict", nt_status_override=NtStatus.LOCK_NOT_GRANTED)
RANGE_LOCKS_MAX: Final = 4_096
"""The maximum number of locks on one file. A read or a write is compared with each of them."""


def check_rest_write(locks: Iterable[RangeLock]) -> Refusal | None:
    """Refuses a write by a REST client, which needs the whole file, while any range is locked."""
    return Refusal("FileLockConflict") if any(True for _ in locks) else None


def check_rest_read(locks: Iterable[RangeLock], start: int, end: int) -> Refusal | None:
    """Refuses a read by a REST client of bytes that are locked exclusively."""
    for lock in locks:
        if lock.exclusive and lock.start < end and start < lock.end:
            return Refusal("FileLockConflict")
    return None


def check_handle_read(
    handle: int, locks: Iterable[RangeLock], start: int, end: int
) -> Refusal | None:
    """Refuses a read of bytes that another handle has locked exclusively."""
    for lock in locks:
        if lock.exclusive and lock.handle != handle and lock.start < end and start < lock.end:
            return Refusal("FileLockConflict")
    return None


def check_handle_write(
    handle: int, locks: Iterable[RangeLock], start: int, end: int
) -> Refusal | None:
    """Refuses a write to bytes that another handle has locked, or that any has locked shared: the
    owner of a shared lock may not write either."""
    for lock in locks:
        is_own = lock.exclusive and lock.handle == handle
        if not is_own and lock.start < end and start < lock.end:
            return Refusal("FileLockConflict")
    return None


def delays_lock(in_progress: RestAccess, *, exclusive: bool) -> bool:
    """Whether a lock has to wait for a REST operation that is in progress, and was not refused
    because the lock did not exist yet."""
    if in_progress is RestAccess.READ:
        return exclusive
    return in_progress in (RestAccess.WRITE, RestAccess.REPLACE)


class LockIndex:
    """Finds out which new locks a set of locks excludes: each in logarithmic time, instead of a
    comparison with all of them.

    The locks are sorted by their start. Of those that start before the end of a new one, only the
    ends matter that are farthest: any at all, and for exclusive locks that of one handle and that
    of another.
    """

    def __init__(self, locks: Iterable[RangeLock]) -> None:
        ordered = sorted(locks, key=lambda one: one.start)
        self.count = len(ordered)
        self._starts = [one.start for one in ordered]
        self._ends = list(accumulate((one.end for one in ordered), max))
        exclusive = [one for one in ordered if one.exclusive]
        self._exclusive_starts = [one.start for one in exclusive]
        self._exclusive_ends = list(accumulate(map(_end_of_exclusive, exclusive), _farthest))

    def excludes(self, asked: RangeLock) -> bool:
        """Whether a lock is refused, as by `check_lock`."""
        if asked.exclusive:
            at = bisect_left(self._starts, asked.end)
            return at > 0 and self._ends[at - 1] > asked.start
        at = bisect_left(self._exclusive_starts, asked.end)
        if not at:
            return False
        end, handle, end_of_others = self._exclusive_ends[at - 1]
        return (end_of_others if handle == asked.handle else end) > asked.start


_ExclusiveEnd = tuple[int, int, int]
"""The farthest end of exclusive locks, the handle that it is of, and the farthest end of another
handle; -1: there is no other."""


def _end_of_exclusive(lock: RangeLock) -> _ExclusiveEnd:
    return lock.end, lock.handle, -1


def _farthest(known: _ExclusiveEnd, following: _ExclusiveEnd) -> _ExclusiveEnd:
    end, handle, end_of_others = known
    new_end, new_handle, _ = following
    if new_handle == handle:
        return max(end, new_end), handle, end_of_others
    if new_end > end:
        return new_end, new_handle, end
    return end, handle, max(end_of_others, new_end)


def check_lock(asked: RangeLock, locks: Iterable[RangeLock]) -> Refusal | None:
    """Refuses a byte-range lock that overlaps one that excludes it.

    Shared locks overlap each other, and exclusive locks of the same handle that are there already.
    An empty range overlaps a range around it, but none that begins or ends there.
    """
    count = 0
    for lock in locks:
        count += 1
        overlaps = lock.start < asked.end and asked.start < lock.end
        if overlaps and (asked.exclusive or (lock.exclusive and lock.handle != asked.handle)):
            return LOCK_NOT_GRANTED
    return LOCK_NOT_GRANTED if count >= RANGE_LOCKS_MAX else None
