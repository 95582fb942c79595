"""Table tokens with key ranges: their holders change and see only entities within."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest
from azure.core.exceptions import HttpResponseError
from azure.data.tables import TableClient, TableServiceClient, UpdateMode

from tests.sdk.harness import refused
from tests.sdk.table.clients import row_keys, sas_client, table_token, unique_table
from tests.server import Server

PARTITIONS: Final = "abcde"
ROWS: Final = "123"

Action = Callable[[TableClient, dict[str, Any]], Any]
ACTIONS: Final[dict[str, Action]] = {
    "insert": lambda table, entity: table.create_entity(
        {**entity, "RowKey": entity["RowKey"] + "x"}
    ),
    "merge": lambda table, entity: table.update_entity(entity, mode=UpdateMode.MERGE),
    "replace": lambda table, entity: table.update_entity(entity, mode=UpdateMode.REPLACE),
    "upsert": lambda table, entity: table.upsert_entity(entity, mode=UpdateMode.REPLACE),
    "upsert by merge": lambda table, entity: table.upsert_entity(entity, mode=UpdateMode.MERGE),
    "delete": lambda table, entity: table.delete_entity(entity),
    "group": lambda table, entity: table.submit_transaction([("upsert", entity)]),
    "group of deletes": lambda table, entity: table.submit_transaction([("delete", entity)]),
}


@pytest.fixture(scope="module")
def letters(tables: TableServiceClient) -> Iterator[TableClient]:
    """Rows 1 to 3 of the partitions a to e."""
    table = tables.create_table(unique_table("Letters"))
    for partition in PARTITIONS:
        table.submit_transaction(
            [("create", {"PartitionKey": partition, "RowKey": row, "Age": 1}) for row in ROWS]
        )
    yield table
    table.delete_table()


def entity(partition: str, row: str) -> dict[str, Any]:
    return {"PartitionKey": partition, "RowKey": row, "Age": 2}


def test_changes(server: Server, table: TableClient) -> None:
    token = table_token(table.table_name, start_pk="b", start_rk="2", end_pk="d", end_rk="2x")
    with sas_client(server, table.table_name, token) as guest:
        for partition, row, within in (
            ("a", "3", False),
            ("b", "1", False),
            ("b", "2", True),
            ("c", "9", True),
            ("d", "2", True),
            ("d", "3", False),
            ("e", "1", False),
        ):
            for name, action in ACTIONS.items():
                table.upsert_entity({**entity(partition, row), "Age": 1}, mode=UpdateMode.REPLACE)
                before = [dict(each) for each in table.list_entities()]
                if within:
                    action(guest, entity(partition, row))
                    table.delete_entity(partition, f"{row}x")
                    continue
                with pytest.raises(HttpResponseError) as caught:
                    action(guest, entity(partition, row))
                assert caught.value.status_code == 403, (name, partition, row)
                assert [dict(each) for each in table.list_entities()] == before


@pytest.mark.parametrize(
    ("bounds", "expected"),
    [
        ({}, "a1 a2 a3 b1 b2 b3 c1 c2 c3 d1 d2 d3 e1 e2 e3"),
        ({"start_pk": "d"}, "d1 d2 d3 e1 e2 e3"),
        ({"end_pk": "b"}, "a1 a2 a3 b1 b2 b3"),
        ({"start_pk": "b", "end_pk": "b"}, "b1 b2 b3"),
        ({"start_pk": "d", "start_rk": "3"}, "d3 e1 e2 e3"),
        ({"end_pk": "b", "end_rk": "1"}, "a1 a2 a3 b1"),
        ({"start_pk": "b", "start_rk": "3", "end_pk": "d", "end_rk": "1"}, "b3 c1 c2 c3 d1"),
        ({"start_pk": "c", "start_rk": "2", "end_pk": "c", "end_rk": "2"}, "c2"),
        ({"start_pk": "c", "start_rk": "3", "end_pk": "c", "end_rk": "1"}, ""),
        ({"start_pk": "bb", "end_pk": "bc"}, ""),
    ],
)
def test_queries(
    server: Server, letters: TableClient, bounds: dict[str, str], expected: str
) -> None:
    reached = expected.split()
    token = table_token(letters.table_name, permission="r", **bounds)
    with sas_client(server, letters.table_name, token) as guest:
        for query in (None, "PartitionKey ge 'a'", "Age eq 1", "not (PartitionKey eq 'x')"):
            for size in (1, 2, 1_000):
                found = (
                    guest.query_entities(query, results_per_page=size)
                    if query
                    else guest.list_entities(results_per_page=size)
                )
                assert [each["PartitionKey"] + each["RowKey"] for each in found] == reached
        for partition in PARTITIONS:
            found = guest.query_entities(f"PartitionKey eq '{partition}'")
            in_it = [name for name in reached if name[0] == partition]
            assert [each["PartitionKey"] + each["RowKey"] for each in found] == in_it
            for row in ROWS:
                if partition + row in reached:
                    assert guest.get_entity(partition, row)["Age"] == 1
                else:
                    with refused(403, "AuthorizationFailure"):
                        guest.get_entity(partition, row)


@pytest.mark.parametrize(
    "bounds", [{"start_rk": "2"}, {"end_rk": "2"}, {"start_pk": "a", "end_rk": "2"}]
)
def test_a_row_key_bound_needs_a_partition_key(
    server: Server, letters: TableClient, bounds: dict[str, str]
) -> None:
    """There is no such token; ignoring the bound would grant more than intended."""
    token = table_token(letters.table_name, **bounds)
    with (
        sas_client(server, letters.table_name, token) as guest,
        refused(403, "AuthenticationFailed"),
    ):
        row_keys(guest)


def test_odd_bounds(server: Server, table: TableClient) -> None:
    keys = ["", " ", "'", "%", "&", "é", "\U0001f984"]
    for key in keys:
        table.create_entity({"PartitionKey": key, "RowKey": key})
    for key in keys[1:]:
        token = table_token(table.table_name, start_pk=key, start_rk=key, end_pk=key, end_rk=key)
        with sas_client(server, table.table_name, token) as guest:
            assert row_keys(guest) == [key]
            guest.update_entity({"PartitionKey": key, "RowKey": key, "Age": 1})
