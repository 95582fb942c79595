"""Share modes: the tables of the documentation, exhaustively."""

from __future__ import annotations

import random
from itertools import product

import pytest

from etagere.errors import Refusal
from etagere.rules.opens import (
    EVERYTHING,
    HANDLES_MAX,
    RANGE_LOCKS_MAX,
    ROOT_HANDLES_MAX,
    Access,
    LockIndex,
    OpenMode,
    RangeLock,
    RestAccess,
    check_delete_pending,
    check_handle_count,
    check_handle_read,
    check_handle_write,
    check_lock,
    check_open,
    check_rest_read,
    check_rest_write,
    conflicts,
    delays_lock,
    delays_open,
    refused_by,
)

R, W, D = Access.READ, Access.WRITE, Access.DELETE
NONE = Access.NONE
ALL_ACCESS = [Access(value) for value in range(8)]
MODES = [OpenMode(access, share) for access, share in product(ALL_ACCESS, ALL_ACCESS)]

# The columns: Get File and List Ranges; Put Range, Set Properties and Set Metadata; Create File;
# Delete File; Lease File.
COLUMNS = (
    RestAccess.READ,
    RestAccess.WRITE,
    RestAccess.REPLACE,
    RestAccess.DELETE,
    RestAccess.LEASE,
)
BY_SHARE_MODE = {
    NONE: (False, False, False, False, False),
    R: (True, False, False, False, False),
    W: (False, True, False, False, False),
    D: (False, False, False, False, False),
    R | W: (True, True, False, False, False),
    R | D: (True, False, False, False, False),
    W | D: (False, True, True, False, False),
    R | W | D: (True, True, True, False, True),
}


def code(refusal: Refusal | None) -> str:
    return "" if refusal is None else refusal.code


@pytest.mark.parametrize("share", ALL_ACCESS)
def test_rest_operations_while_an_smb_handle_is_open(share: Access) -> None:
    held = OpenMode(R, share)
    for column, allowed in zip(COLUMNS, BY_SHARE_MODE[share], strict=True):
        assert refused_by(column, held) is not allowed, column
    assert refused_by(RestAccess.SET, held) == refused_by(RestAccess.WRITE, held)
    for free in (RestAccess.LIST, RestAccess.CREATE, RestAccess.QUERY):
        assert not refused_by(free, held)
    assert refused_by(RestAccess.RENAME, held) is not bool(share & D)


@pytest.mark.parametrize("access", ALL_ACCESS)
def test_a_lease_needs_that_nobody_may_write_or_delete(access: Access) -> None:
    is_refused = refused_by(RestAccess.LEASE, OpenMode(access, EVERYTHING))
    assert is_refused is bool(access & (W | D))


@pytest.mark.parametrize("access", ALL_ACCESS)
def test_opens_of_a_leased_file(access: Access) -> None:
    asked = OpenMode(access, EVERYTHING)
    refusal = check_open(asked, (), leased=True)
    assert code(refusal) == ("SharingViolation" if access & (W | D) else "")
    assert check_open(asked, (), leased=False) is None


@pytest.mark.parametrize("mode", MODES)
def test_opens_of_a_file_that_is_being_copied_to(mode: OpenMode) -> None:
    """They may not write, and must allow the copy to do so."""
    allowed = not mode.access or (not mode.access & W and bool(mode.share & W))
    refusal = check_open(mode, (), leased=False, copied=True)
    assert code(refusal) == ("" if allowed else "SharingViolation")


def test_delete_needs_that_no_handle_is_open() -> None:
    """Not even one for attributes alone."""
    assert refused_by(RestAccess.DELETE, OpenMode(NONE, EVERYTHING))


@pytest.mark.parametrize("one", MODES)
def test_opens_exclude_each_other_by_access_or_share_mode(one: OpenMode) -> None:
    for other in MODES:
        allowed = (
            not one.access
            or not other.access
            or (one.access in other.share and other.access in one.share)
        )
        assert conflicts(one, other) is not allowed
        assert conflicts(other, one) is not allowed
        refusal = check_open(one, [other], leased=False)
        assert code(refusal) == ("" if allowed else "SharingViolation")


@pytest.mark.parametrize("mode", MODES)
def test_opens_wait_for_rest_operations_that_are_in_the_way(mode: OpenMode) -> None:
    for access in RestAccess:
        moves = access in (RestAccess.RENAME, RestAccess.DELETE)
        assert delays_open(access, mode) is (moves or conflicts(access.mode, mode))


@pytest.mark.parametrize("access", ALL_ACCESS)
def test_deletion_on_close_needs_delete_access(access: Access) -> None:
    refusal = check_delete_pending(OpenMode(access, EVERYTHING))
    assert code(refusal) == ("" if access & D else "AuthorizationFailure")


def test_the_number_of_handles_is_limited() -> None:
    for is_root, maximum in ((False, HANDLES_MAX), (True, ROOT_HANDLES_MAX)):
        assert check_handle_count(maximum - 1, is_root=is_root) is None
        refusal = check_handle_count(maximum, is_root=is_root)
        assert code(refusal) == "HandleLimitExceeded"


def test_every_open_counts() -> None:
    opens = [OpenMode(R, EVERYTHING), OpenMode(R, R)]
    assert check_open(OpenMode(R, EVERYTHING), opens, leased=False) is None
    refusal = check_open(OpenMode(W, EVERYTHING), opens, leased=False)
    assert code(refusal) == "SharingViolation"


# Byte-range locks

SHARED_LOCK = RangeLock(1, 10, 20, exclusive=False)
EXCLUSIVE_LOCK = RangeLock(1, 10, 20, exclusive=True)


def test_any_lock_refuses_writes_of_rest_clients() -> None:
    assert check_rest_write([]) is None
    for lock in (SHARED_LOCK, EXCLUSIVE_LOCK):
        assert code(check_rest_write([lock])) == "FileLockConflict"


@pytest.mark.parametrize(
    ("start", "end", "overlaps"),
    [
        *[(0, 10, False), (0, 11, True), (19, 30, True), (20, 30, False), (12, 13, True)],
        # Empty ranges overlap what is around them.
        *[(10, 10, False), (11, 11, True), (19, 19, True), (20, 20, False)],
    ],
)
def test_overlapping_ranges(start: int, end: int, overlaps: bool) -> None:
    conflict = "FileLockConflict" if overlaps else ""
    assert code(check_rest_read([EXCLUSIVE_LOCK], start, end)) == conflict
    assert check_rest_read([SHARED_LOCK], start, end) is None
    for handle in (1, 2):
        shared = RangeLock(handle, start, end, exclusive=False)
        exclusive = RangeLock(handle, start, end, exclusive=True)
        assert check_lock(shared, [SHARED_LOCK]) is None
        assert code(check_lock(shared, [EXCLUSIVE_LOCK])) == ("" if handle == 1 else conflict)
        assert code(check_lock(exclusive, [SHARED_LOCK])) == conflict
        assert code(check_lock(exclusive, [EXCLUSIVE_LOCK])) == conflict


@pytest.mark.parametrize("is_owner", [True, False])
@pytest.mark.parametrize(
    ("start", "end", "overlaps"),
    [(0, 10, False), (0, 11, True), (19, 30, True), (20, 30, False), (12, 13, True)],
)
def test_locks_and_the_data_of_handles(
    start: int, end: int, overlaps: bool, is_owner: bool
) -> None:
    """The owner of an exclusive lock reads and writes; that of a shared lock only reads."""
    handle = 1 if is_owner else 2
    others = "FileLockConflict" if overlaps and not is_owner else ""
    anyone = "FileLockConflict" if overlaps else ""
    assert code(check_handle_read(handle, [EXCLUSIVE_LOCK], start, end)) == others
    assert code(check_handle_write(handle, [EXCLUSIVE_LOCK], start, end)) == others
    assert check_handle_read(handle, [SHARED_LOCK], start, end) is None
    assert code(check_handle_write(handle, [SHARED_LOCK], start, end)) == anyone


def test_locks_wait_for_rest_operations_that_they_would_refuse() -> None:
    for access in RestAccess:
        writes = access in (RestAccess.WRITE, RestAccess.REPLACE)
        assert delays_lock(access, exclusive=False) is writes
        assert delays_lock(access, exclusive=True) is (writes or access is RestAccess.READ)


def test_the_number_of_locks_is_limited() -> None:
    locks = [RangeLock(1, at, at + 1, exclusive=True) for at in range(RANGE_LOCKS_MAX)]
    more = RangeLock(1, RANGE_LOCKS_MAX, RANGE_LOCKS_MAX + 1, exclusive=True)
    assert check_lock(more, locks[1:]) is None
    assert code(check_lock(more, locks)) == "FileLockConflict"


def test_the_index_of_locks_agrees_with_the_comparison_with_each() -> None:
    chosen = random.Random(1)

    def any_lock() -> RangeLock:
        start = chosen.randrange(12)
        is_exclusive = bool(chosen.randrange(2))
        return RangeLock(chosen.randrange(3), start, start + chosen.randrange(5), is_exclusive)

    for _ in range(5_000):
        locks = [any_lock() for _ in range(chosen.randrange(8))]
        asked = any_lock()
        assert LockIndex(locks).excludes(asked) == (check_lock(asked, locks) is not None)
