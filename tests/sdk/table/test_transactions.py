"""Entity group transactions through the SDK."""

from __future__ import annotations

from typing import Any, Final

import pytest
from azure.core import MatchConditions
from azure.data.tables import (
    RequestTooLargeError,
    TableClient,
    TableServiceClient,
    TableTransactionError,
    UpdateMode,
)

from tests.sdk.harness import error_code
from tests.sdk.table.clients import row_keys, sas_client, table_token
from tests.server import Server

Operation = tuple[Any, ...]


def keys(row: str, partition: str = "p", **values: Any) -> dict[str, Any]:
    return {"PartitionKey": partition, "RowKey": row, **values}


def failing(table: TableClient, *operations: Operation) -> TableTransactionError:
    with pytest.raises(TableTransactionError) as caught:
        table.submit_transaction(operations)
    return caught.value


def test_every_operation(table: TableClient) -> None:
    for row in "bcdefg":
        table.create_entity(keys(row, Old=1))
    etag = table.get_entity("p", "c").metadata["etag"]
    result = table.submit_transaction(
        [
            ("create", keys("a", New=1)),
            ("update", keys("b", New=1), {"mode": UpdateMode.MERGE}),
            (
                "update",
                keys("c", New=1),
                {
                    "mode": UpdateMode.REPLACE,
                    "etag": etag,
                    "match_condition": MatchConditions.IfNotModified,
                },
            ),
            ("upsert", keys("d", New=1), {"mode": UpdateMode.MERGE}),
            ("upsert", keys("e", New=1), {"mode": UpdateMode.REPLACE}),
            ("upsert", keys("h", New=1)),
            ("delete", keys("f")),
        ]
    )
    found = {entity["RowKey"]: entity for entity in table.list_entities()}
    assert {row: ("Old" in entity, "New" in entity) for row, entity in found.items()} == {
        "a": (False, True),
        "b": (True, True),
        "c": (False, True),
        "d": (True, True),
        "e": (False, True),
        "g": (True, False),
        "h": (False, True),
    }
    etags = [each.get("etag") for each in result]
    assert etags == [*(found[row].metadata["etag"] for row in "abcdeh"), None]


NOT_THERE: Final = ("update", keys("missing"))
TAKEN: Final = ("create", keys("taken"))
STALE: Final = (
    "delete",
    keys("taken"),
    {
        "etag": "W/\"datetime'2000-01-01T00%3A00%3A00.0000000Z'\"",
        "match_condition": MatchConditions.IfNotModified,
    },
)
TOO_LONG: Final = ("create", keys("long", Value="x" * 32_769))


@pytest.mark.parametrize(
    ("operation", "status", "code"),
    [
        (NOT_THERE, 404, "ResourceNotFound"),
        (TAKEN, 409, "EntityAlreadyExists"),
        (STALE, 412, "UpdateConditionNotSatisfied"),
        (TOO_LONG, 400, "PropertyValueTooLarge"),
    ],
)
@pytest.mark.parametrize("at", [0, 1, 99])
def test_transactions_are_atomic(
    table: TableClient, operation: Operation, status: int, code: str, at: int
) -> None:
    table.create_entity(keys("taken"))
    operations: list[Operation] = [("create", keys(f"{row:02}")) for row in range(99)]
    operations.insert(at, operation)
    error = failing(table, *operations)
    assert (error.status_code, error_code(error), error.index) == (status, code, at)
    assert row_keys(table) == ["taken"]


def test_an_entity_occurs_once(table: TableClient) -> None:
    error = failing(table, ("create", keys("a")), ("create", keys("b")), ("delete", keys("a")))
    assert (error_code(error), error.index) == ("InvalidDuplicateRow", 2)
    assert row_keys(table) == []


def test_at_most_100_operations(table: TableClient) -> None:
    table.submit_transaction([("create", keys(f"{row:03}")) for row in range(100)])
    assert len(row_keys(table)) == 100
    with pytest.raises(Exception, match="InvalidInput"):
        table.submit_transaction([("delete", keys(f"{row:03}")) for row in range(101)])
    assert len(row_keys(table)) == 100


def test_at_most_4_mib(table: TableClient) -> None:
    long = {"A": "x" * 32_768, "B": "y" * 32_768}
    table.submit_transaction([("create", keys(f"{row:03}", **long)) for row in range(60)])
    with pytest.raises(RequestTooLargeError):
        table.submit_transaction([("upsert", keys(f"x{row:03}", **long)) for row in range(70)])
    assert len(row_keys(table, select=["RowKey"])) == 60


def test_transactions_with_a_table_token(server: Server, table: TableClient) -> None:
    """A table token is enough for a group of allowed operations."""
    table.create_entity(keys("a"))
    with sas_client(server, table.table_name, table_token(table.table_name)) as guest:
        guest.submit_transaction([("create", keys("b")), ("update", keys("a", Age=36))])
    assert row_keys(table) == ["a", "b"]
    token = table_token(table.table_name, permission="a")
    with sas_client(server, table.table_name, token) as guest:
        guest.submit_transaction([("create", keys("c"))])
        error = failing(guest, ("create", keys("d")), ("delete", keys("a")))
        assert error_code(error) == "AuthorizationPermissionMismatch"
        assert (error.status_code, error.index) == (403, 1)
    token = table_token(table.table_name, start_pk="p", start_rk="m", end_pk="p", end_rk="x")
    with sas_client(server, table.table_name, token) as guest:
        guest.submit_transaction([("create", keys("m")), ("create", keys("x"))])
        error = failing(guest, ("create", keys("n")), ("delete", keys("a")))
        assert (error.status_code, error_code(error), error.index) == (
            403,
            "AuthorizationFailure",
            1,
        )
    assert row_keys(table) == ["a", "b", "c", "m", "x"]


def test_a_token_for_another_table(
    server: Server, tables: TableServiceClient, table: TableClient
) -> None:
    other = tables.create_table(f"{table.table_name}other")
    with sas_client(server, other.table_name, table_token(table.table_name)) as guest:
        error = failing(guest, ("create", keys("a")))
        assert (error.status_code, error_code(error)) == (403, "AuthorizationFailure")
    assert row_keys(other) == []
    other.delete_table()
