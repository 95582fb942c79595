"""The management plane, as far as the tests need it: to make and remove a container.

They ask for containers that may hold immutable blobs in this way, and get ordinary ones.
"""

from __future__ import annotations

import os
from types import SimpleNamespace
from typing import Any

from azure.storage.blob import BlobServiceClient


class StorageManagementClient:
    """Does through the blob service what it is asked for."""

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
