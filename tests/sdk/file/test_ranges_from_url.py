"""Put Range From URL."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any

import pytest
from awscrt.checksums import crc64nvme
from azure.storage.blob import ContainerClient
from azure.storage.fileshare import ShareClient, ShareFileClient

from tests.sdk.blob.clients import blob_service
from tests.sdk.file.clients import file_service, share_token
from tests.sdk.file.test_copies import LARGE, put, shown_headers, signed, signed_blob
from tests.sdk.harness import ResponseRecorder, refused, with_headers
from tests.sdk.origin import BODY, Origin
from tests.server import Server, unique

MIB = 1 << 20
WRITTEN = "x-ms-file-last-write-time"


@pytest.fixture
def source(share: ShareClient) -> ShareFileClient:
    return put(share, "source", LARGE * 3)


@pytest.fixture
def file(share: ShareClient) -> ShareFileClient:
    created = share.get_file_client("file")
    created.create_file(8 * MIB)
    return created


@pytest.fixture(scope="module")
def container(server: Server) -> Iterator[ContainerClient]:
    with blob_service(server) as blobs:
        yield blobs.create_container(unique())


def write(file: ShareFileClient, url: str, length: int, **options: Any) -> ResponseRecorder:
    """Writes a range at 7 with the bytes of the source from 5 on."""
    answer = ResponseRecorder()
    options = {"raw_response_hook": answer, **options}
    file.upload_range_from_url(url, 7, length, 5, **options)
    return answer


@pytest.mark.parametrize("length", [1, 10_000, MIB + 1, 4 * MIB])
def test_ranges_of_files(source: ShareFileClient, file: ShareFileClient, length: int) -> None:
    answer = write(file, signed(source), length)
    data = (LARGE * 3)[5 : 5 + length]
    crc = base64.b64encode(crc64nvme(data).to_bytes(8, "little")).decode()
    assert (answer.status, answer.headers["x-ms-content-crc64"]) == (201, crc)
    assert answer.headers["x-ms-request-server-encrypted"] == "true"
    assert answer.headers[WRITTEN] == shown_headers(file)[WRITTEN]
    source.delete_file()
    assert file.download_file(0, length + 10).readall() == bytes(7) + data + bytes(3)


@pytest.mark.parametrize("length", [10_000, 2 * MIB])
def test_ranges_of_blobs(container: ContainerClient, file: ShareFileClient, length: int) -> None:
    blob = container.upload_blob(unique(), LARGE * 3)
    write(file, signed_blob(blob), length)
    assert file.download_file(7, length).readall() == (LARGE * 3)[5 : 5 + length]


def test_ranges_from_another_server(own: Server, origin: Origin) -> None:
    file = file_service(own).create_share(unique("share")).get_file_client("file")
    file.create_file(2 * MIB)
    length = len(BODY)
    headers = {"x-ms-source-range": "bytes=0-"}
    # A server that ignores ranges sends everything, with another status.
    with refused(400, "CannotVerifyCopySource"):
        write(file, origin.url("fast"), length, raw_request_hook=with_headers(**headers))
    with refused(404, "CannotVerifyCopySource"):
        write(file, origin.url("missing"), length)


def test_the_write_time_is_preserved(source: ShareFileClient, file: ShareFileClient) -> None:
    before = shown_headers(file)
    answer = write(file, signed(source), 10, file_last_write_mode="preserve")
    after = shown_headers(file)
    assert answer.headers[WRITTEN] == after[WRITTEN] == before[WRITTEN]
    assert after["x-ms-file-change-time"] > before["x-ms-file-change-time"]
    write(file, signed(source), 10, file_last_write_mode="now")
    assert shown_headers(file)[WRITTEN] > before[WRITTEN]
    hook = with_headers(**{"x-ms-version": "2021-02-12"})
    assert WRITTEN not in write(file, signed(source), 10, raw_request_hook=hook).headers


@pytest.mark.parametrize("length", [1_000, 2 * MIB])
def test_checksums_of_the_source(
    source: ShareFileClient, file: ShareFileClient, length: int
) -> None:
    right = bytearray(crc64nvme((LARGE * 3)[5 : 5 + length]).to_bytes(8, "little"))
    wrong = bytearray(8)
    write(file, signed(source), length, source_content_crc64=right)
    with refused(400, "Crc64Mismatch"):
        write(file, signed(source), length, source_content_crc64=wrong)
    write(file, signed(source), length, source_if_match_crc64=right)
    with refused(412, "SourceConditionNotMet"):
        write(file, signed(source), length, source_if_match_crc64=wrong)
    write(file, signed(source), length, source_if_none_match_crc64=wrong)
    before = shown_headers(file)["etag"]
    with refused(412, "SourceConditionNotMet"):
        write(file, signed(source), length, source_if_none_match_crc64=right)
    assert shown_headers(file)["etag"] == before


def test_leased_files(source: ShareFileClient, file: ShareFileClient) -> None:
    lease = file.acquire_lease()
    with refused(412, "LeaseIdMissing"):
        write(file, signed(source), 10)
    write(file, signed(source), 10, lease=lease)


def test_bad_requests(source: ShareFileClient, file: ShareFileClient) -> None:
    def code(status: int, code: str, length: int = 10, **headers: str) -> None:
        with refused(status, code):
            write(file, signed(source), length, raw_request_hook=with_headers(**headers))

    code(413, "RequestBodyTooLarge", 4 * MIB + 1)
    code(416, "InvalidRange", x_ms_range="bytes=8388600-8388609")
    code(400, "InvalidHeaderValue", x_ms_source_range="bytes=0-10")
    code(400, "InvalidHeaderValue", x_ms_source_range="10 bytes")
    code(416, "InvalidRange", x_ms_source_range="bytes=6143995-")
    code(416, "CannotVerifyCopySource", x_ms_source_range="bytes=99999990-99999999")
    code(400, "InvalidHeaderValue", x_ms_write="clear")
    code(400, "InvalidHeaderValue", x_ms_write="append")
    code(400, "InvalidHeaderValue", x_ms_range="bytes=5-")
    code(400, "InvalidHeaderValue", x_ms_file_last_write_time="later")
    code(400, "InvalidHeaderValue", x_ms_source_content_crc64="AAAA")
    code(400, "InvalidHeaderValue", x_ms_source_if_match_crc64="AAAA")
    code(400, "InvalidHeaderValue", x_ms_copy_source="file:///etc/passwd")
    code(401, "CannotVerifyCopySource", x_ms_copy_source_authorization="Bearer abc")
    assert file.download_file(0, 100).readall() == bytes(100)


def test_access(
    server: Server, share: ShareClient, container: ContainerClient, file: ShareFileClient
) -> None:
    source = put(share)
    blob = container.upload_blob(unique(), LARGE)
    with refused(401, "CannotVerifyCopySource") as error:
        write(file, blob.url, 10)
    assert error.message.startswith("Server failed to authenticate the request. Please refer")
    with refused(403, "CannotVerifyCopySource") as error:
        write(file, f"{source.url}?{share_token(share)}A", 10)
    assert error.message.startswith("Server failed to authenticate the request. Make sure")
    with refused(401, "CannotVerifyCopySource"):
        # The key that signs the request does not count for the source, unlike in Copy File.
        write(file, source.url, 10)
    missing = share.get_file_client("missing")
    with refused(404, "CannotVerifyCopySource"):
        write(file, signed(missing), 10)
    with refused(404, "ResourceNotFound"):
        write(missing, signed(source), 10)
