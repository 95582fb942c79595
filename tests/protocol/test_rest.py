"""The REST layer that all services share: nested requests, and refusals as responses."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from etagere.auth.permissions import Permit
from etagere.auth.principal import Anonymous, KeyOwner, Principal, TokenHolder
from etagere.engine.interface import Refused
from etagere.engine.memory import MemoryEngine
from etagere.errors import Refusal
from etagere.protocol.http.messages import Request, RequestBody
from etagere.protocol.rest.exchange import Exchange
from etagere.protocol.rest.refusals import (
    error_form_of,
    error_response,
    unread_source,
    without_source_message,
)
from etagere.protocol.rest.service import Routed, Service
from etagere.protocol.table.refusals import ODATA_PART
from etagere.rules.conditions import NotModified
from etagere.telemetry.context import CLIENT
from tests.auth.callers import account_token
from tests.loops import in_event_loop
from tests.protocol.flows import CompleteBodyFlow

ACCOUNT = "devstoreaccount1"


def exchange(
    service: str = "blob", principal: Principal | None = None, version: str = "2024-05-04"
) -> Exchange:
    fields = {b"host": b"127.0.0.1:10000", b"x-ms-version": version.encode(), b"accept": b"a/b"}
    body = RequestBody(CompleteBodyFlow(), 0)
    made = Exchange(service, Request("GET", f"/{ACCOUNT}/box/blob".encode(), [], fields, body))
    made.principal, made.permit = principal or KeyOwner(ACCOUNT), Permit()
    return made


class NotingService(Service):
    """Notes the client of its requests, and refuses them."""

    name = "blob"
    client = ""

    def route(self, exchange: Exchange) -> Routed:
        self.client = CLIENT.get()
        raise Refused(Refusal("InvalidUri"))


@in_event_loop
async def test_what_a_request_does_is_done_for_its_client() -> None:
    parts: Any = SimpleNamespace(cells=None)
    service = NotingService(MemoryEngine(), parts, cast("Any", None))
    sent = exchange().http
    sent.client = "192.0.2.1"
    await service.handle(sent)
    assert service.client == "192.0.2.1"


# Nested requests


def test_a_nested_request_is_authorized_separately() -> None:
    outer = exchange()
    nested = outer.nested("DELETE", f"/{ACCOUNT}/box/other?snapshot=x", {"host": "elsewhere"})
    assert nested.request.resource == ("box", "other")
    assert nested.parameter("snapshot") == "x"
    assert nested.header("host") == outer.header("host")
    assert nested.header("accept") is None
    assert nested.version == outer.version
    assert nested.request_id != outer.request_id
    assert not hasattr(nested, "principal")
    assert not hasattr(nested, "permit")


def test_a_nested_request_of_the_same_sender_is_authorized() -> None:
    outer = exchange("table")
    nested = outer.nested("GET", f"{outer.request.path}?$top=1", {}, same_sender=True)
    assert nested.principal is outer.principal
    assert nested.permit is outer.permit
    assert nested.request_id == outer.request_id
    assert nested.parameter("$top") == "1"
    assert nested.request.account == ACCOUNT


def test_a_nested_request_may_have_another_host() -> None:
    host = f"{ACCOUNT}.blob.localhost"
    nested = exchange().nested("GET", "/box/blob", {}, host=host, scheme="https")
    assert nested.request.account == ACCOUNT
    assert nested.request.resource == ("box", "blob")
    assert (nested.header("host"), nested.request.scheme) == (host, "https")


# Refusals


def answer(asked: Exchange, refusal: Refusal) -> tuple[int, dict[bytes, bytes], bytes]:
    response = error_response(asked, refusal, error_form_of("blob", refusal))
    assert isinstance(response.body, bytes)
    return response.status, dict(response.headers), response.body


READER = account_token("r")
WRITER = account_token("w")


@pytest.mark.parametrize(
    ("principal", "shown"),
    [(KeyOwner(ACCOUNT), True), (READER, True), (WRITER, False), (Anonymous(ACCOUNT), True)],
)
def test_details_are_for_callers_who_may_read(principal: Principal, shown: bool) -> None:
    refusal = Refusal("ConditionNotMet", {"Current": "x"})
    status, headers, body = answer(exchange(principal=principal), refusal)
    assert status == 412
    assert headers[b"x-ms-error-code"] == b"ConditionNotMet"
    assert (b"<Current>x</Current>" in body) is shown


def test_tag_details_are_for_callers_who_may_read_tags() -> None:
    refusal = Refusal("ConditionNotMet", {"Condition": "x-ms-if-tags", "Current": "a=b"})
    readers: list[TokenHolder] = [READER, account_token("rt")]
    assert [b"a=b" in answer(exchange(principal=reader), refusal)[2] for reader in readers] == [
        False,
        True,
    ]


def test_not_modified_has_no_body() -> None:
    status, headers, body = answer(exchange(), NotModified("ConditionNotMet"))
    assert (status, body) == (304, b"")
    assert headers == {b"x-ms-error-code": b"ConditionNotMet"}


def test_a_refused_change_of_a_group_has_its_index() -> None:
    refusal = Refusal("EntityAlreadyExists")
    response = error_response(exchange("table"), refusal, ODATA_PART, operation_index=7)
    assert response.status == 409
    assert isinstance(response.body, bytes)
    assert b'"value":"7:' in response.body
    assert b"x-ms-error-code" not in dict(response.headers)
    assert response.reason == ""


@pytest.mark.parametrize(("status", "expected"), [(404, 404), (302, 400), (418, 400), (503, 500)])
def test_errors_of_the_copy_source_are_reported(status: int, expected: int) -> None:
    refusal = unread_source(status, "Broken", "It is broken.").refusal
    found, headers, body = answer(exchange(), refusal)
    assert found == expected
    assert headers[b"x-ms-copy-source-status-code"] == str(status).encode()
    assert headers[b"x-ms-copy-source-error-code"] == b"Broken"
    assert b"<Message>It is broken.\n" in body


def test_older_versions_get_no_details_of_the_source() -> None:
    refusal = unread_source(404, "BlobNotFound", "It is gone.").refusal
    _, headers, _ = answer(exchange(version="2023-11-03"), refusal)
    assert not [name for name in headers if name.startswith(b"x-ms-copy-source")]


def test_the_message_of_a_source_is_only_in_the_status_line() -> None:
    refusal = without_source_message(unread_source(404, "BlobNotFound", "It is gone.")).refusal
    response = error_response(exchange(), refusal, error_form_of("blob", refusal))
    assert response.reason == "It is gone."
    assert isinstance(response.body, bytes)
    assert b"<Message>It is gone." not in response.body
