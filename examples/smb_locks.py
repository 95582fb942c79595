"""One file through SMB and REST: share modes, byte-range locks and leases.

An SMB client says what it shares when it opens a file, and can lock ranges of it. REST clients keep
nothing open, but each of their requests needs what the SMB clients share. A lease that a REST
client holds keeps SMB clients from writing.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable
from functools import partial
from typing import Any
from urllib.parse import urlsplit

import smbclient
from azure.core.exceptions import HttpResponseError
from azure.storage.fileshare import ShareFileClient, ShareServiceClient
from smbprotocol.exceptions import SMBOSError
from smbprotocol.open import LockFlags, SMB2LockElement

# The SDK for files does not accept `UseDevelopmentStorage=true`.
DEVELOPMENT_STORAGE = (
    "DefaultEndpointsProtocol=http;AccountName=devstoreaccount1;"
    "AccountKey=Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/"
    "K1SZFPTOtr/KBHBeksoGMGw==;FileEndpoint=http://127.0.0.1:10003/devstoreaccount1;"
)
CONNECTION = os.environ.get("AZURE_STORAGE_CONNECTION_STRING", DEVELOPMENT_STORAGE)
SMB_PORT = int(os.environ.get("ETAGERE_SMB_PORT", "10445"))


OpenFile = Callable[..., Any]
"""`smbclient.open_file`, with the port and the credentials."""


def attempt(what: str, request: Callable[[], object]) -> None:
    try:
        request()
        print(f"  {what}: yes")
    except HttpResponseError as error:
        print(f"  {what}: no, {error.status_code} {getattr(error, 'error_code', '')}")
    except SMBOSError as error:
        print(f"  {what}: no, {error.strerror}")


def share_modes(file: ShareFileClient, open_file: OpenFile, path: str) -> None:
    print("SMB has the file open and shares nothing.")
    with open_file(path, "r+b", buffering=0, share_access=None) as opened:
        attempt("REST reads", file.download_file)
        attempt("REST writes", lambda: file.upload_range(b"rest", 0, 4))
        attempt("REST reads the properties", file.get_file_properties)
        opened.write(b"smb!")
    print("SMB has the file open and shares reading and writing.")
    with open_file(path, "rb", buffering=0, share_access="rw"):
        attempt("REST writes", lambda: file.upload_range(b"rest", 0, 4))
        attempt("REST deletes", file.delete_file)


def byte_range_locks(file: ShareFileClient, open_file: OpenFile, path: str) -> None:
    print("SMB has locked two bytes.")
    with open_file(path, "r+b", buffering=0, share_access="rw") as opened:
        lock = SMB2LockElement()
        lock["offset"], lock["length"] = 0, 2
        lock["flags"] = (
            LockFlags.SMB2_LOCKFLAG_EXCLUSIVE_LOCK | LockFlags.SMB2_LOCKFLAG_FAIL_IMMEDIATELY
        )
        opened.fd.lock([lock])
        attempt("REST reads the locked bytes", lambda: file.download_file(0, 2))
        attempt("REST reads the others", lambda: file.download_file(2, 2))
        attempt("REST writes the others", lambda: file.upload_range(b"st", 2, 2))


def leases(file: ShareFileClient, open_file: OpenFile, path: str) -> None:
    print("REST has a lease.")
    lease = file.acquire_lease()

    def opened_for(mode: str) -> None:
        open_file(path, mode, buffering=0, share_access="rwd").close()

    attempt("SMB opens it for reading", lambda: opened_for("rb"))
    attempt("SMB opens it for writing", lambda: opened_for("r+b"))
    lease.release()
    print("REST has released the lease.")
    attempt("SMB opens it for writing", lambda: opened_for("r+b"))


def main() -> None:
    with ShareServiceClient.from_connection_string(CONNECTION) as service:
        host = urlsplit(service.url).hostname or "127.0.0.1"
        account, key = service.credential.account_name, service.credential.account_key
        open_file = partial(smbclient.open_file, port=SMB_PORT, username=account, password=key)
        share = service.create_share(f"example-{uuid.uuid4()}")
        try:
            file = share.get_file_client("shared.txt")
            file.upload_file(b"text")
            path = rf"\\{host}\{share.share_name}\shared.txt"
            share_modes(file, open_file, path)
            byte_range_locks(file, open_file, path)
            leases(file, open_file, path)
        finally:
            share.delete_share()
            smbclient.reset_connection_cache()


if __name__ == "__main__":
    main()
