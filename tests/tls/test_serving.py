"""HTTPS as a user serves it: `--tls self-signed`, protocols, reloading."""

from __future__ import annotations

import contextlib
import datetime
import os
import pty
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from azure.storage.blob import BlobServiceClient

from etagere.cli.main import main
from etagere.tls.development import DevelopmentCertificates
from tests.admin.client import scrape
from tests.server import PORTS, ROOT, Server, environment, eventually, served

WORKERS = 2
DAY_SECONDS = 24 * 3600
_ASYNCHRONOUS = """\
import asyncio, sys
from azure.storage.blob.aio import BlobServiceClient

async def list_containers():
    async with BlobServiceClient.from_connection_string(sys.argv[1]) as service:
        print([container.name async for container in service.list_containers()])

asyncio.run(list_containers())
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    data = tmp_path_factory.mktemp("self-signed") / "data"
    with served(data, "--tls", "self-signed", "--workers", str(WORKERS)) as started:
        yield started


def authority(server: Server) -> Path:
    return server.directory / "tls" / "ca.pem"


@contextlib.contextmanager
def connected(
    server: Server,
    context: ssl.SSLContext,
    *,
    service: str = "blob",
    name: str = "localhost",
    session: ssl.SSLSession | None = None,
) -> Iterator[ssl.SSLSocket]:
    port = int(server.endpoints[service].rpartition(":")[2])
    with (
        socket.create_connection(("127.0.0.1", port), timeout=10) as plain,
        context.wrap_socket(plain, server_hostname=name, session=session) as secure,
    ):
        yield secure


def exchange(connection: ssl.SSLSocket) -> bytes:
    """Sends a request; returns the beginning of the response."""
    connection.sendall(b"GET /none HTTP/1.1\r\nHost: localhost\r\n\r\n")
    received = b""
    while b"</Error>" not in received:
        data = connection.recv(65536)
        assert data, received
        received += data
    return received[:12]


def test_self_signed(server: Server) -> None:
    """The endpoints are https, and the log says where the CA is."""
    path = authority(server)
    assert server.endpoints["blob"].startswith("https://127.0.0.1:")
    assert f"clients have to trust the CA {path}" in server.log()
    text = server.connection_string("blob")
    with BlobServiceClient.from_connection_string(text, connection_verify=str(path)) as service:
        assert list(service.list_containers()) == []
    trusting = {**environment(), "SSL_CERT_FILE": str(path)}
    command = [sys.executable, "-c", _ASYNCHRONOUS, text]
    done = subprocess.run(command, env=trusting, capture_output=True, text=True, check=False)
    assert done.stdout == "[]\n", done.stderr


def test_protocols(server: Server) -> None:
    context = ssl.create_default_context(cafile=authority(server))
    context.set_alpn_protocols(["h2", "http/1.1"])
    with connected(server, context, name="devstoreaccount1.blob.localhost") as connection:
        assert connection.version() == "TLSv1.3"
        assert connection.selected_alpn_protocol() == "http/1.1"
        exchange(connection)
        session = connection.session
    # The tickets of one process are accepted by the others.
    for _ in range(4):
        with connected(server, context, session=session) as connection:
            assert connection.session_reused
            exchange(connection)
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    with connected(server, context) as connection:
        cipher = connection.cipher()
        assert cipher is not None
        assert cipher[0].startswith("ECDHE-")
    for weak in ("AES128-SHA256", "ECDHE-ECDSA-AES128-SHA256"):
        context.set_ciphers(weak)
        with pytest.raises(OSError, match=r"closed|reset"), connected(server, context):
            pass


def test_old_versions_are_refused(server: Server) -> None:
    with pytest.warns(DeprecationWarning):
        context = ssl.create_default_context(cafile=authority(server))
        context.minimum_version = ssl.TLSVersion.TLSv1_1
        context.maximum_version = ssl.TLSVersion.TLSv1_1
    context.set_ciphers("ALL:@SECLEVEL=0")
    with pytest.raises(OSError, match=r"closed|reset"), connected(server, context):
        pass


@pytest.fixture
def configured(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Iterator[tuple[Server, Path]]:
    """A server with a certificate of `etagere certificate`, and the directory of its files."""
    folder = tmp_path / "certificates"
    renew(folder)
    flags = ("--tls-cert", str(folder / "server.pem"), "--tls-key", str(folder / "server.key"))
    with served(tmp_path / "data", *flags, "--workers", str(WORKERS)) as started:
        yield started, folder


def renew(folder: Path, *flags: str) -> bytes:
    """Returns the new certificate, in DER."""
    assert main(["certificate", str(folder), *flags]) == 0
    return ssl.PEM_cert_to_DER_cert((folder / "server.pem").read_text())


def presented(server: Server, context: ssl.SSLContext) -> set[bytes | None]:
    """Returns the certificates that many new connections get."""
    found = set()
    for service in ("blob", "queue", "table", "file") * 3:
        with connected(server, context, service=service) as connection:
            found.add(connection.getpeercert(binary_form=True))
    return found


def test_reload(configured: tuple[Server, Path]) -> None:
    server, folder = configured
    context = ssl.create_default_context(cafile=folder / "ca.pem")
    old = ssl.PEM_cert_to_DER_cert((folder / "server.pem").read_text())
    with connected(server, context) as existing:
        exchange(existing)
        # A key of another type, for which OpenSSL would keep the old certificate in the same
        # context.
        new = renew(folder, "--rsa")
        assert presented(server, context) == {old}
        reload(server, "uses the new certificate", WORKERS + 1)
        assert presented(server, context) == {new}
        assert exchange(existing).startswith(b"HTTP/1.1 4")

    # A process that is started later has the new certificate too.
    os.kill(server.file_front_end(), signal.SIGKILL)
    eventually(lambda: server.log().count("started file front end") == 2, "a restart")
    assert presented(server, context) == {new}

    # Broken files change nothing; the server says so once.
    (folder / "server.key").write_text("?")
    reload(server, "the old one stays in use", 1)
    assert presented(server, context) == {new}
    assert f"{folder / 'server.key'} has no PEM private key" in server.log()

    # Nobody writes to this pipe; the server does not wait for it.
    (folder / "server.key").unlink()
    os.mkfifo(folder / "server.key")
    reload(server, "the old one stays in use", 2)
    assert f"{folder / 'server.key'} cannot be read: it is not a regular file" in server.log()
    assert presented(server, context) == {new}


def test_an_expired_certificate(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The log, `etagere status` and a metric tell; nothing else changes."""
    now = datetime.datetime.now(datetime.UTC)
    certificates = DevelopmentCertificates(tmp_path)
    authority = certificates.create_authority([], now)
    files = certificates.files
    flags = ("--tls-cert", str(files.server), "--tls-key", str(files.server_key))
    certificates.create_server(authority, [], now, days=2)
    with served(tmp_path / "data", *flags, "--workers", "1", "--admin-port", "0") as server:
        assert "the certificate expires in 2.0 days" in server.log()
        assert expiry_metrics(server) == {"file-front-end": 2.0, "front-end-1": 2.0}
        assert main(["status", "--data", str(server.directory)]) == 0
        assert "the certificate is valid for another 2.0 d" in capsys.readouterr().out
        certificates.create_server(authority, [], now - datetime.timedelta(days=2), days=1)
        reload(server, "uses the new certificate", 2)
        assert "the certificate has expired" in server.log()
        expired = {"file-front-end": -1.0, "front-end-1": -1.0}
        eventually(lambda: expiry_metrics(server) == expired, "metrics of the new certificate")
        assert main(["status", "--data", str(server.directory)]) == 1
        assert "PROBLEM    the certificate has expired" in capsys.readouterr().out


def expiry_metrics(server: Server) -> dict[str, float]:
    """Returns in how many days the certificate of each process expires."""
    return {
        sample.labels["process"]: round((sample.value - time.time()) / DAY_SECONDS, 1)
        for family in scrape(server).families
        if family.name == "etagere_certificate_expiry_timestamp_seconds"
        for sample in family.samples
    }


def reload(server: Server, words: str, count: int) -> None:
    os.kill(server.pid, signal.SIGHUP)
    eventually(lambda: server.log().count(words) == count, f"{count} x {words!r}")


def test_a_server_without_tls_survives_the_signal(tmp_path: Path) -> None:
    with served(tmp_path / "data", "--workers", "1") as server:
        reload(server, "there is no certificate to reload", 1)
        assert len(server.children()) == 3


def test_a_server_stops_with_its_terminal(tmp_path: Path) -> None:
    """SIGHUP stops a server whose terminal was closed, and makes any other reload."""
    pid, terminal = pty.fork()
    if pid == 0:
        ports = [word for name in PORTS for word in (f"--{name}-port", "0")]
        command = [sys.executable, "-m", "etagere", "serve", "--data", str(tmp_path / "data")]
        os.chdir(ROOT)
        # The tests themselves may run under `nohup`.
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
        os.execve(command[0], [*command, "--workers", "1", *ports], environment())
    output = b""
    while b"READY" not in output:
        output += os.read(terminal, 65536)
    os.kill(pid, signal.SIGHUP)
    while b"no certificate to reload" not in output:
        output += os.read(terminal, 65536)
    os.close(terminal)
    ended: list[int] = []

    def has_ended() -> bool:
        waited, status = os.waitpid(pid, os.WNOHANG)
        if waited:
            ended.append(os.waitstatus_to_exitcode(status))
        return bool(waited)

    eventually(has_ended, "the server to stop")
    assert ended == [0]
