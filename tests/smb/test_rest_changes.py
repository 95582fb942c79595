"""Changes by SMB clients, as REST clients see them at once, and the other way round."""

from __future__ import annotations

import struct
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from azure.storage.fileshare import ShareClient, ShareFileClient
from smbprotocol.open import Open

from etagere.nt_status import NtStatus
from tests.sdk.file.clients import file_service, file_token
from tests.sdk.harness import refused as rest_refused
from tests.server import Server
from tests.smb.client import (
    CREATE,
    DELETE,
    HIDDEN,
    OVERWRITE,
    OVERWRITE_IF,
    READ,
    SHARE_READ,
    SHARE_WRITE,
    SmbClient,
    read,
    refused,
)
from tests.smb.messages import FILE, change, ioctl, query
from tests.smb.rest_operations import CONTENT, LENGTH

GIB = 1 << 30
_BASIC, _RENAME, _ALLOCATION, _END_OF_FILE = 4, 10, 19, 20
_RESUME_KEY, _COPYCHUNK_WRITE, _ZERO = 0x0014_0078, 0x0014_80F2, 0x0009_80C8


def set_length(opened: Open, length: int) -> int:
    return change(opened, FILE, _END_OF_FILE, struct.pack("<Q", length))


def set_basic(opened: Open, *, written: int = 0, attributes: int = 0) -> int:
    return change(opened, FILE, _BASIC, struct.pack("<QQQQI4x", 0, 0, written, 0, attributes))


def rename(opened: Open, name: str, *, replace: bool = False) -> int:
    path = name.encode("utf-16-le")
    return change(opened, FILE, _RENAME, struct.pack("<B15xI", replace, len(path)) + path)


def names(share: ShareClient) -> list[str]:
    return [listed["name"] for listed in share.list_directories_and_files()]


@pytest.fixture
def file(share: ShareClient) -> ShareFileClient:
    created = share.get_file_client("f")
    created.upload_file(CONTENT)
    return created


# What moves


def _copy_chunk(opened: Open) -> int:
    key = ioctl(opened, _RESUME_KEY).body[:24]
    chunk = struct.pack("<QQI4x", 0, LENGTH, 16)
    return ioctl(opened, _COPYCHUNK_WRITE, key + struct.pack("<I4x", 1) + chunk).status


_CHANGES: dict[str, tuple[Callable[[Open], object], bytes]] = {
    "write": (lambda one: one.write(b"X", 1), b"0X" + CONTENT[2:]),
    "append": (lambda one: one.write(b"X", LENGTH), CONTENT + b"X"),
    "write beyond the end": (lambda one: one.write(b"X", LENGTH + 9), CONTENT + bytes(9) + b"X"),
    "longer": (lambda one: set_length(one, LENGTH + 5), CONTENT + bytes(5)),
    "shorter": (lambda one: set_length(one, 5), CONTENT[:5]),
    "smaller allocation": (
        lambda one: change(one, FILE, _ALLOCATION, struct.pack("<Q", 512)),
        CONTENT[:512],
    ),
    "zeros": (
        lambda one: ioctl(one, _ZERO, struct.pack("<QQ", 0, 100)),
        bytes(100) + CONTENT[100:],
    ),
    "copy": (_copy_chunk, CONTENT + CONTENT[:16]),
    "attributes": (lambda one: set_basic(one, attributes=HIDDEN), CONTENT),
    "time": (lambda one: set_basic(one, written=132_000_000_000_000_000), CONTENT),
}


@pytest.mark.parametrize("name", _CHANGES)
def test_changes_are_visible_at_once(
    client: SmbClient, share: ShareClient, file: ShareFileClient, name: str
) -> None:
    """Before the handle is flushed or closed."""
    apply, expected = _CHANGES[name]
    before: Any = file.get_file_properties()
    opened = client.open("f")
    read(opened, 0, 10)
    assert file.get_file_properties().etag == before.etag
    apply(opened)
    after: Any = file.get_file_properties()
    assert after.etag != before.etag
    assert after.last_modified >= before.last_modified
    assert after.change_time > before.change_time
    moves = name not in ("attributes", "time")
    assert (after.last_write_time > before.last_write_time) is moves
    assert after.size == len(expected)
    (listed,) = share.list_directories_and_files(include=["etag", "timestamps"])
    assert (listed["size"], listed["etag"]) == (after.size, after.etag)
    assert file.download_file().readall() == expected
    ranges = list(file.list_ranges())
    assert all(0 <= one.start <= one.end < len(expected) for one in ranges)
    # Flushing and closing change nothing more.
    opened.flush()
    opened.close()
    assert file.get_file_properties().etag == after.etag
    assert client.read_file("f") == expected


def test_first_look_after_each_change(client: SmbClient, share: ShareClient) -> None:
    """Whichever operation is the first one after a change sees it."""
    opened = client.open("f", disposition=CREATE)
    file = share.get_file_client("f")
    looks: tuple[Callable[[], object], ...] = (
        lambda: file.get_file_properties().size,
        lambda: next(iter(share.list_directories_and_files()))["size"],
        lambda: len(file.download_file().readall()),
        lambda: list(file.list_ranges())[-1].end + 1,
        share.get_share_stats,
        lambda: query(opened, FILE, 5).body[8:16][0],
    )
    for length, look in enumerate(looks, start=1):
        opened.write(b"x", length - 1)
        assert look() == length


def test_every_acknowledged_write_is_visible(client: SmbClient, share: ShareClient) -> None:
    opened = client.open("f", disposition=CREATE)
    file = share.get_file_client("f")
    opened.write(struct.pack("<Q", 0))
    acknowledged = 0
    stops = False

    def keep_writing() -> None:
        nonlocal acknowledged
        for number in range(1, 400):
            if stops:
                return
            opened.write(struct.pack("<Q", number))
            acknowledged = number

    with ThreadPoolExecutor(1) as pool:
        writing = pool.submit(keep_writing)
        try:
            for _ in range(60):
                least = acknowledged
                assert struct.unpack("<Q", file.download_file().readall())[0] >= least
        finally:
            stops = True
        writing.result(10)


def test_rest_changes_reach_open_files(
    client: SmbClient, share: ShareClient, file: ShareFileClient
) -> None:
    opened = client.open("f")
    opened.write(b"smb", 0)
    file.upload_range(b"rest", 3, 4)
    assert read(opened, 0, 9) == b"smbrest78"
    file.clear_range(0, 512)
    assert read(opened, 0, 9) == bytes(9)
    file.resize_file(4)
    assert read(opened) == bytes(4)
    opened.write(b"again", 10)
    assert file.download_file().readall() == bytes(10) + b"again"
    file.create_file(2)
    assert read(opened) == bytes(2)
    assert struct.unpack_from("<Q", query(opened, FILE, 5).body, 8) == (2,)
    other = share.get_file_client("other")
    other.upload_file(b"copied")
    file.start_copy_from_url(other.url)
    assert read(opened) == b"copied"
    opened.write(b"C")
    opened.close()
    assert file.download_file().readall() == b"Copied"


def test_overwriting_opens(client: SmbClient, share: ShareClient, file: ShareFileClient) -> None:
    for disposition in (OVERWRITE, OVERWRITE_IF):
        file.upload_file(CONTENT)
        file.set_file_metadata({"a": "b"})
        before = file.get_file_properties()
        opened = client.open("f", disposition=disposition)
        after = file.get_file_properties()
        assert (after.size, after.file_id) == (0, before.file_id)
        assert after.etag != before.etag
        opened.close()


# Snapshots and copies


def test_snapshots(server: Server, client: SmbClient, share: ShareClient) -> None:
    opened = [client.open(f"f{number}", disposition=CREATE) for number in range(3)]
    for number, one in enumerate(opened):
        one.write(b"%d" % number * 100)
    snapshot = share.create_snapshot()["snapshot"]
    for one in opened:
        one.write(b"later")
    opened[0].close()
    frozen = file_service(server).get_share_client(share.share_name, snapshot=snapshot)
    for number in range(3):
        data = frozen.get_file_client(f"f{number}").download_file().readall()
        assert data == b"%d" % number * 100
    assert [one["size"] for one in frozen.list_directories_and_files()] == [100] * 3


def test_copies_of_open_files(client: SmbClient, share: ShareClient) -> None:
    opened = client.open("f", disposition=CREATE)
    source, copy = share.get_file_client("f"), share.get_file_client("copy")
    for data in (b"first", b"second one"):
        opened.write(data)
        copy.start_copy_from_url(source.url)
        assert copy.download_file().readall() == data
    opened.write(b"THIRD")
    copy.upload_range_from_url(f"{source.url}?{file_token(share, 'f')}", 0, 10, 0)
    assert copy.download_file().readall() == b"THIRDd one"
    # The other direction: the copied bytes belong to an open file.
    target = client.open("copy")
    target.write(b"x", 20)
    copy.start_copy_from_url(source.url)
    assert read(target) == b"THIRDd one"


# Quota


def test_quota(client: SmbClient, share: ShareClient) -> None:
    share.set_share_quota(1)
    opened = client.open("f", disposition=CREATE)
    assert set_length(opened, GIB - 10) == NtStatus.SUCCESS
    opened.write(b"x" * 10, GIB - 10)
    for data, offset in ((b"x", GIB), (b"xx", GIB - 1)):
        with refused(NtStatus.DISK_FULL):
            opened.write(data, offset)
    assert set_length(opened, GIB + 1) == NtStatus.DISK_FULL
    assert share.get_share_stats() == GIB
    other = share.get_file_client("other")
    with rest_refused(403, "ShareSizeLimitReached"):
        other.create_file(1)
    other.create_file(0)
    small = client.open("small", disposition=CREATE)
    with refused(NtStatus.DISK_FULL):
        small.write(b"x")
    # What one client gives back, the others can use at once.
    assert set_length(opened, GIB - 5) == NtStatus.SUCCESS
    small.write(b"12345")
    with rest_refused(403, "ShareSizeLimitReached"):
        other.create_file(1)
    assert set_length(small, 4) == NtStatus.SUCCESS
    other.create_file(1)
    with refused(NtStatus.DISK_FULL):
        small.write(b"5", 4)
    other.delete_file()
    small.write(b"5", 4)
    opened.close()
    share.get_file_client("f").delete_file()
    assert share.get_share_stats() == 5


# Renames


@pytest.mark.parametrize("mode", range(8))
def test_rest_renames_open_files(
    client: SmbClient, share: ShareClient, file: ShareFileClient, mode: int
) -> None:
    share.create_directory("d")
    opened = client.open("f", share=mode)
    opened.write(b"before")
    if not mode & 4:
        with rest_refused(409, "SharingViolation"):
            file.rename_file("d/g")
        return
    moved = file.rename_file("d/g")
    opened.write(b"AFTER", 6)
    assert names(share) == ["d"]
    (handle,) = share.get_directory_client("").list_handles(recursive=True)
    assert handle.path == "d/g"
    assert moved.get_file_properties().size == LENGTH
    opened.close()
    assert moved.download_file(0, 11).readall() == b"beforeAFTER"


def test_smb_renames(client: SmbClient, share: ShareClient, file: ShareFileClient) -> None:
    opened = client.open("f")
    opened.write(b"gathered")
    before = file.get_file_properties()
    assert rename(opened, "g") == NtStatus.SUCCESS
    assert names(share) == ["g"]
    with rest_refused(404, "ResourceNotFound"):
        file.get_file_properties()
    moved = share.get_file_client("g")
    after = moved.get_file_properties()
    assert (after.file_id, after.size) == (before.file_id, LENGTH)
    assert after.last_write_time == before.last_write_time
    assert moved.download_file(0, 8).readall() == b"gathered"
    share.get_file_client("h").upload_file(b"target")
    assert rename(opened, "h") == NtStatus.OBJECT_NAME_COLLISION
    assert rename(opened, "h", replace=True) == NtStatus.SUCCESS
    assert names(share) == ["h"]
    assert share.get_file_client("h").get_file_properties().file_id == before.file_id
    assert rename(opened, "H") == NtStatus.SUCCESS
    assert names(share) == ["H"]


def test_smb_renames_that_are_refused(
    client: SmbClient, other: SmbClient, share: ShareClient, file: ShareFileClient
) -> None:
    opened = client.open("f", DELETE | READ)
    reader = other.open("f", READ, share=SHARE_READ | SHARE_WRITE | 4)
    assert rename(opened, "g") == NtStatus.SUCCESS
    reader.close()
    # A target that is open, leased or read-only stays.
    target = share.get_file_client("target")
    target.upload_file(b"target")
    held = other.open("target", READ)
    assert rename(opened, "target", replace=True) == NtStatus.ACCESS_DENIED
    held.close()
    lease = target.acquire_lease()
    assert rename(opened, "target", replace=True) in (
        NtStatus.ACCESS_DENIED,
        NtStatus.SHARING_VIOLATION,
    )
    lease.release()
    assert rename(opened, "target", replace=True) == NtStatus.SUCCESS
    assert names(share) == ["target"]


def test_rest_renames_over_and_above_open_files(
    client: SmbClient, share: ShareClient, file: ShareFileClient
) -> None:
    directory = share.create_directory("d")
    directory.upload_file("below", b"x")
    opened = client.open("d\\below", READ)
    with rest_refused(409, "SharingViolation"):
        directory.rename_directory("e")
    with rest_refused(409, "SharingViolation"):
        file.rename_file("d/below", overwrite=True)
    opened.close()
    file.rename_file("d/below", overwrite=True)
    directory.rename_directory("e")
    assert client.read_file("e\\below") == CONTENT
