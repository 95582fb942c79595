"""The asynchronous forms."""

from __future__ import annotations

from conformance.shim.devtools_testutils.credentials import AsyncCredential, DevelopmentCredential


class DefaultAzureCredential(AsyncCredential):
    def __init__(self, **_: object) -> None:
        super().__init__(DevelopmentCredential())
