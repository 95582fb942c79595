"""A table service under attack: its owner prepares what is attacked, and looks whether it has
changed."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator
from dataclasses import replace
from http import HTTPStatus
from typing import Final

from tests.probes import judgement
from tests.probes.client import Answer, Client, Request
from tests.protocol.table.batches import PartAnswer, answers_in
from tests.sdk.table.clients import unique_table
from tests.sdk.table.forms import JSON, Form, Place, table_key
from tests.server import ACCOUNT, KEY, ROOT, SECOND_ACCOUNT, SECOND_KEYS, Server

OWNERS: Final = {
    ACCOUNT: table_key(ACCOUNT, KEY),
    SECOND_ACCOUNT: table_key(SECOND_ACCOUNT, SECOND_KEYS[0]),
}
CODES: Final[dict[str, int]] = json.loads((ROOT / "tests/data/error_codes.json").read_text("utf-8"))


class Sentry:
    """The owner's side of a probe."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.client = Client(server.endpoints["table"])

    def own(self, request: Request, account: str = ACCOUNT) -> Answer:
        """What the owner asks for is given."""
        answer = self.client.ask(OWNERS[account](request))
        assert answer.status < 300, (request, answer)
        return answer

    def make(self, account: str = ACCOUNT) -> Place:
        name = unique_table("Probe")
        table = json.dumps({"TableName": name}).encode()
        self.own(Request("POST", f"/{account}/Tables", (), (JSON,), table), account)
        entity = b'{"PartitionKey":"p","RowKey":"r","Age":36}'
        self.own(Request("POST", f"/{account}/{name}", (), (JSON,), entity), account)
        return Place(name, account)

    def remove(self, place: Place) -> None:
        """Whatever was done to it meanwhile."""
        for name in (place.table, place.free):
            delete = Request("DELETE", f"/{place.account}/Tables('{name}')")
            self.client.ask(OWNERS[place.account](delete))

    @contextlib.contextmanager
    def place_for(self, form: Form) -> Iterator[Place]:
        place = self.make()
        try:
            yield place
        finally:
            self.remove(place)
            if form.row == "set_table_service_properties":
                usual = form.body.replace(b"true", b"false")
                self.own(replace(form.request(place), body=usual))

    # What is there

    @contextlib.contextmanager
    def unchanged(self) -> Iterator[None]:
        """Everything is afterwards as it was before."""
        before = self.dump()
        assert any(b'"Age":36' in shown for shown in before.values()), (
            "there is something to change"
        )
        yield
        assert self.dump() == before

    def dump(self) -> dict[str, bytes]:
        return {
            f"/{account}{name}": found
            for account in OWNERS
            for name, found in self._account(account)
        }

    def _account(self, account: str) -> Iterator[tuple[str, bytes]]:
        path = f"/{account}/"
        properties = Request("GET", path, (("restype", "service"), ("comp", "properties")))
        yield "", self.own(properties, account).body
        page = self.own(Request("GET", f"{path}Tables"), account).body
        yield "/tables", page
        for table in json.loads(page)["value"]:
            name = table["TableName"]
            for request in (
                Request("GET", f"{path}{name}", (("comp", "acl"),)),
                Request("GET", f"{path}{name}()"),
            ):
                yield f"/{name}{request.target}", self.own(request, account).body


# Whether an answer is as it should be


def outcome(answer: Answer) -> Answer:
    """The answer itself, or that to the only part of a group."""
    if answer.status != 202 or not answer.body:
        return answer
    (told,) = answers_in(answer.headers["content-type"], answer.body)
    return _whole(told)


def _whole(told: PartAnswer) -> Answer:
    code = {"x-ms-error-code": told.code} if told.status >= 400 else {}
    return Answer(told.status, {**told.headers, **code}, told.body)


_NOT_IMPLEMENTED: Final = f"status {HTTPStatus.NOT_IMPLEMENTED.value}"
"""What query options are answered with that the service does not have: no failure of ours."""


def faults(answer: Answer, *, head: bool) -> Iterator[str]:
    """What is wrong with the answer to a request that could be read."""
    # What the others' errors are written in is not what ours are.
    for fault in judgement.faults(answer, head=True):
        if fault != _NOT_IMPLEMENTED:
            yield fault
    if answer.status >= 400:
        if CODES.get(answer.code) != answer.status:
            yield f"{answer.status} {answer.code}"
        if not head:
            yield from _faults_of_error(answer)
    if answer.status == 202 and answer.body:
        for told in answers_in(answer.headers["content-type"], answer.body):
            if told.status >= 500 and told.status != HTTPStatus.NOT_IMPLEMENTED:
                yield f"status {told.status} inside of a group"
            if told.status >= 400 and CODES.get(told.code) != told.status:
                yield f"{told.status} {told.code} inside of a group"


def faults_unreadable(answers: list[Answer]) -> Iterator[str]:
    """What is wrong with the answers to bytes that may be a request, several or none."""
    for answer in answers:
        if answer.status >= 500 and answer.status not in judgement.UNREADABLE:
            yield f"status {answer.status}"
        if answer.status >= 400:
            yield from _faults_of_error(answer)


def _faults_of_error(answer: Answer) -> Iterator[str]:
    if answer.headers.get("content-type") == "application/xml":
        named = re.search(rb"<m:error xmlns:m=.*<m:code>(.*)</m:code>", answer.body)
        if named is None or named[1].decode() != answer.headers.get("x-ms-error-code"):
            yield f"a body that explains nothing: {answer.body[:200]!r}"
        return
    try:
        error = json.loads(answer.body)["odata.error"]
        told = error["code"], error["message"]["lang"], error["message"]["value"]
    except (ValueError, KeyError, TypeError):
        yield f"a body that explains nothing: {answer.body[:200]!r}"
        return
    if not all(told) or (answer.code and told[0] != answer.code):
        yield f"{told[0]} in the body and {answer.code} in the head"
    if not answer.headers.get("content-type", "").startswith("application/json;odata="):
        yield f"an error of type {answer.headers.get('content-type')}"
