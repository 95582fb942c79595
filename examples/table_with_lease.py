"""Pessimistic concurrency for entities: a blob lease as a lock.

Entities cannot be leased, but blobs can. An empty blob represents several entities, and every
client leases the blob before it changes them. Use this if the work cannot simply be repeated, as
with optimistic concurrency.

The table service does not know the lease, so the lock is advisory: it works if all clients use it.
A condition on the write protects against a client whose lease has expired meanwhile.
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
"""A lease expires if its holder crashes. The shorter it is, the sooner others can continue."""
AMOUNT = 10


def acquire(accounts: BlobClient, name: str, waits: threading.Event) -> BlobLeaseClient:
    """Acquires the lease; waits while another client has it."""
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
    """Transfers an amount from one account to the other."""
    lease = acquire(accounts, name, waits)
    try:
        print(f"{name} has the lease")
        giver = table.get_entity("accounts", "giver")
        taker = table.get_entity("accounts", "taker")
        # Work that takes long and must not be done twice.
        tell_the_bank()
        giver["balance"] -= AMOUNT
        taker["balance"] += AMOUNT

        # Fails if the lease is lost, because another client may be working now.
        lease.renew()
        # The process can be suspended here for longer than the lease lasts. The ETags still ensure
        # that only the versions that were read are replaced. Both entities are in one partition,
        # so one transaction writes both or none.
        table.submit_transaction([update_unchanged(giver), update_unchanged(taker)])
        print(f"{name} is done")
    finally:
        # After a release others can acquire the lease at once; otherwise, only after expiry.
        lease.release()


def update_unchanged(entity: TableEntity) -> tuple[str, TableEntity, dict[str, Any]]:
    """Returns an update of an entity with the condition that it has not changed."""
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
        # Meanwhile Bob tries to acquire the lease, and has to wait.
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
