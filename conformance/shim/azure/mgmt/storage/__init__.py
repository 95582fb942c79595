"""The part of the management plane that the tests need: creating and deleting a container.

They ask for containers that may hold immutable blobs in this way, and get ordinary ones.
"""

from __future__ import annotations

import os
from types import SimpleNamespace
from typing import Any

from azure.storage.blob import BlobServiceClient


class StorageManagementClient:
    """Executes the operations through the blob service."""

    def __init__(self, *_: object) -> None:
        self.blob_containers = _Containers()

    def models(self) -> Any:
        return SimpleNamespace(BlobContainer=dict, ImmutableStorageWithVersioning=dict)


class _Containers:
    def create(self, _group: str, account: str, container: str, **_: object) -> None:
        _service(account).create_container(container)

    def delete(self, _group: str, account: str, container: str) -> None:
        _service(account).delete_container(container)


def _service(account: str) -> BlobServiceClient:
    (key,) = {
        os.environ[variable.removesuffix("NAME") + "KEY"]
        for variable, text in os.environ.items()
        if variable.endswith("ACCOUNT_NAME") and text == account
    }
    return BlobServiceClient(f"{os.environ['CONFORMANCE_BLOB']}/{account}", key)
