"""IOCTL with a real client."""

from __future__ import annotations

import struct

import pytest
from azure.storage.fileshare import ShareClient

from etagere.nt_status import NtStatus
from tests.smb.client import ALL, OVERWRITE_IF, READ, SmbClient
from tests.smb.messages import ioctl

_RESUME_KEY, _COPYCHUNK, _COPYCHUNK_WRITE = 0x0014_0078, 0x0014_40F2, 0x0014_80F2
_SNAPSHOTS, _ZERO, _ALLOCATED = 0x0014_4064, 0x0009_80C8, 0x0009_40CF
_APPEND = 0x0010_0004


def _chunks(key: bytes, *chunks: tuple[int, int, int]) -> bytes:
    head = key + struct.pack("<I4x", len(chunks))
    return head + b"".join(struct.pack("<QQI4x", *chunk) for chunk in chunks)


def test_copy(client: SmbClient) -> None:
    client.write_file("source", bytes(range(256)) * 40)
    source, target = client.open("source"), client.open("target", disposition=OVERWRITE_IF)
    key = ioctl(source, _RESUME_KEY).body[:24]
    copied = ioctl(target, _COPYCHUNK, _chunks(key, (0, 0, 4_096), (4_096, 5_000, 1_000)))
    assert copied == (NtStatus.SUCCESS, struct.pack("<III", 2, 0, 5_096))
    source.close()
    target.close()
    data = bytes(range(256)) * 40
    assert client.read_file("target") == data[:4_096] + bytes(904) + data[4_096:5_096]


def test_refused_copies(client: SmbClient) -> None:
    client.write_file("source", b"x" * 100)
    source = client.open("source", READ)
    target = client.open("target", ALL, disposition=OVERWRITE_IF)
    key = ioctl(source, _RESUME_KEY).body[:24]
    limits = struct.pack("<III", 256, 1 << 20, 16 << 20)
    cases = [
        (_chunks(key, (0, 0, (1 << 20) + 1)), NtStatus.INVALID_PARAMETER, limits),
        (_chunks(key, (0, 0, 0)), NtStatus.INVALID_PARAMETER, limits),
        (_chunks(key, *[(0, 0, 1)] * 257), NtStatus.INVALID_PARAMETER, limits),
        (_chunks(key, (0, 0, 10), (90, 10, 11)), NtStatus.INVALID_VIEW_SIZE, None),
        (_chunks(b"?" * 24, (0, 0, 1)), NtStatus.OBJECT_NAME_NOT_FOUND, None),
        (_chunks(key, (0, 0, 1))[:-1], NtStatus.INVALID_PARAMETER, None),
        (b"", NtStatus.INVALID_PARAMETER, None),
    ]
    for data, status, body in cases:
        answer = ioctl(target, _COPYCHUNK, data)
        assert answer.status == status
        assert body is None or answer.body == body
    assert ioctl(source, _COPYCHUNK_WRITE, _chunks(key, (0, 0, 1))).status == (
        NtStatus.ACCESS_DENIED
    )
    source.close()
    target.close()


def test_snapshots(client: SmbClient, share: ShareClient) -> None:
    opened = client.open("", READ)
    assert ioctl(opened, _SNAPSHOTS, bytes_max=16).body == struct.pack("<III", 0, 0, 4) + bytes(4)
    times = [share.create_snapshot()["snapshot"] for _ in range(2)]
    expected = [
        f"@GMT-{time[:19].replace('-', '.').replace('T', '-').replace(':', '.')}" for time in times
    ]
    answer = ioctl(opened, _SNAPSHOTS)
    assert struct.unpack_from("<III", answer.body) == (2, 2, 102)
    names = answer.body[12:].decode("utf-16-le")
    assert names == f"{expected[1]}\0{expected[0]}\0\0"
    short = ioctl(opened, _SNAPSHOTS, bytes_max=16)
    assert short.body == struct.pack("<III", 2, 0, 102) + bytes(4)
    assert ioctl(opened, _SNAPSHOTS, bytes_max=15).status == NtStatus.INVALID_PARAMETER
    opened.close()


def test_ranges(client: SmbClient) -> None:
    client.write_file("file", b"x" * 10_000)
    opened = client.open("file")
    assert ioctl(opened, _ZERO, struct.pack("<qq", 1_000, 2_000)).status == NtStatus.SUCCESS
    assert opened.read(0, 10_000) == b"x" * 1_000 + bytes(1_000) + b"x" * 8_000
    answer = ioctl(opened, _ALLOCATED, struct.pack("<qq", 0, 20_000))
    assert answer.status == NtStatus.SUCCESS
    assert len(answer.body) % 16 == 0 and answer.body
    for data in (b"", struct.pack("<qq", -1, 5), struct.pack("<qq", 9, 5)):
        assert ioctl(opened, _ZERO, data).status == NtStatus.INVALID_PARAMETER
    assert ioctl(opened, _ALLOCATED, struct.pack("<qq", 0, -1)).status == (
        NtStatus.INVALID_PARAMETER
    )
    opened.close()
    for access in (READ, _APPEND):
        opened = client.open("file", access)
        assert ioctl(opened, _ZERO, struct.pack("<qq", 0, 5)).status == NtStatus.ACCESS_DENIED
        opened.close()


@pytest.mark.parametrize(
    ("code", "status"),
    [
        (0x0006_0194, NtStatus.FS_DRIVER_REQUIRED),
        (0x0014_01FC, NtStatus.NOT_SUPPORTED),
        (0x0014_01D4, NtStatus.NOT_SUPPORTED),
        (0x0009_00C4, NtStatus.INVALID_DEVICE_REQUEST),
        (0x0009_00A8, NtStatus.INVALID_DEVICE_REQUEST),
        (0x0009_C040, NtStatus.INVALID_PARAMETER),
        (0x0011_C017, NtStatus.INVALID_DEVICE_REQUEST),
    ],
)
def test_refused(client: SmbClient, code: int, status: NtStatus) -> None:
    opened = client.open("file", disposition=OVERWRITE_IF)
    assert ioctl(opened, code).status == status
    opened.close()


def test_compression(client: SmbClient) -> None:
    opened = client.open("file", disposition=OVERWRITE_IF)
    assert ioctl(opened, 0x0009_003C) == (NtStatus.SUCCESS, b"\0\0")
    assert ioctl(opened, 0x0009_C040, b"\0\0").status == NtStatus.SUCCESS
    assert ioctl(opened, 0x0009_C040, b"\1\0").status == NtStatus.NOT_SUPPORTED
    opened.close()


def test_unknown_code_without_an_open(client: SmbClient) -> None:
    opened = client.open("file", disposition=OVERWRITE_IF)
    for file_id in (b"\1" * 16, b"\xff" * 16):
        opened.file_id, own = file_id, opened.file_id
        assert ioctl(opened, 0x0009_00C0).status == NtStatus.FILE_CLOSED
        opened.file_id = own
    opened.close()
