"""Every form of request is routed to its operation, and no other is."""

from __future__ import annotations

import json
from itertools import product
from typing import Final

import pytest

from etagere.engine.interface import Refused
from etagere.protocol.rest.exchange import Exchange
from tests.protocol.table.fixture import TableServiceFixture, request
from tests.server import ROOT

ENTITY: Final = "People(PartitionKey='p',RowKey='r')"
TABLE: Final = "Tables('People')"

# Method, path, headers, and the permission row; "" if none.
FORMS: Final[list[tuple[str, str, dict[str, str], str]]] = [
    ("GET", "?restype=service&comp=properties", {}, "get_table_service_properties"),
    ("PUT", "?restype=service&comp=properties", {}, "set_table_service_properties"),
    ("GET", "?restype=service&comp=stats", {}, "get_table_service_stats"),
    ("GET", "?comp=Properties", {}, "get_table_service_properties"),
    ("GET", "Tables", {}, "query_tables"),
    ("HEAD", "Tables()", {}, "query_tables"),
    ("POST", "Tables", {}, "create_table"),
    ("DELETE", TABLE, {}, "delete_table"),
    ("POST", TABLE, {"X-HTTP-Method": "DELETE"}, "delete_table"),
    ("GET", "People?comp=acl", {}, "get_table_acl"),
    ("HEAD", "People?comp=acl", {}, "get_table_acl"),
    ("PUT", "People?comp=ACL", {}, "set_table_acl"),
    ("GET", "People()", {}, "query_entities"),
    ("GET", "People", {}, "query_entities"),
    ("GET", ENTITY, {}, "query_entities"),
    ("HEAD", ENTITY, {}, "query_entities"),
    ("POST", "People", {}, "insert_entity"),
    ("POST", "People()", {"If-Match": "*"}, "insert_entity"),
    ("PUT", ENTITY, {"If-Match": "*"}, "update_entity"),
    ("PUT", ENTITY, {}, "insert_or_replace_entity"),
    ("MERGE", ENTITY, {"If-Match": "*"}, "merge_entity"),
    ("PATCH", ENTITY, {"If-Match": "*"}, "merge_entity"),
    ("MERGE", ENTITY, {}, "insert_or_merge_entity"),
    ("PATCH", ENTITY, {}, "insert_or_merge_entity"),
    ("DELETE", ENTITY, {"If-Match": "*"}, "delete_entity"),
    ("DELETE", ENTITY, {}, "delete_entity"),
    ("POST", ENTITY, {"X-HTTP-Method": "MERGE"}, "insert_or_merge_entity"),
    ("POST", ENTITY, {"X-HTTP-Method": "merge", "If-Match": "*"}, "merge_entity"),
    ("POST", ENTITY, {"X-HTTP-Method": "PATCH", "If-Match": "*"}, "merge_entity"),
    ("POST", ENTITY, {"X-HTTP-Method": "PUT", "If-Match": "*"}, "update_entity"),
    ("POST", ENTITY, {"X-HTTP-Method": "DELETE", "If-Match": "*"}, "delete_entity"),
    ("POST", "$batch", {}, "entity_group_transaction"),
]


def routed(tables: TableServiceFixture, method: str, target: str, headers: dict[str, str]) -> str:
    """Returns the operation of a request, or its error code."""
    fields = {name.replace("-", "_"): value for name, value in headers.items()}
    exchange = Exchange("table", request(method, target, b"", **fields))
    try:
        return tables.service.route(exchange).operation.name
    except Refused as refused:
        return refused.refusal.code


@pytest.mark.parametrize(("method", "target", "headers", "row"), FORMS)
def test_requests_are_routed_to_their_operations(
    tables: TableServiceFixture, method: str, target: str, headers: dict[str, str], row: str
) -> None:
    assert routed(tables, method, target, headers) == row


def test_every_operation_is_tested() -> None:
    rows = {row for _, _, _, row in FORMS}
    operations = json.loads((ROOT / "tests/data/operations.json").read_text("utf-8"))["table"]
    assert rows == operations.keys() - {"preflight_table_request"}


ADDRESSES: Final = ("", "Tables", TABLE, "People", ENTITY, "$batch")
METHODS: Final = ("GET", "HEAD", "POST", "PUT", "DELETE", "MERGE", "PATCH", "TRACE", "get")


@pytest.mark.parametrize(
    ("method", "target"),
    [
        pair
        for pair in product(METHODS, ADDRESSES)
        if pair not in {(method, target.removesuffix("()")) for method, target, _, _ in FORMS}
    ],
)
def test_unsupported_requests(tables: TableServiceFixture, method: str, target: str) -> None:
    if (method, target) == ("HEAD", "People"):
        assert routed(tables, method, target, {}) == "query_entities"
    elif target == TABLE and method in {"GET", "HEAD"}:
        # Undocumented, but sent by clients to check for existence.
        assert routed(tables, method, target, {}) == "query_tables"
    else:
        assert routed(tables, method, target, {}) == "UnsupportedHttpVerb"


COMPONENTS: Final = ("metadata", "lease", "list", "acl", "properties", "stats")
KNOWN: Final = {
    ("GET", "", "properties"),
    ("PUT", "", "properties"),
    ("GET", "", "stats"),
    ("GET", "People", "acl"),
    ("PUT", "People", "acl"),
}


@pytest.mark.parametrize(
    ("method", "target", "comp"),
    [
        form
        for form in product(("GET", "PUT", "POST", "DELETE", "MERGE"), ADDRESSES, COMPONENTS)
        if form not in KNOWN
    ],
)
def test_unknown_components(
    tables: TableServiceFixture, method: str, target: str, comp: str
) -> None:
    """A `comp` is never ignored: such a request does not become another operation."""
    for query in (f"comp={comp}", f"restype=service&comp={comp}"):
        assert routed(tables, method, f"{target}?{query}", {}) == "InvalidQueryParameterValue"


# Method override


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "MERGE", "PATCH", "HEAD"])
def test_only_post_can_override_the_method(tables: TableServiceFixture, method: str) -> None:
    answer = tables.ask(method, ENTITY, X_HTTP_Method="MERGE")
    assert answer.refusal == (400, "XMethodNotUsingPost")


@pytest.mark.parametrize("value", ["GET", "POST", "", "OPTIONS", "MERGE;x", "\xff"])
def test_invalid_method_overrides(tables: TableServiceFixture, value: str) -> None:
    answer = tables.ask("POST", ENTITY, b"{}", X_HTTP_Method=value)
    assert answer.refusal == (400, "XMethodIncorrectValue")


def test_repeated_method_overrides(tables: TableServiceFixture) -> None:
    answer = tables.ask("POST", ENTITY, b"{}", X_HTTP_Method="MERGE,DELETE")
    assert answer.refusal == (400, "XMethodIncorrectCount")


def test_method_override(tables: TableServiceFixture) -> None:
    tables.insert("p", "r", Age=36, Name="Ada")
    for value, body, expected in (
        ("MERGE", {"Age": 37}, {"Age": 37, "Name": "Ada"}),
        ("PUT", {"Age": 38}, {"Age": 38}),
    ):
        answer = tables.ask("POST", ENTITY, body, X_HTTP_Method=value, If_Match="*")
        assert answer.status == 204
        shown = tables.ask("GET", ENTITY, Accept="application/json;odata=nometadata").json()
        found = {name: shown[name] for name in ("Age", "Name") if name in shown}
        assert found == expected
    assert tables.ask("POST", ENTITY, X_HTTP_Method="DELETE", If_Match="*").status == 204
    assert tables.ask("GET", ENTITY).refusal == (404, "ResourceNotFound")
