"""Pessimistic concurrency: whoever has the lease of a blob is the only one who can write it.

A lease suits work that takes a while, or that must not be done twice. Others are refused while it
is held; they can still read.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable

from azure.core.exceptions import HttpResponseError
from azure.storage.blob import BlobClient, BlobServiceClient

CONNECTION = os.environ.get("AZURE_STORAGE_CONNECTION_STRING", "UseDevelopmentStorage=true")


def work_under_lease(report: BlobClient) -> None:
    # 15 to 60 seconds, so that a holder that dies is not in the way for ever. A lease of -1 never
    # ends by itself: somebody has to release or break it.
    lease = report.acquire_lease(lease_duration=15)
    try:
        draft = report.download_blob(encoding="utf-8").readall()
        print(f"Alice has the lease and reads: {draft}")

        # A client knows nothing of leases that it is not given, so Bob may as well use the same.
        somebody_else(report)

        # Work that takes longer than the lease renews it on the way, well before it ends.
        lease.renew()

        # The id goes with the write, so the server decides in one step whether the lease is
        # still ours and whether the write is done. To look first and then write without the id
        # would leave a gap between the two.
        report.upload_blob(f"{draft}, finished by Alice", overwrite=True, lease=lease)
    finally:
        # Released, it is free at once; forgotten, only when its time is over.
        lease.release()


def somebody_else(report: BlobClient) -> None:
    """What Bob can do while Alice has the lease: read, and nothing else."""
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
