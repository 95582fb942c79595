"""READ, WRITE, FLUSH and CLOSE, byte by byte."""

from __future__ import annotations

import struct

import pytest

from etagere.nt_status import NtStatus
from etagere.protocol.smb.commands.close import close
from etagere.protocol.smb.commands.read_write import flush, read, write
from etagere.rules.opens import RangeLock
from tests.protocol.smb.fixture import (
    ENTRY_ID,
    HANDLE_ID,
    FakeRequest,
    FakeShare,
    new_open,
    run,
    status,
)

READ = bytes.fromhex(
    "3100"  # structure size
    "50"  # padding
    "00"  # flags
    "0a000000"  # length
    "0100000000000000"  # offset
    "8877665544332211"  # file ID, persistent
    "8877665544332211"  # file ID, volatile
    "01000000"  # minimum count
    "00000000"  # channel
    "00000000"  # remaining bytes
    "0000"  # channel information
    "0000"
    "00"
)
WRITE = bytes.fromhex(
    "3100"  # structure size
    "7000"  # offset of the data
    "03000000"  # length
    "0700000000000000"  # offset
    "8877665544332211"
    "8877665544332211"
    "00000000"  # channel
    "00000000"  # remaining bytes
    "0000"  # channel information
    "0000"
    "01000000"  # flags: write through
    "616263"
)
FLUSH = bytes.fromhex("180000000000000088776655443322118877665544332211")
CLOSE = bytes.fromhex("180001000000000088776655443322118877665544332211")


def read_body(length: int, offset: int, minimum: int = 0) -> bytes:
    ids = HANDLE_ID, HANDLE_ID
    return struct.pack("<HBBIQQQIIIHHx", 49, 0, 0, length, offset, *ids, minimum, 0, 0, 0, 0)


def write_body(data: bytes, offset: int = 0, data_offset: int = 112, flags: int = 0) -> bytes:
    ids = HANDLE_ID, HANDLE_ID
    fields = 49, data_offset, len(data), offset, *ids, 0, 0, 0, 0, flags
    return struct.pack("<HHIQQQIIHHI", *fields) + data


def test_read() -> None:
    opened = new_open()
    reply = run(read, FakeRequest(READ, FakeShare(), opened))
    assert reply.body == bytes.fromhex(
        "1100"  # structure size
        "50"  # offset of the data
        "00"
        "04000000"  # length of the data
        "00000000"  # remaining bytes
        "00000000"
    )
    assert reply.payload == b"ello"
    assert opened.position == 5


@pytest.mark.parametrize(
    ("length", "offset", "minimum", "expected"),
    [
        (10, 5, 0, NtStatus.END_OF_FILE),
        (0, 5, 0, NtStatus.SUCCESS),
        (0, 5, 1, NtStatus.END_OF_FILE),
        (2, 4, 0, NtStatus.SUCCESS),
        (2, 4, 2, NtStatus.END_OF_FILE),
        (1, 0, 0x10000, NtStatus.END_OF_FILE),
        (1, (1 << 63) - 2, 0, NtStatus.END_OF_FILE),
        (0, (1 << 63) - 1, 0, NtStatus.SUCCESS),
        (1, (1 << 63) - 1, 0, NtStatus.INVALID_PARAMETER),
        (0, 1 << 63, 0, NtStatus.INVALID_PARAMETER),
        ((1 << 20) + 1, 0, 0, NtStatus.INVALID_PARAMETER),
    ],
)
def test_the_end_of_a_file(length: int, offset: int, minimum: int, expected: NtStatus) -> None:
    request = FakeRequest(read_body(length, offset, minimum), FakeShare(), new_open())
    assert status(read, request) is expected


def test_write() -> None:
    share = FakeShare()
    reply = run(write, FakeRequest(WRITE, share, new_open()))
    assert reply.body == bytes.fromhex(
        "1100"  # structure size
        "0000"
        "03000000"  # count
        "00000000"  # remaining bytes
        "0000"
        "0000"
    )
    assert share.calls == [("write", 7, b"abc", True)]


def test_write_through_by_the_options_of_the_open() -> None:
    share = FakeShare()
    run(write, FakeRequest(write_body(b"x"), share, new_open()))
    run(write, FakeRequest(write_body(b"x"), share, new_open(options=0x2)))
    assert share.calls == [("write", 0, b"x", False), ("write", 0, b"x", True)]


def test_write_with_nothing_but_append_access() -> None:
    share = FakeShare()
    run(write, FakeRequest(write_body(b"x"), share, new_open(0x4)))
    assert share.calls == [("write", None, b"x", False)]


@pytest.mark.parametrize(
    ("request_body", "expected"),
    [
        (write_body(b"", (1 << 63) - 1), NtStatus.SUCCESS),
        (write_body(b"x", (1 << 63) - 1), NtStatus.INVALID_PARAMETER),
        (write_body(b"", 1 << 63), NtStatus.INVALID_PARAMETER),
        (write_body(b"x", (1 << 64) - 1), NtStatus.INVALID_PARAMETER),
        (write_body(b"x", 0xFFF_FFFF_0000), NtStatus.INVALID_PARAMETER),
        (write_body(b"xyz", 0, 111), NtStatus.INVALID_PARAMETER),
        (write_body(b"xyz", 0, 113), NtStatus.INVALID_PARAMETER),
        (write_body(b"xyz", 0, 0xFFFF), NtStatus.INVALID_PARAMETER),
        (write_body(b"xyz")[:-1], NtStatus.INVALID_PARAMETER),
        (write_body(b"")[:-1], NtStatus.INVALID_PARAMETER),
        (write_body(bytes((1 << 20) + 1)), NtStatus.INVALID_PARAMETER),
    ],
)
def test_writes_of_nothing(request_body: bytes, expected: NtStatus) -> None:
    share = FakeShare()
    assert status(write, FakeRequest(request_body, share, new_open())) is expected
    assert not share.calls


@pytest.mark.parametrize(
    ("is_own", "exclusive", "readable", "writable"),
    [
        (True, True, True, True),
        (True, False, True, False),
        (False, True, False, False),
        (False, False, True, False),
    ],
)
def test_locked_bytes(is_own: bool, exclusive: bool, readable: bool, writable: bool) -> None:
    opened = new_open()
    assert opened.handle is not None
    opened.handle.entry.locks.append(RangeLock(HANDLE_ID if is_own else 1, 2, 4, exclusive))
    share = FakeShare(data=b"0123456789")
    for offset in (0, 3, 4):
        is_locked = offset == 3
        conflict = NtStatus.FILE_LOCK_CONFLICT
        reading = FakeRequest(read_body(2, offset), share, opened)
        expected = NtStatus.SUCCESS if readable or not is_locked else conflict
        assert status(read, reading) is expected
        writing = FakeRequest(write_body(b"xx", offset), share, opened)
        expected = NtStatus.SUCCESS if writable or not is_locked else conflict
        assert status(write, writing) is expected


@pytest.mark.parametrize(
    ("access", "readable", "writable"),
    [
        (0x01, True, False),
        (0x20, True, False),
        (0x02, False, True),
        (0x04, False, True),
        (0x1F_01F8, True, False),
        (0x12_0080, False, False),
    ],
)
def test_rights(access: int, readable: bool, writable: bool) -> None:
    def result(is_allowed: bool) -> NtStatus:
        return NtStatus.SUCCESS if is_allowed else NtStatus.ACCESS_DENIED

    opened = new_open(access)
    assert status(read, FakeRequest(READ, FakeShare(), opened)) is result(readable)
    assert status(write, FakeRequest(WRITE, FakeShare(), opened)) is result(writable)
    assert status(flush, FakeRequest(FLUSH, FakeShare(), opened)) is result(writable)


def test_directories_have_no_bytes() -> None:
    opened = new_open(is_directory=True)
    for command, request_body in ((read, READ), (write, WRITE)):
        request = FakeRequest(request_body, FakeShare(), opened)
        assert status(command, request) is NtStatus.INVALID_DEVICE_REQUEST
    share = FakeShare()
    assert run(flush, FakeRequest(FLUSH, share, opened)).body == b"\x04\0\0\0"
    assert not share.calls


def test_flush() -> None:
    share = FakeShare()
    assert run(flush, FakeRequest(FLUSH, share, new_open())).body == bytes.fromhex("04000000")
    assert share.calls == [("flush", ENTRY_ID)]


def test_close_with_attributes() -> None:
    share = FakeShare()
    request = FakeRequest(CLOSE, share, new_open())
    assert run(close, request).body == bytes.fromhex(
        "3c00"  # structure size
        "0100"  # flags: there are attributes
        "00000000"
        "01803ed5deb19d01"  # created
        "01803ed5deb19d01"  # accessed
        "02803ed5deb19d01"  # written
        "03803ed5deb19d01"  # changed
        "0010000000000000"  # allocation
        "0500000000000000"  # end of file
        "20000000"  # attributes
    )
    assert share.calls == [("close", HANDLE_ID)]
    assert not request.session.opens
    assert not request.tree.opens
    assert status(close, request) is NtStatus.FILE_CLOSED


def test_close_without_attributes() -> None:
    silent = CLOSE[:2] + bytes(2) + CLOSE[4:]
    reply = run(close, FakeRequest(silent, FakeShare(), new_open()))
    assert reply.body == b"\x3c\0" + bytes(58)


@pytest.mark.parametrize("command", [read, write, flush, close])
def test_short_requests(command: object) -> None:
    for length in (0, 2, 23):
        request = FakeRequest(bytes(length), FakeShare(), new_open())
        assert status(command, request) is NtStatus.INVALID_PARAMETER  # type: ignore[arg-type]
