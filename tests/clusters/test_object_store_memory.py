"""The memory of a node whose bodies are in an object store, while clients read slowly."""

from __future__ import annotations

import contextlib
import os
import socket
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from azure.storage.blob import BlobServiceClient, generate_blob_sas
from azure.storage.queue import QueueClient

from tests.clusters.postgresql import PostgresServer
from tests.clusters.running import cluster
from tests.clusters.s3 import BUCKET, S3Server
from tests.sdk.harness import HOUR, now
from tests.server import ACCOUNT, KEY, Server, eventually, unique

pytestmark = pytest.mark.long

MIB = 1 << 20
BLOB_BYTES = 16 * MIB
SLOW_READERS = 900
GROWTH_BYTES_MAX = 400 * MIB
"""The budget for bodies in flight is 192 MiB, and connections need memory too. Ranges of 1 MiB for
each reader would exceed this."""
HEAD_BYTES_MAX = 64 * 1024


def resident_bytes(pid: int) -> int:
    pages = int(Path(f"/proc/{pid}/statm").read_text("ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


@contextlib.contextmanager
def slow_readers(node: Server, target: str) -> Iterator[list[socket.socket]]:
    """Opens connections that request a blob, and do not read the response."""
    address = urlsplit(node.endpoints["blob"])
    request = f"GET {target} HTTP/1.1\r\nHost: {address.netloc}\r\n\r\n".encode()
    with contextlib.ExitStack() as opened:
        readers: list[socket.socket] = []
        for _ in range(SLOW_READERS):
            reader = opened.enter_context(socket.socket())
            reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
            reader.settimeout(60)
            reader.connect((address.hostname, address.port))
            reader.sendall(request)
            readers.append(reader)
        yield readers


def status_of(reader: socket.socket) -> int:
    """Returns the status of a response; 0 if the server has dropped the connection."""
    try:
        return int(reader.recv(HEAD_BYTES_MAX).split(b" ", 2)[1])
    except (ConnectionResetError, IndexError):
        return 0


def test_slow_readers_do_not_exhaust_memory(
    postgresql_server: PostgresServer, s3_store: S3Server, tmp_path: Path
) -> None:
    bodies = f"s3://{BUCKET}/{unique('bodies')}"
    variables = s3_store.environment
    with cluster(postgresql_server, tmp_path, 1, bodies=bodies, variables=variables) as nodes:
        (node,) = nodes.nodes
        body = os.urandom(BLOB_BYTES)
        service = BlobServiceClient.from_connection_string(node.connection_string("blob"))
        blob = service.create_container(unique()).upload_blob("b", body)
        assert blob.download_blob().readall() == body
        token = generate_blob_sas(
            ACCOUNT, blob.container_name, "b", account_key=KEY, permission="r", expiry=now() + HOUR
        )
        target = f"{urlsplit(blob.url).path}?{token}"
        pid = node.pid_of("front end 1")
        before = resident_bytes(pid)
        with slow_readers(node, target) as readers:
            statuses = Counter(map(status_of, readers))
            assert statuses[200] > 100, statuses
            assert statuses[503] > 100, statuses
            assert resident_bytes(pid) - before < GROWTH_BYTES_MAX
            queue = QueueClient.from_connection_string(
                node.connection_string("queue"), unique("queue")
            )
            queue.create_queue()
            queue.send_message("still served")
        eventually(lambda: blob.download_blob().readall() == body, "memory for a download")
