"""Open files: what one open allows others to do.

An open states the access that it wants and the access that it allows others at the same time (its
share mode). REST operations take part as if they opened the file, carried out one step and closed
it again; they never conflict with each other, only with SMB opens.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from typing import Final, NamedTuple

from etagere.errors import Refusal


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
    """What a REST operation does to a file, as an open."""

    QUERY = OpenMode(Access.NONE, EVERYTHING)
    """List Directories and Files, Get File Properties, Get File Metadata."""
    READ = OpenMode(Access.READ, EVERYTHING)
    """Get File, List Ranges."""
    WRITE = OpenMode(Access.WRITE, EVERYTHING)
    """Put Range, Set File Properties, Set File Metadata."""
    REPLACE = OpenMode(Access.WRITE | Access.DELETE, EVERYTHING)
    """Create File over an existing file, Copy File, Rename."""
    DELETE = OpenMode(Access.DELETE, EVERYTHING)
    """Delete File. No SMB handle may be open at all, whatever it shares."""
    LEASE = OpenMode(EVERYTHING, Access.READ)
    """Lease File (acquire): held while the file is leased, towards SMB opens.

    The documentation lists write and delete access; the table of failing operations follows only
    if it includes read access.
    """


def check_rest_access(asked: RestAccess, opens: Iterable[OpenMode]) -> Refusal | None:
    """Refuses a REST operation that the SMB opens of the file do not allow."""
    for held in opens:
        if asked is RestAccess.DELETE or conflicts(asked.value, held):
            return Refusal("SharingViolation")
    return None


_WHILE_LEASED: Final = OpenMode(Access.WRITE | Access.DELETE, Access.READ)
"""How an active lease looks to new SMB opens: they may read and see attributes."""


def check_open(asked: OpenMode, opens: Iterable[OpenMode], *, leased: bool) -> Refusal | None:
    """Refuses an SMB open that the other opens of the file, or its lease, do not allow."""
    if leased and asked.access & ~_WHILE_LEASED.share:
        return Refusal("SharingViolation")
    if any(conflicts(asked, held) for held in opens):
        return Refusal("SharingViolation")
    return None


class RangeLock(NamedTuple):
    """A byte-range lock of a handle. The end is exclusive."""

    handle: int
    start: int
    end: int
    exclusive: bool


def check_rest_write(locks: Iterable[RangeLock]) -> Refusal | None:
    """Refuses a write by a REST client, which needs the whole file, while any range is locked."""
    return Refusal("FileLockConflict") if any(True for _ in locks) else None


def check_rest_read(locks: Iterable[RangeLock], start: int, end: int) -> Refusal | None:
    """Refuses a read by a REST client of bytes that are locked exclusively."""
    for lock in locks:
        if lock.exclusive and lock.start < end and start < lock.end:
            return Refusal("FileLockConflict")
    return None


def check_lock(asked: RangeLock, locks: Iterable[RangeLock]) -> Refusal | None:
    """Refuses a byte-range lock that overlaps one that excludes it.

    Shared locks overlap each other. A handle conflicts with its own exclusive locks, too.
    """
    for lock in locks:
        overlaps = lock.start < asked.end and asked.start < lock.end
        if overlaps and (asked.exclusive or lock.exclusive):
            return Refusal("FileLockConflict")
    return None
