"""Copy sources on other servers: allowed ones are read, and no others."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple

import pytest
from azure.core import MatchConditions
from azure.storage.blob import BlobBlock, BlobClient, BlobServiceClient, ContainerClient

from tests.sdk.blob.clients import blob_service
from tests.sdk.harness import ResponseRecorder, refused, with_headers
from tests.server import Server, unique

MIB = 1 << 20
DATA = bytes(range(256)) * 1024
ETAG = '"v1"'


class Handler(BaseHTTPRequestHandler):
    """Responses of the other server, by path."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        elsewhere = self.server
        assert isinstance(elsewhere, SourceServer)
        elsewhere.asked.append((self.path, {k.lower(): v for k, v in self.headers.items()}))
        name = self.path.partition("?")[0].strip("/").replace("-", "_")
        getattr(self, f"_{name}", self._absent)()

    do_CONNECT = do_HEAD = do_POST = do_PUT = do_GET

    def log_message(self, format: str, *args: object) -> None:
        """Keeps tests quiet."""

    def _send(self, status: int, body: bytes = b"", **headers: str) -> None:
        self.send_response(status)
        for name, value in {"Content_Length": str(len(body)), **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body)

    def _data(self) -> None:
        if self.headers.get("If-None-Match") == ETAG:
            return self._send(304)
        if self.headers.get("If-Match") not in (None, ETAG):
            return self._send(412)
        described = {"ETag": ETAG, "Content_Type": "text/x-test", "Content_Language": "eo"}
        asked = self.headers.get("Range")
        if asked is None:
            return self._send(200, DATA, **described)
        first, _, last = asked.removeprefix("bytes=").partition("-")
        start, end = int(first), min(int(last or len(DATA) - 1) + 1, len(DATA))
        described["Content_Range"] = f"bytes {start}-{end - 1}/{len(DATA)}"
        return self._send(206, DATA[start:end], **described)

    def _knows_no_ranges(self) -> None:
        self._send(200, DATA)

    def _wrong_range(self) -> None:
        self._send(206, DATA[:10], Content_Range=f"bytes 7-16/{len(DATA)}")

    def _zipped(self) -> None:
        self._send(200, b"no gzip at all", Content_Encoding="gzip")

    def _chunked(self) -> None:
        self._send_chunks(1)

    def _endless(self) -> None:
        self._send_chunks(100)

    def _send_chunks(self, count: int) -> None:
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for _ in range(count):
            self.wfile.write(b"%x\r\n%b\r\n" % (len(DATA), DATA))
        self.wfile.write(b"0\r\n\r\n")

    def _announces_much(self) -> None:
        self._send(200, b"", Content_Length=str(1 << 50))
        self.close_connection = True

    def _cut_off(self) -> None:
        self._send(200, DATA, Content_Length=str(len(DATA) + 1))
        self.close_connection = True

    def _nonsense(self) -> None:
        self.wfile.write(b"this is not HTTP\r\n\r\n")
        self.close_connection = True

    def _redirect(self) -> None:
        elsewhere = self.server
        assert isinstance(elsewhere, SourceServer)
        self._send(302, Location=elsewhere.leads_to)

    def _broken(self) -> None:
        self._send(500, b"secret details")

    def _absent(self) -> None:
        self._send(404, x_ms_error_code="BlobNotFound")


class SourceServer(ThreadingHTTPServer):
    """Another server that records its requests."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.asked: list[tuple[str, dict[str, str]]] = []
        self.leads_to = ""
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def port(self) -> int:
        return int(self.server_address[1])

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignores disconnects, which some tests cause."""


class SourceServers(NamedTuple):
    server: Server
    allowed: SourceServer
    forbidden: SourceServer
    """On the same machine, and configured as the proxy for everything else."""

    def address(self, name: str) -> str:
        return f"http://127.0.0.1:{self.allowed.port}/{name}"


@pytest.fixture(scope="module")
def setting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SourceServers]:
    allowed, forbidden = SourceServer(), SourceServer()
    allowed.leads_to = f"http://127.0.0.1:{forbidden.port}/data"
    directory = tmp_path_factory.mktemp("sources") / "data"
    with pytest.MonkeyPatch.context() as environment:
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
            environment.setenv(name, f"http://127.0.0.1:{forbidden.port}")
        for name in ("NO_PROXY", "no_proxy"):
            environment.delenv(name, raising=False)
        server = Server(directory, "--copy-source", f"127.0.0.1:{allowed.port}")
        server.start()
    yield SourceServers(server, allowed, forbidden)
    server.kill()
    for other in (allowed, forbidden):
        other.shutdown()
        other.server_close()


@pytest.fixture(scope="module")
def elsewhere_service(setting: SourceServers) -> Iterator[BlobServiceClient]:
    with blob_service(setting.server) as client:
        yield client


@pytest.fixture
def container(elsewhere_service: BlobServiceClient) -> ContainerClient:
    return elsewhere_service.create_container(unique())


@pytest.fixture
def blob(container: ContainerClient) -> BlobClient:
    return container.get_blob_client("blob")


def content(blob: BlobClient) -> bytes:
    return blob.download_blob().readall()


# Allowed sources


def test_blobs_blocks_and_pages_come_from_another_server(
    setting: SourceServers, container: ContainerClient
) -> None:
    address = setting.address("data")
    whole, blocks = container.get_blob_client("whole"), container.get_blob_client("blocks")
    appended, pages = container.get_blob_client("appended"), container.get_blob_client("pages")
    whole.upload_blob_from_url(address)
    assert content(whole) == DATA
    described = whole.get_blob_properties().content_settings
    assert (described.content_type, described.content_language) == ("text/x-test", "eo")
    blocks.stage_block_from_url("one", address, 100, 200)
    blocks.stage_block_from_url("two", address)
    blocks.commit_block_list([BlobBlock("one"), BlobBlock("two")])
    assert content(blocks) == DATA[100:300] + DATA
    appended.create_append_blob()
    appended.append_block_from_url(address, 5, 10)
    assert content(appended) == DATA[5:15]
    pages.create_page_blob(512)
    pages.upload_pages_from_url(address, 0, 512, 3)
    assert content(pages) == DATA[3:515]


def test_checksums_of_sources(setting: SourceServers, blob: BlobClient) -> None:
    right = hashlib.md5(DATA, usedforsecurity=False).digest()
    with refused(400, "Md5Mismatch"):
        blob.upload_blob_from_url(setting.address("data"), source_content_md5=bytearray(16))
    blob.upload_blob_from_url(setting.address("data"), source_content_md5=bytearray(right))
    assert blob.get_blob_properties().content_settings.content_md5 == bytearray(right)


def test_content_encodings_are_not_decoded(setting: SourceServers, blob: BlobClient) -> None:
    blob.upload_blob_from_url(setting.address("zipped"))
    raw = blob.download_blob(decompress=False).readall()
    assert raw == b"no gzip at all"
    blob.upload_blob_from_url(setting.address("chunked"), overwrite=True)
    assert content(blob) == DATA


def test_the_source_server_gets_no_other_headers(setting: SourceServers, blob: BlobClient) -> None:
    setting.allowed.asked.clear()
    blob.upload_blob_from_url(setting.address("data") + "?sig=a%2Fb&x=%41+b")
    ((path, headers),) = setting.allowed.asked
    assert path == "/data?sig=a%2Fb&x=%41+b"
    assert headers.keys() <= {"host", "accept", "accept-encoding", "user-agent", "connection"}
    assert headers["accept-encoding"] == "identity"


def test_conditions_are_left_to_the_other_server(setting: SourceServers, blob: BlobClient) -> None:
    address = setting.address("data")
    for etag, condition, status in (
        ('"v2"', MatchConditions.IfNotModified, 412),
        (ETAG, MatchConditions.IfModified, 304),
    ):
        with refused(status, "CannotVerifyCopySource"):
            blob.upload_blob_from_url(address, source_etag=etag, source_match_condition=condition)
    assert not blob.exists()
    blob.upload_blob_from_url(
        address, source_etag=ETAG, source_match_condition=MatchConditions.IfNotModified
    )
    assert content(blob) == DATA


@pytest.mark.parametrize(
    ("name", "status"),
    [
        ("absent", 404),
        ("broken", 500),
        ("redirect", 400),
        ("cut-off", 500),
        ("nonsense", 500),
    ],
)
def test_failing_sources(setting: SourceServers, blob: BlobClient, name: str, status: int) -> None:
    setting.forbidden.asked.clear()
    response = ResponseRecorder()
    with refused(status, "CannotVerifyCopySource") as details:
        blob.upload_blob_from_url(setting.address(name) + "?sig=secret", raw_response_hook=response)
    assert "secret" not in details.message
    assert "secret" not in setting.server.log_with(response.headers["x-ms-request-id"])
    expected = {"redirect": "302"}.get(name, str(status))
    assert response.headers["x-ms-copy-source-status-code"] == expected
    assert not blob.exists()
    assert not setting.forbidden.asked


@pytest.mark.parametrize("name", ["knows-no-ranges", "wrong-range"])
def test_only_the_requested_range_is_accepted(
    setting: SourceServers, blob: BlobClient, name: str
) -> None:
    with refused(400, "CannotVerifyCopySource"):
        blob.stage_block_from_url("one", setting.address(name), 5, 10)


@pytest.mark.parametrize("name", ["endless", "announces-much"])
def test_sources_beyond_the_size_limit(setting: SourceServers, name: str) -> None:
    """The old version of Append Block has a limit of 4 MiB."""
    with blob_service(setting.server, api_version="2021-12-02") as old:
        blob = old.create_container(unique()).get_blob_client("blob")
        blob.create_append_blob()
        with refused(413, "RequestBodyTooLarge"):
            blob.append_block_from_url(setting.address(name))
        assert content(blob) == b""


# Other sources


def forbidden_addresses(allowed: int, forbidden: int) -> list[tuple[int, str]]:
    return [
        # Other ports and other names of the same machine.
        (403, f"http://127.0.0.1:{forbidden}/data"),
        (403, "http://127.0.0.1/data"),
        (403, f"http://localhost:{allowed}/data"),
        (403, f"http://localhost:{forbidden}/data"),
        (403, f"http://127.0.0.1.:{allowed}/data"),
        (403, f"http://127.0.0.1.nip.io:{allowed}/data"),
        (403, f"http://localtest.me:{allowed}/data"),
        (403, f"http://[::1]:{allowed}/data"),
        (403, f"http://[::ffff:127.0.0.1]:{allowed}/data"),
        (403, f"http://[::ffff:7f00:1]:{allowed}/data"),
        (403, f"http://127.1:{allowed}/data"),
        (403, f"http://2130706433:{allowed}/data"),
        (403, f"http://0x7f000001:{allowed}/data"),
        (403, f"http://0177.0.0.1:{allowed}/data"),
        (403, f"http://127.0.0.01:{allowed}/data"),
        (403, f"http://0.0.0.0:{allowed}/data"),
        (403, f"http://0:{allowed}/data"),
        (403, "http://169.254.169.254/latest/meta-data"),
        # Two hosts in one URL.
        (400, f"http://127.0.0.1:{allowed}@127.0.0.1:{forbidden}/data"),
        (400, f"http://user:pass@127.0.0.1:{allowed}/data"),
        (400, f"http://127.0.0.1:{allowed}\\@127.0.0.1:{forbidden}/data"),
        (400, f"http://127.0.0.1:{forbidden}#@127.0.0.1:{allowed}/data"),
        (400, f"http://127.0.0.1:{allowed}%2f@127.0.0.1:{forbidden}/data"),
        (400, f"http://127.0.0.1%00.example.com:{allowed}/data"),
        (400, f"http://127.0.0.1:{allowed}:{forbidden}/data"),
        (400, f"http://[::1%25lo]:{allowed}/data"),
        (400, "http://127.0.0.1:99999/data"),
        (400, "http://127.0.0.1:0/data"),
        (400, f"http://127.0.0.1:{allowed}/da ta"),
        # Other schemes, or none.
        (400, "file:///etc/hostname"),
        (400, f"ftp://127.0.0.1:{allowed}/data"),
        (400, f"gopher://127.0.0.1:{allowed}/data"),
        (400, "data:,bytes"),
        (400, f"//127.0.0.1:{allowed}/data"),
        (400, f"http:/127.0.0.1:{allowed}/data"),
        (400, f"127.0.0.1:{allowed}/data"),
        (400, "/data"),
    ]


def test_other_sources_get_no_request(setting: SourceServers, blob: BlobClient) -> None:
    for status, address in forbidden_addresses(setting.allowed.port, setting.forbidden.port):
        setting.allowed.asked.clear()
        setting.forbidden.asked.clear()
        code = "CannotVerifyCopySource" if status == 403 else "InvalidHeaderValue"
        hook = with_headers(x_ms_copy_source=address)
        with refused(status, code):
            blob.upload_blob_from_url("http://replaced/", raw_request_hook=hook)
        assert (setting.allowed.asked, setting.forbidden.asked) == ([], []), address
    assert not blob.exists()


def test_a_host_header_does_not_extend_the_list(setting: SourceServers, blob: BlobClient) -> None:
    """A request with another server's name gets this server's answer: no such account."""
    setting.forbidden.asked.clear()
    host = f"127.0.0.1:{setting.forbidden.port}"
    hook = with_headers(Host=host, x_ms_copy_source=f"http://{host}/data/data/data")
    with refused(401, "CannotVerifyCopySource"):
        blob.upload_blob_from_url("http://replaced/", raw_request_hook=hook)
    assert not setting.forbidden.asked


def test_no_source_is_allowed_by_default(
    service: BlobServiceClient, setting: SourceServers, server: Server
) -> None:
    """The same with a server without the option."""
    setting.allowed.asked.clear()
    blob = service.create_container(unique()).get_blob_client("blob")
    with refused(403, "CannotVerifyCopySource"):
        blob.upload_blob_from_url(setting.address("data"))
    assert not setting.allowed.asked
