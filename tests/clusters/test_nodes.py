"""Two nodes of a cluster: what one has acknowledged, the next request to the other sees."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
from azure.core import MatchConditions
from azure.core.exceptions import (
    ClientAuthenticationError,
    HttpResponseError,
    ResourceExistsError,
    ResourceNotFoundError,
)
from azure.data.tables import TableServiceClient
from azure.storage.blob import (
    AccessPolicy,
    BlobServiceClient,
    ContainerClient,
    PublicAccess,
    generate_container_sas,
)
from azure.storage.fileshare import ShareServiceClient, generate_file_sas
from azure.storage.queue import QueueServiceClient

from etagere.nt_status import NtStatus
from tests.clusters.postgresql import PostgresServer
from tests.clusters.running import Cluster, cluster
from tests.server import (
    ACCOUNT,
    KEY,
    Server,
    eventually,
    unique,
)
from tests.smb.client import SHARE_READ, WRITE, refused, smb_client

LONG = os.urandom(300_000)
"""More than is stored in the ledger."""


@pytest.fixture(scope="module")
def nodes(
    postgresql_server: PostgresServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cluster]:
    directory = tmp_path_factory.mktemp("cluster")
    with cluster(postgresql_server, directory, 2) as running:
        yield running


def blobs(node: Server) -> BlobServiceClient:
    return BlobServiceClient.from_connection_string(node.connection_string("blob"))


def shares(node: Server) -> ShareServiceClient:
    return ShareServiceClient.from_connection_string(node.connection_string("file"))


def both_ways(nodes: Cluster) -> Iterator[tuple[Server, Server]]:
    one, other = nodes.nodes
    yield one, other
    yield other, one


def test_blobs(nodes: Cluster) -> None:
    for writer, reader in both_ways(nodes):
        name = unique()
        written = blobs(writer).create_container(name)
        read = blobs(reader).get_container_client(name)
        for body in (b"short", LONG):
            written.upload_blob("a/b", body, overwrite=True, metadata={"n": str(len(body))})
            blob = read.get_blob_client("a/b")
            assert blob.download_blob().readall() == body
            assert blob.get_blob_properties().metadata == {"n": str(len(body))}
        assert [found.name for found in read.list_blobs()] == ["a/b"]
        read.delete_blob("a/b")
        with pytest.raises(ResourceNotFoundError):
            written.download_blob("a/b")


def test_conditions_and_leases_hold_on_every_node(nodes: Cluster) -> None:
    for one, other in both_ways(nodes):
        name = unique()
        blob = blobs(one).create_container(name).upload_blob("b", b"1")
        same = blobs(other).get_blob_client(name, "b")
        lease = blob.acquire_lease(60)
        with pytest.raises(HttpResponseError, match="LeaseIdMissing"):
            same.upload_blob(b"2", overwrite=True)
        with pytest.raises(HttpResponseError, match="LeaseAlreadyPresent"):
            same.acquire_lease(60)
        same.upload_blob(b"2", overwrite=True, lease=lease)
        lease.release()
        etag = same.get_blob_properties().etag
        blob.upload_blob(b"3", overwrite=True)
        with pytest.raises(HttpResponseError, match="ConditionNotMet"):
            same.upload_blob(
                b"4",
                overwrite=True,
                etag=etag,
                match_condition=MatchConditions.IfNotModified,
            )
        with pytest.raises(ResourceExistsError):
            same.upload_blob(b"4")


def test_queues(nodes: Cluster) -> None:
    for one, other in both_ways(nodes):
        name = unique("queue")
        sender = QueueServiceClient.from_connection_string(one.connection_string("queue"))
        receiver = QueueServiceClient.from_connection_string(other.connection_string("queue"))
        queue = sender.create_queue(name)
        for number in range(20):
            queue.send_message(str(number))
        taken = [
            message
            for client in (queue, receiver.get_queue_client(name)) * 10
            for message in client.receive_messages(max_messages=1, visibility_timeout=60)
        ]
        assert sorted(int(message.content) for message in taken) == list(range(20))
        assert not list(receiver.get_queue_client(name).receive_messages())


def test_tables(nodes: Cluster) -> None:
    for one, other in both_ways(nodes):
        name = unique("table").replace("-", "")
        TableServiceClient.from_connection_string(one.connection_string("table")).create_table(name)
        clients = [
            TableServiceClient.from_connection_string(node.connection_string("table"))
            for node in (one, other)
        ]
        first, second = (client.get_table_client(name) for client in clients)
        first.create_entity({"PartitionKey": "p", "RowKey": "r", "n": 1})
        entity = second.get_entity("p", "r")
        assert entity["n"] == 1
        second.upsert_entity({"PartitionKey": "p", "RowKey": "r", "n": 2})
        assert [found["n"] for found in first.query_entities("n eq 2")] == [2]


def test_files_on_every_node(nodes: Cluster) -> None:
    for one, other in both_ways(nodes):
        name = unique("share")
        share = shares(one).create_share(name)
        file = share.get_file_client("f")
        file.upload_file(LONG)
        same = shares(other).get_share_client(name).get_file_client("f")
        assert same.download_file().readall() == LONG
        same.upload_range(b"xyz", 1, 3)
        assert file.download_file(0, 5).readall() == LONG[:1] + b"xyz" + LONG[4:5]


def test_copies_from_files_on_every_node(nodes: Cluster) -> None:
    """The front ends for blobs ask the node that serves files."""
    name = unique("share")
    shares(nodes.nodes[0]).create_share(name).get_file_client("f").upload_file(LONG)
    for node in nodes.nodes:
        token = generate_file_sas(
            ACCOUNT, name, ["f"], KEY, permission="r", expiry=datetime.now(UTC) + timedelta(hours=1)
        )
        container = blobs(node).create_container(unique())
        blob = container.get_blob_client("b")
        blob.upload_blob_from_url(f"{node.url('file')}/{name}/f?{token}")
        assert blob.download_blob().readall() == LONG


def test_smb_on_every_node(nodes: Cluster) -> None:
    """Clients of all nodes have the same open files, and see what others have written."""
    name = unique("share")
    share = shares(nodes.nodes[0]).create_share(name)
    one, other = nodes.nodes
    with smb_client(one, name) as first, smb_client(other, name) as second:
        first.write_file("f", LONG)
        assert second.read_file("f") == LONG
        opened = second.open("f", share=SHARE_READ)
        with refused(NtStatus.SHARING_VIOLATION):
            first.open("f", WRITE)
        opened.write(b"from SMB", 0)
        for node in nodes.nodes:
            file = shares(node).get_share_client(name).get_file_client("f")
            assert file.download_file(0, 8).readall() == b"from SMB"
            with pytest.raises(HttpResponseError, match="SharingViolation"):
                file.upload_range(b"x", 0, 1)
        opened.close()
        assert sorted(found["name"] for found in share.list_directories_and_files()) == ["f"]


def test_stored_policies_of_signatures_apply_on_every_node(nodes: Cluster) -> None:
    """A signature with a stored policy ends on all nodes when the policy does."""
    for one, other in both_ways(nodes):
        name = unique()
        container = blobs(one).create_container(name)
        container.upload_blob("b", b"signed")
        policy = AccessPolicy("r", expiry=datetime.now(UTC) + timedelta(hours=1))
        container.set_container_access_policy({"p": policy})
        token = generate_container_sas(ACCOUNT, name, KEY, policy_id="p")
        signed = ContainerClient(other.url("blob"), name, credential=token)
        assert signed.download_blob("b").readall() == b"signed"
        container.set_container_access_policy({})
        with pytest.raises(ClientAuthenticationError):
            signed.download_blob("b")


def test_access_policies_apply_at_once_on_every_node(nodes: Cluster) -> None:
    for one, other in both_ways(nodes):
        name = unique()
        container = blobs(one).create_container(name)
        container.upload_blob("b", b"public")
        anonymous = ContainerClient(other.url("blob"), name)
        with pytest.raises((ClientAuthenticationError, ResourceNotFoundError)):
            anonymous.download_blob("b")
        container.set_container_access_policy({}, public_access=PublicAccess.BLOB)
        assert anonymous.download_blob("b").readall() == b"public"
        container.set_container_access_policy({})
        with pytest.raises((ClientAuthenticationError, ResourceNotFoundError)):
            anonymous.download_blob("b")


def test_accounts_and_keys_change_at_once_on_every_node(nodes: Cluster) -> None:
    name = f"acc{os.getpid()}"
    assert nodes.command("account", "add", name).returncode == 0

    def client(node: Server, key: str) -> BlobServiceClient:
        return BlobServiceClient(node.url("blob", name), {"account_name": name, "account_key": key})

    first, second = nodes.account_keys(name)
    for node in nodes.nodes:
        assert list(client(node, first).list_containers()) == []
    rotated = nodes.command("account", "rotate", name, "1")
    assert rotated.returncode == 0, rotated.stderr
    third, _ = nodes.account_keys(name)
    for node in nodes.nodes:
        with pytest.raises(ClientAuthenticationError):
            list(client(node, first).list_containers())
        assert list(client(node, second).list_containers()) == []
        assert list(client(node, third).list_containers()) == []
    assert nodes.command("account", "remove", name).returncode == 0
    for node in nodes.nodes:
        with pytest.raises(ClientAuthenticationError):
            list(client(node, second).list_containers())


# The task to serve files


def serving_node(nodes: Cluster) -> Server:
    """Returns the node that serves files."""
    eventually(lambda: any(map(serves_files, nodes.nodes)), "a node that serves files")
    return next(node for node in nodes.nodes if serves_files(node))


def serves_files(node: Server) -> bool:
    """Returns whether a node serves files, as far as it knows."""
    return node.log().count("this node serves files now") > node.log().count("restarting it")


def test_files_are_served_again_soon_after_a_crash(nodes: Cluster) -> None:
    """The process that is started again does not wait for its predecessor to expire."""
    name = unique("share")
    serving = serving_node(nodes)
    shares(serving).create_share(name).get_file_client("f").upload_file(LONG)
    before = [len(node.log()) for node in nodes.nodes]
    os.kill(serving.pid_of("file front end"), signal.SIGKILL)
    for node in nodes.nodes:
        file = shares(node).get_share_client(name).get_file_client("f")
        assert file.download_file().readall() == LONG
    for node, length in zip(nodes.nodes, before, strict=True):
        assert "is considered dead" not in node.log()[length:]


def test_files_move_when_their_node_is_drained(nodes: Cluster) -> None:
    name = unique("share")
    before = serving_node(nodes)
    (after,) = (node for node in nodes.nodes if node is not before)
    file = shares(before).create_share(name).get_file_client("f")
    file.upload_file(LONG)
    drained = before.directory.name
    assert nodes.command("node", "drain", drained).returncode == 0
    try:
        eventually(lambda: serving_node(nodes) is after, "the other node to serve files")
        for node in nodes.nodes:
            same = shares(node).get_share_client(name).get_file_client("f")
            assert same.download_file().readall() == LONG
    finally:
        assert nodes.command("node", "resume", drained).returncode == 0
