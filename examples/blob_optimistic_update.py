"""Optimistic concurrency: several writers change one blob, and no update is lost.

There are no locks. Each writer reads the blob, changes it, and writes it back with the condition
that the blob is still the version that was read. If it is not, the server refuses the write with
412, nothing is overwritten, and the writer starts again with the current version.
"""

from __future__ import annotations

import json
import os
import random
import threading
import time
import uuid

from azure.core import MatchConditions
from azure.core.exceptions import ResourceModifiedError
from azure.storage.blob import BlobClient, BlobServiceClient

CONNECTION = os.environ.get("AZURE_STORAGE_CONNECTION_STRING", "UseDevelopmentStorage=true")
WRITERS = 4
ENTRIES_PER_WRITER = 5


def sign(book: BlobClient, entry: str) -> int:
    """Adds an entry to the guest book; returns the number of failed attempts."""
    conflicts = 0
    while True:
        # The ETag identifies the version. Take it from the same response as the content; a second
        # request might return the ETag of a newer version.
        download = book.download_blob()
        entries = json.loads(download.readall())
        version = download.properties.etag

        # If a response is lost, the SDK repeats the request, and the condition fails because of
        # our own first attempt. Finding our own change shows that it succeeded.
        if entry in entries:
            return conflicts

        try:
            book.upload_blob(
                json.dumps([*entries, entry]),
                overwrite=True,
                etag=version,
                match_condition=MatchConditions.IfNotModified,  # If-Match
            )
        except ResourceModifiedError:
            # Another writer was faster. Random exponential backoff reduces further conflicts.
            conflicts += 1
            time.sleep(random.uniform(0, 0.005 * 2 ** min(conflicts, 6)))
        else:
            return conflicts


def main() -> None:
    with BlobServiceClient.from_connection_string(CONNECTION) as service:
        container = service.create_container(f"example-{uuid.uuid4()}")
        try:
            book = container.upload_blob("guest-book.json", "[]")
            conflicts: list[int] = []

            def visit(writer: int) -> None:
                for number in range(ENTRIES_PER_WRITER):
                    conflicts.append(sign(book, f"writer {writer}, entry {number}"))

            visitors = [threading.Thread(target=visit, args=(n,)) for n in range(WRITERS)]
            for visitor in visitors:
                visitor.start()
            for visitor in visitors:
                visitor.join()

            entries = json.loads(book.download_blob().readall())
            print(f"{WRITERS} writers signed {WRITERS * ENTRIES_PER_WRITER} times.")
            print(f"The book has {len(entries)} entries, {len(set(entries))} of them distinct.")
            print(f"Conflicts that were retried: {sum(conflicts)}.")
        finally:
            container.delete_container()


if __name__ == "__main__":
    main()
