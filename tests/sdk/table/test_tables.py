"""Tables: create, list, delete, recreate and policies."""

from __future__ import annotations

import pytest
from azure.data.tables import TableAccessPolicy, TableClient, TableServiceClient

from tests.sdk.harness import HOUR, ResponseRecorder, now, refused
from tests.sdk.table.clients import row_keys, unique_table


def test_create_twice(tables: TableServiceClient) -> None:
    name = unique_table("Made")
    table = tables.get_table_client(name)
    answer = ResponseRecorder()
    assert table.create_table(raw_response_hook=answer).name == name
    assert answer.status in {201, 204}
    for again in (name, name.upper(), name.lower()):
        with refused(409, "TableAlreadyExists"):
            tables.create_table(again)
        assert tables.create_table_if_not_exists(again).table_name == again
    assert [found.name for found in tables.query_tables(f"TableName eq '{name}'")] == [name]
    tables.get_table_client(name.lower()).delete_table(raw_response_hook=answer)
    assert answer.status == 204


def test_delete_and_recreate(table: TableClient) -> None:
    for number in range(5):
        table.create_entity({"PartitionKey": "p", "RowKey": str(number)})
        table.delete_table()
        with refused(404, "TableNotFound"):
            row_keys(table)
        table.create_table()
        assert row_keys(table) == []


def test_a_missing_table(tables: TableServiceClient) -> None:
    table = tables.get_table_client(unique_table("Missing"))
    entity = {"PartitionKey": "p", "RowKey": "r"}
    for call in (
        lambda: row_keys(table),
        lambda: table.get_entity("p", "r"),
        lambda: table.create_entity(entity),
        lambda: table.upsert_entity(entity),
        lambda: table.update_entity(entity),
        lambda: table.submit_transaction([("create", entity)]),
    ):
        with refused(404, "TableNotFound"):
            call()
    # Addressed by name, a table is a resource.
    with refused(404, "ResourceNotFound"):
        table.get_table_access_policy()
    with refused(404, "ResourceNotFound"):
        table.set_table_access_policy({})
    # The SDK reports that nothing was left to do.
    answer = ResponseRecorder()
    table.delete_table(raw_response_hook=answer)
    assert answer.status == 404


@pytest.mark.parametrize("name", ["a-b", "1ab", "café", "ab", "a" * 64])
def test_invalid_names(tables: TableServiceClient, name: str) -> None:
    # The SDK raises its own error for these, if the response has the service's message.
    with pytest.raises(ValueError, match="names must"):
        tables.create_table(name)


def test_the_reserved_name(tables: TableServiceClient) -> None:
    with refused(400, "InvalidResourceName"):
        tables.create_table("tables")


def test_lists(tables: TableServiceClient) -> None:
    prefix = unique_table("Listed")
    names = [f"{prefix}{letter}" for letter in "aBcDe"]
    for name in reversed(names):
        tables.create_table(name)
    query = f"TableName ge '{prefix}' and TableName lt '{prefix}zz'"
    for size in (1, 2, 5, 1_000):
        pages = tables.query_tables(query, results_per_page=size).by_page()
        found = [[table.name for table in page] for page in pages]
        assert [name for page in found for name in page] == sorted(names, key=str.lower)
        assert all(0 < len(page) <= size for page in found)
    assert set(names) <= {table.name for table in tables.list_tables()}
    parameters = {"name": names[0]}
    assert len(list(tables.query_tables("TableName eq @name", parameters=parameters))) == 1
    for name in names:
        tables.delete_table(name)
    assert list(tables.query_tables(query)) == []


# Policies


def test_policies_round_trip(table: TableClient) -> None:
    start, expiry = now().replace(microsecond=0), now().replace(microsecond=0) + HOUR
    full = TableAccessPolicy(start=start, expiry=expiry, permission="raud")
    table.set_table_access_policy({"full": full, "empty": TableAccessPolicy(), "none": None})
    found = table.get_table_access_policy()
    assert set(found) == {"full", "empty", "none"}
    kept = found["full"]
    assert kept is not None
    assert (kept.permission, kept.start, kept.expiry) == ("raud", start, expiry)
    table.set_table_access_policy({})
    assert table.get_table_access_policy() == {}


def test_at_most_five_policies(table: TableClient) -> None:
    table.set_table_access_policy({str(number): None for number in range(5)})
    with pytest.raises(ValueError, match="Too many"):
        table.set_table_access_policy({str(number): None for number in range(6)})
    assert len(table.get_table_access_policy()) == 5
