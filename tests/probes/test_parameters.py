"""Parameters that all services have: `timeout`, and `comp` and `restype` that no operation has."""

from __future__ import annotations

from typing import Any, Final

import pytest

from tests.probes.client import Request
from tests.probes.service import Operation, ServiceFixture
from tests.probes.services import SERVICES, each_service
from tests.server import ACCOUNT

PROPERTIES: Final = (("restype", "service"), ("comp", "properties"))
INVALID: Final = (400, "InvalidQueryParameterValue")
NO_VERB: Final = (405, "UnsupportedHttpVerb")


def details(document: bytes) -> str:
    """Returns the details of an error in XML, which follow its message."""
    return document.decode().partition("</Message>")[2].removesuffix("</Error>")


@each_service
@pytest.mark.parametrize("written", ["", "0", "1", "30", "2147483648"])
def test_numbers_as_timeouts(fixture: ServiceFixture[Any], service: str, written: str) -> None:
    del service
    fixture.send_as_owner(Request("GET", f"/{ACCOUNT}/", (*PROPERTIES, ("timeout", written))))


@each_service
@pytest.mark.parametrize("written", ["abc", "-1", "1.5", "30s", "%D9%A3", "9" * 19, "0x1E", "%00"])
def test_other_timeouts(fixture: ServiceFixture[Any], service: str, written: str) -> None:
    request = Request("GET", f"/{ACCOUNT}/", (*PROPERTIES, ("timeout", written)))
    answer = fixture.client.ask(fixture.sign_as_owner(request))
    assert (answer.status, answer.code) == INVALID
    assert b"<QueryParameterName>timeout</QueryParameterName>" in answer.body or service == "table"


CHANGES: Final = [
    next(operation for operation in service.operations if operation.changes_state)
    for service in SERVICES.values()
]


@pytest.mark.parametrize("operation", CHANGES, ids=str)
def test_requests_with_other_timeouts_change_nothing(
    fixture: ServiceFixture[Any], operation: Operation[Any]
) -> None:
    with fixture.target_for(operation) as target, fixture.unchanged():
        request = operation.request(target).asking(("timeout", "soon"))
        answer = fixture.ask(fixture.sign_as_owner(request))
        assert (answer.status, answer.code) == INVALID


@pytest.mark.parametrize(
    ("service", "method", "path", "query", "expected", "name", "value"),
    [
        # A request for the service itself without `comp`, as browsers send it.
        *(
            (service, method, "/", "", INVALID, "comp", "")
            for service in ("blob", "queue", "file")
            for method in ("GET", "PUT", "DELETE")
        ),
        ("blob", "GET", "/", "restype=service", INVALID, "comp", ""),
        ("file", "GET", "/", "comp=stats", INVALID, "comp", "stats"),
        ("blob", "GET", "/box", "restype=share", INVALID, "restype", "share"),
        ("blob", "GET", "/box", "restype=box&comp=list", INVALID, "restype", "box"),
        ("blob", "GET", "/box", "restype=container&comp=box", INVALID, "comp", "box"),
        ("blob", "PUT", "/box/b", "restype=container", INVALID, "restype", "container"),
        ("blob", "POST", "/box", "restype=container", NO_VERB, "", ""),
        ("blob", "POST", "/box/b", "", NO_VERB, "", ""),
        ("file", "GET", "/box", "restype=box", INVALID, "restype", "box"),
        ("file", "GET", "/box", "restype=share&comp=box", INVALID, "comp", "box"),
        ("file", "PUT", "/box/f", "restype=share", INVALID, "restype", "share"),
        ("file", "GET", "/box/f", "restype=service&comp=properties", INVALID, "restype", "service"),
        ("file", "POST", "/box", "restype=share", NO_VERB, "", ""),
        ("file", "POST", "/box/f", "restype=directory", NO_VERB, "", ""),
    ],
)
def test_requests_for_no_operation(
    fixture: ServiceFixture[Any],
    service: str,
    method: str,
    path: str,
    query: str,
    expected: tuple[int, str],
    name: str,
    value: str,
) -> None:
    del service
    pairs = tuple(pair.partition("=")[::2] for pair in query.split("&") if pair)
    answer = fixture.client.ask(Request(method, f"/{ACCOUNT}{path}", pairs))
    assert (answer.status, answer.code) == expected
    if name:
        shown = f"<QueryParameterValue>{value}</QueryParameterValue>"
        told = f"<QueryParameterName>{name}</QueryParameterName>"
        told += shown if value else "<QueryParameterValue />"
        assert details(answer.body).startswith(told), answer.body
