"""A queue service under attack: its owner prepares what is attacked, and looks whether it has
changed."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from typing import Final
from xml.etree import ElementTree

from tests.probes.client import Answer, Client, Request, shared_key
from tests.sdk.queue.forms import MESSAGE, Form, Place
from tests.server import ACCOUNT, KEY, SECOND_ACCOUNT, SECOND_KEYS, Server, unique

OWNERS: Final = {
    ACCOUNT: shared_key(ACCOUNT, KEY),
    SECOND_ACCOUNT: shared_key(SECOND_ACCOUNT, SECOND_KEYS[0]),
}
# What differs between two answers that say the same.
_OF_THE_MOMENT: Final = {"date", "x-ms-request-id"}


class Sentry:
    """The owner's side of a probe."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.client = Client(server.endpoints["queue"])

    def own(self, request: Request, account: str = ACCOUNT) -> Answer:
        """What the owner asks for is given."""
        answer = self.client.ask(OWNERS[account](request))
        assert answer.status < 300, (request, answer)
        return answer

    def make(self, account: str = ACCOUNT) -> Place:
        name = unique("probe")
        self.own(Request("PUT", f"/{account}/{name}"), account)
        put = Request(
            "POST", f"/{account}/{name}/messages", body=MESSAGE.replace(b"another", b"one")
        )
        told = ElementTree.fromstring(self.own(put, account).body)
        message, receipt = (
            told.findtext(f"QueueMessage/{tag}") or "" for tag in ("MessageId", "PopReceipt")
        )
        return Place(name, message, receipt, account)

    def remove(self, place: Place) -> None:
        """Whatever was done to it meanwhile."""
        for name in (place.queue, place.free):
            delete = Request("DELETE", f"/{place.account}/{name}")
            self.client.ask(OWNERS[place.account](delete))

    @contextlib.contextmanager
    def place_for(self, form: Form) -> Iterator[Place]:
        place = self.make()
        try:
            yield place
        finally:
            self.remove(place)
            if form.row == "set_queue_service_properties":
                usual = form.body.replace(b"true", b"false")
                self.own(replace(form.request(place), body=usual))

    # What is there

    @contextlib.contextmanager
    def unchanged(self) -> Iterator[None]:
        """Everything is afterwards as it was before."""
        before = self.dump()
        assert any(name.endswith("/messages") for name in before), "there is something to change"
        yield
        assert self.dump() == before

    def dump(self) -> dict[str, object]:
        return {
            f"/{account}{name}": found
            for account in OWNERS
            for name, found in self._account(account)
        }

    def _account(self, account: str) -> Iterator[tuple[str, object]]:
        path = f"/{account}/"
        properties = Request("GET", path, (("restype", "service"), ("comp", "properties")))
        yield "", self.own(properties, account).body
        page = self.own(Request("GET", path, (("comp", "list"),)), account).body
        yield "/queues", page
        for found in ElementTree.fromstring(page).iter("Queue"):
            name = found.findtext("Name") or ""
            for comp in ("metadata", "acl"):
                shown = self.own(Request("GET", f"{path}{name}", (("comp", comp),)), account)
                yield f"/{name}/{comp}", _lasting(shown)
            peek = (("peekonly", "true"), ("numofmessages", "32"))
            messages = Request("GET", f"{path}{name}/messages", peek)
            yield f"/{name}/messages", self.own(messages, account).body


def _lasting(answer: Answer) -> tuple[dict[str, str], bytes]:
    headers = {name: value for name, value in answer.headers.items() if name not in _OF_THE_MOMENT}
    return headers, answer.body
