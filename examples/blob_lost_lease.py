"""A writer that detects that it has lost its lease, which may expire or be broken.

A process can be suspended at any moment and continue minutes later, as if it still held the lease.
To be safe, send the lease ID with each write: if the lease is not active, the server refuses the
write with 412 and changes nothing.
"""

from __future__ import annotations

import os
import uuid

from azure.core.exceptions import HttpResponseError
from azure.storage.blob import BlobClient, BlobLeaseClient, BlobServiceClient

CONNECTION = os.environ.get("AZURE_STORAGE_CONNECTION_STRING", "UseDevelopmentStorage=true")


class LeaseLost(Exception):
    """The lease is lost; the result of the work must not be written."""


def write_under_lease(state: BlobClient, content: str, lease: BlobLeaseClient) -> None:
    try:
        state.upload_blob(content, overwrite=True, lease=lease)
    except HttpResponseError as error:
        if error.status_code != 412:
            raise
        # LeaseNotPresentWithBlobOperation   the lease was released
        # LeaseIdMismatchWithBlobOperation   another client has the lease
        # LeaseLost                          the lease has expired or was broken
        # Do not retry without the ID or with a new lease: the content was computed from a version
        # that may be outdated.
        raise LeaseLost(error.message.splitlines()[0]) from error


def step(state: BlobClient, name: str, *, broken_by: str = "", taken_by: str = "") -> None:
    """Executes one step: lease, read, compute, write. The lease may be lost in the middle."""
    lease = state.acquire_lease(lease_duration=15)
    seen = state.download_blob(encoding="utf-8").readall()

    if broken_by:
        # A client with write permission can break a lease without its ID, for example if the
        # holder hangs. The break period is the time that the holder keeps; here it is zero.
        BlobLeaseClient(state).break_lease(lease_break_period=0)
        print(f"{broken_by} breaks the lease of {name}.")
    if taken_by:
        step(state, taken_by)

    try:
        write_under_lease(state, f"{seen} {name}", lease)
    except LeaseLost as lost:
        print(f"{name} writes nothing: {lost}")
    else:
        lease.release()
        print(f"{name} has written: {state.download_blob(encoding='utf-8').readall()}")


def main() -> None:
    with BlobServiceClient.from_connection_string(CONNECTION) as service:
        container = service.create_container(f"example-{uuid.uuid4()}")
        try:
            state = container.upload_blob("state.txt", "begun")
            step(state, "first")
            step(state, "second", broken_by="An operator")
            step(state, "third", broken_by="An operator", taken_by="fourth")
            # After a lost lease, start again with a new lease and the current content.
            step(state, "third")
        finally:
            container.delete_container()


if __name__ == "__main__":
    main()
