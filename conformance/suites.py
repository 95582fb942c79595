"""Which tests there are: one suite per public SDK."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final


@dataclass(frozen=True)
class Suite:
    """The tests of one SDK, and what they ask of their surroundings."""

    name: str
    package: str
    """On PyPI; its version is that of requirements/dev.txt."""
    accounts: tuple[str, ...]
    """What precedes ACCOUNT_NAME and ACCOUNT_KEY in the variables that the tests read."""
    sleep_seconds_max: float | None = None
    """Of tests that sleep only until a change shows in Azure; here it shows at once."""

    @property
    def lists(self) -> Path:
        return Path(__file__).parent / self.name


SUITES: Final = {
    suite.name: suite
    for suite in (
        Suite(
            "blob",
            "azure-storage-blob",
            (
                "STORAGE",
                "SECONDARY_STORAGE",
                "BLOB_STORAGE",
                "VERSIONED_STORAGE",
                "PREMIUM_STORAGE",
                "SOFT_DELETE_STORAGE",
            ),
        ),
        Suite("queue", "azure-storage-queue", ("STORAGE",)),
        Suite("table", "azure-data-tables", ("TABLES_STORAGE",), sleep_seconds_max=0.1),
    )
}


def accounts(suite: Suite, runners: int) -> Iterator[tuple[str, str, str]]:
    """The variable's prefix, name and key of every account.

    Each runner has its own, because tests change the properties of the whole account.
    """
    for runner in range(runners):
        for prefix in suite.accounts:
            name = f"{prefix.replace('_', '').lower()}{runner}"
            key = base64.b64encode(hashlib.sha512(name.encode()).digest()).decode()
            yield f"GW{runner}_{prefix}", name, key
