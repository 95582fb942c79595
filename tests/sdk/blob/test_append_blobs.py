"""Append blobs: appending, conditions, concurrency, sealing and restarts."""

from __future__ import annotations

import base64
import hashlib
import http.client
import random
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from azure.core import MatchConditions
from azure.core.exceptions import HttpResponseError
from azure.storage.blob import (
    BlobClient,
    BlobType,
    ContainerClient,
    ContentSettings,
    generate_blob_sas,
)

from tests.sdk.blob.clients import blob_service
from tests.sdk.harness import ResponseRecorder, refused, run_in_threads, with_headers
from tests.server import ACCOUNT, KEY, check, served, unique

MIB = 1024 * 1024
THREADS, BLOCKS_EACH = 8, 50
BLOCK_BYTES = 100
OTHER_ETAG = '"0x8D0000000000001"'


@pytest.fixture
def log(container: ContainerClient) -> BlobClient:
    made = container.get_blob_client("log")
    made.create_append_blob()
    return made


def content(blob: BlobClient) -> bytes:
    return blob.download_blob().readall()


# Appending


def test_append_blocks(log: BlobClient) -> None:
    answer = ResponseRecorder()
    offset = 0
    for number, data in enumerate((b"one", b"two ", random.randbytes(5 * MIB)), 1):
        result = log.append_block(data, raw_response_hook=answer)
        assert answer.status == 201
        assert answer.headers["x-ms-blob-append-offset"] == str(offset)
        assert answer.headers["x-ms-blob-committed-block-count"] == str(number)
        assert answer.headers["x-ms-request-server-encrypted"] == "true"
        assert "x-ms-content-crc64" in answer.headers
        offset += len(data)
        shown = log.get_blob_properties()
        assert (shown.size, shown.etag) == (offset, result["etag"])
    assert content(log)[:7] == b"onetwo "
    assert log.download_blob(2, 4).readall() == b"etwo"


def test_properties_contain_the_number_of_blocks(log: BlobClient) -> None:
    assert log.get_blob_properties().append_blob_committed_block_count == 0
    log.append_block(b"data")
    shown = log.get_blob_properties()
    assert shown.blob_type == BlobType.APPENDBLOB
    assert shown.append_blob_committed_block_count == 1
    assert not shown.is_append_blob_sealed
    log.seal_append_blob()
    assert log.get_blob_properties().is_append_blob_sealed


def test_upload_in_several_blocks(container: ContainerClient) -> None:
    data = random.randbytes(9 * MIB + 5)
    blob = container.upload_blob("log", data, blob_type=BlobType.APPENDBLOB)
    blob.upload_blob(b"more", blob_type=BlobType.APPENDBLOB)
    assert content(blob) == data + b"more"
    blob.upload_blob(b"new", blob_type=BlobType.APPENDBLOB, overwrite=True)
    assert content(blob) == b"new"


def test_checksums(log: BlobClient) -> None:
    answer = ResponseRecorder()
    log.append_block(b"data", validate_content=True, raw_response_hook=answer)
    md5 = base64.b64encode(hashlib.md5(b"data", usedforsecurity=False).digest()).decode()
    assert answer.headers["content-md5"] == md5
    wrong = with_headers(Content_MD5=base64.b64encode(bytes(16)).decode())
    with refused(400, "Md5Mismatch"):
        log.append_block(b"data", raw_request_hook=wrong)
    with refused(400, "Crc64Mismatch"):
        log.append_block(b"data", raw_request_hook=with_headers(x_ms_content_crc64="A" * 11 + "="))
    with refused(400, "InvalidMd5"):
        log.append_block(b"data", raw_request_hook=with_headers(Content_MD5="nonsense"))
    assert content(log) == b"data"


def test_appending_keeps_the_headers(log: BlobClient) -> None:
    log.append_block(b"data")
    log.set_http_headers(ContentSettings(content_type="text/plain"))
    log.append_block(b"data")
    shown = log.get_blob_properties()
    assert shown.content_settings.content_type == "text/plain"
    assert shown.size == 8


def test_a_snapshot_keeps_its_length(log: BlobClient, container: ContainerClient) -> None:
    log.append_block(b"one ")
    moment = str(log.create_snapshot()["snapshot"])
    log.append_block(b"two")
    kept = container.get_blob_client("log", snapshot=moment)
    assert content(kept) == b"one "
    assert content(log) == b"one two"
    with refused(400, "InvalidQueryParameterValue"):
        kept.append_block(b"x")


# Conditions


def test_positions_and_lengths(log: BlobClient) -> None:
    log.append_block(b"12345", appendpos_condition=0, maxsize_condition=5)
    with refused(412, "AppendPositionConditionNotMet"):
        log.append_block(b"12345", appendpos_condition=0)
    with refused(412, "AppendPositionConditionNotMet"):
        log.append_block(b"12345", appendpos_condition=6)
    with refused(412, "MaxBlobSizeConditionNotMet"):
        log.append_block(b"6", maxsize_condition=5)
    with refused(412, "MaxBlobSizeConditionNotMet"):
        log.append_block(bytes(MIB), maxsize_condition=1000)
    log.append_block(b"6", appendpos_condition=5, maxsize_condition=2**63 - 1)
    assert content(log) == b"123456"


@pytest.mark.parametrize("name", ["appendpos", "maxsize"])
@pytest.mark.parametrize("value", ["-1", "", "x", "1.5", "9" * 19, "9" * 5000])
def test_invalid_numbers(log: BlobClient, name: str, value: str) -> None:
    headers = {f"x_ms_blob_condition_{name}": value}
    with refused(400, "InvalidHeaderValue"):
        log.append_block(b"data", raw_request_hook=with_headers(**headers))
    assert content(log) == b""


def test_conditions(log: BlobClient) -> None:
    etag = log.get_blob_properties().etag
    for asked in (
        {"etag": OTHER_ETAG, "match_condition": MatchConditions.IfNotModified},
        {"etag": etag, "match_condition": MatchConditions.IfModified},
        {"if_modified_since": datetime.now(UTC) + timedelta(hours=1)},
        {"if_unmodified_since": datetime.now(UTC) - timedelta(hours=1)},
    ):
        with refused(412, "ConditionNotMet"):
            log.append_block(b"data", **asked)
        with refused(412, "ConditionNotMet"):
            log.seal_append_blob(**asked)
    log.append_block(b"data", etag=etag, match_condition=MatchConditions.IfNotModified)
    assert content(log) == b"data"


def test_leases(log: BlobClient) -> None:
    lease = log.acquire_lease()
    with refused(412, "LeaseIdMissing"):
        log.append_block(b"data")
    with refused(412, "LeaseIdMissing"):
        log.append_block(bytes(MIB))
    log.append_block(b"data", lease=lease)
    lease.release()
    assert content(log) == b"data"


def test_appending_to_other_blobs(container: ContainerClient) -> None:
    missing = container.get_blob_client("missing")
    for data in (b"data", bytes(MIB)):
        with refused(404, "BlobNotFound"):
            missing.append_block(data)
    block = container.upload_blob("block", b"data")
    page = container.get_blob_client("page")
    page.create_page_blob(512)
    for blob in (block, page):
        with refused(409, "InvalidBlobType"):
            blob.append_block(b"data")
        with refused(409, "InvalidBlobType"):
            blob.seal_append_blob()
    with refused(409, "InvalidBlobType"):
        block.create_append_blob()
    with refused(404, "BlobNotFound"):
        missing.seal_append_blob()


def announce(log: BlobClient, length: int, version: str, seconds: float) -> tuple[int, str]:
    """Sends only the head of a request of this length; returns status and error code."""
    token = generate_blob_sas(
        ACCOUNT,
        log.container_name,
        log.blob_name,
        account_key=KEY,
        permission="a",
        expiry=datetime.now(UTC) + timedelta(hours=1),
    )
    url = urlsplit(log.url)
    connection = http.client.HTTPConnection(url.netloc, timeout=seconds)
    try:
        connection.putrequest("PUT", f"{url.path}?comp=appendblock&{token}")
        connection.putheader("x-ms-version", version)
        connection.putheader("Content-Length", str(length))
        connection.endheaders()
        response = connection.getresponse()
        return response.status, response.getheader("x-ms-error-code") or ""
    finally:
        connection.close()


def test_empty_blocks_are_refused(log: BlobClient) -> None:
    assert announce(log, 0, "2022-11-02", 20) == (400, "InvalidHeaderValue")


@pytest.mark.parametrize(("version", "mib_max"), [("2022-11-02", 100), ("2021-12-02", 4)])
def test_the_longest_block(log: BlobClient, version: str, mib_max: int) -> None:
    assert announce(log, mib_max * MIB + 1, version, 20) == (413, "RequestBodyTooLarge")
    with pytest.raises(TimeoutError):  # the server waits for the body
        announce(log, mib_max * MIB, version, 0.5)


# Sealing


def test_seal(log: BlobClient) -> None:
    log.append_block(b"data")
    answer = ResponseRecorder()
    with refused(412, "AppendPositionConditionNotMet"):
        log.seal_append_blob(appendpos_condition=3)
    log.seal_append_blob(appendpos_condition=4, raw_response_hook=answer)
    assert answer.status == 200
    assert answer.headers["x-ms-blob-sealed"] == "true"
    for data in (b"more", bytes(MIB)):
        with refused(409, "BlobIsSealed"):
            log.append_block(data)
    log.seal_append_blob(raw_response_hook=answer)
    assert answer.headers["x-ms-blob-sealed"] == "true"
    log.set_blob_metadata({"key": "value"})
    assert content(log) == b"data"
    log.delete_blob()
    log.create_append_blob()
    log.append_block(b"again")


# Races


def block_of(writer: int, number: int) -> bytes:
    return f"{writer}:{number};".encode().ljust(BLOCK_BYTES, b".")


def blocks_in(data: bytes) -> list[bytes]:
    return [data[at : at + BLOCK_BYTES] for at in range(0, len(data), BLOCK_BYTES)]


def test_concurrent_appends_lose_nothing(log: BlobClient) -> None:
    def work(writer: int) -> list[int]:
        offsets = []
        for number in range(BLOCKS_EACH):
            result = log.append_block(block_of(writer, number))
            offsets.append(int(str(result["blob_append_offset"])))
        return offsets

    offsets = run_in_threads(THREADS, work)
    data = content(log)
    found = blocks_in(data)
    expected = [block_of(writer, n) for writer in range(THREADS) for n in range(BLOCKS_EACH)]
    assert Counter(found) == Counter(expected)
    for writer in range(THREADS):
        assert offsets[writer] == sorted(offsets[writer])
        for number, at in enumerate(offsets[writer]):
            assert data[at : at + BLOCK_BYTES] == block_of(writer, number)


def test_one_append_per_position_wins(log: BlobClient) -> None:
    """Each client tries every position, so each position has exactly one winner."""
    positions = BLOCKS_EACH

    def work(writer: int) -> list[int]:
        won = []
        for number in range(positions):
            try:
                log.append_block(block_of(writer, number), appendpos_condition=number * BLOCK_BYTES)
            except HttpResponseError as error:
                assert getattr(error, "error_code", "") == "AppendPositionConditionNotMet"
            else:
                won.append(number)
        return won

    winners = {
        number: writer for writer, won in enumerate(run_in_threads(THREADS, work)) for number in won
    }
    found = blocks_in(content(log))
    assert found == [block_of(winners[number], number) for number in range(len(found))]
    assert len(found) == len(winners)


# Restarts


def test_appended_blocks_survive_a_crash(tmp_path: Path) -> None:
    with served(tmp_path / "data") as server:
        name, expected = unique(), b""
        with blob_service(server) as service:
            service.create_container(name)
            log = service.get_blob_client(name, "log")
            log.create_append_blob()
        for end in (server.kill, server.stop):
            with blob_service(server) as service:
                log = service.get_blob_client(name, "log")
                for number in range(20):
                    log.append_block(block_of(0, number), appendpos_condition=len(expected))
                    expected += block_of(0, number)
            end()
            server.start()
            with blob_service(server) as service:
                assert content(service.get_blob_client(name, "log")) == expected
        server.stop()
        assert check(server.directory).returncode == 0
