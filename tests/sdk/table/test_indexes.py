"""Indexes that a server creates automatically. They affect only the time of queries, so the tests
read the ledger."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import pytest
from azure.core.credentials import AzureNamedKeyCredential, AzureSasCredential
from azure.data.tables import TableClient, TableSasPermissions, UpdateMode, generate_table_sas

from etagere.clock import SystemClock
from etagere.config import Config
from etagere.engine.interface import ReadTxn, T
from etagere.engine.sqlite import Reader
from etagere.model.tables import PropertyIndex, TableName
from etagere.operations.table.tables import get_table
from tests.operations.table.fixture import orphaned_records, require_index_consistency
from tests.sdk.table.clients import table_service
from tests.server import ACCOUNT, KEY, Server, check, eventually, served

NAME: Final = "Indexed"
COUNT: Final = 5_200
"""A query that reads 5,000 entities for few results requests an index."""
GROUP: Final = 100


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with served(tmp_path / "data") as server:
        yield server


def entity(number: int) -> dict[str, Any]:
    partition, row = divmod(number, GROUP)
    return {
        "PartitionKey": f"{partition:02}",
        "RowKey": f"{row:02}",
        "Number": number,
        "Word": f"word {number % 1_000}",
    }


def fill(table: TableClient) -> dict[tuple[str, str], dict[str, Any]]:
    everything = [entity(number) for number in range(COUNT)]
    for first in range(0, COUNT, GROUP):
        table.submit_transaction([("create", one) for one in everything[first : first + GROUP]])
    return {(one["PartitionKey"], one["RowKey"]): one for one in everything}


def look(server: Server, operation: Callable[[ReadTxn, Any], T], command: object) -> T:
    """Reads the ledger directly."""
    with closing(Reader(server.directory, Config(), SystemClock())) as reader:
        return reader.read(operation, command)


def indexes(server: Server) -> dict[str, PropertyIndex]:
    found = look(server, get_table, TableName(ACCOUNT, NAME)).indexes
    return {index.name: index for index in found}


def is_ready(server: Server, name: str) -> bool:
    return name in indexes(server) and indexes(server)[name].is_ready


def found(table: TableClient, query: str, **options: Any) -> list[tuple[str, str]]:
    listed = table.query_entities(query, **options)
    return [(one["PartitionKey"], one["RowKey"]) for one in listed]


def test_an_index_is_created_and_maintained(server: Server) -> None:
    with table_service(server) as service:
        table = service.create_table(NAME)
        model = fill(table)

        def with_word(word: str) -> list[tuple[str, str]]:
            return sorted(keys for keys, one in model.items() if one.get("Word") == word)

        assert found(table, "PartitionKey eq '03' and Number eq 301") == [("03", "01")]
        assert found(table, "Word eq 'word 7'") == with_word("word 7")
        eventually(lambda: is_ready(server, "Word"), "the index is ready")
        assert set(indexes(server)) == {"Word"}
        assert look(server, require_index_consistency, None) == COUNT
        assert found(table, "Word eq 'word 7'") == with_word("word 7")
        # From now on, every change is found at once.
        changed = {"PartitionKey": "03", "RowKey": "07", "Word": "word 7"}
        table.update_entity(changed, mode=UpdateMode.MERGE)
        model["03", "07"] = {**model["03", "07"], **changed}
        other = {"PartitionKey": "10", "RowKey": "07", "Word": 7}
        table.update_entity(other, mode=UpdateMode.REPLACE)
        model["10", "07"] = other
        bare = {"PartitionKey": "20", "RowKey": "07"}
        table.submit_transaction(
            [
                ("update", bare, {"mode": UpdateMode.REPLACE}),
                ("create", {**bare, "RowKey": "new", "Word": "word 7"}),
                ("delete", {**bare, "RowKey": "99"}),
            ]
        )
        model["20", "07"] = bare
        model["20", "new"] = {**bare, "RowKey": "new", "Word": "word 7"}
        del model["20", "99"]
        assert len(with_word("word 7")) == 6
        for size in (None, 1, 4):
            assert found(table, "Word eq 'word 7'", results_per_page=size) == with_word("word 7")
        assert found(table, "Word eq 7") == [("10", "07")]
        assert look(server, require_index_consistency, None) == COUNT - 1
        table.delete_table()
        eventually(lambda: look(server, orphaned_records, None) == 0, "nothing is left")


def test_a_server_is_killed_during_a_build(server: Server) -> None:
    with table_service(server) as service:
        table = service.create_table(NAME)
        fill(table)
        assert found(table, "RowKey eq '07' and Number gt 5100") == [("51", "07")]
        eventually(lambda: "RowKey" in indexes(server), "the index is noted")
    server.kill()
    look(server, require_index_consistency, None)
    server.start()
    with table_service(server) as service:
        table = service.get_table_client(NAME)
        # The next query has it built completely.
        assert found(table, "RowKey eq '07' and Number gt 5100") == [("51", "07")]
        eventually(lambda: is_ready(server, "RowKey"), "the index is ready")
        assert look(server, require_index_consistency, None) == COUNT
        assert found(table, "RowKey eq '07' and Number lt 200") == [("00", "07"), ("01", "07")]
    server.stop()
    assert check(server.directory).returncode == 0


def test_queries_for_absent_properties_evict_no_index(server: Server) -> None:
    """Not even many of them, from a client with read permission only."""
    with table_service(server) as service:
        table = service.create_table(NAME)
        fill(table)
        token = generate_table_sas(
            AzureNamedKeyCredential(ACCOUNT, KEY),
            NAME,
            permission=TableSasPermissions(read=True),
            expiry=datetime.now(UTC) + timedelta(hours=1),
        )
        credential = AzureSasCredential(token)
        with TableClient(
            server.endpoints["table"] + f"/{ACCOUNT}", NAME, credential=credential
        ) as reader:
            for number in range(12):
                assert found(reader, f"Absent{number % 6} eq {number}") == []
        assert indexes(server) == {}
        assert len(found(table, "Word eq 'word 7'")) == 6
        eventually(lambda: is_ready(server, "Word"), "the index is ready")
        assert set(indexes(server)) == {"Word"}
