"""The example configuration of HAProxy, before three nodes."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import secrets
import subprocess
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from azure.storage.blob import BlobServiceClient
from azure.storage.fileshare import ShareServiceClient
from azure.storage.queue import QueueServiceClient

from tests.clusters.guard import private_directory, start_daemon
from tests.clusters.ports import free_ports, is_listening
from tests.clusters.postgresql import PostgresServer
from tests.clusters.running import Cluster, cluster
from tests.server import ACCOUNT, KEY, Server, eventually

EXAMPLE = Path(__file__).parents[2] / "packaging/haproxy/haproxy.cfg"
PORTS = {"blob": 10_000, "queue": 10_001, "table": 10_002, "file": 10_003, "smb": 445}
"""The ports of HAProxy in the example."""
BACKEND_PORTS = {**PORTS, "smb": 10_445}
TOKEN = secrets.token_hex(16)


class Balancer:
    """HAProxy with the example configuration, whose addresses are those of running nodes."""

    def __init__(self, ports: dict[str, int]) -> None:
        self.ports = ports

    def url(self, service: str) -> str:
        return f"http://127.0.0.1:{self.ports[service]}/{ACCOUNT}"


def adapted(nodes: list[Server], ports: dict[str, int]) -> str:
    """Returns the example with the addresses of these nodes, which differ in their ports."""
    text = EXAMPLE.read_text("utf-8")
    for service, port in PORTS.items():
        text = text.replace(f"bind :{port}\n", f"bind 127.0.0.1:{ports[service]}\n")
    for number, node in enumerate(nodes, 1):
        admin = urlsplit(node.endpoints["admin"]).port
        for service, port in BACKEND_PORTS.items():
            place = urlsplit(node.endpoints[service]).netloc
            text = re.sub(
                rf"(server node-{number}\S*) 10\.0\.0\.1{number}:{port}\b",
                rf"\1 {place} port {admin}",
                text,
            )
    assert "10.0.0." not in text.partition("\nglobal")[2]
    return text


@contextlib.contextmanager
def balancing(nodes: list[Server], directory: Path) -> Iterator[Balancer]:
    with private_directory("haproxy") as private:
        ports = dict(zip(PORTS, free_ports(len(PORTS)), strict=True))
        configuration = private / "haproxy.cfg"
        configuration.write_text(adapted(nodes, ports), "utf-8")
        # With fewer descriptors than the example would use.
        command = ["haproxy", "-db", "-n", "200", "-f", str(configuration)]
        log_path, variables = directory / "haproxy.log", {"ADMIN_TOKEN": TOKEN}
        process = start_daemon(command, private, log_path, may_be_root=True, variables=variables)
        try:
            eventually(lambda: all(map(is_listening, ports.values())), "HAProxy")
            yield Balancer(ports)
        finally:
            process.kill()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(10)


@pytest.fixture(scope="module")
def nodes(
    postgresql_server: PostgresServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cluster]:
    directory = tmp_path_factory.mktemp("haproxy")
    token = directory / "token"
    token.write_text(TOKEN, "utf-8")
    with cluster(postgresql_server, directory, 0) as running:
        for _ in range(3):
            # HAProxy finds a node that starts again under the same addresses.
            ports = zip((*BACKEND_PORTS, "admin"), free_ports(len(BACKEND_PORTS) + 1), strict=True)
            flags = [word for name, port in ports for word in (f"--{name}-port", str(port))]
            running.node(*flags, "--admin-token-file", str(token)).start()
        yield running


@pytest.fixture(scope="module")
def balancer(nodes: Cluster) -> Iterator[Balancer]:
    with balancing(nodes.nodes, nodes.directory) as running:
        yield running


def readiness(node: Server, service: str) -> tuple[int, dict[str, object]]:
    connection = http.client.HTTPConnection(urlsplit(node.endpoints["admin"]).netloc, timeout=10)
    headers = {"Authorization": f"Bearer {TOKEN}", "Accept": "application/json"}
    connection.request("GET", f"/readyz/{service}", headers=headers)
    response = connection.getresponse()
    with contextlib.closing(connection):
        return response.status, json.loads(response.read())


def is_ready(node: Server, service: str) -> bool:
    return readiness(node, service)[0] == 200


def file_nodes(cluster: Cluster) -> list[str]:
    return [node.directory.name for node in cluster.nodes if is_ready(node, "file")]


def blobs(url: str) -> BlobServiceClient:
    return BlobServiceClient(url, {"account_name": ACCOUNT, "account_key": KEY})


def test_the_example_is_valid() -> None:
    checked = subprocess.run(
        ["haproxy", "-c", "-f", str(EXAMPLE)],
        env={**os.environ, "ADMIN_TOKEN": TOKEN},
        capture_output=True,
        text=True,
        check=False,
    )
    assert checked.returncode == 0 and "WARNING" not in checked.stderr, checked.stderr


def test_nodes_report_what_they_serve(nodes: Cluster) -> None:
    for node in nodes.nodes:
        eventually(lambda: is_ready(node, "blob"), "a node to be ready")  # noqa: B023
    eventually(lambda: len(file_nodes(nodes)) == 1, "a node that serves files")
    (owner,) = file_nodes(nodes)
    listed = json.loads(nodes.command("node", "list", "--json").stdout)["nodes"]
    assert [node["name"] for node in listed if node["serves_files"]] == [owner]
    for node in nodes.nodes:
        status, document = readiness(node, "file")
        name = node.directory.name
        assert document["checks"] == {"database": "ok", "ledger": "ok", "bodies": "ok"}
        assert (document["node"], document["state"]) == (name, "serving")
        assert document["serves_files"] is (name == owner) is (status == 200)
        (entry,) = (entry for entry in listed if entry["name"] == name)
        assert entry["addresses"]["blob"] == urlsplit(node.endpoints["blob"]).netloc


def test_services_through_haproxy(nodes: Cluster, balancer: Balancer) -> None:
    key = {"account_name": ACCOUNT, "account_key": KEY}
    with blobs(balancer.url("blob")) as service:
        container = service.create_container("through")
        blob = container.upload_blob("b", b"text", metadata={"CamelCase": "kept"})
        assert blob.get_blob_properties().metadata == {"CamelCase": "kept"}
    with QueueServiceClient(balancer.url("queue"), key) as queues:
        queues.create_queue("through").send_message("text")
    with ShareServiceClient(balancer.url("file"), key) as shares:
        eventually(lambda: file_nodes(nodes) != [], "a node that serves files")
        file = shares.create_share("through").get_file_client("f")
        file.upload_file(b"text")
        assert file.download_file().readall() == b"text"


def test_a_node_is_drained_while_it_is_used(nodes: Cluster, balancer: Balancer) -> None:
    """Nothing fails: requests go to other nodes, connections end with a response, and the file
    service moves."""
    eventually(lambda: len(file_nodes(nodes)) == 1, "a node that serves files")
    (owner,) = file_nodes(nodes)
    drained = next(node for node in nodes.nodes if node.directory.name == owner)
    direct = http.client.HTTPConnection(urlsplit(drained.endpoints["blob"]).netloc, timeout=10)

    def ask() -> str | None:
        """Sends a request on the same connection; returns the header that says whether it ends."""
        direct.request("GET", f"/{ACCOUNT}?comp=list")
        response = direct.getresponse()
        response.read()
        return response.getheader("Connection")

    assert ask() is None
    assert nodes.command("node", "drain", owner).returncode == 0
    # HAProxy may have asked a moment earlier: questions at the same time have the same answer.
    eventually(lambda: not is_ready(drained, "blob"), "the node to be drained")
    with blobs(balancer.url("blob")) as service:
        for number in range(20):
            service.create_container(f"drain-{number}")

        def moved() -> bool:
            list(service.list_containers(results_per_page=5))
            return bool(file_nodes(nodes)) and file_nodes(nodes) != [owner]

        eventually(lambda: ask() == "close", "connections to end")
        eventually(moved, "the file service to move", 40.0)
    key = {"account_name": ACCOUNT, "account_key": KEY}
    with ShareServiceClient(balancer.url("file"), key) as shares:
        shares.create_share("moved").get_file_client("f").upload_file(b"text")
    assert nodes.command("node", "resume", owner).returncode == 0
    eventually(lambda: is_ready(drained, "blob"), "the node to be ready again")
    assert file_nodes(nodes) != [owner]


def test_a_killed_node_is_replaced_by_others(nodes: Cluster, balancer: Balancer) -> None:
    killed = nodes.nodes[0]
    killed.kill()
    with blobs(balancer.url("blob")) as service:
        for number in range(20):
            # New connections, which HAProxy gives to other nodes when this one refuses them.
            with blobs(balancer.url("blob")) as other:
                other.create_container(f"dies-{number}")
        names = {found.name for found in service.list_containers("dies-")}
    assert len(names) == 20
    before = killed.endpoints
    killed.start()
    assert killed.endpoints == before
    eventually(lambda: is_ready(killed, "blob"), "the node to be ready again")
