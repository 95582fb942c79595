"""Encoding of the responses of the queue service."""

from __future__ import annotations

import base64
from collections.abc import Generator, Iterable, Sequence
from typing import Final

from etagere.auth.request import octets
from etagere.model.queues import Message, MessageResult, NamedQueue
from etagere.protocol.codecs import xml
from etagere.protocol.rest import requests
from etagere.protocol.rest.exchange import Exchange
from etagere.protocol.rest.metadata import metadata_element
from etagere.protocol.rest.responses import http_date
from etagere.rules.entities import format_guid

_NEVER = "Fri, 31 Dec 9999 23:59:59 GMT"


def receipt_text(message: Message) -> str:
    return base64.b64encode(message.receipt.to_bytes(8, "big")).decode()


def put(shown: MessageResult) -> bytes:
    row = _message(_times(shown) + _receipt(shown.message))
    return xml.document(f"<QueueMessagesList>{row}</QueueMessagesList>")


def taken(messages: Iterable[MessageResult]) -> Generator[None, None, bytes]:
    """Encodes messages in steps, since there may be several megabytes."""
    return _list(
        _times(shown) + _receipt(shown.message) + _count(shown.message) + _text(shown)
        for shown in messages
    )


def peeked(messages: Iterable[MessageResult]) -> Generator[None, None, bytes]:
    return _list(_times(shown) + _count(shown.message) + _text(shown) for shown in messages)


def _list(messages: Iterable[str]) -> Generator[None, None, bytes]:
    parts = [xml.document("<QueueMessagesList>")]
    for message in messages:
        parts.append(_message(message).encode())
        yield
    if len(parts) == 1:
        return xml.document("<QueueMessagesList />")
    parts.append(b"</QueueMessagesList>")
    return b"".join(parts)


def _message(content: str) -> str:
    return f"<QueueMessage>{content}</QueueMessage>"


def _times(shown: MessageResult) -> str:
    message = shown.message
    expires = _NEVER if message.expires is None else http_date(message.expires)
    return (
        f"<MessageId>{format_guid(shown.id)}</MessageId>"
        f"<InsertionTime>{http_date(message.inserted)}</InsertionTime>"
        f"<ExpirationTime>{expires}</ExpirationTime>"
    )


def _receipt(message: Message) -> str:
    return (
        f"<PopReceipt>{receipt_text(message)}</PopReceipt>"
        f"<TimeNextVisible>{http_date(message.visible)}</TimeNextVisible>"
    )


def _count(message: Message) -> str:
    return f"<DequeueCount>{message.taken}</DequeueCount>"


def _text(shown: MessageResult) -> str:
    return xml.element("MessageText", shown.text)


# Listings


_ECHOED: Final = {"prefix": "Prefix", "maxresults": "MaxResults", "marker": "Marker"}
"""Parameters that a listing repeats if they were sent, in the order of their elements."""


def queues_start(exchange: Exchange) -> str:
    sent = "".join(
        [
            xml.element(name, value)
            for parameter, name in _ECHOED.items()
            if (value := exchange.parameter(parameter)) is not None
        ]
    )
    endpoint = xml.escape_attribute(requests.endpoint(exchange))
    return f'{xml.DECLARATION}<EnumerationResults ServiceEndpoint="{endpoint}">{sent}<Queues>'


def queue_rows(queues: Sequence[NamedQueue], _now: int, *, include: set[str]) -> list[str]:
    with_metadata = "metadata" in include
    return [
        f"<Queue><Name>{name}</Name>"
        f"{metadata_element(queue.metadata) if with_metadata else ''}</Queue>"
        for name, queue in queues
    ]


def queues_end(following: NamedQueue | None) -> str:
    marker = "" if following is None else format_marker(following[0])
    return f"</Queues>{xml.element('NextMarker', marker)}</EnumerationResults>"


def format_marker(name: str) -> str:
    return base64.urlsafe_b64encode(octets(name)).decode()
