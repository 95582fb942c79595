"""Validation of bodies: checksums in headers, and structured messages."""

from __future__ import annotations

import base64
import io
import random
import struct
from collections.abc import Iterator

import pytest
from awscrt.checksums import crc64nvme
from azure.storage.blob import (
    BlobBlock,
    BlobClient,
    ContainerClient,
)

from etagere.protocol.codecs.structured_messages import encoded
from tests.sdk.blob.raw import RawContainerClient, RawResponse
from tests.sdk.harness import ResponseRecorder, refused, with_headers
from tests.server import ACCOUNT, KEY

KIB, MIB = 1 << 10, 1 << 20
KIND = "XSM/1.0; properties=crc64"


pytestmark = pytest.mark.usefixtures("client_checksums")


def content_of(size: int) -> bytes:
    return random.Random(size).randbytes(size)


class RawMessageClient(RawContainerClient):
    """Sends structured messages, well-formed or not."""

    def __call__(
        self, method: str, path: str, body: bytes | None = None, **headers: str | int
    ) -> RawResponse:
        sent = ((name.replace("_", "-"), str(value)) for name, value in headers.items())
        return self.send(method, f"/{path}", sent, body)

    def put(
        self, body: bytes, content_length: int, path: str = "blob", **headers: str
    ) -> RawResponse:
        """Puts a blob as a structured message."""
        return self(
            "PUT",
            path,
            body,
            x_ms_blob_type="BlockBlob",
            **{
                "x_ms_structured_body": KIND,
                "x_ms_structured_content_length": str(content_length),
                **headers,
            },
        )


@pytest.fixture
def raw(container: ContainerClient) -> RawMessageClient:
    return RawMessageClient(container)


# Uploads


@pytest.mark.parametrize("size", [1, 5 * KIB, 33 * KIB, 4 * MIB, 4 * MIB + 1, 13 * MIB])
def test_structured_blocks(container: ContainerClient, size: int) -> None:
    content, answer = content_of(size), ResponseRecorder()
    blob = container.get_blob_client("blob")
    stream = io.BytesIO(content)
    blob.stage_block("a", stream, validate_content="crc64", raw_response_hook=answer)
    assert answer.headers["x-ms-structured-body"] == KIND
    crc = int.from_bytes(base64.b64decode(answer.headers["x-ms-content-crc64"]), "little")
    assert crc == crc64nvme(content)
    blob.commit_block_list([BlobBlock("a")])
    assert blob.get_blob_properties().size == size
    assert blob.download_blob().readall() == content


@pytest.mark.parametrize("size", [0, 1, 32 * KIB, 32 * KIB + 1, 5 * MIB])
def test_structured_blobs(container: ContainerClient, raw: RawMessageClient, size: int) -> None:
    """Stored and returned checksums are of the content, not of the message."""
    content = content_of(size)
    response = raw.put(encoded(content), size)
    assert response.status == 201
    assert response.headers["x-ms-structured-body"] == KIND
    blob = container.get_blob_client("blob")
    shown = blob.get_blob_properties()
    assert shown.size == size
    assert (
        response.headers["content-md5"]
        == base64.b64encode(bytes(shown.content_settings.content_md5 or b"")).decode()
    )
    assert blob.download_blob().readall() == content


def damaged(message: bytes) -> Iterator[tuple[bytes, str]]:
    yield message[:40] + bytes([message[40] ^ 1]) + message[41:], "Crc64Mismatch"
    yield message[:-1] + bytes([message[-1] ^ 1]), "Crc64Mismatch"
    yield b"\x02" + message[1:], "InvalidInput"
    yield message[:1] + struct.pack("<Q", 7) + message[9:], "InvalidInput"
    yield message[:9] + b"\x00" + message[10:], "InvalidInput"
    yield message[:13] + b"\x02" + message[14:], "InvalidInput"
    yield message[:15] + struct.pack("<Q", 101) + message[23:], "InvalidInput"
    yield message[:15] + struct.pack("<Q", 99) + message[23:], "InvalidInput"
    yield bytes(len(message)), "InvalidInput"


@pytest.mark.parametrize("path", ["blob", "blob?comp=block&blockid=YQ%3D%3D"])
def test_damaged_messages_change_nothing(
    container: ContainerClient, raw: RawMessageClient, path: str
) -> None:
    blob = container.upload_blob("blob", b"before")
    etag = blob.get_blob_properties().etag
    for message, code in damaged(encoded(b"x" * 100)):
        response = raw.put(message, 100, path)
        assert (response.status, response.code) == (400, code)
    assert blob.get_blob_properties().etag == etag
    assert blob.get_block_list("uncommitted")[1] == []


@pytest.mark.parametrize(
    ("headers", "code"),
    [
        ({"x_ms_structured_body": "XSM/2.0; properties=crc64"}, "InvalidHeaderValue"),
        ({"x_ms_structured_body": "XSM/1.0"}, "InvalidHeaderValue"),
        ({"x_ms_structured_content_length": "4"}, "InvalidHeaderValue"),
        ({"x_ms_structured_content_length": "-3"}, "InvalidHeaderValue"),
        ({"x_ms_structured_content_length": "9" * 5000}, "InvalidHeaderValue"),
        ({"x_ms_structured_content_length": ""}, "MissingRequiredHeader"),
    ],
)
def test_headers_of_messages(
    container: ContainerClient, raw: RawMessageClient, headers: dict[str, str], code: str
) -> None:
    response = raw.put(encoded(b"abc"), 3, **headers)
    assert (response.status, response.code) == (400, code)
    assert not container.get_blob_client("blob").exists()


def test_a_length_without_a_message(container: ContainerClient, raw: RawMessageClient) -> None:
    response = raw(
        "PUT", "blob", b"abc", x_ms_blob_type="BlockBlob", x_ms_structured_content_length=3
    )
    assert (response.status, response.code) == (400, "MissingRequiredHeader")
    assert not container.get_blob_client("blob").exists()


def test_limits_apply_to_the_content(raw: RawMessageClient) -> None:
    """A block may have 4 MiB of content, whatever the overhead of the message."""
    content = bytes(4 * MIB)
    block = "blob?comp=block&blockid=YQ%3D%3D"
    old = {"x_ms_version": "2015-12-11"}
    assert raw.put(encoded(content), len(content), block, **old).status == 201
    response = raw.put(encoded(content + b"x"), len(content) + 1, block, **old)
    assert (response.status, response.code) == (413, "RequestBodyTooLarge")
    empty = raw.put(encoded(b""), 0, block)
    assert (empty.status, empty.code) == (400, "InvalidHeaderValue")


def test_a_message_that_ends_early(container: ContainerClient, raw: RawMessageClient) -> None:
    """Its segments are shorter than its length says."""
    message = encoded(b"x" * 100)
    response = raw.put(message[:-18], 100)
    assert (response.status, response.code) == (400, "InvalidHeaderValue")
    response = raw.put(message[:-18] + message[:18], 100)
    assert (response.status, response.code) == (400, "Crc64Mismatch")
    assert not container.get_blob_client("blob").exists()


# Downloads


@pytest.mark.parametrize("size", [0, 1, 32 * KIB, 32 * KIB + 1, 4 * MIB, 9 * MIB + 1])
def test_structured_downloads(container: ContainerClient, raw: RawMessageClient, size: int) -> None:
    content = content_of(size)
    blob = container.upload_blob("blob", content)
    assert blob.download_blob(validate_content="crc64").readall() == content
    response = raw("GET", "blob", x_ms_structured_body=KIND)
    assert response.status == 200
    assert response.headers["x-ms-structured-body"] == KIND
    assert response.headers["x-ms-structured-content-length"] == str(size)
    assert response.headers["content-length"] == str(len(response.body))
    assert response.body == encoded(content)


@pytest.mark.parametrize(("start", "length"), [(0, 1), (5, 100), (MIB, 5 * MIB), (0, 9 * MIB)])
def test_structured_ranges(
    container: ContainerClient, raw: RawMessageClient, start: int, length: int
) -> None:
    content = content_of(9 * MIB)
    blob = container.upload_blob("blob", content)
    wanted = content[start : start + length]
    assert blob.download_blob(start, length, validate_content="crc64").readall() == wanted
    end = start + length - 1
    response = raw("GET", "blob", x_ms_structured_body=KIND, x_ms_range=f"bytes={start}-{end}")
    assert response.status == 206
    assert response.headers["content-range"] == f"bytes {start}-{end}/{9 * MIB}"
    assert response.headers["x-ms-structured-content-length"] == str(length)
    assert response.body == encoded(wanted)


def test_chunks_of_a_structured_download(container: ContainerClient) -> None:
    content = content_of(3 * MIB)
    blob = BlobClient(
        container.url.rpartition("/")[0],
        container.container_name,
        "blob",
        credential={"account_name": ACCOUNT, "account_key": KEY},
        max_single_get_size=MIB,
        max_chunk_get_size=MIB // 2,
    )
    blob.upload_blob(content)
    downloaded = blob.download_blob(validate_content="crc64")
    assert b"".join(downloaded.chunks()) == content


def test_a_structured_range_with_its_checksum(
    container: ContainerClient, raw: RawMessageClient
) -> None:
    container.upload_blob("blob", b"0123456789")
    response = raw(
        "GET",
        "blob",
        x_ms_structured_body=KIND,
        x_ms_range="bytes=2-4",
        x_ms_range_get_content_crc64="true",
    )
    assert response.body == encoded(b"234")
    crc = int.from_bytes(base64.b64decode(response.headers["x-ms-content-crc64"]), "little")
    assert crc == crc64nvme(b"234")


def test_unknown_kinds_of_messages(container: ContainerClient, raw: RawMessageClient) -> None:
    container.upload_blob("blob", b"content")
    response = raw("GET", "blob", x_ms_structured_body="XSM/9.0")
    assert (response.status, response.code) == (400, "InvalidHeaderValue")


# The other kinds of blobs


def test_structured_appends(container: ContainerClient, raw: RawMessageClient) -> None:
    parts = [content_of(size) for size in (5, 100 * KIB, 5 * MIB)]
    blob = container.get_blob_client("blob")
    blob.create_append_blob()
    for part in parts:
        blob.append_block(io.BytesIO(part), validate_content="crc64")
    response = raw.put(encoded(b"x" * 100)[:-1] + b"?", 100, "blob?comp=appendblock")
    assert (response.status, response.code) == (400, "Crc64Mismatch")
    content = b"".join(parts)
    assert blob.download_blob(validate_content="crc64").readall() == content


def test_structured_pages(container: ContainerClient, raw: RawMessageClient) -> None:
    """For a hole, zeros are sent and covered by the checksums."""
    page, length = content_of(512), 9 * MIB
    blob = container.get_blob_client("blob")
    blob.create_page_blob(length)
    for offset in (0, 5 * MIB):
        where = {"x_ms_page_write": "update", "x_ms_range": f"bytes={offset}-{offset + 511}"}
        response = raw.put(encoded(page), 512, "blob?comp=page", **where)
        assert (response.status, response.headers["x-ms-structured-body"]) == (201, KIND)
    content = page.ljust(5 * MIB, b"\0") + page.ljust(4 * MIB, b"\0")
    assert blob.download_blob(validate_content="crc64").readall() == content
    response = raw("GET", "blob", x_ms_structured_body=KIND)
    assert response.headers["content-length"] == str(len(response.body))
    assert response.body == encoded(content)


# Checksums in headers


def test_the_crc_of_a_whole_body(container: ContainerClient) -> None:
    answer = ResponseRecorder()
    blob = container.get_blob_client("blob")
    blob.upload_blob(b"content", validate_content="crc64", raw_response_hook=answer)
    assert "x-ms-structured-body" not in answer.headers
    wrong = base64.b64encode(crc64nvme(b"other").to_bytes(8, "little")).decode()
    with refused(400, "Crc64Mismatch") as error:
        blob.stage_block("a", b"content", raw_request_hook=with_headers(x_ms_content_crc64=wrong))
    assert error.details["userspecifiedcrc"] == wrong
    assert error.details["servercalculatedcrc"] == answer.headers["x-ms-content-crc64"]


def test_both_checksums(raw: RawMessageClient) -> None:
    md5 = base64.b64encode(bytes(16)).decode()
    crc = base64.b64encode(bytes(8)).decode()
    for path in ("blob", "blob?comp=block&blockid=YQ%3D%3D"):
        response = raw(
            "PUT",
            path,
            b"content",
            x_ms_blob_type="BlockBlob",
            Content_MD5=md5,
            x_ms_content_crc64=crc,
        )
        assert (response.status, response.code) == (400, "BothCrc64AndMd5HeaderPresent")


@pytest.mark.parametrize("written", ["not base64!", "c2hvcnQ=", "AAAAAAAAAAAA"])
def test_malformed_crcs(raw: RawMessageClient, written: str) -> None:
    response = raw("PUT", "blob", b"x", x_ms_blob_type="BlockBlob", x_ms_content_crc64=written)
    assert (response.status, response.code) == (400, "InvalidHeaderValue")
