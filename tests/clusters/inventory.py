"""A store with objects of every kind, and everything that clients can see in it."""

from __future__ import annotations

import hashlib
import random
import re
from typing import Any, Final

from azure.data.tables import TableServiceClient, UpdateMode
from azure.storage.blob import BlobBlock, BlobServiceClient, ContainerClient
from azure.storage.fileshare import NTFSAttributes, ShareDirectoryClient, ShareServiceClient
from azure.storage.queue import QueueServiceClient

from tests.sdk.blob.clients import blob_service
from tests.sdk.file.clients import file_service
from tests.sdk.queue.clients import queue_service
from tests.sdk.table.clients import table_service
from tests.server import ACCOUNT, KEY, Server

_KIB: Final = 1024
_PAGE: Final = 512
_SEED: Final = 20
LEASE_ID: Final = "11111111-2222-3333-4444-555555555555"
_ADDRESS: Final = re.compile(r" at 0x[0-9a-f]+")
"""Where an object of the SDK is in memory."""
_UNSTABLE: Final = ("request_id", "client_request_id", "date", "version", "server_encrypted")


class ClientState:
    """What a client needs to go on with a message that it has received."""

    def __init__(self, message_id: str, pop_receipt: str) -> None:
        self.message_id = message_id
        self.pop_receipt = pop_receipt


def fill(
    server: Server,
    account: str = ACCOUNT,
    key: str = KEY,
    /,
    *,
    long_bytes: int = 300 * _KIB,
    bodies: int = 12,
) -> ClientState:
    """Fills an account. `long_bytes`: the length of long bodies; `bodies`: how many there are."""
    rng = random.Random(_SEED)
    _fill_blobs(blob_service(server, account, key), rng, long_bytes, bodies)
    _fill_tables(table_service(server, account, key))
    _fill_files(file_service(server, account, key), rng, long_bytes)
    return _fill_queues(queue_service(server, account, key))


def _fill_blobs(service: BlobServiceClient, rng: random.Random, long: int, bodies: int) -> None:
    container = service.create_container("blobs", metadata={"kind": "all"})
    container.upload_blob("empty", b"")
    container.upload_blob("small", b"small", metadata={"a": "b"}, tags={"color": "red"})
    for number in range(bodies):
        container.upload_blob(f"long/{number:03}", rng.randbytes(long + number))
    for number in range(0, bodies, 3):
        container.delete_blob(f"long/{number:03}")  # leaves dead space
    replaced = container.upload_blob("replaced", rng.randbytes(long))
    replaced.create_snapshot()
    replaced.upload_blob(rng.randbytes(long), overwrite=True)
    blocks = container.get_blob_client("blocks")
    names = [f"{number:04}" for number in range(20)]
    for name in names:
        blocks.stage_block(name, rng.randbytes(40 * _KIB))
    blocks.commit_block_list([BlobBlock(name) for name in names])
    blocks.stage_block("late", rng.randbytes(long))
    container.get_blob_client("uncommitted").stage_block("only", rng.randbytes(long))
    pages = container.get_blob_client("pages")
    pages.create_page_blob(1 << 20)
    pages.upload_page(rng.randbytes(100 * _KIB), 64 * _KIB, 100 * _KIB)
    pages.create_snapshot()
    pages.upload_page(rng.randbytes(_PAGE), 0, _PAGE)
    pages.clear_page(80 * _KIB, 4 * _KIB)
    appended = container.get_blob_client("appended")
    appended.create_append_blob()
    for _ in range(5):
        appended.append_block(rng.randbytes(20 * _KIB))
    copy = container.get_blob_client("copy")
    copy.start_copy_from_url(container.get_blob_client("long/001").url)
    leased = container.upload_blob("leased", rng.randbytes(long))
    leased.acquire_lease(-1, lease_id=LEASE_ID)
    service.create_container("leased").acquire_lease(-1, lease_id=LEASE_ID)
    service.create_container("deleted").upload_blob("b", rng.randbytes(long))
    service.delete_container("deleted")


def _fill_tables(service: TableServiceClient) -> None:
    table = service.create_table("Entities")
    for partition in range(3):
        rows = [
            {"PartitionKey": f"p{partition}", "RowKey": f"{number:05}", "Number": number % 7}
            for number in range(100)
        ]
        table.submit_transaction([("upsert", {**row, "Text": "ä" * 99}) for row in rows])
    table.delete_entity("p0", "00000")
    table.upsert_entity({"PartitionKey": "p1", "RowKey": "00001", "New": 1}, UpdateMode.REPLACE)
    # Keys longer than an entry of an index in PostgreSQL.
    for number in range(3):
        table.upsert_entity({"PartitionKey": "k" * 1_024, "RowKey": "r" * 1_020 + str(number)})
    service.create_table("Deleted").upsert_entity({"PartitionKey": "p", "RowKey": "r"})
    service.delete_table("Deleted")


def _fill_queues(service: QueueServiceClient) -> ClientState:
    queue = service.create_queue("messages", metadata={"kind": "queue"})
    for number in range(20):
        queue.send_message(f"message {number}", time_to_live=-1 if number % 2 else 86_400)
    queue.send_message("later", visibility_timeout=3_600)
    received = queue.receive_message(visibility_timeout=3_600)
    assert received is not None
    assert received.pop_receipt is not None
    return ClientState(received.id, received.pop_receipt)


def _fill_files(service: ShareServiceClient, rng: random.Random, long: int) -> None:
    share = service.create_share("files", quota=5, metadata={"kind": "share"})
    folder = share.create_directory("folder", metadata={"d": "1"})
    folder.create_subdirectory("deep").upload_file("small", b"small")
    file = folder.upload_file(
        "long",
        rng.randbytes(long),
        file_attributes=NTFSAttributes(hidden=True, archive=True),
        file_permission="O:SYG:SYD:(A;;FA;;;SY)",
        metadata={"f": "2"},
    )
    file.upload_range(rng.randbytes(_PAGE), 1_000, _PAGE)
    share.create_snapshot()
    file.clear_range(2 * _KIB, 4 * _KIB)
    sparse = share.get_file_client("sparse")
    sparse.create_file(10 << 20)
    sparse.upload_range(rng.randbytes(_KIB), 5 << 20, _KIB)
    share.get_file_client("leased").create_file(10)
    share.get_file_client("leased").acquire_lease(lease_id=LEASE_ID)
    service.create_share("deleted").create_directory("d")
    service.delete_share("deleted")


def contents(server: Server, account: str = ACCOUNT, key: str = KEY) -> dict[str, Any]:
    """Returns everything that clients see of an account."""
    return {
        **_blobs(blob_service(server, account, key)),
        **_tables(table_service(server, account, key)),
        **_queues(queue_service(server, account, key)),
        **_files(file_service(server, account, key)),
    }


def _described(properties: Any) -> str:
    """Returns the properties of something, without those of the response."""
    shown = {name: value for name, value in dict(properties).items() if name not in _UNSTABLE}
    text = repr(sorted(shown.items(), key=lambda item: item[0]))
    return _ADDRESS.sub("", text)


def _digest(data: bytes) -> str:
    return f"{len(data)} bytes, {hashlib.sha256(data).hexdigest()}"


def _blobs(service: BlobServiceClient) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for each in service.list_containers(include_metadata=True):
        container = service.get_container_client(each.name)
        found[f"container {each.name}"] = _described(container.get_container_properties())
        found |= _blobs_in(container)
    tagged = service.find_blobs_by_tags("\"color\" = 'red'")
    found["tagged"] = [(blob.container_name, blob.name) for blob in tagged]
    return found


def _blobs_in(container: ContainerClient) -> dict[str, Any]:
    found: dict[str, Any] = {}
    include = ["snapshots", "metadata", "uncommittedblobs", "tags", "copy"]
    for each in container.list_blobs(include=include):
        blob = container.get_blob_client(each.name, snapshot=each.snapshot)
        name = f"blob {container.container_name}/{each.name} {each.snapshot}"
        if each.name == "uncommitted":
            found[name] = "uncommitted"
        else:
            found[name] = _described(blob.get_blob_properties())
            found[f"{name}: body"] = _digest(blob.download_blob().readall())
        if each.blob_type == "BlockBlob":
            lists = blob.get_block_list("all")
            found[f"{name}: blocks"] = [
                [(block.id, block.size) for block in blocks] for blocks in lists
            ]
        elif each.blob_type == "PageBlob":
            ranges = [(page.start, page.end, page.cleared) for page in blob.list_page_ranges()]
            found[f"{name}: pages"] = ranges
    return found


def _tables(service: TableServiceClient) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for each in service.list_tables():
        table = service.get_table_client(each.name)
        for entity in table.list_entities():
            name = f"entity {each.name} {entity['PartitionKey']} {entity['RowKey']}"
            found[name] = f"{_described(entity)} {_described(entity.metadata)}"
        numbered = table.query_entities("Number eq 3")
        found[f"table {each.name}: 3"] = [entity["RowKey"] for entity in numbered]
    return found


def _queues(service: QueueServiceClient) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for each in service.list_queues(include_metadata=True):
        queue = service.get_queue_client(each.name)
        properties = queue.get_queue_properties()
        found[f"queue {each.name}"] = (properties.metadata, properties.approximate_message_count)
        for message in queue.peek_messages(32):
            shown = (message.content, message.inserted_on, message.expires_on)
            found[f"message {each.name} {message.id}"] = (*shown, message.dequeue_count)
    return found


def _files(service: ShareServiceClient) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for each in service.list_shares(include_metadata=True, include_snapshots=True):
        share = service.get_share_client(each.name, snapshot=each.snapshot)
        name = f"share {each.name} {each.snapshot}"
        found[name] = _described(share.get_share_properties())
        _walk(share.get_directory_client(), name, found)
    return found


def _walk(directory: ShareDirectoryClient, name: str, found: dict[str, Any]) -> None:
    properties = directory.get_directory_properties()
    found[f"{name}/"] = _described(properties)
    for each in directory.list_directories_and_files():
        path = f"{name}/{each.name}"
        if each.is_directory:
            _walk(directory.get_subdirectory_client(each.name), path, found)
            continue
        file = directory.get_file_client(each.name)
        shown = file.get_file_properties()
        found[path] = _described(shown)
        found[f"{path}: body"] = _digest(file.download_file().readall())
        ranges = [(each.start, each.end, each.cleared) for each in file.list_ranges()]
        found[f"{path}: ranges"] = ranges
