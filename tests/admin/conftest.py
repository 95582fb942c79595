"""A server with an admin port that has served requests of all services."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from azure.core.exceptions import ResourceNotFoundError

from tests.admin.client import scrape
from tests.sdk.blob.clients import blob_service
from tests.sdk.file.clients import file_service
from tests.sdk.queue.clients import queue_service
from tests.sdk.table.clients import table_service
from tests.server import Server, eventually, served
from tests.smb.client import SmbClient

BLOBS = 5
BLOB_BYTES = 100
READS = 7
MESSAGES = 3


@pytest.fixture(scope="package")
def used_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    directory = tmp_path_factory.mktemp("admin") / "data"
    with served(directory, "--workers", "2", "--admin-port", "0") as server:
        _use(server)
        # Objects are counted again every few seconds.
        eventually(lambda: _has_counted(server), "a count of the objects")
        yield server


def _has_counted(server: Server) -> bool:
    """Returns whether there was a count after the last request. The first one may have begun before
    there were leases and messages."""
    measured = scrape(server)
    return (
        measured.total("etagere_objects", kind="blob") == BLOBS
        and measured.total("etagere_leases", kind="blob") == 1
        and measured.total("etagere_objects", kind="message") == MESSAGES
    )


def _use(server: Server) -> None:
    """Sends requests whose number is known."""
    with blob_service(server) as blobs:
        container = blobs.create_container("container")
        for number in range(BLOBS):
            container.upload_blob(f"blob-{number}", bytes(BLOB_BYTES))
        for _ in range(READS):
            container.download_blob("blob-0").readall()
        with pytest.raises(ResourceNotFoundError):
            container.download_blob("nothing")
        container.get_blob_client("blob-0").acquire_lease()
    with queue_service(server) as queues:
        queue = queues.create_queue("queue")
        for _ in range(MESSAGES):
            queue.send_message("text")
    with table_service(server) as tables:
        tables.create_table("table").create_entity({"PartitionKey": "p", "RowKey": "r"})
    with file_service(server) as files:
        files.create_share("share")
    client = SmbClient(server, "share")
    client.write_file("file", b"text")
    client.close()
