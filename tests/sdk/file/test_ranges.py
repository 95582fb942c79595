"""Ranges of files: written, cleared and listed."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import random
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
from awscrt.checksums import crc64nvme
from azure.storage.fileshare import NTFSAttributes, ShareClient, ShareFileClient, ShareServiceClient

from tests.sdk.file.clients import async_file_service, file_service
from tests.sdk.harness import ResponseRecorder, refused, run_in_threads, with_headers
from tests.server import Server

pytestmark = pytest.mark.usefixtures("client_checksums")

KIB, MIB, TIB = 1 << 10, 1 << 20, 1 << 40
BEFORE_RANGES_ARE_PAGED = "2026-06-06"


def content_of(size: int) -> bytes:
    return random.Random(size).randbytes(size)


@pytest.fixture
def file(share: ShareClient) -> ShareFileClient:
    created = share.get_file_client("file")
    created.create_file(10 * KIB)
    return created


def ranges_of(file: ShareFileClient, **options: Any) -> list[tuple[int, int]]:
    """Returns the ranges of a file; their ends are inclusive."""
    return [(found.start, found.end) for found in file.list_ranges(**options)]


def clear(file: ShareFileClient, start: int, length: int, **options: Any) -> None:
    """Clears a range, which the SDK would allow only if it is aligned."""
    options["raw_request_hook"] = with_headers(x_ms_range=f"bytes={start}-{start + length - 1}")
    file.clear_range(0, 512, **options)


# Writing


def test_write_and_read_back(file: ShareFileClient) -> None:
    written, answer = content_of(1_000), ResponseRecorder()
    file.upload_range(written, 100, len(written), raw_response_hook=answer)
    assert answer.status == 201
    md5 = base64.b64encode(hashlib.md5(written, usedforsecurity=False).digest()).decode()
    assert answer.headers["content-md5"] == md5
    assert answer.headers["x-ms-request-server-encrypted"] == "true"
    shown = file.get_file_properties()
    assert answer.headers["etag"] == shown.etag
    file.upload_range(b"abc", 0, 3)
    file.upload_range(b"over", 1_098, 4)
    expected = bytearray(10 * KIB)
    expected[:3], expected[100:1_100], expected[1_098:1_102] = b"abc", written, b"over"
    assert file.download_file().readall() == bytes(expected)


@pytest.mark.parametrize("size", [1, 4 * KIB, 256 * KIB, 256 * KIB + 1, 4 * MIB])
def test_every_length_is_written_whole(share: ShareClient, size: int) -> None:
    file, content, answer = share.get_file_client("file"), content_of(size), ResponseRecorder()
    file.create_file(size)
    file.upload_range(content, 0, size, raw_response_hook=answer)
    assert file.download_file().readall() == content
    if size <= 256 * KIB:
        assert "x-ms-content-crc64" not in answer.headers
        return
    # Computing an MD5 that nobody asked for would take longer than the write.
    assert "content-md5" not in answer.headers
    crc = base64.b64encode(crc64nvme(content).to_bytes(8, "little")).decode()
    assert answer.headers["x-ms-content-crc64"] == crc
    file.upload_range(content, 0, size, validate_content=True, raw_response_hook=answer)
    md5 = hashlib.md5(content, usedforsecurity=False).digest()
    assert answer.headers["content-md5"] == base64.b64encode(md5).decode()


@pytest.mark.parametrize(
    ("version", "has_write_time"), [("2021-04-10", False), ("2021-06-08", True)]
)
def test_headers_depend_on_the_version(
    server: Server, file: ShareFileClient, version: str, has_write_time: bool
) -> None:
    with file_service(server, api_version=version) as service:
        share = service.get_share_client(file.share_name)
        old, answer = share.get_file_client("file"), ResponseRecorder()
        old.upload_range(b"x", 0, 1, raw_response_hook=answer)
        assert ("x-ms-file-last-write-time" in answer.headers) is has_write_time
        old.clear_range(0, 512, raw_response_hook=answer)
        assert ("x-ms-file-last-write-time" in answer.headers) is has_write_time
        assert "content-md5" not in answer.headers
        assert "x-ms-request-server-encrypted" not in answer.headers


def times_of(file: ShareFileClient) -> dict[str, str]:
    answer = ResponseRecorder()
    file.get_file_properties(raw_response_hook=answer)
    names = ("creation", "last-write", "change")
    return {name: answer.headers[f"x-ms-file-{name}-time"] for name in names}


def test_times_move_unless_they_are_preserved(file: ShareFileClient) -> None:
    created = times_of(file)
    file.upload_range(b"x", 0, 1, file_last_write_mode="preserve")
    preserved = times_of(file)
    assert preserved["last-write"] == created["last-write"]
    assert preserved["change"] > created["change"]
    answer = ResponseRecorder()
    file.upload_range(b"x", 0, 1, file_last_write_mode="now", raw_response_hook=answer)
    written = times_of(file)
    assert written["last-write"] == written["change"] > preserved["change"]
    assert answer.headers["x-ms-file-last-write-time"] == written["last-write"]
    preserve = with_headers(x_ms_file_last_write_time="Preserve")
    file.clear_range(0, 512, raw_request_hook=preserve)
    assert times_of(file)["last-write"] == written["last-write"]
    file.clear_range(0, 512)
    cleared = times_of(file)
    assert cleared["last-write"] > written["last-write"]
    assert cleared["creation"] == created["creation"]


def test_checksums_are_compared(file: ShareFileClient) -> None:
    wrong = base64.b64encode(bytes(16)).decode()
    with refused(400, "Md5Mismatch"):
        file.upload_range(b"abc", 0, 3, raw_request_hook=with_headers(Content_MD5=wrong))
    with refused(400, "Crc64Mismatch"):
        wrong_crc = with_headers(x_ms_content_crc64=base64.b64encode(bytes(8)).decode())
        file.upload_range(b"abc", 0, 3, raw_request_hook=wrong_crc)
    assert ranges_of(file) == []
    crc = base64.b64encode(crc64nvme(b"abc").to_bytes(8, "little")).decode()
    answer = ResponseRecorder()
    right = with_headers(x_ms_content_crc64=crc)
    file.upload_range(b"abc", 0, 3, raw_request_hook=right, raw_response_hook=answer)
    assert answer.headers["x-ms-content-crc64"] == crc
    file.upload_range(b"def", 3, 3, validate_content=True)
    assert file.download_file(offset=0, length=6).readall() == b"abcdef"


@pytest.mark.parametrize("size", [1, 5 * KIB, 4 * MIB])
def test_structured_messages(share: ShareClient, size: int) -> None:
    file, content, answer = share.get_file_client("file"), content_of(size), ResponseRecorder()
    file.create_file(size)
    file.upload_range(content, 0, size, validate_content="crc64", raw_response_hook=answer)
    assert answer.headers["x-ms-structured-body"] == "XSM/1.0; properties=crc64"
    assert file.download_file().readall() == content


def test_what_may_not_be_written(share: ShareClient, file: ShareFileClient) -> None:
    with refused(416, "InvalidRange"):
        file.upload_range(b"xx", 10 * KIB - 1, 2)
    with refused(416, "InvalidRange"):
        file.upload_range(bytes(MIB), 0, MIB)
    with refused(416, "InvalidRange"):
        file.clear_range(10 * KIB, 512)
    with refused(413, "RequestBodyTooLarge"):
        file.upload_range(bytes(4 * MIB + 1), 0, 4 * MIB + 1)
    with refused(404, "ResourceNotFound"):
        share.get_file_client("other").upload_range(b"x", 0, 1)
    with refused(404, "ParentNotFound"):
        share.get_file_client("none/other").upload_range(b"x", 0, 1)
    share.create_directory("directory")
    with refused(409, "ResourceTypeMismatch"):
        share.get_file_client("directory").upload_range(b"x", 0, 1)
    attributes = NTFSAttributes(read_only=True)
    share.get_file_client("protected").create_file(10, file_attributes=attributes)
    with refused(409, "ReadOnlyAttribute"):
        share.get_file_client("protected").upload_range(b"x", 0, 1)
    with refused(409, "ReadOnlyAttribute"):
        clear(share.get_file_client("protected"), 0, 1)
    assert ranges_of(file) == []


def test_a_lease_protects_a_file(file: ShareFileClient) -> None:
    lease = file.acquire_lease()
    with refused(412, "LeaseIdMissing"):
        file.upload_range(b"x", 0, 1)
    with refused(412, "LeaseIdMissing"):
        file.upload_range(bytes(MIB), 0, MIB)
    with refused(412, "LeaseIdMissing"):
        clear(file, 0, 1)
    other = "11111111-1111-1111-1111-111111111111"
    with refused(412, "LeaseIdMismatchWithFileOperation"):
        file.upload_range(b"x", 0, 1, lease=other)
    with refused(412, "LeaseIdMismatchWithFileOperation"):
        list(file.list_ranges(lease=other))
    file.upload_range(b"xx", 0, 2, lease=lease)
    clear(file, 0, 1, lease=lease)
    assert ranges_of(file, lease=lease) == [(0, 1)]
    assert ranges_of(file) == [(0, 1)]
    lease.release()
    with refused(412, "LeaseNotPresentWithFileOperation"):
        file.upload_range(b"x", 0, 1, lease=other)


def test_clear(file: ShareFileClient) -> None:
    """Cleared bytes are zeros, wherever the range begins and ends. Only aligned parts are freed."""
    expected = bytearray(content_of(10 * KIB))
    file.upload_range(bytes(expected), 0, len(expected))
    for start, length in ((0, 512), (512, 1024), (3_000, 1), (5_000, 777), (9_999, 241)):
        clear(file, start, length, raw_response_hook=(answer := ResponseRecorder()))
        assert answer.status == 201
        expected[start : start + length] = bytes(length)
        assert file.download_file().readall() == bytes(expected)
    assert ranges_of(file) == [(1_536, 5_119), (5_632, 10_239)]
    file.clear_range(0, 10 * KIB)
    assert ranges_of(file) == []
    file.clear_range(0, 10 * KIB)
    assert file.download_file().readall() == bytes(10 * KIB)


def test_a_hole_of_tebibytes_is_cleared_at_once(share: ShareClient) -> None:
    file = share.get_file_client("file")
    file.create_file(4 * TIB)
    file.upload_range(b"end", 4 * TIB - 3, 3)
    assert ranges_of(file) == [(4 * TIB - 3, 4 * TIB - 1)]
    file.clear_range(0, 4 * TIB)
    assert ranges_of(file) == []


def test_parallel_writes_to_one_file(share: ShareClient) -> None:
    """Adjacent ranges of different clients all arrive; of overlapping ones, one wins whole."""
    file = share.get_file_client("file")
    file.create_file(8 * 64 * KIB)

    def write(number: int) -> None:
        own = share.get_file_client("file")
        own.upload_range(bytes([number]) * 64 * KIB, number * 64 * KIB, 64 * KIB)

    run_in_threads(8, write)
    content = file.download_file().readall()
    assert content == b"".join(bytes([number]) * 64 * KIB for number in range(8))

    def write_over(number: int) -> None:
        share.get_file_client("file").upload_range(bytes([number]) * 1_000, 500, 1_000)

    run_in_threads(8, write_over)
    written = file.download_file(offset=500, length=1_000).readall()
    assert len(set(written)) == 1


def test_async_client(server: Server, share: ShareClient) -> None:
    async def work() -> None:
        async with async_file_service(server) as service:
            file = service.get_share_client(share.share_name).get_file_client("file")
            await file.create_file(1_000)
            await file.upload_range(b"abc", 10, 3)
            await file.clear_range(0, 512)
            await file.upload_range(b"abc", 10, 3)
            assert [(each.start, each.end) async for each in file.list_ranges()] == [(10, 12)]
            download = await file.download_file(offset=10, length=3)
            assert await download.readall() == b"abc"

    asyncio.run(work())


# Listing


def test_ranges_are_listed(file: ShareFileClient) -> None:
    answer = ResponseRecorder()
    assert ranges_of(file, raw_response_hook=answer) == []
    assert answer.headers["x-ms-content-length"] == str(10 * KIB)
    assert answer.headers["content-type"] == "application/xml"
    for start in (0, 512, 2_048, 5_000):
        file.upload_range(bytes(512), start, 512)
    shown = file.get_file_properties()
    assert ranges_of(file, raw_response_hook=answer) == [(0, 1_023), (2_048, 2_559), (5_000, 5_511)]
    assert answer.headers["etag"] == shown.etag
    assert ranges_of(file, offset=1_000, length=1_100) == [(1_000, 1_023), (2_048, 2_099)]
    assert ranges_of(file, offset=6_000) == []
    with refused(416, "InvalidRange"):
        ranges_of(file, offset=10 * KIB, length=1)


def test_many_ranges_are_listed_in_pages(file: ShareFileClient) -> None:
    expected = []
    for start in range(0, 50 * 100, 100):
        file.upload_range(b"xy", start, 2)
        expected.append((start, start + 1))
    assert ranges_of(file) == expected
    assert ranges_of(file, results_per_page=7) == expected
    pages = file.list_ranges(results_per_page=20).by_page()
    assert [len(list(page)) for page in pages] == [20, 20, 10]
    within = file.list_ranges(offset=1_001, length=2_000, results_per_page=6)
    assert [(each.start, each.end) for each in within] == [
        (1_001, 1_001),
        *expected[11:30],
        (3_000, 3_000),
    ]


def test_older_versions_get_all_ranges_at_once(server: Server, file: ShareFileClient) -> None:
    for start in range(0, 3_000, 100):
        file.upload_range(b"x", start, 1)
    with (
        file_service(server, api_version=BEFORE_RANGES_ARE_PAGED) as service,
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore", DeprecationWarning)
        old = service.get_share_client(file.share_name).get_file_client("file")
        assert len(old.get_ranges()) == 30


@pytest.fixture
def snapshots(share: ShareClient, file: ShareFileClient) -> Iterator[list[str]]:
    """The times of two snapshots between changes of the file."""
    file.upload_range(bytes(1_024), 0, 1_024)
    first = share.create_snapshot()["snapshot"]
    file.clear_range(512, 512)
    file.upload_range(b"y" * 512, 2_048, 512)
    second = share.create_snapshot()["snapshot"]
    file.upload_range(b"z" * 10, 0, 10)
    yield [first, second]


def changes(file: ShareFileClient, previous: str, **options: Any) -> list[tuple[int, int, bool]]:
    found = file.list_ranges_diff(previous, **options)
    return [(each.start, each.end, each.cleared) for each in found]


def test_changes_since_a_snapshot(
    share: ShareClient, file: ShareFileClient, snapshots: list[str], files: ShareServiceClient
) -> None:
    first, second = snapshots
    later = [(512, 1_023, True), (2_048, 2_559, False)]
    assert changes(file, first) == [(0, 9, False), *later]
    assert changes(file, first, results_per_page=1) == [(0, 9, False), *later]
    assert changes(file, second) == [(0, 9, False)]
    older = files.get_share_client(share.share_name, snapshot=second).get_file_client("file")
    assert changes(older, first) == later
    assert ranges_of(older) == [(0, 511), (2_048, 2_559)]
    with refused(400, "PreviousSnapshotCannotBeNewer"):
        oldest = files.get_share_client(share.share_name, snapshot=first).get_file_client("file")
        changes(oldest, second)
    with refused(404, "PreviousSnapshotNotFound"):
        changes(file, "2001-01-01T00:00:00.0000000Z")
    file.create_file(10 * KIB)
    with refused(409, "FileGenerationMismatch"):
        changes(file, first)


def test_changes_of_a_renamed_file(
    share: ShareClient, file: ShareFileClient, snapshots: list[str]
) -> None:
    renamed = file.rename_file("renamed")
    with refused(409, "FileGenerationMismatch"):
        changes(renamed, snapshots[1])
    with refused(409, "FileGenerationMismatch"):
        changes(renamed, snapshots[1], include_renames=False)
    assert changes(renamed, snapshots[1], include_renames=True) == [(0, 9, False)]
    directory = share.create_directory("directory")
    moved = renamed.rename_file("directory/file")
    directory.rename_directory("archive")
    moved = share.get_file_client("archive/file")
    assert changes(moved, snapshots[1], include_renames=True) == [(0, 9, False)]


def test_snapshots_cannot_be_written(
    share: ShareClient, snapshots: list[str], files: ShareServiceClient
) -> None:
    older = files.get_share_client(share.share_name, snapshot=snapshots[0]).get_file_client("file")
    before = older.download_file().readall()
    with refused(400, "InvalidQueryParameterValue"):
        older.upload_range(b"x", 0, 1)
    with refused(400, "InvalidQueryParameterValue"):
        older.clear_range(0, 512)
    assert older.download_file().readall() == before
