"""Responses of the queue service, parsed by a standard XML parser."""

from __future__ import annotations

import base64
import uuid
from typing import Final
from urllib.parse import quote
from xml.etree import ElementTree

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from etagere.clock import TICKS_PER_SECOND
from etagere.model.queues import Message, MessageResult, Queue
from etagere.protocol.queue import encode
from etagere.protocol.time_slices import run_at_once
from tests.protocol.queue.exchanges import exchange

ID: Final = uuid.UUID("5f6a9c52-8b0e-4f4e-9e76-3a7e3f1e2d10")
NEW_YEAR: Final = 1_767_225_600 * TICKS_PER_SECOND
MESSAGE: Final = Message(
    inserted=NEW_YEAR,
    expires=NEW_YEAR + 7 * 24 * 3600 * TICKS_PER_SECOND,
    # Dates are in whole seconds.
    visible=NEW_YEAR + 31 * TICKS_PER_SECOND - 1,
    receipt=0x0102030405060708,
    text="text",
    taken=3,
)
TIMES: Final = {
    "MessageId": str(ID),
    "InsertionTime": "Thu, 01 Jan 2026 00:00:00 GMT",
    "ExpirationTime": "Thu, 08 Jan 2026 00:00:00 GMT",
}
RECEIPT: Final = {
    "PopReceipt": "AQIDBAUGBwg=",
    "TimeNextVisible": "Thu, 01 Jan 2026 00:00:30 GMT",
}


def shown(text: str = "text", message: Message = MESSAGE) -> MessageResult:
    return MessageResult(ID.bytes, msgspec.structs.replace(message, text=text))


def read(document: bytes) -> list[dict[str, str]]:
    """Returns the elements of each message in order."""
    root = ElementTree.fromstring(document)
    assert root.tag == "QueueMessagesList"
    assert {child.tag for child in root} <= {"QueueMessage"}
    return [{element.tag: element.text or "" for element in child} for child in root]


def test_elements_by_operation() -> None:
    assert read(encode.put(shown())) == [TIMES | RECEIPT]
    result = {"DequeueCount": "3", "MessageText": "text"}
    assert read(run_at_once(encode.taken([shown()]))) == [TIMES | RECEIPT | result]
    assert read(run_at_once(encode.peeked([shown()]))) == [TIMES | result]


def test_the_order_of_the_elements() -> None:
    names = [list(message) for message in read(run_at_once(encode.taken([shown()] * 2)))]
    assert names == [[*TIMES, *RECEIPT, "DequeueCount", "MessageText"]] * 2


def test_no_messages() -> None:
    assert read(run_at_once(encode.taken([]))) == read(run_at_once(encode.peeked([]))) == []


def test_messages_that_never_expire() -> None:
    for_ever = Message(NEW_YEAR, None, NEW_YEAR, 1, "text")
    (result,) = read(encode.put(shown(message=for_ever)))
    assert result["ExpirationTime"] == "Fri, 31 Dec 9999 23:59:59 GMT"


def test_receipts_are_as_long_as_a_stamp() -> None:
    for number in (0, 1, 2**64 - 1):
        message = Message(NEW_YEAR, None, NEW_YEAR, number, "text")
        decoded = base64.b64decode(encode.receipt_text(message), validate=True)
        assert decoded == number.to_bytes(8, "big")


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("<a>&amp;", b"&lt;a&gt;&amp;amp;"),
        ("]]>", b"]]&gt;"),
        ("\"'", b"\"'"),
        ("a\r\n\tb", b"a&#13;\n\tb"),
        (" text ", b" text "),
        ("été 🦄", "été 🦄".encode()),
    ],
)
def test_escapes(text: str, written: bytes) -> None:
    for document in (
        run_at_once(encode.taken([shown(text)])),
        run_at_once(encode.peeked([shown(text)])),
    ):
        assert b"<MessageText>" + written + b"</MessageText>" in document
        assert read(document)[0]["MessageText"] == text


@given(
    st.text(
        st.characters(
            codec="utf-8",
            exclude_characters="\ufffe\uffff",
            exclude_categories=("Cs", "Cc"),
            include_characters="\t\n\r<>&\"'",
        )
    )
)
def test_texts_round_trip(text: str) -> None:
    assert read(run_at_once(encode.taken([shown(text)])))[0]["MessageText"] == text


# Listings


def page(*queues: tuple[str, Queue], **parameters: str) -> ElementTree.Element:
    name = parameters.pop("next_marker", "")
    following = (name, Queue(b"")) if name else None
    query = "&".join(f"{parameter}={quote(value)}" for parameter, value in parameters.items())
    start = encode.queues_start(exchange(query, method="GET"))
    rows = encode.queue_rows(queues, 0, include={"metadata"})
    return ElementTree.fromstring(f"{start}{''.join(rows)}{encode.queues_end(following)}")


def test_a_page_of_queues() -> None:
    root = page(("one", Queue(b"")), ("two", Queue(b"", (("Colour", "<red>"), ("Empty", "")))))
    assert root.tag == "EnumerationResults"
    assert root.get("ServiceEndpoint") == "http://localhost/shelf/"
    assert [child.tag for child in root] == ["Queues", "NextMarker"]
    assert [queue.findtext("Name") for queue in root.iter("Queue")] == ["one", "two"]
    described = [{e.tag: e.text or "" for e in found} for found in root.iter("Metadata")]
    assert described == [{}, {"Colour": "<red>", "Empty": ""}]


def test_a_page_without_metadata() -> None:
    queues = [("one", Queue(b"", (("Colour", "red"),)))]
    assert encode.queue_rows(queues, 0, include=set()) == ["<Queue><Name>one</Name></Queue>"]


def test_a_page_repeats_the_request_and_has_a_marker() -> None:
    root = page(prefix="<a>", maxresults="9999", marker="Ym94LTI=", next_marker="box-4")
    result = {child.tag: child.text for child in root if not len(child)}
    assert list(result) == ["Prefix", "MaxResults", "Marker", "Queues", "NextMarker"]
    assert (result["Prefix"], result["MaxResults"], result["Marker"]) == ("<a>", "9999", "Ym94LTI=")
    assert base64.urlsafe_b64decode(result["NextMarker"] or "") == b"box-4"
    assert [child.tag for child in page(prefix="")] == ["Prefix", "Queues", "NextMarker"]


def test_empty_elements_are_one_tag() -> None:
    end = b"<Queues /><NextMarker /></EnumerationResults>"
    assert run_at_once(encode.taken([])).endswith(b"?><QueueMessagesList />")
    assert b"<MessageText />" in run_at_once(encode.peeked([shown("")]))
    assert encode.queues_end(None).encode().endswith(end.removeprefix(b"<Queues />"))
    assert "<Metadata />" in encode.queue_rows([("one", Queue(b""))], 0, include={"metadata"})[0]
