"""A lease can be lost: by running out, or because somebody broke it. A writer has to notice.

A process can be suspended at any moment and go on minutes later, sure that it still holds what it
held. It is safe all the same if each write names the lease under which it is made: a server that
does not find that lease in force refuses with 412, and nothing is written.
"""

from __future__ import annotations

import os
import uuid

from azure.core.exceptions import HttpResponseError
from azure.storage.blob import BlobClient, BlobLeaseClient, BlobServiceClient

CONNECTION = os.environ.get("AZURE_STORAGE_CONNECTION_STRING", "UseDevelopmentStorage=true")


class LeaseLost(Exception):
    """What was done under the lease must not be written any more."""


def write_under_lease(state: BlobClient, content: str, lease: BlobLeaseClient) -> None:
    try:
        state.upload_blob(content, overwrite=True, lease=lease)
    except HttpResponseError as error:
        if error.status_code != 412:
            raise
        # LeaseNotPresentWithBlobOperation   it was released
        # LeaseIdMismatchWithBlobOperation   somebody else has it by now
        # LeaseLost                          it ran out or was broken
        # In each case: no second attempt without the id, and none with a new lease either, for
        # the content was made from what the blob was then.
        raise LeaseLost(error.message.splitlines()[0]) from error


def step(state: BlobClient, name: str, *, broken_by: str = "", taken_by: str = "") -> None:
    """One step of work: lease, read, compute, write. The lease may get lost in the middle."""
    lease = state.acquire_lease(lease_duration=15)
    seen = state.download_blob(encoding="utf-8").readall()

    if broken_by:
        # Whoever may write may break a lease without knowing its id: that is how one gets past
        # a holder that hangs. The period is what the holder is left with; here it is nothing.
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
            # Whoever has lost begins again, with a new lease and with what is there now.
            step(state, "third")
        finally:
            container.delete_container()


if __name__ == "__main__":
    main()
