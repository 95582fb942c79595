"""Requests and responses of very many small parts: others do not wait."""

from __future__ import annotations

import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from awscrt.checksums import crc64nvme

from tests.hostile.bystanders import assert_others_do_not_wait
from tests.probes.client import Client, Request, shared_key, shared_key_lite
from tests.server import ACCOUNT, KEY, Server, served

pytestmark = pytest.mark.alone

_sign = shared_key(ACCOUNT, KEY)
# Does not sign the length of the body, which a chunked one does not have.
_sign_lite = shared_key_lite(ACCOUNT, KEY)
_BOX: Final = f"/{ACCOUNT}/box"
_QUEUE: Final = f"/{ACCOUNT}/queue"
_BLOCK_BLOB: Final = ("x-ms-blob-type", "BlockBlob")
_WAIT_SECONDS_MAX: Final = 0.15
"""Less than the default: these requests once stalled the server for longer than this."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    directory: Path = tmp_path_factory.mktemp("parts") / "data"
    with served(directory, "--workers", "1") as started:
        _answered(started, Request("PUT", _BOX, (("restype", "container"),)), 201)
        yield started


def _answered(server: Server, request: Request, status: int, service: str = "blob") -> bytes:
    with Client(server.endpoints[service]) as client:
        answer = client.ask(_sign(request))
    assert answer.status == status, (answer.status, answer.code)
    return answer.body


@pytest.mark.parametrize("content", [b"", b"x", b"x" * 40], ids=["empty", "short", "longer"])
def test_a_structured_message_of_tiny_segments(server: Server, content: bytes) -> None:
    count = 0xFFFF
    crc = struct.pack("<Q", crc64nvme(content))
    size = len(content)
    segments = b"".join(
        struct.pack("<HQ", number, size) + content + crc for number in range(1, count + 1)
    )
    length = 13 + len(segments) + 8
    body = struct.pack("<BQHH", 1, length, 1, count) + segments
    body += struct.pack("<Q", crc64nvme(content * count))
    headers = (
        _BLOCK_BLOB,
        ("x-ms-structured-body", "XSM/1.0; properties=crc64"),
        ("x-ms-structured-content-length", str(size * count)),
        ("x-ms-version", "2025-01-05"),
    )
    request = Request("PUT", f"{_BOX}/structured", (), headers, body)

    def attack() -> None:
        _answered(server, request, 201)
        time.sleep(0.05)

    assert_others_do_not_wait(server, attack, _WAIT_SECONDS_MAX)
    assert _answered(server, Request("GET", f"{_BOX}/structured"), 200) == content * count


@pytest.fixture(scope="module")
def block_blob_of_one_block(server: Server) -> bytes:
    """A blob whose list has one short block 50,000 times."""
    path = f"{_BOX}/repeated"
    block = bytes(range(100))
    query = (("comp", "block"), ("blockid", "QUFB"))
    _answered(server, Request("PUT", path, query, (), block), 201)
    listed = b"<BlockList>" + b"<Latest>QUFB</Latest>" * 50_000 + b"</BlockList>"
    _answered(server, Request("PUT", path, (("comp", "blocklist"),), (), listed), 201)
    return block * 50_000


def test_a_download_of_one_short_block_many_times(
    server: Server, block_blob_of_one_block: bytes
) -> None:
    def attack() -> None:
        downloaded = _answered(server, Request("GET", f"{_BOX}/repeated"), 200)
        assert downloaded == block_blob_of_one_block
        time.sleep(0.05)

    assert_others_do_not_wait(server, attack)


def test_a_checksum_of_very_many_pieces(server: Server, block_blob_of_one_block: bytes) -> None:
    headers = (("x-ms-range", "bytes=0-3999999"), ("x-ms-range-get-content-md5", "true"))

    def attack() -> None:
        downloaded = _answered(server, Request("GET", f"{_BOX}/repeated", (), headers), 206)
        assert downloaded == block_blob_of_one_block[:4_000_000]
        time.sleep(0.05)

    assert_others_do_not_wait(server, attack, _WAIT_SECONDS_MAX)


@pytest.mark.parametrize(("signed", "status"), [(False, 404), (True, 201)])
def test_a_body_in_chunks_of_a_byte(server: Server, signed: bool, status: int) -> None:
    query = (("comp", "blocklist"),)
    request = Request("PUT", f"{_BOX}/chunks", query, (("Transfer-Encoding", "chunked"),))
    document = b"<BlockList>".ljust(400_000) + b"</BlockList>"
    chunks = b"".join(b"1\r\n%c\r\n" % byte for byte in document) + b"0\r\n\r\n"

    def attack() -> None:
        with Client(server.endpoints["blob"]) as client:
            sent = _sign_lite(request) if signed else request
            (answer,) = client.send_bytes(sent.raw() + chunks)
        assert answer.status == status
        time.sleep(0.05)

    assert_others_do_not_wait(server, attack, _WAIT_SECONDS_MAX / 2)


def test_a_preflight_that_names_many_headers(server: Server) -> None:
    allowed = ",".join([*(f"a{number:02}" for number in range(62)), "x*"])
    document = (
        "<StorageServiceProperties><Cors><CorsRule><AllowedOrigins>*</AllowedOrigins>"
        f"<AllowedMethods>GET</AllowedMethods><AllowedHeaders>{allowed}</AllowedHeaders>"
        "<ExposedHeaders/><MaxAgeInSeconds>1</MaxAgeInSeconds></CorsRule></Cors>"
        "</StorageServiceProperties>"
    )
    query = (("restype", "service"), ("comp", "properties"))
    _answered(server, Request("PUT", f"/{ACCOUNT}", query, (), document.encode()), 202)
    headers = (
        ("Origin", "http://somewhere.example"),
        ("Access-Control-Request-Method", "GET"),
        ("Access-Control-Request-Headers", ",".join(f"x{number}" for number in range(9_000))),
    )
    preflight = Request("OPTIONS", f"{_BOX}/blob", (), headers)

    def attack() -> None:
        with Client(server.endpoints["blob"]) as client:
            for _ in range(3):
                assert client.ask(preflight).status == 200
        time.sleep(0.05)

    assert_others_do_not_wait(server, attack, 0.1)


def test_peeking_at_the_maximum_of_long_messages(server: Server) -> None:
    """All of them in characters that are escaped in the response."""
    _answered(server, Request("PUT", _QUEUE), 201, "queue")
    text = b"&lt;" * (64 << 10)
    message = b"<QueueMessage><MessageText>" + text + b"</MessageText></QueueMessage>"
    for _ in range(32):
        _answered(server, Request("POST", f"{_QUEUE}/messages", (), (), message), 201, "queue")
    query = (("peekonly", "true"), ("numofmessages", "32"))

    def attack() -> None:
        for _ in range(3):
            peeked = _answered(server, Request("GET", f"{_QUEUE}/messages", query), 200, "queue")
            assert peeked.count(b"&lt;") == 32 * (64 << 10)

    assert_others_do_not_wait(server, attack, _WAIT_SECONDS_MAX)
