"""QUERY_INFO and SET_INFO, with a real client and REST on the other side."""

from __future__ import annotations

import struct
from datetime import datetime

import pytest
from azure.storage.fileshare import ShareClient

from etagere.nt_status import NtStatus
from etagere.protocol.smb.information.files import FILE_CLASSES
from etagere.protocol.smb.information.volumes import VOLUME_CLASSES
from tests.smb.client import (
    ALL,
    CREATE,
    DIRECTORY,
    OPEN,
    OVERWRITE_IF,
    READ,
    READ_ONLY,
    SmbClient,
    refused,
)
from tests.smb.messages import FILE, FILE_SYSTEM, SECURITY, change, query

_EPOCH = 116_444_736_000_000_000
_TIMES = [_EPOCH + 10**15 * number for number in (1, 2, 3, 4)]


def _basic(times: list[int], attributes: int = 0) -> bytes:
    return struct.pack("<qqqqI4x", *times, attributes)


def test_all_classes_answer(client: SmbClient) -> None:
    client.write_file("file.txt", b"hello")
    opened = client.open("file.txt")
    for number, row in FILE_CLASSES.items():
        status, data = query(opened, FILE, number)
        assert status == NtStatus.SUCCESS, number
        assert len(data) >= row.fixed_bytes
    for number, volume_row in VOLUME_CLASSES.items():
        status, data = query(opened, FILE_SYSTEM, number)
        assert status == NtStatus.SUCCESS, number
        assert len(data) >= volume_row.fixed_bytes
    opened.close()


@pytest.mark.parametrize(
    ("info_type", "info_class", "bytes_max", "status"),
    [
        (FILE, 4, 39, NtStatus.INFO_LENGTH_MISMATCH),
        (FILE, 18, 103, NtStatus.INFO_LENGTH_MISMATCH),
        (FILE, 18, 104, NtStatus.BUFFER_OVERFLOW),
        (FILE, 9, 8, NtStatus.BUFFER_OVERFLOW),
        (FILE, 9, 7, NtStatus.INFO_LENGTH_MISMATCH),
        (FILE_SYSTEM, 5, 16, NtStatus.BUFFER_OVERFLOW),
        (FILE_SYSTEM, 5, 15, NtStatus.INFO_LENGTH_MISMATCH),
        (FILE, 21, 65_536, NtStatus.OBJECT_NAME_NOT_FOUND),
        (FILE, 200, 65_536, NtStatus.INVALID_INFO_CLASS),
        (FILE_SYSTEM, 200, 65_536, NtStatus.INVALID_INFO_CLASS),
        (9, 4, 65_536, NtStatus.INVALID_PARAMETER),
        (FILE, 4, 1 << 30, NtStatus.INVALID_PARAMETER),
    ],
)
def test_buffers(
    client: SmbClient, info_type: int, info_class: int, bytes_max: int, status: NtStatus
) -> None:
    opened = client.open("file.txt", disposition=OVERWRITE_IF)
    assert query(opened, info_type, info_class, bytes_max=bytes_max).status == status
    opened.close()


def test_times_and_attributes(client: SmbClient, share: ShareClient) -> None:
    client.write_file("file.txt", b"hello")
    opened = client.open("file.txt")
    assert change(opened, FILE, 4, _basic(_TIMES, 0x22)) == NtStatus.SUCCESS
    assert query(opened, FILE, 4).body == _basic(_TIMES, 0x22)
    opened.write(b"more", 100)
    # The client has set the time of the last write, so that this handle leaves it alone.
    opened.close()
    reopened = client.open("file.txt")
    created, accessed, written = struct.unpack_from("<qqq", query(reopened, FILE, 4).body)
    assert [created, accessed, written] == _TIMES[:3]
    assert change(reopened, FILE, 4, _basic([0, 0, 0, 0], 0x80)) == NtStatus.SUCCESS
    assert query(reopened, FILE, 4).body[32:36] == struct.pack("<I", 0x80)
    reopened.close()
    properties = share.get_file_client("file.txt").get_file_properties()
    assert properties.file_attributes == "None"
    created_at = properties.creation_time
    assert isinstance(created_at, datetime)
    assert created_at.year == 1973


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (_basic([0, 0, 0, 0]), NtStatus.SUCCESS),
        (_basic([-1, -1, -1, -1]), NtStatus.SUCCESS),
        (_basic([-2, -2, -2, -2]), NtStatus.SUCCESS),
        (_basic([0, 0, -3, 0]), NtStatus.INVALID_PARAMETER),
        (_basic([0, 0, 0, (1 << 63) - 1]), NtStatus.INVALID_PARAMETER),
        (_basic([0, 0, 0, 0], 0x10), NtStatus.INVALID_PARAMETER),
        (_basic([0, 0, 0, 0])[:-5], NtStatus.INFO_LENGTH_MISMATCH),
    ],
)
def test_basic_information(client: SmbClient, data: bytes, status: NtStatus) -> None:
    opened = client.open("file.txt", disposition=OVERWRITE_IF)
    before = query(opened, FILE, 4).body
    assert change(opened, FILE, 4, data) == status
    assert query(opened, FILE, 4).body == before
    opened.close()


def test_length(client: SmbClient) -> None:
    client.write_file("file.txt", b"0123456789")
    opened = client.open("file.txt")
    for number, length, expected in ((20, 15, 15), (19, 1 << 20, 15), (19, 4, 4), (20, 2, 2)):
        assert change(opened, FILE, number, struct.pack("<q", length)) == NtStatus.SUCCESS
        assert struct.unpack_from("<q", query(opened, FILE, 5).body, 8) == (expected,)
    assert change(opened, FILE, 20, struct.pack("<q", -1)) == NtStatus.INVALID_PARAMETER
    opened.close()
    assert client.read_file("file.txt") == b"01"


def test_rename(client: SmbClient, share: ShareClient) -> None:
    client.open("d", disposition=CREATE, options=DIRECTORY).close()
    client.write_file("a.txt", b"a")
    client.write_file("b.txt", b"b")
    opened = client.open("a.txt")
    assert _rename(opened, "b.txt") == NtStatus.OBJECT_NAME_COLLISION
    assert _rename(opened, "missing\\c.txt") == NtStatus.OBJECT_PATH_NOT_FOUND
    assert _rename(opened, "c:d") == NtStatus.OBJECT_NAME_INVALID
    assert _rename(opened, "d\\c.txt") == NtStatus.SUCCESS
    assert query(opened, FILE, 9).body[4:].decode("utf-16-le") == "\\d\\c.txt"
    assert _rename(opened, "B.TXT", replace=True) == NtStatus.SUCCESS
    opened.close()
    assert client.read_file("b.txt") == b"a"
    assert sorted(entry.name for entry in share.list_directories_and_files()) == ["B.TXT", "d"]


def _rename(opened: object, name: str, *, replace: bool = False) -> int:
    encoded = name.encode("utf-16-le")
    return change(opened, FILE, 10, struct.pack("<B7xQI", replace, 0, len(encoded)) + encoded)


def test_deletion(client: SmbClient, share: ShareClient) -> None:
    client.write_file("file.txt", b"")
    opened = client.open("file.txt")
    assert change(opened, FILE, 13, b"\1") == NtStatus.SUCCESS
    assert query(opened, FILE, 5).body[16:22] == struct.pack("<IBB", 0, 1, 0)
    assert list(share.list_directories_and_files()) == []
    assert change(opened, FILE, 13, b"\0") == NtStatus.SUCCESS
    assert change(opened, FILE, 64, struct.pack("<I", 3)) == NtStatus.NOT_SUPPORTED
    assert change(opened, FILE, 64, struct.pack("<I", 1)) == NtStatus.SUCCESS
    opened.close()
    with refused(NtStatus.OBJECT_NAME_NOT_FOUND):
        client.open("file.txt", disposition=OPEN)


def test_read_only_files_stay(client: SmbClient) -> None:
    client.write_file("file.txt", b"", attributes=READ_ONLY)
    opened = client.open("file.txt", READ | 0x0001_0100)
    assert change(opened, FILE, 13, b"\1") == NtStatus.CANNOT_DELETE
    assert change(opened, FILE, 4, _basic([0] * 4, 0x80)) == NtStatus.SUCCESS
    assert change(opened, FILE, 13, b"\1") == NtStatus.SUCCESS
    opened.close()


@pytest.mark.parametrize(
    ("info_class", "data", "status"),
    [
        (14, struct.pack("<q", 7), NtStatus.SUCCESS),
        (14, struct.pack("<q", -7), NtStatus.INVALID_PARAMETER),
        (16, struct.pack("<I", 2), NtStatus.SUCCESS),
        (16, struct.pack("<I", 1), NtStatus.INVALID_PARAMETER),
        (11, bytes(24), NtStatus.NOT_SUPPORTED),
        (15, bytes(24), NtStatus.EAS_NOT_SUPPORTED),
        (65, struct.pack("<I4xQI", 2, 0, 2) + b"x\0", NtStatus.NOT_SUPPORTED),
        (10, bytes(3), NtStatus.INFO_LENGTH_MISMATCH),
        (10, struct.pack("<I4xQI", 0, 0, 9_999) + b"x\0", NtStatus.INFO_LENGTH_MISMATCH),
        (10, struct.pack("<I4xQI", 0, 5, 2) + b"x\0", NtStatus.INVALID_PARAMETER),
        (77, bytes(100), NtStatus.INVALID_INFO_CLASS),
    ],
)
def test_other_classes(client: SmbClient, info_class: int, data: bytes, status: NtStatus) -> None:
    opened = client.open("file.txt", disposition=OVERWRITE_IF)
    assert change(opened, FILE, info_class, data) == status
    opened.close()


def test_access_is_checked(client: SmbClient) -> None:
    client.write_file("file.txt", b"x")
    opened = client.open("file.txt", 0x0010_0000)
    for number in (4, 18, 34, 35):
        assert query(opened, FILE, number).status == NtStatus.ACCESS_DENIED
    for number, data in ((4, _basic([0] * 4)), (13, b"\1"), (20, bytes(8))):
        assert change(opened, FILE, number, data) == NtStatus.ACCESS_DENIED
    assert query(opened, SECURITY, 0, additional=4).status == NtStatus.ACCESS_DENIED
    descriptor = struct.pack("<BBHIIII", 1, 0, 0x8000, 0, 0, 0, 0)
    for part in (0x1, 0x2, 0x4, 0x8, 0x10, 0x20, 0x40, 0x1_0000):
        status = change(opened, SECURITY, 0, descriptor, additional=part)
        assert status == NtStatus.ACCESS_DENIED
    opened.close()


def test_parts_of_descriptors_that_are_not_stored(client: SmbClient, share: ShareClient) -> None:
    client.write_file("file.txt", b"x")
    before = share.get_file_client("file.txt").get_file_properties().etag
    opened = client.open("file.txt", ALL)
    descriptor = struct.pack("<BBHIIII", 1, 0, 0x8000, 0, 0, 0, 0)
    for part in (0x10, 0x20):
        assert change(opened, SECURITY, 0, descriptor, additional=part) == NtStatus.SUCCESS
    opened.close()
    assert share.get_file_client("file.txt").get_file_properties().etag == before


def test_security(client: SmbClient, share: ShareClient) -> None:
    client.write_file("file.txt", b"x")
    opened = client.open("file.txt", ALL)
    status, needed = query(opened, SECURITY, 0, bytes_max=4, additional=7)
    assert status == NtStatus.BUFFER_TOO_SMALL
    # The error data is in the only error context ([MS-SMB2] 2.2.2.1).
    assert needed[:2] + needed[2:3] == b"\x09\0\1"
    (length,) = struct.unpack_from("<I", needed, 16)
    status, before = query(opened, SECURITY, 0, additional=7)
    assert (status, len(before)) == (NtStatus.SUCCESS, length)
    # An owner, S-1-5-32-545, and nothing else.
    owner = bytes.fromhex("01020000000000052000000021020000")
    descriptor = struct.pack("<BBHIIII", 1, 0, 0x8000, 20, 0, 0, 0) + owner
    assert change(opened, SECURITY, 0, descriptor, additional=1) == NtStatus.SUCCESS
    assert query(opened, SECURITY, 0, additional=1).body == descriptor
    assert len(query(opened, SECURITY, 0, additional=7).body) == length + 4
    assert change(opened, SECURITY, 0, b"x", additional=1) == NtStatus.INVALID_SECURITY_DESCR
    opened.close()
    key = share.get_file_client("file.txt").get_file_properties().permission_key
    assert share.get_permission_for_share(key).startswith("O:BUG:SYD:")
