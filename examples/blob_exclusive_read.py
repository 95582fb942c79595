"""Reading a blob in several ranges as if it were one moment.

Each range is one consistent read. Between two of them somebody may replace the blob, and the parts
would not belong together. There are two ways to be sure that they do:

- If-Match on each range: nobody waits, and the reader begins again if it was unlucky;
- a lease: the reader is never disturbed, and writers are refused meanwhile.

(A third one: take a snapshot and read that. Nobody can change it.)
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
    """Parts of one version, whichever that is. Right where changes are rare."""
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
            print(f"  changed after {len(parts)} part(s): what was read is thrown away")
        else:
            return b"".join(parts)


def read_under_lease(blob: BlobClient, disturb: Disturbance) -> bytes:
    """Parts of what the blob is now. Right where beginning again is too dear."""
    lease = blob.acquire_lease(lease_duration=15)
    try:
        parts = []
        for number in range(PARTS):
            # Readers need no lease. Naming it makes it a condition: had it run out or been
            # broken, this would be refused, instead of showing what somebody wrote since.
            part = blob.download_blob(
                offset=number * PART_BYTES, length=PART_BYTES, lease=lease
            ).readall()
            parts.append(part)
            disturb()
        return b"".join(parts)
    finally:
        lease.release()


def once(action: Disturbance) -> Disturbance:
    """A disturbance that comes after the first part and not again."""
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
