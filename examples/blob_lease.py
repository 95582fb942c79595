"""Pessimistic concurrency: only the holder of the lease can write a blob.

Use a lease for work that takes long or must not be done twice. While the lease is held, writes of
other clients are refused; they can still read.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable

from azure.core.exceptions import HttpResponseError
from azure.storage.blob import BlobClient, BlobServiceClient

CONNECTION = os.environ.get("AZURE_STORAGE_CONNECTION_STRING", "UseDevelopmentStorage=true")


def work_under_lease(report: BlobClient) -> None:
    # 15 to 60 seconds, so that a crashed holder does not block others forever. A lease of -1 does
    # not expire: a client has to release or break it.
    lease = report.acquire_lease(lease_duration=15)
    try:
        draft = report.download_blob(encoding="utf-8").readall()
        print(f"Alice has the lease and reads: {draft}")

        # A client object uses a lease only if it is passed, so Bob can use the same client.
        somebody_else(report)

        # If the work takes longer than the lease, renew the lease well before it ends.
        lease.renew()

        # The write includes the lease ID, so the server checks the lease and writes atomically.
        # Checking first and writing without the ID would leave a gap between the two.
        report.upload_blob(f"{draft}, finished by Alice", overwrite=True, lease=lease)
    finally:
        # After a release others can lease the blob at once; otherwise, only after expiry.
        lease.release()


def somebody_else(report: BlobClient) -> None:
    """Shows that Bob can only read while Alice has the lease."""
    print(f"Bob reads: {report.download_blob(encoding='utf-8').readall()}")
    attempts: dict[str, Callable[[], object]] = {
        "write": lambda: report.upload_blob("by Bob", overwrite=True),
        "delete": report.delete_blob,
        "take the lease": lambda: report.acquire_lease(lease_duration=15),
    }
    for what, attempt in attempts.items():
        try:
            attempt()
        except HttpResponseError as error:
            print(f"Bob cannot {what}: {error.message.splitlines()[0]}")


def main() -> None:
    with BlobServiceClient.from_connection_string(CONNECTION) as service:
        container = service.create_container(f"example-{uuid.uuid4()}")
        try:
            report = container.upload_blob("report.txt", "A draft")
            work_under_lease(report)

            content = report.download_blob(encoding="utf-8").readall()
            print(f"Alice has released the lease. The report is: {content}")
            report.upload_blob(f"{content}, checked by Bob", overwrite=True)
            print(f"Bob has written: {report.download_blob(encoding='utf-8').readall()}")
        finally:
            container.delete_container()


if __name__ == "__main__":
    main()
