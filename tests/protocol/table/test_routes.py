"""Every form of request leads to its operation; no other does."""

from __future__ import annotations

import json
from itertools import product
from typing import Final

import pytest

from etagere.engine.interface import Refused
from etagere.protocol.rest.exchange import Exchange
from tests.protocol.table.office import Office, request
from tests.server import ROOT

ENTITY: Final = "People(PartitionKey='p',RowKey='r')"
TABLE: Final = "Tables('People')"

# Method, address, headers, and the row of the table of permissions; "" is none.
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


def routed(office: Office, method: str, target: str, headers: dict[str, str]) -> str:
    """The operation that a request leads to, or the code of its refusal."""
    fields = {name.replace("-", "_"): value for name, value in headers.items()}
    exchange = Exchange("table", request(method, target, b"", **fields))
    try:
        return office.service.route(exchange).operation.name
    except Refused as refused:
        return refused.refusal.code


@pytest.mark.parametrize(("method", "target", "headers", "row"), FORMS)
def test_requests_lead_to_their_operations(
    office: Office, method: str, target: str, headers: dict[str, str], row: str
) -> None:
    assert routed(office, method, target, headers) == row


def test_every_operation_of_the_protocol_is_asked_for() -> None:
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
def test_what_nothing_does(office: Office, method: str, target: str) -> None:
    if (method, target) == ("HEAD", "People"):
        assert routed(office, method, target, {}) == "query_entities"
    elif target == TABLE and method in {"GET", "HEAD"}:
        # In no list of operations, but asked by those who want to know whether it exists.
        assert routed(office, method, target, {}) == "query_tables"
    else:
        assert routed(office, method, target, {}) == "UnsupportedHttpVerb"


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
def test_components_that_there_are_not(office: Office, method: str, target: str, comp: str) -> None:
    """A component is never passed over: what asks for one does not get something else."""
    for query in (f"comp={comp}", f"restype=service&comp={comp}"):
        assert routed(office, method, f"{target}?{query}", {}) == "InvalidQueryParameterValue"


# Methods inside of a POST


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "MERGE", "PATCH", "HEAD"])
def test_only_a_post_carries_another_method(office: Office, method: str) -> None:
    answer = office.ask(method, ENTITY, X_HTTP_Method="MERGE")
    assert answer.refusal == (400, "XMethodNotUsingPost")


@pytest.mark.parametrize("value", ["GET", "POST", "", "OPTIONS", "MERGE;x", "\xff"])
def test_methods_that_none_carries(office: Office, value: str) -> None:
    answer = office.ask("POST", ENTITY, b"{}", X_HTTP_Method=value)
    assert answer.refusal == (400, "XMethodIncorrectValue")


def test_one_method_at_a_time(office: Office) -> None:
    answer = office.ask("POST", ENTITY, b"{}", X_HTTP_Method="MERGE,DELETE")
    assert answer.refusal == (400, "XMethodIncorrectCount")


def test_a_method_inside_is_carried_out(office: Office) -> None:
    office.insert("p", "r", Age=36, Name="Ada")
    for value, body, expected in (
        ("MERGE", {"Age": 37}, {"Age": 37, "Name": "Ada"}),
        ("PUT", {"Age": 38}, {"Age": 38}),
    ):
        answer = office.ask("POST", ENTITY, body, X_HTTP_Method=value, If_Match="*")
        assert answer.status == 204
        shown = office.ask("GET", ENTITY, Accept="application/json;odata=nometadata").json()
        found = {name: shown[name] for name in ("Age", "Name") if name in shown}
        assert found == expected
    assert office.ask("POST", ENTITY, X_HTTP_Method="DELETE", If_Match="*").status == 204
    assert office.ask("GET", ENTITY).refusal == (404, "ResourceNotFound")
