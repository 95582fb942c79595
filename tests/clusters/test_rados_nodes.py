"""Nodes of a cluster whose bodies are in RADOS."""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from azure.storage.blob import BlobServiceClient

from tests.clusters.ceph import CephCluster
from tests.clusters.postgresql import PostgresServer
from tests.clusters.running import Cluster, cluster
from tests.server import PORTS, Server, unique

pytestmark = pytest.mark.long

MIB = 1 << 20
BODIES = [os.urandom(size) for size in (10, 100_000, 3 * MIB, 40 * MIB)]


@pytest.fixture(scope="module")
def nodes(
    ceph: CephCluster, postgresql_server: PostgresServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cluster]:
    directory = tmp_path_factory.mktemp("cluster")
    with cluster(postgresql_server, directory, 2, bodies=ceph.url(unique("bodies"))) as running:
        yield running


def blobs(node: Server) -> BlobServiceClient:
    return BlobServiceClient.from_connection_string(node.connection_string("blob"))


def test_blobs_on_every_node(nodes: Cluster) -> None:
    one, other = nodes.nodes
    name = unique()
    container = blobs(one).create_container(name)
    same = blobs(other).get_container_client(name)
    for number, body in enumerate(BODIES):
        container.upload_blob(str(number), body, max_concurrency=4)
    for number, body in enumerate(BODIES):
        assert same.download_blob(str(number), max_concurrency=4).readall() == body
        part = same.download_blob(str(number), offset=len(body) // 2, length=5).readall()
        assert part == body[len(body) // 2 :][:5]
    checked = nodes.command("check", "--bodies", nodes.bodies)
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_an_osd_is_killed_during_uploads(nodes: Cluster, ceph: CephCluster) -> None:
    name = unique()
    blobs(nodes.nodes[0]).create_container(name)
    uploaded: dict[str, str] = {}
    lock, enough = threading.Lock(), threading.Event()

    def upload(number: int) -> None:
        client = blobs(nodes.nodes[number % 2]).get_container_client(name)
        for count in range(25):
            body = os.urandom(100_000)
            client.upload_blob(f"{number}-{count}", body)
            with lock:
                uploaded[f"{number}-{count}"] = hashlib.sha256(body).hexdigest()
                if len(uploaded) == 30:
                    enough.set()

    threads = [threading.Thread(target=upload, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    try:
        assert enough.wait(60)
        ceph.kill_osd(1)
        for thread in threads:
            thread.join(120)
        assert len(uploaded) == 100
        container = blobs(nodes.nodes[1]).get_container_client(name)
        for blob, digest in uploaded.items():
            assert hashlib.sha256(container.download_blob(blob).readall()).hexdigest() == digest
    finally:
        ceph.start_osd(1)
        ceph.await_osds()
        ceph.await_healthy()


def test_no_node_starts_with_wrong_addresses(
    nodes: Cluster, ceph: CephCluster, tmp_path: Path
) -> None:
    free = [word for service in PORTS for word in (f"--{service}-port", "0")]
    none = ceph.url("").replace(str(ceph.configuration), "/none/ceph.conf")
    for bodies, message in (
        (none, "/none/ceph.conf cannot be read"),
        (ceph.url("").replace("//etagere", "//none"), "open the pool: No such file"),
        (ceph.url("another"), "all nodes must have the same --bodies"),
    ):
        own = ["--node-name", "refused", "--data", str(tmp_path)]
        result = nodes.command("serve", "--bodies", bodies, *own, *free)
        assert result.returncode == 2, result.stderr
        assert message in result.stderr
        assert "Traceback" not in result.stderr
