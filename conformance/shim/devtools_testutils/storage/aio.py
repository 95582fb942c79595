"""The asynchronous forms."""

from __future__ import annotations

from . import (
    GenericTestProxyParametrize1,
    GenericTestProxyParametrize2,
    StorageRecordedTestCase,
)

AsyncStorageRecordedTestCase = StorageRecordedTestCase

__all__ = [
    "AsyncStorageRecordedTestCase",
    "GenericTestProxyParametrize1",
    "GenericTestProxyParametrize2",
]
