"""Get File: whole files, ranges, checksums, and files that consist mostly of holes."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import io
import random
from urllib.parse import parse_qsl, quote, urlsplit

import pytest
from awscrt.checksums import crc64nvme
from azure.storage.fileshare import (
    ContentSettings,
    ShareClient,
    ShareFileClient,
    ShareServiceClient,
)

from tests.probes.client import Answer, Client, Request, shared_key
from tests.sdk.file.clients import async_file_service, file_token, sas_client
from tests.sdk.harness import ResponseRecorder, refused
from tests.server import ACCOUNT, KEY, Server

pytestmark = [
    pytest.mark.usefixtures("client_checksums"),
    # The SDK passes the bytes of an upload to aiohttp as they are.
    pytest.mark.filterwarnings("ignore:Sending a large body:ResourceWarning"),
]

KIB, MIB, TIB = 1 << 10, 1 << 20, 1 << 40
CONTENT = random.Random(17).randbytes(10 * KIB)
MD5 = bytearray(hashlib.md5(CONTENT, usedforsecurity=False).digest())


@pytest.fixture
def file(share: ShareClient) -> ShareFileClient:
    created = share.get_file_client("file")
    settings = ContentSettings(content_type="text/plain", content_md5=MD5)
    created.upload_file(CONTENT, content_settings=settings, metadata={"Colour": "red"})
    return created


def text_of(digest: bytes | bytearray) -> str:
    return base64.b64encode(digest).decode()


def get(file: ShareFileClient, **headers: str) -> Answer:
    """Sends one Get File with exactly these headers; the SDK always asks for a range."""
    url = urlsplit(file.url)
    query = tuple((name, quote(value, safe="")) for name, value in parse_qsl(url.query))
    headers = {"x_ms_version": "2026-10-06", **headers}
    sent = tuple((name.replace("_", "-"), value) for name, value in headers.items())
    request = Request("GET", url.path, query, sent)
    if "sig" not in dict(query):
        request = shared_key(ACCOUNT, KEY)(request)
    with Client(f"{url.scheme}://{url.netloc}") as client:
        return client.ask(request)


def test_a_whole_file(file: ShareFileClient) -> None:
    answer = get(file)
    assert (answer.status, answer.body) == (200, CONTENT)
    assert answer.headers["content-length"] == str(len(CONTENT))
    assert answer.headers["content-md5"] == text_of(MD5)
    assert answer.headers["content-type"] == "text/plain"
    assert answer.headers["accept-ranges"] == "bytes"
    assert answer.headers["x-ms-type"] == "File"
    assert answer.headers["x-ms-meta-colour"] == "red"
    assert answer.headers["x-ms-server-encrypted"] == "true"
    assert answer.headers["x-ms-lease-state"] == "available"
    for absent in ("content-range", "x-ms-content-md5"):
        assert absent not in answer.headers
    shown = ResponseRecorder()
    file.get_file_properties(raw_response_hook=shown)
    for name in ("etag", "last-modified", "x-ms-file-id", "x-ms-file-attributes"):
        assert answer.headers[name] == shown.headers[name]


@pytest.mark.parametrize(
    ("asked", "first", "last"),
    [
        ("bytes=0-0", 0, 0),
        ("bytes=100-199", 100, 199),
        ("bytes=10239-", 10_239, 10_239),
        ("bytes=5000-", 5_000, 10_239),
        ("bytes=9000-999999999", 9_000, 10_239),
    ],
)
def test_a_range(file: ShareFileClient, asked: str, first: int, last: int) -> None:
    answer = get(file, x_ms_range=asked)
    assert (answer.status, answer.body) == (206, CONTENT[first : last + 1])
    assert answer.headers["content-range"] == f"bytes {first}-{last}/{len(CONTENT)}"
    assert answer.headers["x-ms-content-md5"] == text_of(MD5)
    assert "content-md5" not in answer.headers


def test_malformed_ranges_are_ignored(file: ShareFileClient) -> None:
    for asked in ("bytes=5-2", "bytes=a-b", "items=0-1", "bytes=0-1,4-5", "bytes=-5"):
        answer = get(file, x_ms_range=asked)
        assert (answer.status, answer.body) == (200, CONTENT), asked


def test_ranges_outside_of_the_file(share: ShareClient, file: ShareFileClient) -> None:
    answer = get(file, x_ms_range=f"bytes={len(CONTENT)}-")
    assert (answer.status, answer.code) == (416, "InvalidRange")
    assert answer.headers["content-range"] == f"bytes */{len(CONTENT)}"
    with refused(416, "InvalidRange"):
        file.download_file(offset=len(CONTENT), length=1)
    empty = share.get_file_client("empty")
    empty.create_file(0)
    answer = get(empty, x_ms_range="bytes=0-0")
    assert (answer.status, answer.code) == (416, "InvalidRange")
    assert answer.headers["content-range"] == "bytes */0"
    answer = get(empty)
    assert (answer.status, answer.headers["content-length"], answer.body) == (200, "0", b"")
    # The SDK asks for a range first.
    assert empty.download_file().readall() == b""


def test_checksums_of_ranges(share: ShareClient, file: ShareFileClient) -> None:
    asked = {"x_ms_range": "bytes=10-99"}
    answer = get(file, **asked, x_ms_range_get_content_md5="true")
    md5 = hashlib.md5(CONTENT[10:100], usedforsecurity=False).digest()
    assert (answer.body, answer.headers["content-md5"]) == (CONTENT[10:100], text_of(md5))
    assert answer.headers["x-ms-content-md5"] == text_of(MD5)
    answer = get(file, **asked, x_ms_range_get_content_crc64="true")
    crc = crc64nvme(CONTENT[10:100]).to_bytes(8, "little")
    assert answer.headers["x-ms-content-crc64"] == text_of(crc)
    answer = get(file, x_ms_range_get_content_md5="true")
    assert (answer.status, answer.code) == (400, "InvalidHeaderValue")
    large = share.get_file_client("large")
    large.create_file(5 * MIB)
    asked = {"x_ms_range": f"bytes=0-{4 * MIB}", "x_ms_range_get_content_md5": "true"}
    answer = get(large, **asked)
    assert (answer.status, answer.code) == (400, "OutOfRangeInput")
    assert get(large, **asked | {"x_ms_range": f"bytes=1-{4 * MIB}"}).status == 206


@pytest.mark.parametrize("size", [1, 4 * MIB + 1, 9 * MIB])
def test_validated_downloads(share: ShareClient, size: int) -> None:
    content = random.Random(size).randbytes(size)
    file = share.get_file_client("file")
    file.upload_file(content, validate_content=True)
    assert file.download_file(validate_content=True).readall() == content
    answer = ResponseRecorder()
    downloaded = file.download_file(validate_content="crc64", raw_response_hook=answer).readall()
    assert downloaded == content
    assert answer.headers["x-ms-structured-body"] == "XSM/1.0; properties=crc64"
    hole = share.get_file_client("hole")
    hole.create_file(size)
    assert hole.download_file(validate_content="crc64").readall() == bytes(size)


def test_a_large_file_in_parallel(share: ShareClient) -> None:
    content = random.Random(64).randbytes(MIB) * 64
    file = share.get_file_client("file")
    file.upload_file(content, max_concurrency=4)
    digest = hashlib.sha256(content).digest()
    stream = io.BytesIO()
    file.download_file(max_concurrency=4).readinto(stream)
    assert hashlib.sha256(stream.getvalue()).digest() == digest
    answer = get(file)
    assert answer.status == 200
    assert hashlib.sha256(answer.body).digest() == digest


def test_async_client(server: Server, share: ShareClient) -> None:
    content = random.Random(9).randbytes(9 * MIB)

    async def work() -> None:
        async with async_file_service(server) as service:
            file = service.get_share_client(share.share_name).get_file_client("file")
            await file.upload_file(content, max_concurrency=3)
            download = await file.download_file(max_concurrency=3)
            assert await download.readall() == content

    asyncio.run(work())


def test_a_file_with_holes(share: ShareClient) -> None:
    file = share.get_file_client("file")
    file.create_file(4 * TIB)
    file.upload_range(b"begin", 0, 5)
    file.upload_range(b"middle", 2 * TIB, 6)
    file.upload_range(b"end", 4 * TIB - 3, 3)
    for start, expected in (
        (0, b"begin" + bytes(5)),
        (2 * TIB - 2, bytes(2) + b"middle" + bytes(2)),
        (3 * TIB, bytes(10)),
        (4 * TIB - 10, bytes(7) + b"end"),
    ):
        assert file.download_file(offset=start, length=10).readall() == expected
    long_hole = file.download_file(offset=TIB, length=64 * MIB).chunks()
    assert sum(chunk.count(0) for chunk in long_hole) == 64 * MIB


def test_many_small_ranges_in_one_file(share: ShareClient) -> None:
    """The plan of such a file is made in a thread."""
    file = share.get_file_client("file")
    file.create_file(300 * 20)
    expected = bytearray(300 * 20)
    for number in range(300):
        file.upload_range(b"%05d" % number, number * 20, 5)
        expected[number * 20 : number * 20 + 5] = b"%05d" % number
    assert file.download_file().readall() == bytes(expected)
    assert file.download_file(validate_content=True).readall() == bytes(expected)


def test_snapshots(share: ShareClient, file: ShareFileClient, files: ShareServiceClient) -> None:
    taken = share.create_snapshot()["snapshot"]
    file.upload_range(b"changed", 0, 7)
    shown = files.get_share_client(share.share_name, snapshot=taken).get_file_client("file")
    answer = get(shown)
    assert answer.body == CONTENT
    assert "x-ms-lease-state" not in answer.headers
    assert get(file).body == b"changed" + CONTENT[7:]
    file.delete_file()
    assert get(shown, x_ms_range="bytes=0-9").body == CONTENT[:10]
    assert get(file).code == "ResourceNotFound"
    never = files.get_share_client(share.share_name, snapshot="2001-01-01T00:00:00.0000000Z")
    answer = get(never.get_file_client("file"))
    assert (answer.status, answer.code) == (404, "ShareSnapshotNotFound")


def test_leases(file: ShareFileClient) -> None:
    lease = file.acquire_lease()
    answer = get(file)
    assert answer.body == CONTENT
    assert answer.headers["x-ms-lease-state"] == "leased"
    assert get(file, x_ms_lease_id=lease.id).body == CONTENT
    answer = get(file, x_ms_lease_id="11111111-1111-1111-1111-111111111111")
    assert (answer.status, answer.code) == (412, "LeaseIdMismatchWithFileOperation")


@pytest.mark.parametrize(("version", "has_lease"), [("2018-11-09", False), ("2019-02-02", True)])
def test_headers_depend_on_the_version(
    file: ShareFileClient, version: str, has_lease: bool
) -> None:
    answer = get(file, x_ms_version=version)
    assert answer.status == 200
    assert ("x-ms-lease-status" in answer.headers) is has_lease


def test_tokens_override_headers(share: ShareClient, file: ShareFileClient) -> None:
    token = file_token(
        share,
        "file",
        cache_control="no-cache",
        content_disposition="inline",
        content_encoding="utf-8",
        content_language="fr",
        content_type="text/html",
    )
    shared = sas_client(share, token).get_file_client(file.file_name)
    answer = get(shared, x_ms_range="bytes=0-9")
    overridden = {
        "cache-control": "no-cache",
        "content-disposition": "inline",
        "content-encoding": "utf-8",
        "content-language": "fr",
        "content-type": "text/html",
    }
    assert {name: answer.headers[name] for name in overridden} == overridden


def test_what_is_not_there(share: ShareClient) -> None:
    share.create_directory("directory")
    for path, code in (
        ("none", "ResourceNotFound"),
        ("none/none", "ParentNotFound"),
        ("directory", "ResourceNotFound"),
    ):
        answer = get(share.get_file_client(path))
        assert (answer.status, answer.code) == (404, code), path
    share.delete_share()
    assert get(share.get_file_client("none")).code in {"ShareNotFound", "ShareBeingDeleted"}
