"""The credential that issues no valid tokens, for asynchronous clients."""

from __future__ import annotations

from .credentials import AsyncCredential, FakeTokenCredential


class AsyncFakeCredential(AsyncCredential):
    def __init__(self) -> None:
        super().__init__(FakeTokenCredential())
