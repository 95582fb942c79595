"""Tables on the shared server of the SDK tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from azure.data.tables import TableClient, TableServiceClient

from tests.sdk.table.clients import table_service, unique_table
from tests.server import Server


@pytest.fixture(scope="session")
def tables(server: Server) -> Iterator[TableServiceClient]:
    with table_service(server) as client:
        yield client


@pytest.fixture
def table(tables: TableServiceClient) -> Iterator[TableClient]:
    made = tables.create_table(unique_table())
    yield made
    made.delete_table()
