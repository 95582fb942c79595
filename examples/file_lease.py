"""Exclusive writes: only the holder of the lease can change a file.

A lease of a file does not expire: it ends when it is released or broken. It also keeps SMB clients
from opening the file for writing. Everybody can still read.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable

from azure.core.exceptions import HttpResponseError
from azure.storage.fileshare import ShareFileClient, ShareServiceClient

# The SDK for files does not accept `UseDevelopmentStorage=true`.
DEVELOPMENT_STORAGE = (
    "DefaultEndpointsProtocol=http;AccountName=devstoreaccount1;"
    "AccountKey=Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/"
    "K1SZFPTOtr/KBHBeksoGMGw==;FileEndpoint=http://127.0.0.1:10003/devstoreaccount1;"
)
CONNECTION = os.environ.get("AZURE_STORAGE_CONNECTION_STRING", DEVELOPMENT_STORAGE)


def shown(counter: ShareFileClient) -> int:
    return int(counter.download_file().readall())


def count_under_lease(counter: ShareFileClient) -> None:
    lease = counter.acquire_lease()
    try:
        value = shown(counter)
        print(f"Alice has the lease and reads {value}")
        # A client object uses a lease only if it is passed, so Bob can use the same client.
        somebody_else(counter)
        # The write includes the lease ID, so the server checks the lease and writes atomically.
        counter.upload_range(f"{value + 1:04}".encode(), offset=0, length=4, lease=lease)
    finally:
        lease.release()


def somebody_else(counter: ShareFileClient) -> None:
    """Shows that Bob can only read while Alice has the lease."""
    print(f"Bob reads {shown(counter)}")
    attempts: dict[str, Callable[[], object]] = {
        "write": lambda: counter.upload_range(b"9999", offset=0, length=4),
        "delete": counter.delete_file,
        "take the lease": counter.acquire_lease,
    }
    for what, attempt in attempts.items():
        try:
            attempt()
        except HttpResponseError as error:
            print(f"Bob cannot {what}: {error.message.splitlines()[0]}")


def main() -> None:
    with ShareServiceClient.from_connection_string(CONNECTION) as service:
        share = service.create_share(f"example-{uuid.uuid4()}")
        try:
            counter = share.get_file_client("counter.txt")
            counter.upload_file(b"0041")
            count_under_lease(counter)
            print(f"Alice has released the lease. The counter is {shown(counter)}")
        finally:
            share.delete_share()


if __name__ == "__main__":
    main()
