"""What an account has besides the usual: settings, policies, and contents that others share."""

from __future__ import annotations

import random
from typing import Any, Final

from azure.data.tables import TableServiceClient
from azure.storage.blob import (
    AccessPolicy,
    BlobBlock,
    BlobServiceClient,
    ContainerSasPermissions,
    CorsRule,
    ResourceTypes,
    generate_account_sas,
)
from azure.storage.fileshare import AccessPolicy as SharePolicy
from azure.storage.queue import AccessPolicy as QueuePolicy

from etagere.clock import TICKS_PER_SECOND
from etagere.model.delegation import IssueDelegationKey, UserName
from etagere.node.cluster_ledger import ClusterLedger
from etagere.operations.delegation import get_delegation, issue_delegation_key
from etagere.settings.addresses import DatabaseAddress
from tests.clusters.cells import Cell
from tests.clusters.moving import KEY
from tests.sdk.blob.clients import blob_service
from tests.sdk.file.clients import file_service
from tests.sdk.file.service_settings import keep_deleted_shares
from tests.sdk.harness import HOUR, now
from tests.sdk.queue.clients import queue_service
from tests.sdk.table.clients import table_service

_SEED: Final = 21
_BLOCKS: Final = 530
"""More than one chunk of a block list has."""
_POLICY_EXPIRY: Final = now() + HOUR
_USER: Final = ("11111111-0000-0000-0000-000000000000", "22222222-0000-0000-0000-000000000000")


def fill_more(cell: Cell, account: str) -> None:
    """Adds to an account that `inventory.fill` has filled."""
    service = blob_service(cell.nodes[0], account, KEY)
    _set_policies(cell, account)
    _share_contents(service)
    queue_service(cell.nodes[0], account, KEY).get_queue_client("messages").send_message(
        "ä" * 20_000
    )
    keep_deleted_shares(cell.nodes[0], 7, account, KEY)
    shares = file_service(cell.nodes[0], account, KEY)
    kept = shares.create_share("kept", metadata={"kept": "yes"})
    kept.get_file_client("f").upload_file(b"kept" * 20_000)
    kept.create_snapshot()
    kept.delete_share(delete_snapshots=True)
    _fill_indexed(table_service(cell.nodes[0], account, KEY))
    with ClusterLedger(DatabaseAddress(cell.dsn)) as ledger:
        expiry = int(_POLICY_EXPIRY.timestamp()) * TICKS_PER_SECOND
        user = UserName(account, *_USER)
        ledger.write(issue_delegation_key, IssueDelegationKey(user, (), None, expiry, b"s" * 32))


def _set_policies(cell: Cell, account: str) -> None:
    blobs = blob_service(cell.nodes[0], account, KEY)
    blobs.set_service_properties(cors=[CorsRule(["https://example.org"], ["GET"])])
    policy = AccessPolicy(ContainerSasPermissions(read=True), _POLICY_EXPIRY)
    blobs.get_container_client("blobs").set_container_access_policy({"p": policy})
    queue = queue_service(cell.nodes[0], account, KEY).get_queue_client("messages")
    queue.set_queue_access_policy({"p": QueuePolicy("r", _POLICY_EXPIRY)})
    share = file_service(cell.nodes[0], account, KEY).get_share_client("files")
    share.set_share_access_policy({"p": SharePolicy("r", _POLICY_EXPIRY)})


def _share_contents(service: BlobServiceClient) -> None:
    """Makes blobs of the account that share contents, chunks and generations."""
    rng = random.Random(_SEED)
    container = service.get_container_client("blobs")
    many = container.get_blob_client("many")
    names = [f"{number:04}" for number in range(_BLOCKS)]
    for name in names:
        many.stage_block(name, rng.randbytes(100))
    many.commit_block_list([BlobBlock(name) for name in names])
    many.create_snapshot()
    many.stage_block("last", rng.randbytes(100))
    many.commit_block_list([BlobBlock(name) for name in (*names, "last")])
    for name in ("small", "blocks", "pages", "many", "appended"):
        copy = container.get_blob_client(f"copy of {name}")
        copy.start_copy_from_url(container.get_blob_client(name).url)
    pages = container.get_blob_client("copy of pages")
    pages.upload_page(rng.randbytes(512), 4_096, 512)


def _fill_indexed(service: TableServiceClient) -> None:
    """Fills a table and queries it until the server has requested an index."""
    table = service.create_table("Indexed")
    for partition in range(52):
        rows = [
            {"PartitionKey": f"{partition:02}", "RowKey": f"{row:02}", "Word": f"w{row}"}
            for row in range(100)
        ]
        table.submit_transaction([("create", row) for row in rows])
    for _ in range(6):
        list(table.query_entities("Word eq 'w7'"))


def copy_to_other(cell: Cell, account: str, other: str) -> None:
    """Copies blobs of one account to another, which share their contents then."""
    types = ResourceTypes(object=True, container=True)
    token = generate_account_sas(account, KEY, types, "rl", now() + HOUR)
    source = blob_service(cell.nodes[0], account, KEY).get_container_client("blobs")
    target = blob_service(cell.nodes[0], other, KEY).create_container("copies")
    for name in ("small", "long/001", "blocks", "pages", "appended", "many", "leased"):
        copy = target.get_blob_client(name)
        copy.start_copy_from_url(f"{source.get_blob_client(name).url}?{token}")
    target.get_blob_client("pages").upload_page(b"x" * 512, 8_192, 512)


def settings(cell: Cell, account: str) -> dict[str, Any]:
    """Returns what clients see of settings and policies."""
    blobs = blob_service(cell.nodes[0], account, KEY)
    queue = queue_service(cell.nodes[0], account, KEY).get_queue_client("messages")
    shares = file_service(cell.nodes[0], account, KEY)
    cors = blobs.get_service_properties()["cors"]
    deleted = [share for share in shares.list_shares(include_deleted=True) if share.deleted]
    indexed = table_service(cell.nodes[0], account, KEY).get_table_client("Indexed")
    with ClusterLedger(DatabaseAddress(cell.dsn)) as ledger:
        delegation = ledger.read(get_delegation, UserName(account, *_USER))
    return {
        "cors": [rule.allowed_origins for rule in cors],
        "container": _policies(blobs.get_container_client("blobs").get_container_access_policy()),
        "queue": sorted(queue.get_queue_access_policy()),
        "share": _policies(shares.get_share_client("files").get_share_access_policy()),
        "deleted": [(share.name, share.version, share.metadata) for share in deleted],
        "found": [row["PartitionKey"] for row in indexed.query_entities("Word eq 'w7'")],
        "delegation": delegation,
    }


def _policies(access: dict[str, Any]) -> list[tuple[str, str]]:
    return [(each.id, str(each.access_policy.permission)) for each in access["signed_identifiers"]]
