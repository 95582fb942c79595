"""A node that is paused for longer than its processes live without heartbeats."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from azure.core.exceptions import HttpResponseError
from azure.storage.blob import BlobServiceClient
from azure.storage.fileshare import ShareServiceClient

from etagere.coordination.postgres import NodeRegistry
from etagere.coordination.postgres.nodes import NodeState
from tests.clusters.nodes import cluster_nodes
from tests.server import Server, eventually

pytestmark = pytest.mark.long

LONG = bytes(300_000)


def test_a_node_that_was_paused_starts_again(postgresql_database: str, tmp_path: Path) -> None:
    bodies = str(tmp_path / "bodies")
    with cluster_nodes(tmp_path, 2, postgresql_database, bodies) as (paused, other):
        registry = NodeRegistry(postgresql_database)

        def owner() -> str | None:
            return next((node.name for node in registry.list() if node.serves_files), None)

        eventually(lambda: owner() == paused.name, "the first node to serve files")
        shares(other).create_share("share").get_file_client("f").upload_file(LONG)
        container = blobs(paused).create_container("container")
        container.upload_blob("b", LONG)
        began = time.monotonic()
        paused.pause()
        eventually(lambda: owner() == other.name, "the file service to move", 40.0)
        moved = time.monotonic() - began
        states = {node.name: node.state for node in registry.list()}
        assert states == {paused.name: NodeState.GONE, other.name: NodeState.SERVING}
        blobs(other).get_blob_client("container", "b").upload_blob(b"new", overwrite=True)
        eventually(lambda: can_read(other), "files on the other node", 40.0)
        paused.resume()
        eventually(lambda: paused.log().count("was declared dead") >= 2, "processes to end", 40.0)
        eventually(lambda: registry.list()[0].state is NodeState.SERVING, "the node", 40.0)
        eventually(lambda: answers(paused), "an answer of the node", 40.0)
        assert container.download_blob("b").readall() == b"new"
        assert shares(paused).get_share_client("share").get_file_client("f").download_file(
            0, 10
        ).readall() == bytes(10)
        assert owner() == other.name
        print(f"files were served by the other node after {moved:.1f} s")


def blobs(node: Server) -> BlobServiceClient:
    return BlobServiceClient.from_connection_string(node.connection_string("blob"), retry_total=0)


def shares(node: Server) -> ShareServiceClient:
    return ShareServiceClient.from_connection_string(node.connection_string("file"), retry_total=0)


def answers(node: Server) -> bool:
    try:
        list(blobs(node).list_containers())
    except Exception:
        return False
    return True


def can_read(node: Server) -> bool:
    file = shares(node).get_share_client("share").get_file_client("f")
    try:
        return file.download_file().readall() == LONG
    except (HttpResponseError, OSError):
        return False
