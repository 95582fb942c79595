"""Deletion through SMB: a file stays until everybody has closed it.

An SMB client marks a file for deletion. Until the last handle on it is closed, REST clients get 409
instead of 404, because the mark may still be removed, and listings do not show the file.
"""

from __future__ import annotations

import os
import uuid
from urllib.parse import urlsplit

import smbclient
from azure.core.exceptions import HttpResponseError
from azure.storage.fileshare import ShareClient, ShareServiceClient

# The SDK for files does not accept `UseDevelopmentStorage=true`.
DEVELOPMENT_STORAGE = (
    "DefaultEndpointsProtocol=http;AccountName=devstoreaccount1;"
    "AccountKey=Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/"
    "K1SZFPTOtr/KBHBeksoGMGw==;FileEndpoint=http://127.0.0.1:10003/devstoreaccount1;"
)
CONNECTION = os.environ.get("AZURE_STORAGE_CONNECTION_STRING", DEVELOPMENT_STORAGE)
SMB_PORT = int(os.environ.get("ETAGERE_SMB_PORT", "10445"))


def show(share: ShareClient, name: str) -> None:
    """Prints what a REST client sees."""
    listed = [entry.name for entry in share.list_directories_and_files()]
    try:
        share.get_file_client(name).get_file_properties()
        found = "it is there"
    except HttpResponseError as error:
        found = f"{error.status_code} {getattr(error, 'error_code', '')}"
    print(f"  REST: {found}; the directory has {len(listed)} file(s)")


def main() -> None:
    with ShareServiceClient.from_connection_string(CONNECTION) as service:
        host = urlsplit(service.url).hostname or "127.0.0.1"
        account, key = service.credential.account_name, service.credential.account_key
        # The session is used again for everything on this server.
        session = {"port": SMB_PORT, "username": account, "password": key}
        share = service.create_share(f"example-{uuid.uuid4()}")
        try:
            share.get_file_client("old.txt").upload_file(b"old")
            path = rf"\\{host}\{share.share_name}\old.txt"
            print("A reader has the file open, and shares everything.")
            with smbclient.open_file(
                path, "rb", buffering=0, share_access="rwd", **session
            ) as reader:
                show(share, "old.txt")
                smbclient.remove(path, **session)
                print("Another SMB client has removed it.")
                show(share, "old.txt")
                print(f"  SMB: the reader still reads {reader.read()!r}")
                for handle in share.get_file_client("old.txt").list_handles():
                    print(f"  REST: a client has it open for {', '.join(handle.access_rights)}")
            print("The reader has closed it.")
            show(share, "old.txt")
        finally:
            share.delete_share()
            smbclient.reset_connection_cache()


if __name__ == "__main__":
    main()
