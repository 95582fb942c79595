"""The asynchronous forms."""

from __future__ import annotations

from conformance.shim.devtools_testutils.credentials import AsyncCredential

from . import DefaultAzureCredential as Synchronous


class DefaultAzureCredential(AsyncCredential):
    def __init__(self, **options: object) -> None:
        super().__init__(Synchronous(**options))
