"""The test suites: one per public SDK."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Final, NamedTuple

from conformance.lists import Name


@dataclass(frozen=True)
class Suite:
    """The tests of one SDK, and the environment that they need."""

    name: str
    package: str
    """The package on PyPI; requirements/dev.txt pins its version."""
    accounts: tuple[str, ...]
    """The prefixes of ACCOUNT_NAME and ACCOUNT_KEY in the variables that the tests read."""
    premium_file_accounts: tuple[str, ...] = ()
    """The prefixes of those accounts whose file shares are premium."""
    lone_tests: tuple[str, ...] = ()
    """The names of tests that expect nothing else in their accounts, where other tests leave
    resources."""
    flags: tuple[str, ...] = ()
    """Flags of the server: what the accounts of Microsoft's own tests have enabled."""
    sleep_seconds_max: float | None = None
    """Limits sleeps that wait until a change is visible in Azure; here it is visible at once."""

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
            flags=("--last-access-time-tracking",),
        ),
        Suite("queue", "azure-storage-queue", ("STORAGE",)),
        Suite("table", "azure-data-tables", ("TABLES_STORAGE",), sleep_seconds_max=0.1),
        Suite(
            "file",
            "azure-storage-file-share",
            ("STORAGE", "SECONDARY_STORAGE", "PREMIUM_STORAGE_FILE"),
            premium_file_accounts=("PREMIUM_STORAGE_FILE",),
            lone_tests=(
                "share::list_shares_with_root_squash_and_protocols",
                "share::provisioned_billing_v2",
            ),
        ),
    )
}


class TestingAccount(NamedTuple):
    """An account of a runner or of a test."""

    prefix: str
    """The prefix of its variables."""
    name: str
    key: str
    premium_files: bool
    """Whether its file shares are premium."""


def accounts(suite: Suite, runners: int) -> Iterator[TestingAccount]:
    """Yields all accounts.

    Each runner has its own accounts, because tests change the properties of the whole account. So
    has each lone test.
    """
    owners = [f"GW{runner}" for runner in range(runners)]
    owners += [Name(*test).variable_prefix for test in product(suite.lone_tests, (False, True))]
    for number, owner in enumerate(owners):
        for prefix in suite.accounts:
            name = f"{prefix.replace('_', '').lower()}{number}"
            key = base64.b64encode(hashlib.sha512(name.encode()).digest()).decode()
            premium_files = prefix in suite.premium_file_accounts
            yield TestingAccount(f"{owner}_{prefix}", name, key, premium_files)
