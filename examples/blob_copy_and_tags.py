"""Server-side copies and tags.

A copy inside an account sends no bytes through the client. Tags can be changed without changing
the blob, a search finds blobs by their tags, and other requests can use tags as conditions.
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
    """Copies a blob and waits until the copy is complete."""
    # The response may arrive before the copy is complete; until then the blob is empty.
    status = str(destination.start_copy_from_url(source.url)["copy_status"])
    for _ in range(POLLS_MAX):
        if status != "pending":
            break
        time.sleep(POLL_SECONDS)
        status = str(destination.get_blob_properties().copy.status)
    if status != "success":
        raise RuntimeError(f"the copy of {source.blob_name} is {status}")


def find(container: ContainerClient, where: str, count: int) -> list[str]:
    """Returns the names of the blobs with these tags; waits until there are `count` of them."""
    found: list[str] = []
    for _ in range(POLLS_MAX):
        found = [str(blob.name) for blob in container.find_blobs_by_tags(where)]
        if len(found) == count:
            break
        # The real service updates the index of tags with a delay.
        time.sleep(POLL_SECONDS)
    return found


def file_away(container: ContainerClient) -> None:
    """Copies every report to another prefix and tags the copy."""
    for year in YEARS:
        report = container.upload_blob(f"reports/{year}.txt", f"The report of {year}")
        kept = container.get_blob_client(f"kept/{year}.txt")
        copy(report, kept)
        # This replaces all tags of the blob.
        kept.set_blob_tags({"state": "final", "year": year})
        report.delete_blob()
        print(f"{kept.blob_name}: {kept.download_blob(encoding='utf-8').readall()}")


def main() -> None:
    with BlobServiceClient.from_connection_string(CONNECTION) as service:
        container = service.create_container(f"example-{uuid.uuid4()}")
        try:
            file_away(container)

            # Values are compared as strings, so numbers need the same number of digits.
            where = "\"state\" = 'final' AND \"year\" < '2025'"
            old = find(container, where, 2)
            print(f"Old and final: {', '.join(old)}")

            # Data that is rarely read costs less in the cool tier. It can still be read directly.
            for name in old:
                container.get_blob_client(name).set_standard_blob_tier(StandardBlobTier.COOL)
            for blob in container.list_blobs():
                print(f"{blob.name}: {blob.blob_tier}")

            # The server evaluates a condition on tags and executes the write atomically.
            latest = container.get_blob_client("kept/2025.txt")
            draft = "\"state\" = 'draft'"
            try:
                latest.upload_blob(b"Changed", overwrite=True, if_tags_match_condition=draft)
            except HttpResponseError as error:
                print(f"Not a draft, so not changed: {error.message.splitlines()[0]}")
        finally:
            container.delete_container()


if __name__ == "__main__":
    main()
