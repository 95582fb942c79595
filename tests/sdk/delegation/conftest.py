"""A server that accepts the tokens of anybody, over HTTPS, and clients of it."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.certificates import Certificate, make_certificate
from tests.sdk.delegation.clients import CONTENT, Clients
from tests.server import SECOND_ACCOUNT, SECOND_KEYS, Server, served

ROLES = (
    "roles:owners=owner",
    "roles:readers=blob-reader,queue-reader,file-reader",
    "roles:writers=blob-contributor,queue-contributor,file-contributor",
    "roles:senders=queue-message-sender,queue-delegator",
    "roles:delegators=blob-delegator",
    "roles:strangers=table-reader",
)


@pytest.fixture(scope="package")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("delegation")


class OtherServer(ThreadingHTTPServer):
    """Another server, which records the headers of requests. `/redirected` leads elsewhere."""

    daemon_threads = True

    def __init__(self, certificate: Certificate | None = None) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.scheme = "http"
        self.asked: list[tuple[str, dict[str, str]]] = []
        if certificate is not None:
            self.scheme = "https"
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate.path, certificate.key_path)
            self.socket = context.wrap_socket(self.socket, server_side=True)

    @property
    def url(self) -> str:
        return f"{self.scheme}://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        server = self.server
        assert isinstance(server, OtherServer)
        server.asked.append((self.path, {k.lower(): v for k, v in self.headers.items()}))
        is_redirected = self.path == "/redirected"
        self.send_response(302 if is_redirected else 200)
        if is_redirected:
            self.send_header("Location", "/content")
        body = b"" if is_redirected else CONTENT
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Keeps tests quiet."""


@pytest.fixture(scope="package")
def others(directory: Path) -> Iterator[dict[str, OtherServer]]:
    """Other servers, by scheme."""
    servers = {"https": OtherServer(make_certificate(directory)), "http": OtherServer()}
    for server in servers.values():
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    yield servers
    for server in servers.values():
        server.shutdown()
        server.server_close()


@pytest.fixture(scope="package")
def server(directory: Path, others: dict[str, OtherServer]) -> Iterator[Server]:
    certificate, key = directory / "server.crt", directory / "server.key"
    flags = ["--oauth", "development", "--workers", "2"]
    for other in others.values():
        flags += ["--copy-source", f"127.0.0.1:{other.server_port}"]
    flags += ["--tls-cert", str(certificate), "--tls-key", str(key)]
    flags += ["--account", ":".join((SECOND_ACCOUNT, *SECOND_KEYS))]
    for role in ROLES:
        flags += ["--oauth-role", role]
    with pytest.MonkeyPatch.context() as environment:
        # What the server trusts when it reads from other servers.
        environment.setenv("SSL_CERT_FILE", str(certificate))
        with served(directory / "data", *flags) as started:
            yield started


@pytest.fixture(scope="package")
def clients(server: Server, directory: Path) -> Clients:
    return Clients(server, str(directory / "server.crt"))
