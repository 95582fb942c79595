"""Settings for all tests."""

from __future__ import annotations

import gc
from collections.abc import Iterable
from typing import Final

import pytest
from hypothesis import HealthCheck, settings

from tests.clusters.fixtures import (  # noqa: F401
    ceph,
    postgresql_database,
    postgresql_dsn,
    postgresql_schema,
    postgresql_server,
    s3_store,
)
from tests.progress import LongRunProgress

# Tests run in parallel, so the duration of an example means nothing.
settings.register_profile("etagere", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("etagere")


ON_POSTGRESQL: Final = (
    "tests/engine/",
    "tests/operations/test_account",  # accounts, the account map, purging
    "tests/operations/blob/test_blobs.py",
    "tests/operations/blob/test_containers.py",
    "tests/operations/blob/test_listing.py",
    "tests/operations/blob/test_page_blobs.py",
    "tests/operations/blob/test_tag_searches.py",
    "tests/operations/file/test_entries.py",
    "tests/operations/file/test_purging.py",
    "tests/operations/queue/test_messages.py",
    "tests/operations/table/test_groups.py",
    "tests/operations/table/test_queries.py",
)
"""The tests of engines that `make test` runs on PostgreSQL. The first are the conformance suite,
which shows that all engines behave alike; the others use each kind of collection, guard and scan.
The rest are long tests there: a ledger in PostgreSQL for each of them takes minutes."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: Iterable[pytest.Item]) -> None:
    for item in items:
        engine = item.callspec.params.get("start") if hasattr(item, "callspec") else None
        if engine == "postgresql" and not item.nodeid.startswith(ON_POSTGRESQL):
            item.add_marker(pytest.mark.long)


def pytest_configure(config: pytest.Config) -> None:
    gc.disable()  # while tests are collected: nearly all that it makes stays
    is_worker = hasattr(config, "workerinput")
    if config.getoption("markexpr") == "long" and not is_worker:
        config.pluginmanager.register(LongRunProgress(config), "long-run-progress")


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """Freezes what collecting made. Each writer process is forked from this one, and its own
    collection of garbage would look at, and so copy, all of it."""
    gc.collect()
    gc.freeze()
    gc.enable()
