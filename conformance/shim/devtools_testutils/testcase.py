"""The base class of all tests."""

from __future__ import annotations

import os
import time
import zlib
from collections.abc import Callable
from datetime import datetime
from typing import Any

from .credentials import get_credential


class AzureRecordedTestCase:
    """Provides URLs, names, credentials and time for live tests."""

    is_live = True

    def is_playback(self) -> bool:
        return False

    def account_url(self, storage_account: str, storage_type: str) -> str:
        return f"{os.environ[f'CONFORMANCE_{storage_type.upper()}']}/{storage_account}"

    @property
    def qualified_test_name(self) -> str:
        # pytest adds the phase after a space.
        return os.environ["PYTEST_CURRENT_TEST"].rpartition(" ")[0]

    def get_resource_name(self, name: str) -> str:
        """Returns a name that is the same for the same test, and different for others."""
        return f"{name}{zlib.crc32(self.qualified_test_name.encode()):08x}"

    def get_settings_value(self, name: str) -> str:
        return os.environ.get(f"AZURE_{name}", "00000000-0000-0000-0000-000000000000")

    def get_credential(self, _client: type, **options: Any) -> Any:
        return get_credential(**options)

    def generate_sas(
        self, generate: Callable[..., str], *arguments: Any, fake_value: str = "", **options: Any
    ) -> str:
        if arguments and isinstance(arguments[0], str):
            # Of a URL with the account in its path, a client without a key takes the whole path,
            # such as ACCOUNT/CONTAINER, for the name of the account.
            arguments = (arguments[0].partition("/")[0], *arguments[1:])
        return generate(*arguments, **options)

    def get_datetime_variable(self, _variables: object, _name: str, value: datetime) -> datetime:
        return value

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)
