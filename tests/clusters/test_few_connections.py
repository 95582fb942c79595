"""A node of a cluster whose database allows too few connections."""

from __future__ import annotations

import threading
import time
from collections import Counter
from pathlib import Path

import psycopg
import pytest
from azure.core.exceptions import HttpResponseError
from azure.storage.blob import BlobServiceClient, ContainerClient

from tests.clusters.postgresql import PostgresServer
from tests.clusters.running import cluster
from tests.server import eventually, unique

_CONNECTIONS = 9
"""The heartbeats of a node and its writer need five of them."""
_SECONDS = 13.0
"""Longer than a process is considered alive without heartbeats."""
_READERS = 8


def _read(container: ContainerClient, stop: threading.Event, statuses: Counter[int]) -> None:
    while not stop.is_set():
        for read in (
            lambda: list(container.list_blobs()),
            lambda: container.get_blob_client("a").download_blob().readall(),
        ):
            try:
                read()
                statuses[200] += 1
            except HttpResponseError as error:
                statuses[error.status_code or 0] += 1


@pytest.mark.long
def test_a_node_stays_alive_and_answers(postgresql_server: PostgresServer, tmp_path: Path) -> None:
    with cluster(postgresql_server, tmp_path, 1) as running:
        (node,) = running.nodes
        text = node.connection_string("blob")
        service = BlobServiceClient.from_connection_string(text, retry_total=0)
        container = service.create_container(unique())
        container.upload_blob("a", b"text")
        eventually(lambda: "serves files now" in node.log(), "the file service")
        name = psycopg.conninfo.conninfo_to_dict(running.dsn)["dbname"]
        processes = sorted(node.children())
        stop, statuses = threading.Event(), Counter[int]()
        threads = [
            threading.Thread(target=_read, args=(container, stop, statuses))
            for _ in range(_READERS)
        ]
        with psycopg.connect(postgresql_server.superuser_dsn, autocommit=True) as administrator:
            limit = f"ALTER DATABASE {name} CONNECTION LIMIT {_CONNECTIONS}"
            administrator.execute(limit.encode())
            for thread in threads:
                thread.start()
            end = time.monotonic() + _SECONDS
            while time.monotonic() < end:
                # All of them want their connections again, as after a failover.
                administrator.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                    " WHERE datname = %s AND backend_type = 'client backend'",
                    (name,),
                )
                time.sleep(3.0)
        stop.set()
        for thread in threads:
            thread.join(60)
        assert statuses[200] > 0
        assert set(statuses) <= {200, 503}, statuses
        assert sorted(node.children()) == processes, node.log()
        assert "declared dead" not in node.log()
        assert container.get_blob_client("a").download_blob().readall() == b"text"
