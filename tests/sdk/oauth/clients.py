"""Clients with bearer tokens, and a directory that publishes its keys over HTTP."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from azure.data.tables import TableServiceClient
from azure.storage.blob import BlobServiceClient
from azure.storage.fileshare import ShareServiceClient
from azure.storage.queue import QueueServiceClient

from tests.sdk.harness import refused
from tests.server import ACCOUNT, Server
from tests.tokens import StaticCredential


@dataclass(frozen=True)
class Clients:
    """Clients of all services with the same credential."""

    blob: BlobServiceClient
    queue: QueueServiceClient
    table: TableServiceClient
    file: ShareServiceClient


def clients(
    server: Server, token: str | Any, certificate: Path | None = None, account: str = ACCOUNT
) -> Clients:
    """Returns clients with a token, or with any credential."""
    credential = StaticCredential(token) if isinstance(token, str) else token
    options: dict[str, Any] = {"credential": credential, "retry_total": 0}
    if certificate is not None:
        options["connection_verify"] = str(certificate)
    url = {service: f"{endpoint}/{account}" for service, endpoint in server.endpoints.items()}
    return Clients(
        BlobServiceClient(url["blob"], **options),
        QueueServiceClient(url["queue"], **options),
        TableServiceClient(url["table"], **options),
        ShareServiceClient(url["file"], token_intent="backup", **options),
    )


def use(client: Clients, name: str) -> None:
    """Writes, reads and deletes in every service."""
    container = client.blob.create_container(name)
    container.upload_blob("b", b"bytes")
    assert container.download_blob("b").readall() == b"bytes"
    assert [blob.name for blob in container.list_blobs()] == ["b"]
    container.delete_blobs("b")
    container.delete_container()
    queue = client.queue.create_queue(name)
    queue.send_message("text")
    (message,) = queue.receive_messages(max_messages=1)
    queue.delete_message(message)
    queue.delete_queue()
    table = client.table.create_table(name)
    entity = {"PartitionKey": "p", "RowKey": "r", "value": 1}
    table.submit_transaction([("create", entity), ("create", {**entity, "RowKey": "s"})])
    assert [each["RowKey"] for each in table.list_entities()] == ["r", "s"]
    client.table.delete_table(name)
    share = client.file.create_share(name)
    file = share.get_file_client("f")
    file.upload_file(b"bytes")
    assert file.download_file().readall() == b"bytes"
    assert [each["name"] for each in share.list_directories_and_files()] == ["f"]
    file.delete_file()
    share.delete_share()


def refuse_token(client: Clients) -> None:
    """Expects that no service accepts the token of these clients."""
    with refused(401, "InvalidAuthenticationInfo"):
        client.blob.create_container("refused")
    with refused(401, "InvalidAuthenticationInfo"):
        client.queue.create_queue("refused")
    with refused(401, "InvalidAuthenticationInfo"):
        client.file.create_share("refused")
    with refused(403, "AuthenticationFailed"):
        # The SDK uses a version that has no challenge.
        client.table.create_table("refused")


class Directory(ThreadingHTTPServer):
    """Publishes a key set, and counts the requests for it."""

    daemon_threads = True

    def __init__(self, keys: bytes) -> None:
        self.keys: bytes | None = keys
        """What is published; None: every request fails."""
        self.requests = 0
        super().__init__(("127.0.0.1", 0), _Handler)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/keys"


class _Handler(BaseHTTPRequestHandler):
    server: Directory

    def do_GET(self) -> None:
        directory = self.server
        directory.requests += 1
        body = directory.keys or b""
        self.send_response(200 if body else 503)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Logs nothing."""


@contextlib.contextmanager
def directory(keys: bytes) -> Iterator[Directory]:
    with Directory(keys) as started:
        thread = threading.Thread(target=started.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        yield started
        started.shutdown()
