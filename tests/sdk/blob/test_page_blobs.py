"""Page blobs: writing, clearing, resizing, sequence numbers, concurrency and restarts."""

from __future__ import annotations

import base64
import hashlib
import random
import threading
import urllib.request
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from azure.core import MatchConditions
from azure.core.exceptions import HttpResponseError
from azure.storage.blob import (
    BlobClient,
    BlobType,
    ContainerClient,
    ContentSettings,
    SequenceNumberAction,
    generate_blob_sas,
)

from tests.sdk.blob.clients import blob_service
from tests.sdk.harness import ResponseRecorder, refused, with_headers
from tests.server import ACCOUNT, KEY, check, served, unique

PAGE, MIB, TIB = 512, 1024 * 1024, 1024**4
PAGES = 16
SEQUENCE_MAX = 2**63 - 1
OTHER_ETAG = '"0x8D0000000000001"'


@pytest.fixture
def disk(container: ContainerClient) -> BlobClient:
    made = container.get_blob_client("disk")
    made.create_page_blob(PAGES * PAGE)
    return made


def content(blob: BlobClient) -> bytes:
    return blob.download_blob().readall()


def number_of(blob: BlobClient) -> int | None:
    return blob.get_blob_properties().page_blob_sequence_number


def set_number(blob: BlobClient, action: Any, number: Any = None, **options: Any) -> None:
    blob.set_sequence_number(action, number, **options)


# Writing and clearing


def test_pages_are_written_and_cleared(disk: BlobClient) -> None:
    assert content(disk) == bytes(PAGES * PAGE)
    answer = ResponseRecorder()
    expected = bytearray(PAGES * PAGE)
    for first, count in ((1, 3), (2, 1), (0, 1), (10, 6), (9, 2)):
        data = random.randbytes(count * PAGE)
        result = disk.upload_page(data, first * PAGE, len(data), raw_response_hook=answer)
        assert answer.status == 201
        assert answer.headers["x-ms-blob-sequence-number"] == "0"
        assert answer.headers["x-ms-request-server-encrypted"] == "true"
        assert "x-ms-content-crc64" in answer.headers
        assert result["etag"] == disk.get_blob_properties().etag
        expected[first * PAGE : first * PAGE + len(data)] = data
        assert content(disk) == expected
    result = disk.clear_page(2 * PAGE, 9 * PAGE, raw_response_hook=answer)
    assert answer.status == 201
    assert answer.headers["x-ms-blob-sequence-number"] == "0"
    assert result["etag"] == disk.get_blob_properties().etag
    expected[2 * PAGE : 11 * PAGE] = bytes(9 * PAGE)
    assert content(disk) == expected
    assert disk.download_blob(700, 3000).readall() == expected[700:3700]


def test_upload_a_whole_blob(container: ContainerClient) -> None:
    data = random.randbytes(5 * MIB) + bytes(4 * MIB) + random.randbytes(PAGE)
    blob = container.upload_blob("disk", data, blob_type=BlobType.PAGEBLOB)
    assert content(blob) == data
    assert blob.get_blob_properties().blob_type == BlobType.PAGEBLOB


def test_the_longest_write(container: ContainerClient) -> None:
    blob = container.get_blob_client("disk")
    blob.create_page_blob(8 * MIB)
    data = random.randbytes(4 * MIB)
    blob.upload_page(data, PAGE, len(data))
    with refused(413, "RequestBodyTooLarge"):
        blob.upload_page(bytes(4 * MIB + PAGE), 0, 4 * MIB + PAGE)
    blob.clear_page(0, 8 * MIB)
    assert content(blob) == bytes(8 * MIB)


def test_checksums(disk: BlobClient) -> None:
    data, answer = random.randbytes(PAGE), ResponseRecorder()
    disk.upload_page(data, 0, PAGE, validate_content=True, raw_response_hook=answer)
    md5 = base64.b64encode(hashlib.md5(data, usedforsecurity=False).digest()).decode()
    assert answer.headers["content-md5"] == md5
    for code, headers in (
        ("Md5Mismatch", {"Content_MD5": base64.b64encode(bytes(16)).decode()}),
        ("InvalidMd5", {"Content_MD5": "nonsense"}),
        ("Crc64Mismatch", {"x_ms_content_crc64": "A" * 11 + "="}),
    ):
        with refused(400, code):
            disk.upload_page(bytes(PAGE), 0, PAGE, raw_request_hook=with_headers(**headers))
    assert content(disk)[:PAGE] == data


def test_the_largest_blob(container: ContainerClient) -> None:
    blob = container.get_blob_client("disk")
    blob.create_page_blob(8 * TIB)
    data = random.randbytes(PAGE)
    blob.upload_page(data, 8 * TIB - PAGE, PAGE)
    assert blob.get_blob_properties().size == 8 * TIB
    assert blob.download_blob(8 * TIB - 2 * PAGE, 2 * PAGE).readall() == bytes(PAGE) + data
    assert blob.download_blob(3 * TIB, MIB).readall() == bytes(MIB)
    blob.clear_page(0, 8 * TIB)
    blob.resize_blob(PAGE)
    assert content(blob) == bytes(PAGE)
    with refused(400, "InvalidHeaderValue"):
        blob.resize_blob(8 * TIB + PAGE)
    with refused(400, "InvalidHeaderValue"):
        blob.create_page_blob(8 * TIB + PAGE)


# Refusals


@pytest.mark.parametrize(
    ("asked", "status", "code"),
    [
        ("bytes=0-510", 416, "InvalidPageRange"),
        ("bytes=1-512", 416, "InvalidPageRange"),
        (f"bytes={PAGES * PAGE}-{PAGES * PAGE + PAGE - 1}", 416, "InvalidPageRange"),
        ("bytes=0-8796093022207", 400, "InvalidHeaderValue"),
        ("bytes=0-1023", 400, "InvalidHeaderValue"),
        ("bytes=0-", 400, "InvalidHeaderValue"),
        ("bytes=511-0", 400, "InvalidHeaderValue"),
        ("bytes=-512", 400, "InvalidHeaderValue"),
        ("pages=0-511", 400, "InvalidHeaderValue"),
        (f"bytes=0-{'9' * 100}", 400, "InvalidHeaderValue"),
        ("", 400, "MissingRequiredHeader"),
    ],
)
def test_invalid_ranges(disk: BlobClient, asked: str, status: int, code: str) -> None:
    with refused(status, code):
        disk.upload_page(b"x" * PAGE, 0, PAGE, raw_request_hook=with_headers(x_ms_range=asked))
    assert content(disk) == bytes(PAGES * PAGE)


def test_either_header_names_the_range(disk: BlobClient) -> None:
    token = generate_blob_sas(
        ACCOUNT,
        disk.container_name,
        disk.blob_name,
        account_key=KEY,
        permission="w",
        expiry=datetime.now(UTC) + timedelta(hours=1),
    )
    for name, page in (("Range", 1), ("x-ms-range", 2)):
        headers = {
            "x-ms-page-write": "Update",
            name: f"bytes={page * PAGE}-{page * PAGE + PAGE - 1}",
        }
        request = urllib.request.Request(
            f"{disk.url}?comp=page&{token}", bytes([page]) * PAGE, headers, method="PUT"
        )
        with urllib.request.urlopen(request) as response:
            assert response.status == 201
    assert content(disk)[: 3 * PAGE] == b"".join(bytes([page]) * PAGE for page in range(3))


@pytest.mark.parametrize(
    ("asked", "code"),
    [("", "MissingRequiredHeader"), ("erase", "InvalidHeaderValue")],
)
def test_invalid_page_writes(disk: BlobClient, asked: str, code: str) -> None:
    with refused(400, code):
        disk.upload_page(bytes(PAGE), 0, PAGE, raw_request_hook=with_headers(x_ms_page_write=asked))
    with refused(400, "InvalidHeaderValue"):
        disk.upload_page(
            bytes(PAGE), 0, PAGE, raw_request_hook=with_headers(x_ms_page_write="Clear")
        )


def test_blobs_without_pages(container: ContainerClient) -> None:
    missing, block = container.get_blob_client("missing"), container.get_blob_client("block")
    block.upload_blob(bytes(PAGE))
    for blob, status, code in ((missing, 404, "BlobNotFound"), (block, 409, "InvalidBlobType")):
        calls: tuple[Callable[[BlobClient], object], ...] = (
            lambda blob: blob.upload_page(bytes(PAGE), 0, PAGE),
            lambda blob: blob.upload_page(bytes(MIB), 0, MIB),
            lambda blob: blob.clear_page(0, PAGE),
            lambda blob: set_number(blob, SequenceNumberAction.Increment),
            lambda blob: list(blob.list_page_ranges()),
        )
        for call in calls:
            with refused(status, code):
                call(blob)
    with refused(404, "BlobNotFound"):
        missing.resize_blob(PAGE)
    with refused(400, "UnsupportedHeader"):
        block.resize_blob(PAGE)
    with refused(409, "InvalidBlobType"):
        block.create_page_blob(PAGE)


def test_conditions_and_leases(disk: BlobClient) -> None:
    etag = disk.get_blob_properties().etag
    unmet: tuple[dict[str, Any], ...] = (
        {"etag": OTHER_ETAG, "match_condition": MatchConditions.IfNotModified},
        {"etag": etag, "match_condition": MatchConditions.IfModified},
        {"if_modified_since": datetime.now(UTC) + timedelta(hours=1)},
        {"if_unmodified_since": datetime.now(UTC) - timedelta(hours=1)},
    )
    for asked in unmet:
        with refused(412, "ConditionNotMet"):
            disk.upload_page(bytes(PAGE), 0, PAGE, **asked)
        with refused(412, "ConditionNotMet"):
            disk.clear_page(0, PAGE, **asked)
        with refused(412, "ConditionNotMet"):
            disk.resize_blob(PAGE, **asked)
    matching: dict[str, Any] = {"etag": etag, "match_condition": MatchConditions.IfNotModified}
    disk.upload_page(b"x" * PAGE, 0, PAGE, **matching)
    lease = disk.acquire_lease()
    with refused(412, "LeaseIdMissing"):
        disk.upload_page(bytes(PAGE), 0, PAGE)
    with refused(412, "LeaseIdMissing"):
        disk.clear_page(0, PAGE)
    disk.clear_page(0, PAGE, lease=lease)
    assert content(disk) == bytes(PAGES * PAGE)


# Properties


def test_sequence_numbers(container: ContainerClient) -> None:
    blob = container.get_blob_client("disk")
    blob.create_page_blob(PAGE, sequence_number=5)
    assert number_of(blob) == 5
    answer = ResponseRecorder()
    for action, number, following in (
        (SequenceNumberAction.Max, 3, 5),
        (SequenceNumberAction.Max, 7, 7),
        (SequenceNumberAction.Update, 4, 4),
        (SequenceNumberAction.Increment, None, 5),
        (SequenceNumberAction.Update, SEQUENCE_MAX, SEQUENCE_MAX),
    ):
        set_number(blob, action, number, raw_response_hook=answer)
        assert answer.headers["x-ms-blob-sequence-number"] == str(following)
        assert number_of(blob) == following
    with refused(409, "SequenceNumberIncrementTooLarge"):
        set_number(blob, SequenceNumberAction.Increment)
    blob.set_http_headers(ContentSettings(content_type="a/b"), raw_response_hook=answer)
    assert answer.headers["x-ms-blob-sequence-number"] == str(SEQUENCE_MAX)
    assert number_of(blob) == SEQUENCE_MAX


@pytest.mark.parametrize(
    ("headers", "code"),
    [
        ({"x_ms_sequence_number_action": "shrink"}, "InvalidHeaderValue"),
        ({"x_ms_blob_sequence_number": "-1"}, "InvalidHeaderValue"),
        ({"x_ms_blob_sequence_number": str(2**63)}, "InvalidHeaderValue"),
        ({"x_ms_blob_sequence_number": "9" * 5000}, "InvalidHeaderValue"),
        ({"x_ms_blob_sequence_number": ""}, "InvalidHeaderValue"),
        ({"x_ms_sequence_number_action": "increment"}, "InvalidHeaderValue"),
        ({"x_ms_blob_content_length": "511"}, "InvalidHeaderValue"),
        ({"x_ms_blob_content_length": "x"}, "InvalidHeaderValue"),
    ],
)
def test_invalid_properties(disk: BlobClient, headers: dict[str, str], code: str) -> None:
    with refused(400, code):
        set_number(disk, SequenceNumberAction.Max, 7, raw_request_hook=with_headers(**headers))
    with refused(400, "MissingRequiredHeader"):
        set_number(disk, SequenceNumberAction.Max, None)


@pytest.mark.parametrize(
    ("asked", "met"),
    [
        ({"if_sequence_number_lte": 5}, True),
        ({"if_sequence_number_lte": 4}, False),
        ({"if_sequence_number_lt": 6}, True),
        ({"if_sequence_number_lt": 5}, False),
        ({"if_sequence_number_eq": 5}, True),
        ({"if_sequence_number_eq": 6}, False),
        ({"if_sequence_number_lte": 5, "if_sequence_number_eq": 4}, False),
    ],
)
def test_conditions_on_sequence_numbers(disk: BlobClient, asked: dict[str, Any], met: bool) -> None:
    set_number(disk, SequenceNumberAction.Update, 5)
    if met:
        disk.upload_page(b"x" * PAGE, 0, PAGE, **asked)
        disk.clear_page(0, PAGE, **asked)
        return
    with refused(412, "SequenceNumberConditionNotMet"):
        disk.upload_page(b"x" * PAGE, 0, PAGE, **asked)
    with refused(412, "SequenceNumberConditionNotMet"):
        disk.clear_page(0, PAGE, **asked)


def test_resize(disk: BlobClient) -> None:
    disk.set_http_headers(ContentSettings(content_type="a/b", cache_control="none"))
    disk.upload_page(b"x" * 4 * PAGE, 0, 4 * PAGE)
    answer = ResponseRecorder()
    disk.resize_blob(2 * PAGE, raw_response_hook=answer)
    assert answer.headers["x-ms-blob-sequence-number"] == "0"
    assert content(disk) == b"x" * 2 * PAGE
    with refused(416, "InvalidPageRange"):
        disk.upload_page(b"y" * PAGE, 2 * PAGE, PAGE)
    disk.resize_blob(4 * PAGE)
    assert content(disk) == b"x" * 2 * PAGE + bytes(2 * PAGE)
    settings = disk.get_blob_properties().content_settings
    assert (settings.content_type, settings.cache_control) == ("a/b", "none")


# Races


def test_overlapping_writes_are_never_torn(disk: BlobClient) -> None:
    """Each writes all pages with its own letter, so every reader sees one letter."""
    threads, rounds = 6, 20
    errors: list[BaseException] = []

    def write(letter: bytes) -> None:
        try:
            for _ in range(rounds):
                disk.upload_page(letter * PAGES * PAGE, 0, PAGES * PAGE)
                seen = content(disk)
                assert seen == seen[:1] * PAGES * PAGE
        except BaseException as error:
            errors.append(error)

    workers = [
        threading.Thread(target=write, args=(bytes([65 + number]),)) for number in range(threads)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not errors, errors


def test_one_of_many_increments_a_sequence_number(disk: BlobClient) -> None:
    """A lock by sequence numbers: one of the clients that saw the same number wins."""
    threads, won = 6, []
    etag = disk.get_blob_properties().etag
    ready = threading.Barrier(threads)

    def run(number: int) -> None:
        ready.wait()
        try:
            set_number(
                disk,
                SequenceNumberAction.Update,
                number + 1,
                etag=etag,
                match_condition=MatchConditions.IfNotModified,
            )
        except HttpResponseError as error:
            assert getattr(error, "error_code", "") == "ConditionNotMet"
        else:
            won.append(number + 1)

    workers = [threading.Thread(target=run, args=(number,)) for number in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert len(won) == 1
    assert number_of(disk) == won[0]


# Restarts


def test_pages_survive_a_crash(tmp_path: Path) -> None:
    source = random.Random(3)
    with served(tmp_path / "data") as server:
        name, expected = unique(), bytearray(PAGES * PAGE)
        with blob_service(server) as service:
            service.create_container(name)
            service.get_blob_client(name, "disk").create_page_blob(PAGES * PAGE, sequence_number=4)
        for end in (server.kill, server.stop):
            with blob_service(server) as service:
                disk = service.get_blob_client(name, "disk")
                for _ in range(15):
                    first = source.randrange(PAGES)
                    data = source.randbytes(source.randrange(1, PAGES - first + 1) * PAGE)
                    disk.upload_page(data, first * PAGE, len(data))
                    expected[first * PAGE : first * PAGE + len(data)] = data
                disk.create_snapshot()
            end()
            server.start()
            with blob_service(server) as service:
                disk = service.get_blob_client(name, "disk")
                assert content(disk) == expected
                assert number_of(disk) == 4
        server.stop()
        assert check(server.directory).returncode == 0
