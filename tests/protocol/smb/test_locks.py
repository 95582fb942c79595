"""LOCK, byte by byte."""

from __future__ import annotations

import struct

import pytest

from etagere.nt_status import NtStatus
from etagere.protocol.smb.commands.locks import ELEMENTS_MAX, lock
from tests.protocol.smb.fixture import HANDLE_ID, FakeRequest, FakeShare, new_open, run, status

SHARED, EXCLUSIVE, UNLOCK, AT_ONCE = 0x1, 0x2, 0x4, 0x10
REQUEST = bytes.fromhex(
    "3000"  # structure size
    "0200"  # count
    "00000000"  # sequence
    "8877665544332211"  # file ID, persistent
    "8877665544332211"  # file ID, volatile
    "0a00000000000000"  # offset
    "0500000000000000"  # length
    "12000000"  # exclusive, at once
    "00000000"
    "1400000000000000"
    "0000000000000000"
    "11000000"  # shared, at once
    "00000000"
)


def body(*elements: tuple[int, int, int]) -> bytes:
    head = struct.pack("<HHIQQ", 48, len(elements), 0, HANDLE_ID, HANDLE_ID)
    return head + b"".join(struct.pack("<QQI4x", *element) for element in elements)


def test_lock() -> None:
    share = FakeShare()
    assert run(lock, FakeRequest(REQUEST, share, new_open())).body == bytes.fromhex("04000000")
    assert share.calls == [("lock_all", (10, 15, True), (20, 20, False))]


def test_lock_that_waits() -> None:
    share = FakeShare()
    request = FakeRequest(body((0, 1, SHARED)), share, new_open())
    run(lock, request)
    assert share.calls == [("lock", 0, 1, False)]
    assert request.is_pending


def test_all_ranges_or_none() -> None:
    share = FakeShare(conflicts={7})
    request = body((5, 1, SHARED | AT_ONCE), (6, 1, EXCLUSIVE | AT_ONCE), (7, 1, SHARED | AT_ONCE))
    assert status(lock, FakeRequest(request, share, new_open())) is NtStatus.LOCK_NOT_GRANTED
    assert not share.calls


def test_unlock() -> None:
    share = FakeShare(conflicts={7})
    run(lock, FakeRequest(body((5, 1, UNLOCK), (6, 2, UNLOCK)), share, new_open()))
    assert share.calls == [("unlock", (5, 6), (6, 8))]
    request = FakeRequest(body((7, 1, UNLOCK)), share, new_open())
    assert status(lock, request) is NtStatus.RANGE_NOT_LOCKED


@pytest.mark.parametrize(
    ("wrong", "expected"),
    [
        ((7, 1, SHARED), NtStatus.INVALID_PARAMETER),
        (((1 << 64) - 1, 2, UNLOCK), NtStatus.INVALID_LOCK_RANGE),
        (((1 << 64) - 1, 2, SHARED), NtStatus.INVALID_PARAMETER),
    ],
)
def test_ranges_before_a_wrong_one_are_unlocked(
    wrong: tuple[int, int, int], expected: NtStatus
) -> None:
    share = FakeShare()
    request = FakeRequest(body((5, 1, UNLOCK), wrong, (8, 1, UNLOCK)), share, new_open())
    assert status(lock, request) is expected
    assert share.calls == [("unlock", (5, 6))]


@pytest.mark.parametrize(
    ("request_body", "expected"),
    [
        (body(), NtStatus.INVALID_PARAMETER),
        (REQUEST[:-1], NtStatus.INVALID_PARAMETER),
        (body((0, 1, 0)), NtStatus.INVALID_PARAMETER),
        (body((0, 1, AT_ONCE)), NtStatus.INVALID_PARAMETER),
        (body((0, 1, SHARED | EXCLUSIVE)), NtStatus.INVALID_PARAMETER),
        (body((0, 1, UNLOCK | AT_ONCE)), NtStatus.INVALID_PARAMETER),
        (body((0, 1, UNLOCK | SHARED)), NtStatus.INVALID_PARAMETER),
        (body((0, 1, 0x20)), NtStatus.INVALID_PARAMETER),
        (body((0, 1, SHARED), (1, 1, SHARED)), NtStatus.INVALID_PARAMETER),
        (body((0, 1, SHARED | AT_ONCE), (1, 1, UNLOCK)), NtStatus.INVALID_PARAMETER),
        (body(*[(0, 1, SHARED | AT_ONCE)] * ELEMENTS_MAX), NtStatus.SUCCESS),
        (body(*[(0, 1, UNLOCK)] * (ELEMENTS_MAX + 1)), NtStatus.INSUFFICIENT_RESOURCES),
        (body(((1 << 64) - 1, 2, SHARED | AT_ONCE)), NtStatus.INVALID_LOCK_RANGE),
        (body(((1 << 64) - 1, 1, SHARED | AT_ONCE)), NtStatus.SUCCESS),
        (body(((1 << 64) - 1, 0, SHARED | AT_ONCE)), NtStatus.SUCCESS),
    ],
)
def test_flags_and_ranges(request_body: bytes, expected: NtStatus) -> None:
    assert status(lock, FakeRequest(request_body, FakeShare(), new_open())) is expected


def test_directories_have_no_ranges() -> None:
    request = FakeRequest(REQUEST, FakeShare(), new_open(is_directory=True))
    assert status(lock, request) is NtStatus.INVALID_DEVICE_REQUEST
