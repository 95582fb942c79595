"""Fixtures of tests on PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

# Imported before any schema is created, so that the tables of the tests are in it.
import tests.engine.samples  # noqa: F401
from tests.engine.postgres.schemas import empty_schema


@pytest.fixture
def ledger_schema(postgresql_dsn: str) -> Iterator[str]:
    """A schema with the tables of an empty ledger."""
    with empty_schema(postgresql_dsn) as name:
        yield name
