"""Key ranges of tokens: their holders change and see only entities within, in every form of
request."""

from __future__ import annotations

import json
from itertools import product
from typing import Final

import pytest

from etagere.auth.principal import EntityRange, TokenHolder, TokenKind
from tests.protocol.table.batches import part, single_query
from tests.protocol.table.fixture import ACCOUNT, TableServiceFixture, sas_caller

REFUSED: Final = (403, "AuthorizationFailure")
LACKING: Final = (403, "AuthorizationPermissionMismatch")

# From row 2 of partition b to row 2 of partition d.
REACH: Final = EntityRange("b", "2", "d", "2")
WITHIN: Final = (("b", "2"), ("b", "3"), ("c", "1"), ("c", "3"), ("d", "1"), ("d", "2"))
WITHOUT: Final = (("a", "2"), ("b", "1"), ("b", ""), ("d", "3"), ("e", "2"), ("", ""))


def address(keys: tuple[str, str], table: str = "People") -> str:
    return "{}(PartitionKey='{}',RowKey='{}')".format(table, *keys)


@pytest.fixture
def kept(tables: TableServiceFixture) -> TableServiceFixture:
    for partition in "abcde":
        tables.insert(partition, *"123", Age=36)
    return tables


CHANGES: Final = {
    "replace": ("PUT", "*"),
    "merge": ("MERGE", "*"),
    "upsert": ("PUT", ""),
    "upsert by merge": ("PATCH", ""),
    "delete": ("DELETE", "*"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_changes_inside_and_outside_the_range(kept: TableServiceFixture, name: str) -> None:
    method, if_match = CHANGES[name]
    headers = {"If_Match": if_match} if if_match else {}
    body = b"" if method == "DELETE" else b'{"Age":37}'
    before = kept.ask("GET", "People()").json()
    with kept.as_caller(sas_caller(keys=REACH)):
        for keys in WITHOUT:
            assert kept.ask(method, address(keys), body, **headers).refusal == REFUSED
            (response,) = kept.group(part(method, f"/{address(keys)}", body, **headers))
            assert (response.status, response.code, response.operation) == (*REFUSED, 0)
    assert kept.ask("GET", "People()").json() == before
    with kept.as_caller(sas_caller(keys=REACH)):
        for keys in WITHIN:
            assert kept.ask(method, address(keys), body, **headers).status == 204


def test_inserts_inside_and_outside_the_range(tables: TableServiceFixture) -> None:
    with tables.as_caller(sas_caller(keys=REACH)):
        for partition, row in WITHOUT:
            entity = {"PartitionKey": partition, "RowKey": row}
            assert tables.ask("POST", "People", entity).refusal == REFUSED
            (response,) = tables.group(part("POST", "/People", entity))
            assert (response.status, response.code) == REFUSED
        for partition, row in WITHIN:
            tables.insert(partition, row)
    assert len(tables.rows()) == len(WITHIN)


def test_one_change_outside_refuses_the_group(kept: TableServiceFixture) -> None:
    with kept.as_caller(sas_caller(keys=REACH)):
        (response,) = kept.group(
            part("DELETE", f"/{address(('b', '2'))}", If_Match="*"),
            part("DELETE", f"/{address(('b', '1'))}", If_Match="*"),
        )
        assert (response.status, response.code, response.operation) == (*REFUSED, 1)
    assert len(kept.rows()) == 15


def test_reads_inside_and_outside_the_range(kept: TableServiceFixture) -> None:
    with kept.as_caller(sas_caller(keys=REACH)):
        for keys in WITHOUT:
            assert kept.ask("GET", address(keys)).refusal == REFUSED
            (response,) = kept.batch(single_query(part("GET", f"/{address(keys)}")))
            assert (response.status, response.code) == REFUSED
        for keys in WITHIN:
            assert kept.ask("GET", address(keys)).status == 200
            (response,) = kept.batch(single_query(part("GET", f"/{address(keys)}")))
            assert response.status == 200


RANGES: Final = (
    EntityRange(),
    REACH,
    EntityRange("b"),
    EntityRange(None, None, "b"),
    EntityRange("b", "2"),
    EntityRange(None, None, "d", "2"),
    EntityRange("c", "2", "c", "2"),
    EntityRange("c", "3", "c", "1"),
    EntityRange("d", None, "b"),
)
FILTERS: Final = (
    "",
    "PartitionKey eq 'a'",
    "PartitionKey eq 'c'",
    "PartitionKey ge 'b' and RowKey eq '1'",
    "RowKey eq '2' or Age eq 36",
    "not (PartitionKey eq 'c')",
)


def _holds(key_limits: EntityRange, keys: tuple[str, str]) -> bool:
    """States the rule independently: both ends are included, and rows bound only their own
    partition."""
    partition, row = keys
    start, start_row, end, end_row = (
        key_limits.start_partition,
        key_limits.start_row,
        key_limits.end_partition,
        key_limits.end_row,
    )
    after = start is None or (partition, row) >= (start, start_row or "")
    before = end is None or partition < end or (partition == end and row <= (end_row or row))
    return after and before


@pytest.mark.parametrize("key_limits", RANGES, ids=repr)
def test_queries_return_entities_inside_the_range(
    kept: TableServiceFixture, key_limits: EntityRange
) -> None:
    all_keys = list(product("abcde", "123"))
    for text in FILTERS:
        query = f"People()?$filter={text.replace(' ', '%20')}" if text else "People()"
        all_of_them = [
            (each["PartitionKey"], each["RowKey"])
            for each in kept.ask("GET", query).json()["value"]
        ]
        assert set(all_of_them) <= set(all_keys)
        with kept.as_caller(sas_caller("r", keys=key_limits)):
            answer = kept.ask("GET", query)
            (inside,) = kept.batch(single_query(part("GET", f"/{query}")))
        for body in (answer.body, inside.body):
            found = [(e["PartitionKey"], e["RowKey"]) for e in json.loads(body)["value"]]
            assert found == [keys for keys in all_of_them if _holds(key_limits, keys)], text


def test_continuation_tokens_do_not_leave_the_range(kept: TableServiceFixture) -> None:
    with kept.as_caller(sas_caller("r", keys=REACH)):
        first = kept.ask("GET", "People()?$top=2")
        # Continuation tokens of the owner, from before and after the range.
    ends = [kept.ask("GET", f"People()?$top={count}").headers for count in (1, 14)]
    with kept.as_caller(sas_caller("r", keys=REACH)):
        for headers in (first.headers, *ends):
            partition = headers["x-ms-continuation-nextpartitionkey"]
            row = headers["x-ms-continuation-nextrowkey"]
            answer = kept.ask("GET", f"People()?NextPartitionKey={partition}&NextRowKey={row}")
            found = [(e["PartitionKey"], e["RowKey"]) for e in answer.json()["value"]]
            assert all(_holds(REACH, keys) for keys in found)


# Permissions


@pytest.mark.parametrize("letters", ["r", "a", "u", "d", "au", "ra"])
def test_each_part_needs_its_own_permission(kept: TableServiceFixture, letters: str) -> None:
    parts = {
        "a": part("POST", "/People", {"PartitionKey": "a", "RowKey": "new"}),
        "u": part("MERGE", f"/{address(('a', '1'))}", {"Age": 37}, If_Match="*"),
        "au": part("MERGE", f"/{address(('a', '2'))}", {"Age": 37}),
        "d": part("DELETE", f"/{address(('a', '3'))}", If_Match="*"),
    }
    with kept.as_caller(sas_caller(letters)):
        for needed, request in parts.items():
            (response,) = kept.group(request)
            if set(needed) <= set(letters):
                assert response.status < 300
            else:
                assert (response.status, response.code, response.operation) == (*LACKING, 0)
        (queried,) = kept.batch(single_query(part("GET", "/People()")))
        if "r" in letters:
            assert queried.status == 200
        else:
            assert (queried.status, queried.code) == LACKING


def test_a_part_for_another_table(kept: TableServiceFixture) -> None:
    kept.ask("POST", "Tables", {"TableName": "Others"})
    entity = {"PartitionKey": "a", "RowKey": "1"}
    with kept.as_caller(sas_caller()):
        (response,) = kept.group(part("POST", "/Others", entity))
        assert (response.status, response.code) == REFUSED
        (response,) = kept.batch(single_query(part("GET", "/Others()")))
        assert (response.status, response.code) == REFUSED
    assert kept.rows(table="Others") == []


def test_a_token_of_an_account_for_one_service(kept: TableServiceFixture) -> None:
    holder = TokenHolder(
        account=ACCOUNT,
        kind=TokenKind.ACCOUNT,
        version="2019-02-02",
        permissions="a",
        services="t",
        resource_types="o",
    )
    with kept.as_caller(holder):
        entity = {"PartitionKey": "a", "RowKey": "new"}
        (response,) = kept.group(part("POST", "/People", entity))
        assert response.status == 201
        (response,) = kept.group(part("DELETE", f"/{address(('a', '1'))}", If_Match="*"))
        assert (response.status, response.code) == LACKING
