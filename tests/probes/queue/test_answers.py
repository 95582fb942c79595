"""Responses of the queue service, as recorded."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final
from urllib.parse import quote
from xml.etree import ElementTree

import pytest

from tests.probes.client import Answer, Client, Request, shared_key
from tests.server import ACCOUNT, KEY, Server, served, unique

_sign = shared_key(ACCOUNT, KEY)
_MESSAGE: Final = re.compile(r"<MessageId>([^<]+)</MessageId>.*?<PopReceipt>([^<]+)</PopReceipt>")
_MALFORMED: Final = ("", "x", "AAAA", "A" * 40, "=====", "%00", "%C3%A9", "AgAAAAMAAAAAAAAA")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    directory: Path = tmp_path_factory.mktemp("queue-answers") / "data"
    with served(directory, "--workers", "1") as started:
        yield started
        assert started.stop() == 0
        assert "Traceback" not in started.log()


class Queue:
    """A queue of its own for a test, on a connection of its own."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self.name = unique("queue")

    def ask(
        self,
        method: str,
        below: str = "",
        *query: tuple[str, str],
        body: str = "",
        headers: tuple[tuple[str, str], ...] = (),
        account: bool = False,
    ) -> Answer:
        path = f"/{ACCOUNT}" if account else f"/{ACCOUNT}/{self.name}{below}"
        versioned = (("x-ms-version", "2021-02-12"), *headers)
        return self._client.ask(_sign(Request(method, path, query, versioned, body.encode())))

    def put(self, text: str = "text", *query: tuple[str, str]) -> Answer:
        body = f"<QueueMessage><MessageText>{text}</MessageText></QueueMessage>"
        answer = self.ask("POST", "/messages", *query, body=body)
        assert answer.status == 201, answer
        return answer

    def get(self, count: int = 1) -> list[tuple[str, str]]:
        """Gets messages, which stay hidden for a minute, and returns their ids and receipts."""
        query = (("numofmessages", str(count)), ("visibilitytimeout", "60"))
        return ids_and_receipts(self.ask("GET", "/messages", *query))

    def delete(self, message_id: str, receipt: str) -> Answer:
        return self.ask("DELETE", f"/messages/{message_id}", ("popreceipt", receipt))

    def update(self, message_id: str, receipt: str) -> Answer:
        query = (("popreceipt", receipt), ("visibilitytimeout", "60"))
        return self.ask("PUT", f"/messages/{message_id}", *query)


def ids_and_receipts(answer: Answer) -> list[tuple[str, str]]:
    """Returns ids and receipts of the messages, the receipts percent-encoded for a query."""
    pairs = _MESSAGE.findall(answer.body.decode())
    return [(message_id, quote(receipt, safe="")) for message_id, receipt in pairs]


@pytest.fixture
def queue(server: Server) -> Iterator[Queue]:
    with Client(server.endpoints["queue"]) as client:
        queue = Queue(client)
        assert queue.ask("PUT").status == 201
        yield queue
        queue.ask("DELETE")


# Receipts


@pytest.mark.parametrize("receipt", _MALFORMED)
def test_malformed_receipts(queue: Queue, receipt: str) -> None:
    ((message_id, good),) = ids_and_receipts(queue.put())
    for answer in (queue.delete(message_id, receipt), queue.update(message_id, receipt)):
        assert (answer.status, answer.code) == (400, "InvalidQueryParameterValue")
        assert answer.error()["QueryParameterName"] == "popreceipt"
    assert queue.delete(message_id, good).status == 204


def test_outdated_receipts(queue: Queue) -> None:
    ((message_id, first),) = ids_and_receipts(queue.put())
    assert queue.update(message_id, first).status == 204
    for answer in (queue.delete(message_id, first), queue.update(message_id, first)):
        assert (answer.status, answer.code) == (404, "MessageNotFound")


def test_a_receipt_is_valid_for_the_messages_of_its_get(queue: Queue) -> None:
    """Messages of one Get share a receipt; every Get has its own."""
    for text in ("a", "b", "c"):
        queue.put(text)
    (first, receipt), (second, same) = queue.get(2)
    assert receipt == same
    ((third, other),) = queue.get(1)
    assert other != receipt
    for answer in (queue.delete(third, receipt), queue.update(first, other)):
        assert (answer.status, answer.code) == (404, "MessageNotFound")
    for message_id, its_receipt in ((first, receipt), (second, receipt), (third, other)):
        assert queue.delete(message_id, its_receipt).status == 204


# Queues and messages


def test_metadata_names_are_compared_without_case(queue: Queue) -> None:
    def create(*metadata: tuple[str, str]) -> int:
        pairs = tuple((f"x-ms-meta-{name}", value) for name, value in metadata)
        return queue.ask("PUT", headers=pairs).status

    assert queue.ask("PUT", "", ("comp", "metadata"), headers=(("x-ms-meta-Colour", "Red"),))
    assert create(("colour", "Red")) == create(("COLOUR", "Red")) == 204
    assert create(("colour", "red")) == create() == 409
    assert create(("colour", "Red"), ("size", "1")) == 409


@pytest.mark.parametrize("seconds", ["2147483648", "99999999999", str(2**63 - 1), str(10**30)])
def test_a_long_time_to_live_is_capped(queue: Queue, seconds: str) -> None:
    message = ElementTree.fromstring(queue.put("text", ("messagettl", seconds)).body)
    capped = ElementTree.fromstring(queue.put("text", ("messagettl", str(2**31 - 1))).body)
    years = [(root.findtext(".//ExpirationTime") or "").split()[3] for root in (message, capped)]
    assert years[0] == years[1]
    assert years[0] != "9999"


def test_a_message_that_is_too_large(queue: Queue) -> None:
    for length in (65_537, 600_000):
        body = f"<QueueMessage><MessageText>{'x' * length}</MessageText></QueueMessage>"
        answer = queue.ask("POST", "/messages", body=body)
        assert (answer.status, answer.code) == (413, "RequestBodyTooLarge")
        assert answer.error()["MaxLimit"] == "65536"


def test_a_text_that_xml_cannot_carry(queue: Queue) -> None:
    body = "<?xml version='1.0' encoding='utf-8'?>\n<QueueMessage><MessageText>\x01"
    answer = queue.ask("POST", "/messages", body=f"{body}</MessageText></QueueMessage>")
    assert (answer.status, answer.code) == (400, "InvalidXmlDocument")
    error = answer.error()
    assert (error["LineNumber"], error["LinePosition"]) == ("2", "28")
    assert error["Reason"] == "Error parsing Xml content"


# Formats of responses


def test_responses_to_reads_are_not_cached(queue: Queue) -> None:
    service = (("restype", "service"), ("comp", "properties"))
    queue.put()
    for answer in (
        queue.ask("GET", "", *service, account=True),
        queue.ask("GET", "", ("comp", "list"), account=True),
        queue.ask("GET", "", ("comp", "metadata")),
        queue.ask("HEAD", "", ("comp", "metadata")),
        queue.ask("GET", "", ("comp", "acl")),
        queue.ask("GET", "/messages", ("peekonly", "true")),
        queue.ask("GET", "/messages"),
    ):
        assert (answer.status, answer.headers.get("cache-control")) == (200, "no-cache")
    for answer in (
        queue.ask("PUT", "", ("comp", "metadata")),
        queue.ask("PUT", "", ("comp", "acl")),
        queue.put(),
        queue.ask("DELETE", "/messages"),
        queue.ask("GET", "/messages", ("numofmessages", "0")),
    ):
        assert "cache-control" not in answer.headers


def test_a_listing_repeats_the_parameters(queue: Queue) -> None:
    def elements(*query: tuple[str, str]) -> dict[str, str]:
        answer = queue.ask("GET", "", ("comp", "list"), *query, account=True)
        assert answer.status == 200
        root = ElementTree.fromstring(answer.body)
        return {child.tag: child.text or "" for child in root}

    assert list(elements()) == ["Queues", "NextMarker"]
    marker = base64.urlsafe_b64encode(queue.name.encode()).decode()
    query = (("prefix", queue.name), ("maxresults", "7"), ("marker", quote(marker, safe="")))
    assert elements(*query) == {
        "Prefix": queue.name,
        "MaxResults": "7",
        "Marker": marker,
        "Queues": "",
        "NextMarker": "",
    }


def test_empty_elements_are_one_tag(queue: Queue) -> None:
    no_match = ("prefix", "no-such-queue")
    page = queue.ask("GET", "", ("comp", "list"), no_match, account=True).body
    assert page.endswith(
        b"<Prefix>no-such-queue</Prefix><Queues /><NextMarker /></EnumerationResults>"
    )
    own_prefix = ("prefix", queue.name)
    page = queue.ask(
        "GET", "", ("comp", "list"), own_prefix, ("include", "metadata"), account=True
    ).body
    assert b"<Metadata /></Queue></Queues><NextMarker /></EnumerationResults>" in page
    assert queue.ask("GET", "/messages").body.endswith(b"?><QueueMessagesList />")
    queue.put("")
    assert b"<MessageText />" in queue.ask("GET", "/messages").body
