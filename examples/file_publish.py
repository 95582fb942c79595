"""Atomic publication: write a file under another name, then rename it over the old one.

A file that is written in several ranges is incomplete in between. A rename replaces the old file at
once: a reader gets the old content or the new content, never a mixture. A snapshot of the share
keeps the state of all files at one moment.
"""

from __future__ import annotations

import os
import uuid

from azure.storage.fileshare import ShareClient, ShareServiceClient

# The SDK for files does not accept `UseDevelopmentStorage=true`.
DEVELOPMENT_STORAGE = (
    "DefaultEndpointsProtocol=http;AccountName=devstoreaccount1;"
    "AccountKey=Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/"
    "K1SZFPTOtr/KBHBeksoGMGw==;FileEndpoint=http://127.0.0.1:10003/devstoreaccount1;"
)
CONNECTION = os.environ.get("AZURE_STORAGE_CONNECTION_STRING", DEVELOPMENT_STORAGE)
PATH = "reports/today.txt"


def publish(share: ShareClient, text: str) -> None:
    draft = share.get_file_client(f"{PATH}.{uuid.uuid4()}")
    draft.upload_file(text.encode())
    draft.rename_file(PATH, overwrite=True)


def read(share: ShareClient) -> str:
    return share.get_file_client(PATH).download_file().readall().decode()


def main() -> None:
    with ShareServiceClient.from_connection_string(CONNECTION) as service:
        share = service.create_share(f"example-{uuid.uuid4()}")
        try:
            share.create_directory("reports")
            publish(share, "Sunny")
            print(f"Published: {read(share)}")

            snapshot = share.create_snapshot()["snapshot"]
            publish(share, "Cloudy, with showers in the evening")
            print(f"Replaced by: {read(share)}")

            earlier = service.get_share_client(share.share_name, snapshot=snapshot)
            print(f"In the snapshot: {read(earlier)}")
            names = [item["name"] for item in share.list_directories_and_files("reports")]
            print(f"Files: {', '.join(names)}")
        finally:
            share.delete_share(delete_snapshots=True)


if __name__ == "__main__":
    main()
