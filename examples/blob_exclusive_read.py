"""Reading several ranges of one version of a blob.

Each range is read consistently, but the blob may be replaced between two of them, and the parts
would belong to different versions. There are two ways to prevent that:

- If-Match on each range: nobody waits; the reader starts again if the blob has changed;
- a lease: the reader is never disturbed; writers are refused meanwhile.

(A third way is to take a snapshot and read that. A snapshot never changes.)
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable

from azure.core import MatchConditions
from azure.core.exceptions import HttpResponseError, ResourceModifiedError
from azure.storage.blob import BlobClient, BlobServiceClient

CONNECTION = os.environ.get("AZURE_STORAGE_CONNECTION_STRING", "UseDevelopmentStorage=true")
PARTS = 3
PART_BYTES = 4

Disturbance = Callable[[], None]


def read_if_match(blob: BlobClient, disturb: Disturbance) -> bytes:
    """Reads all parts of one version. Suitable if changes are rare."""
    while True:
        version = blob.get_blob_properties().etag
        parts = []
        try:
            for number in range(PARTS):
                part = blob.download_blob(
                    offset=number * PART_BYTES,
                    length=PART_BYTES,
                    etag=version,
                    match_condition=MatchConditions.IfNotModified,  # If-Match
                )
                parts.append(part.readall())
                disturb()
        except ResourceModifiedError:
            print(f"  changed after {len(parts)} part(s): starting again")
        else:
            return b"".join(parts)


def read_under_lease(blob: BlobClient, disturb: Disturbance) -> bytes:
    """Reads all parts under a lease. Suitable if starting again is too expensive."""
    lease = blob.acquire_lease(lease_duration=15)
    try:
        parts = []
        for number in range(PARTS):
            # Readers need no lease. Sending its ID makes it a condition: if the lease has expired
            # or was broken, the read is refused instead of returning newer bytes.
            part = blob.download_blob(
                offset=number * PART_BYTES, length=PART_BYTES, lease=lease
            ).readall()
            parts.append(part)
            disturb()
        return b"".join(parts)
    finally:
        lease.release()


def once(action: Disturbance) -> Disturbance:
    """Returns a function that calls `action` the first time only."""
    pending = [action]

    def disturb() -> None:
        if pending:
            pending.pop()()

    return disturb


def main() -> None:
    with BlobServiceClient.from_connection_string(CONNECTION) as service:
        container = service.create_container(f"example-{uuid.uuid4()}")
        try:
            blob = container.upload_blob("parts", b"old-" * PARTS)

            def overwrite() -> None:
                try:
                    container.upload_blob("parts", b"new-" * PARTS, overwrite=True)
                    print("  a writer replaces the blob")
                except HttpResponseError as error:
                    print(f"  a writer is refused: {error.message.splitlines()[0]}")

            print("With If-Match:")
            print(f"  read: {read_if_match(blob, once(overwrite)).decode()}")

            blob.upload_blob(b"old-" * PARTS, overwrite=True)
            print("With a lease:")
            print(f"  read: {read_under_lease(blob, once(overwrite)).decode()}")
            overwrite()
        finally:
            container.delete_container()


if __name__ == "__main__":
    main()
