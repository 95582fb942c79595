"""Share modes: the tables of the documentation, exhaustively."""

from __future__ import annotations

from itertools import product

import pytest

from etagere.errors import Refusal
from etagere.rules.opens import (
    EVERYTHING,
    Access,
    OpenMode,
    RangeLock,
    RestAccess,
    check_lock,
    check_open,
    check_rest_access,
    check_rest_read,
    check_rest_write,
    conflicts,
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
    held = [OpenMode(R, share)]
    for column, allowed in zip(COLUMNS, BY_SHARE_MODE[share], strict=True):
        expected = "" if allowed else "SharingViolation"
        assert code(check_rest_access(column, held)) == expected, column
    assert check_rest_access(RestAccess.QUERY, held) is None


@pytest.mark.parametrize("access", ALL_ACCESS)
def test_a_lease_needs_that_nobody_may_write_or_delete(access: Access) -> None:
    refusal = check_rest_access(RestAccess.LEASE, [OpenMode(access, EVERYTHING)])
    assert code(refusal) == ("SharingViolation" if access & (W | D) else "")


@pytest.mark.parametrize("access", ALL_ACCESS)
def test_opens_of_a_leased_file(access: Access) -> None:
    asked = OpenMode(access, EVERYTHING)
    refusal = check_open(asked, (), leased=True)
    assert code(refusal) == ("SharingViolation" if access & (W | D) else "")
    assert check_open(asked, (), leased=False) is None


def test_delete_needs_that_no_handle_is_open() -> None:
    """Not even one for attributes alone."""
    assert check_rest_access(RestAccess.DELETE, []) is None
    held = [OpenMode(NONE, EVERYTHING)]
    assert code(check_rest_access(RestAccess.DELETE, held)) == "SharingViolation"


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
    [(0, 10, False), (0, 11, True), (19, 30, True), (20, 30, False), (12, 13, True)],
)
def test_overlapping_ranges(start: int, end: int, overlaps: bool) -> None:
    conflict = "FileLockConflict" if overlaps else ""
    assert code(check_rest_read([EXCLUSIVE_LOCK], start, end)) == conflict
    assert check_rest_read([SHARED_LOCK], start, end) is None
    for handle in (1, 2):
        shared = RangeLock(handle, start, end, exclusive=False)
        exclusive = RangeLock(handle, start, end, exclusive=True)
        assert check_lock(shared, [SHARED_LOCK]) is None
        assert code(check_lock(shared, [EXCLUSIVE_LOCK])) == conflict
        assert code(check_lock(exclusive, [SHARED_LOCK])) == conflict
        assert code(check_lock(exclusive, [EXCLUSIVE_LOCK])) == conflict
