"""Queues to attack, and a dump of everything in the queue service."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar
from xml.etree import ElementTree

from tests.probes.client import Request
from tests.probes.queue.operations import MESSAGE, QueueTarget
from tests.probes.service import SCHEMES, ServiceFixture, lasting
from tests.server import ACCOUNT, unique


class QueueFixture(ServiceFixture[QueueTarget]):
    """The owner's side of a probe of the queue service."""

    service: ClassVar[str] = "queue"
    schemes = SCHEMES

    def create(self, account: str = ACCOUNT) -> QueueTarget:
        name = unique("probe")
        self.send_as_owner(Request("PUT", f"/{account}/{name}"), account)
        put = Request(
            "POST", f"/{account}/{name}/messages", body=MESSAGE.replace(b"another", b"one")
        )
        response = ElementTree.fromstring(self.send_as_owner(put, account).body)
        message, receipt = (
            response.findtext(f"QueueMessage/{tag}") or "" for tag in ("MessageId", "PopReceipt")
        )
        return QueueTarget(name, message, receipt, account)

    def remove(self, target: QueueTarget) -> None:
        for name in (target.queue, target.free):
            delete = Request("DELETE", f"/{target.account}/{name}")
            self.client.ask(self.sign_as_owner(delete, target.account))

    def set_policies(self, target: QueueTarget, document: bytes) -> None:
        path = f"/{target.account}/{target.queue}"
        request = Request("PUT", path, (("comp", "acl"),), (), document)
        self.send_as_owner(request, target.account)

    def dump_resources(self, account: str) -> Iterator[tuple[str, object]]:
        path = f"/{account}/"
        page = self.send_as_owner(Request("GET", path, (("comp", "list"),)), account).body
        yield "/queues", page
        for queue in ElementTree.fromstring(page).iter("Queue"):
            name = queue.findtext("Name") or ""
            for comp in ("metadata", "acl"):
                answer = self.send_as_owner(
                    Request("GET", f"{path}{name}", (("comp", comp),)), account
                )
                yield f"/{name}/{comp}", lasting(answer)
            peek = (("peekonly", "true"), ("numofmessages", "32"))
            messages = Request("GET", f"{path}{name}/messages", peek)
            yield f"/{name}/messages", self.send_as_owner(messages, account).body
