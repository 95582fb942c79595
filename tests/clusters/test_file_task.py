"""The node that serves files is killed, or paused."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from azure.storage.fileshare import ShareServiceClient

from tests.clusters.postgresql import PostgresServer
from tests.clusters.running import cluster
from tests.clusters.test_nodes import LONG, blobs, serves_files, serving_node, shares
from tests.server import eventually, unique


def attempt(call: Callable[[], object]) -> bool:
    try:
        call()
    except Exception:
        return False
    return True


@pytest.mark.long
def test_another_node_serves_files_after_a_kill(
    postgresql_server: PostgresServer, tmp_path: Path
) -> None:
    with cluster(postgresql_server, tmp_path, 2) as nodes:
        name = unique("share")
        first, second = nodes.nodes
        assert serving_node(nodes) is first
        shares(second).create_share(name).get_file_client("f").upload_file(LONG)
        blobs(first).create_container(name).upload_blob("b", LONG)
        first.kill()
        # Blobs are served without a pause, files when the other node has taken over.
        assert blobs(second).get_blob_client(name, "b").download_blob().readall() == LONG
        file = shares(second).get_share_client(name).get_file_client("f")
        eventually(lambda: attempt(file.get_file_properties), "files on the other node", 40.0)
        assert file.download_file().readall() == LONG
        first.start()
        again = shares(first).get_share_client(name).get_file_client("f")
        again.upload_range(b"new", 0, 3)
        assert file.download_file(0, 3).readall() == b"new"
        assert blobs(first).get_blob_client(name, "b").download_blob().readall() == LONG


@pytest.mark.long
def test_a_paused_node_changes_nothing_when_it_returns(
    postgresql_server: PostgresServer, tmp_path: Path
) -> None:
    with cluster(postgresql_server, tmp_path, 2) as nodes:
        name = unique("share")
        first, second = nodes.nodes
        assert serving_node(nodes) is first
        file = shares(first).create_share(name).get_file_client("f")
        file.upload_file(b"before")

        once = ShareServiceClient.from_connection_string(
            first.connection_string("file"), retry_total=0
        )
        late = once.get_share_client(name).get_file_client("f")
        late.get_file_properties()
        paused = first.pid_of("file front end")
        os.kill(paused, signal.SIGSTOP)
        # This request waits in the process that is paused.
        waiting = threading.Thread(
            target=attempt, args=(lambda: late.upload_range(b"LATE!!", 0, 6),)
        )
        waiting.start()
        eventually(lambda: serves_files(second), "the other node to serve files", 40.0)
        same = shares(second).get_share_client(name).get_file_client("f")
        same.upload_range(b"after!", 0, 6)
        os.kill(paused, signal.SIGCONT)
        waiting.join(60.0)
        assert not waiting.is_alive()
        eventually(lambda: "was declared dead" in first.log(), "the former node to notice")
        again = shares(first).get_share_client(name).get_file_client("f")
        assert again.download_file().readall() == b"after!"
