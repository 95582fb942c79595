"""Pessimistic concurrency for entities: whoever has the lease of a blob works on them, alone.

Entities cannot be leased, blobs can. So a blob is designated that stands for some entities, and
everybody who changes those leases it first. It has no other purpose, and no content. Choose this
where the work cannot simply be done again, as an optimistic writer would.

The table knows nothing of the lease and refuses nobody: this is an agreement, and holds among those
who keep it. For somebody whose lease ran out while they slept, see the condition on the write.
"""

from __future__ import annotations

import os
import threading
import time
import uuid
from collections.abc import Callable
from typing import Any

from azure.core import MatchConditions
from azure.core.exceptions import HttpResponseError
from azure.data.tables import TableClient, TableEntity, TableServiceClient
from azure.storage.blob import BlobClient, BlobLeaseClient, BlobServiceClient

CONNECTION = os.environ.get("AZURE_STORAGE_CONNECTION_STRING", "UseDevelopmentStorage=true")
LEASE_SECONDS = 15
"""A lease ends by itself if its holder dies. The shorter, the sooner others can go on."""
AMOUNT = 10


def acquire(accounts: BlobClient, name: str, waits: threading.Event) -> BlobLeaseClient:
    """Waits until nobody else has the lease."""
    while True:
        try:
            return accounts.acquire_lease(LEASE_SECONDS)
        except HttpResponseError as error:
            if error.status_code != 409:
                raise
        if not waits.is_set():
            print(f"{name} waits")
            waits.set()
        time.sleep(0.02)


def transfer(
    table: TableClient,
    accounts: BlobClient,
    name: str,
    waits: threading.Event,
    tell_the_bank: Callable[[], object],
) -> None:
    """Moves an amount from one account to the other."""
    lease = acquire(accounts, name, waits)
    try:
        print(f"{name} has the lease")
        giver = table.get_entity("accounts", "giver")
        taker = table.get_entity("accounts", "taker")
        # Something that takes its time, and that must not be done twice.
        tell_the_bank()
        giver["balance"] -= AMOUNT
        taker["balance"] += AMOUNT

        # Fails if the lease has been lost meanwhile: then somebody else may be at work.
        lease.renew()
        # A process can be suspended right here, for longer than the lease lasts. What is written
        # is still written only over what was read; and both entities, being in one partition, are
        # written together or not at all.
        table.submit_transaction([update_unchanged(giver), update_unchanged(taker)])
        print(f"{name} is done")
    finally:
        # Released, it is free at once; forgotten, only when its time is over.
        lease.release()


def update_unchanged(entity: TableEntity) -> tuple[str, TableEntity, dict[str, Any]]:
    """What writes an entity, unless it is no longer as it was read."""
    etag = entity.metadata["etag"]
    return "update", entity, {"etag": etag, "match_condition": MatchConditions.IfNotModified}


def run(table: TableClient, accounts: BlobClient) -> None:
    for row, balance in (("giver", 100), ("taker", 0)):
        table.create_entity({"PartitionKey": "accounts", "RowKey": row, "balance": balance})

    alice_waits, bob_waits = threading.Event(), threading.Event()

    def quick_call() -> None:
        print("Bob tells the bank")

    bob = threading.Thread(target=transfer, args=(table, accounts, "Bob", bob_waits, quick_call))

    def long_call() -> None:
        print("Alice tells the bank")
        # Meanwhile Bob comes, and finds out that he has to wait.
        bob.start()
        bob_waits.wait(LEASE_SECONDS / 2)

    transfer(table, accounts, "Alice", alice_waits, long_call)
    bob.join()

    for row in ("giver", "taker"):
        print(f"{row}: {table.get_entity('accounts', row)['balance']}")


def main() -> None:
    with (
        BlobServiceClient.from_connection_string(CONNECTION) as blobs,
        TableServiceClient.from_connection_string(CONNECTION) as tables,
    ):
        name = f"example{uuid.uuid4().hex}"
        container, table = blobs.create_container(name), tables.create_table(name)
        try:
            run(table, container.upload_blob("accounts", b""))
        finally:
            tables.delete_table(name)
            container.delete_container()


if __name__ == "__main__":
    main()
