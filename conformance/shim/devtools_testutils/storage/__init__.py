"""Helpers for the tests of all storage services."""

from __future__ import annotations

import io
import logging
import math
import random
import string
import zlib
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from ..testcase import AzureRecordedTestCase

T = TypeVar("T")
Progress = list[tuple[int, int | None]]

_SERVICES = ("blob", "queue", "file")
_PATTERN_BYTES = 65_521  # a prime, so that no block or page is like another


def parametrize() -> Callable[[T], T]:
    """Distinguishes the recordings of the cases of a test; does nothing here."""
    return lambda test: test


GenericTestProxyParametrize1 = parametrize
GenericTestProxyParametrize2 = parametrize


class StorageRecordedTestCase(AzureRecordedTestCase):
    """Provides connection strings, contents and logs."""

    logger = logging.getLogger("azure.storage")
    sas_token = "?sp=r&sig=NEVER+USED"

    def setup_method(self, _: object) -> None:
        self.logger.setLevel(logging.DEBUG)

    def connection_string(self, account: str, key: str) -> str:
        endpoints = [
            f"{service.capitalize()}Endpoint={self.account_url(account, service)}"
            for service in _SERVICES
        ]
        return ";".join([f"AccountName={account}", f"AccountKey={key}", *endpoints])

    def get_random_bytes(self, size: int) -> bytes:
        """Returns letters that depend on the test; a shorter result is a prefix of a longer one."""
        chance = random.Random(zlib.crc32(self.qualified_test_name.encode()))
        pattern = "".join(chance.choices(string.ascii_letters, k=min(size, _PATTERN_BYTES)))
        return (pattern.encode() * math.ceil(size / _PATTERN_BYTES))[:size]

    def get_random_text_data(self, size: int) -> str:
        """Uses letters of one byte each, because tests confuse the two lengths."""
        return self.get_random_bytes(size).decode()

    # Assertions

    def assertNamedItemInContainer(
        self, container: Iterable[Any], item_name: str, msg: object = None
    ) -> None:
        items = list(container)
        assert item_name in map(_name, items) or item_name in (
            getattr(item, "snapshot", None) for item in items
        ), msg

    def assert_upload_progress(
        self, size: int, max_chunk_size: int, progress: Progress, unknown_size: bool = False
    ) -> None:
        assert len(progress) == math.ceil(size / max_chunk_size)
        assert {total for _, total in progress} == {None if unknown_size else size}

    def assert_download_progress(
        self, size: int, max_chunk_size: int, max_get_size: int, progress: Progress
    ) -> None:
        assert len(progress) == 1 + math.ceil(max(0, size - max_get_size) / max_chunk_size)


def _name(item: Any) -> Any:
    if isinstance(item, str):
        return item
    return item["name"] if isinstance(item, dict) else item.name


class LogCaptured:
    """Captures the log of the SDK as a string."""

    def __init__(self, test_case: StorageRecordedTestCase) -> None:
        self._logger = test_case.logger
        self._text = io.StringIO()
        self._handler = logging.StreamHandler(self._text)

    def __enter__(self) -> io.StringIO:
        self._logger.addHandler(self._handler)
        return self._text

    def __exit__(self, *_: object) -> None:
        self._logger.removeHandler(self._handler)
