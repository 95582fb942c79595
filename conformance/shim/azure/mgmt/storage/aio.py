"""The asynchronous forms."""

from __future__ import annotations

from typing import Any

from . import StorageManagementClient as Synchronous


class StorageManagementClient:
    """Blocks, which is harmless in the event loop of a test."""

    def __init__(self, *arguments: object) -> None:
        self._client = Synchronous(*arguments)
        self.blob_containers = self

    def models(self) -> Any:
        return self._client.models()

    async def create(self, *arguments: str, **_: object) -> None:
        self._client.blob_containers.create(*arguments)

    async def delete(self, *arguments: str) -> None:
        self._client.blob_containers.delete(*arguments)
