"""Nodes while their object store hangs or is down, and after it returns."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from azure.core.exceptions import HttpResponseError
from azure.data.tables import TableClient
from azure.storage.blob import BlobServiceClient, ContainerClient, generate_container_sas
from azure.storage.queue import QueueClient

from tests.admin.client import get
from tests.clusters.ceph import CephCluster
from tests.clusters.postgresql import PostgresServer
from tests.clusters.running import Cluster, cluster
from tests.clusters.s3 import BUCKET, S3Server, s3_server
from tests.sdk.harness import HOUR, now
from tests.server import ACCOUNT, KEY, Server, eventually, unique

pytestmark = pytest.mark.long

LONG = os.urandom(300_000)
"""More than is stored in the ledger."""
ANSWER_SECONDS_MAX = 45.0
"""How long a request may take that needs an object store which does not answer."""
OTHER_SECONDS_MAX = 2.0
"""How long a request may take that needs no object store."""
NOTICE_SECONDS_MAX = 10.0
"""After this time a node is not ready any more."""
FAST: Any = {"retry_total": 0, "connection_timeout": 5, "read_timeout": 90}


class Clients:
    """Clients of one node that do not retry."""

    def __init__(self, node: Server) -> None:
        self._node = node
        service = BlobServiceClient.from_connection_string(node.connection_string("blob"), **FAST)
        self.container: ContainerClient = service.create_container(unique())
        self.container.upload_blob("long", LONG)
        self.container.upload_blob("short", b"short")
        self.queue = QueueClient.from_connection_string(
            node.connection_string("queue"), unique("queue"), **FAST
        )
        self.queue.create_queue()
        self.table = TableClient.from_connection_string(
            node.connection_string("table"), unique("table").replace("-", ""), **FAST
        )
        self.table.create_table()

    def download(self) -> bytes:
        return self.container.download_blob("long").readall()

    def upload(self) -> None:
        self.container.upload_blob(unique("blob"), LONG)

    def use_the_ledger(self) -> None:
        """Makes requests that need no object store."""
        self.queue.send_message("x")
        self.table.upsert_entity({"PartitionKey": "p", "RowKey": "r"})
        assert self.container.download_blob("short").readall() == b"short"
        self.container.get_blob_client("long").get_blob_properties()

    def is_ready(self, service: str) -> bool:
        return get(self._node, f"/readyz/{service}").status == 200


class LedgerLoad:
    """Uses the ledger all the time, and measures how long that takes."""

    def __init__(self, clients: Clients) -> None:
        self._clients = clients
        self._ended = threading.Event()
        self.longest_seconds = 0.0
        self.rounds = 0

    def run(self) -> None:
        while not self._ended.is_set():
            began = time.monotonic()
            self._clients.use_the_ledger()
            self.longest_seconds = max(self.longest_seconds, time.monotonic() - began)
            self.rounds += 1

    def end(self) -> None:
        self._ended.set()


def answer_in_time(call: Callable[[], object]) -> int:
    """Returns the status of the response to a request that fails."""
    began = time.monotonic()
    with pytest.raises(HttpResponseError) as raised:
        call()
    assert time.monotonic() - began < ANSWER_SECONDS_MAX
    return raised.value.status_code or 0


def require_bounded_outage(
    clients: Clients, begin: Callable[[], None], end: Callable[[], None], requests: int
) -> None:
    """Asserts what clients see while the object store is away, and after it returns."""
    assert clients.download() == LONG
    load = LedgerLoad(clients)
    with ThreadPoolExecutor(requests + 1) as threads:
        loading = threads.submit(load.run)
        try:
            begin()
            began = time.monotonic()
            calls = [clients.download, clients.upload] * (requests // 2)
            answers = [threads.submit(answer_in_time, call) for call in calls]
            eventually(lambda: not clients.is_ready("blob"), "the node to notice it")
            assert time.monotonic() - began < NOTICE_SECONDS_MAX
            assert clients.is_ready("queue")
            assert [answer.result() for answer in answers] == [503] * requests
        finally:
            end()
            load.end()
        loading.result()
    assert load.rounds > 1
    assert load.longest_seconds < 4 * OTHER_SECONDS_MAX
    eventually(lambda: clients.is_ready("blob"), "the node to be ready again", 60)
    clients.upload()
    assert clients.download() == LONG


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with s3_server(tmp_path_factory.mktemp("s3")) as server:
        yield server


@pytest.fixture(scope="module")
def s3_nodes(
    postgresql_server: PostgresServer, s3: S3Server, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cluster]:
    bodies = f"s3://{BUCKET}/{unique('bodies')}"
    directory = tmp_path_factory.mktemp("cluster")
    flags = ("--admin-port", "0")
    with cluster(
        postgresql_server, directory, 1, *flags, bodies=bodies, variables=s3.environment
    ) as running:
        yield running


def test_an_s3_server_that_hangs(s3_nodes: Cluster, s3: S3Server) -> None:
    require_bounded_outage(Clients(s3_nodes.nodes[0]), s3.pause, s3.resume, requests=8)


def test_an_s3_server_that_is_down(s3_nodes: Cluster, s3: S3Server) -> None:
    require_bounded_outage(Clients(s3_nodes.nodes[0]), s3.kill, s3.start, requests=8)


def test_an_s3_server_that_hangs_during_a_download(s3_nodes: Cluster, s3: S3Server) -> None:
    """The response has begun, so the connection ends, and the next download succeeds."""
    container = Clients(s3_nodes.nodes[0]).container
    body = os.urandom(64 << 20)
    blob = container.upload_blob("large", body)
    token = generate_container_sas(
        ACCOUNT, container.container_name, KEY, permission="r", expiry=now() + HOUR
    )
    with urlopen(f"{blob.url}?{token}", timeout=ANSWER_SECONDS_MAX) as response:
        received = response.read(1 << 20)
        s3.pause()
        try:
            began = time.monotonic()
            with contextlib.suppress(ConnectionResetError):
                while data := response.read(1 << 20):
                    received += data
            assert time.monotonic() - began < ANSWER_SECONDS_MAX
            assert body.startswith(received)
            assert len(received) < len(body)
        finally:
            s3.resume()
    assert container.download_blob("large").readall() == body


def test_a_ceph_cluster_that_hangs(
    ceph: CephCluster, postgresql_server: PostgresServer, tmp_path: Path
) -> None:
    def pause() -> None:
        for osd in ceph.osds:
            ceph.pause_osd(osd)

    def resume() -> None:
        for osd in ceph.osds:
            ceph.resume_osd(osd)
        ceph.await_osds()
        ceph.await_healthy()

    bodies = ceph.url(unique("bodies"))
    with cluster(postgresql_server, tmp_path, 1, "--admin-port", "0", bodies=bodies) as nodes:
        require_bounded_outage(Clients(nodes.nodes[0]), pause, resume, requests=4)
