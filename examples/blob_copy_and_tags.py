"""Copies made by the server, and tags: mark blobs, find them, and decide by what they are marked.

A copy inside an account moves no bytes through the client. Tags can be changed without changing
the blob, can be searched for in a whole account, and can be conditions of other requests.
"""

from __future__ import annotations

import os
import time
import uuid

from azure.core.exceptions import HttpResponseError
from azure.storage.blob import BlobClient, BlobServiceClient, ContainerClient, StandardBlobTier

CONNECTION = os.environ.get("AZURE_STORAGE_CONNECTION_STRING", "UseDevelopmentStorage=true")
YEARS = ("2023", "2024", "2025")
POLL_SECONDS = 0.2
POLLS_MAX = 300


def copy(source: BlobClient, destination: BlobClient) -> None:
    """Returns when the copy is there."""
    # The answer may come before the copy is made. Whoever asks too early reads an empty blob.
    status = str(destination.start_copy_from_url(source.url)["copy_status"])
    for _ in range(POLLS_MAX):
        if status != "pending":
            break
        time.sleep(POLL_SECONDS)
        status = str(destination.get_blob_properties().copy.status)
    if status != "success":
        raise RuntimeError(f"the copy of {source.blob_name} is {status}")


def find(container: ContainerClient, where: str, count: int) -> list[str]:
    """The names of blobs with these tags, when there are as many as are expected."""
    found: list[str] = []
    for _ in range(POLLS_MAX):
        found = [str(blob.name) for blob in container.find_blobs_by_tags(where)]
        if len(found) == count:
            break
        # The real service takes a moment until it finds by new tags.
        time.sleep(POLL_SECONDS)
    return found


def file_away(container: ContainerClient) -> None:
    """Copies every report to where it is kept, with a mark."""
    for year in YEARS:
        report = container.upload_blob(f"reports/{year}.txt", f"The report of {year}")
        kept = container.get_blob_client(f"kept/{year}.txt")
        copy(report, kept)
        # All tags are set at once: those that are left out are gone.
        kept.set_blob_tags({"state": "final", "year": year})
        report.delete_blob()
        print(f"{kept.blob_name}: {kept.download_blob(encoding='utf-8').readall()}")


def main() -> None:
    with BlobServiceClient.from_connection_string(CONNECTION) as service:
        container = service.create_container(f"example-{uuid.uuid4()}")
        try:
            file_away(container)

            # Values are compared as text, so numbers need the same count of digits.
            where = "\"state\" = 'final' AND \"year\" < '2025'"
            old = find(container, where, 2)
            print(f"Old and final: {', '.join(old)}")

            # What is seldom read is kept where that is cheaper; it can be read as before.
            for name in old:
                container.get_blob_client(name).set_standard_blob_tier(StandardBlobTier.COOL)
            for blob in container.list_blobs():
                print(f"{blob.name}: {blob.blob_tier}")

            # A condition on tags is judged together with the write: nobody can come between.
            latest = container.get_blob_client("kept/2025.txt")
            draft = "\"state\" = 'draft'"
            try:
                latest.upload_blob(b"Changed", overwrite=True, if_tags_match_condition=draft)
            except HttpResponseError as error:
                print(f"No draft, so not changed: {error.message.splitlines()[0]}")
        finally:
            container.delete_container()


if __name__ == "__main__":
    main()
