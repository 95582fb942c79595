"""Decoding of requests to the queue service into commands."""

from __future__ import annotations

import base64
import binascii
import re
import uuid
from typing import Final

from etagere.engine.interface import Refused, abort_if, unwrap
from etagere.errors import Refusal
from etagere.model.queues import QueueName
from etagere.protocol.codecs import xml
from etagere.protocol.http.messages import BodyTooLarge
from etagere.protocol.rest.exchange import Exchange
from etagere.protocol.rest.requests import bad_parameter
from etagere.rules import queues

BODY_BYTES_MAX: Final = 8 * queues.TEXT_BYTES_MAX
"""Each character of a text may be sent as a character reference."""
_LIMITS: Final = xml.Limits(bytes_max=BODY_BYTES_MAX, elements_max=1_000, depth_max=16)
_RECEIPT_BYTES = 8
_NUMBER: Final = re.compile(r"-?[0-9]{1,1000}")
"""More digits than any valid number has, so that larger numbers are refused as out of range."""
# The form of almost every message: text without markup, references or non-ASCII characters. The
# parser handles the others.
_PLAIN: Final = re.compile(
    rb"(?:<\?xml version=['\"]1\.0['\"] encoding=['\"]utf-8['\"]\?>)?[\t\n\r ]*"
    rb"<QueueMessage>[\t\n\r ]*<MessageText>([\t\n\x20-\x25\x27-\x3b\x3d\x3f-\x7e]*)</MessageText>"
    rb"[\t\n\r ]*</QueueMessage>[\t\n\r ]*"
)


def queue_name(exchange: Exchange) -> QueueName:
    name, _ = exchange.request.resource
    abort_if(queues.check_queue_name(name))
    return QueueName(exchange.request.account, name)


def message_id(exchange: Exchange) -> bytes:
    """Returns the id of a message. An invalid id is that of no message."""
    _, below = exchange.request.resource
    try:
        return uuid.UUID(below.partition("/")[2]).bytes
    except ValueError:
        raise Refused(Refusal("MessageNotFound")) from None


def receipt(exchange: Exchange) -> int:
    written = exchange.parameter("popreceipt")
    if written is None:
        facts: dict[str, str | int] = {"QueryParameterName": "popreceipt"}
        raise Refused(Refusal("MissingRequiredQueryParameter", facts))
    try:
        decoded = base64.b64decode(written, validate=True)
    except (binascii.Error, ValueError):
        decoded = b""
    if len(decoded) != _RECEIPT_BYTES:
        raise bad_parameter("InvalidQueryParameterValue", "popreceipt", written)
    return int.from_bytes(decoded, "big")


def count(exchange: Exchange) -> int:
    found = _number(exchange, "numofmessages", 1)
    abort_if(queues.check_parameter("numofmessages", found, 1, queues.GET_COUNT_MAX))
    return found


def get_timeout_seconds(exchange: Exchange) -> int:
    """Returns the visibility timeout of Get Messages."""
    found = _number(exchange, "visibilitytimeout", queues.INVISIBLE_SECONDS_DEFAULT)
    most = queues.INVISIBLE_SECONDS_MAX
    abort_if(queues.check_parameter("visibilitytimeout", found, 1, most))
    return found


def update_timeout_seconds(exchange: Exchange) -> int:
    """Returns the visibility timeout of Update Message, which is required."""
    if not exchange.parameter("visibilitytimeout"):
        facts: dict[str, str | int] = {"QueryParameterName": "visibilitytimeout"}
        raise Refused(Refusal("MissingRequiredQueryParameter", facts))
    found = _number(exchange, "visibilitytimeout", 0)
    most = queues.INVISIBLE_SECONDS_MAX
    abort_if(queues.check_parameter("visibilitytimeout", found, 0, most))
    return found


def new_message_times(exchange: Exchange) -> tuple[int, int | None]:
    """Returns the visibility timeout and the TTL of a new message."""
    asked = _number(exchange, "messagettl", queues.TTL_SECONDS_DEFAULT)
    abort_if(queues.check_ttl(asked, exchange.version))
    lives = None if asked == queues.TTL_INFINITE else min(asked, queues.TTL_SECONDS_MAX)
    hidden = _number(exchange, "visibilitytimeout", 0)
    abort_if(queues.check_initial_timeout(hidden, lives))
    return hidden, lives


def _number(exchange: Exchange, name: str, default: int) -> int:
    written = exchange.parameter(name)
    if not written:
        return default
    if _NUMBER.fullmatch(written) is None:
        raise bad_parameter("InvalidQueryParameterValue", name, written)
    return int(written)


async def message_text(exchange: Exchange) -> str:
    text = await optional_text(exchange)
    if text is None:
        raise Refused(xml.invalid_document("There is no message."))
    return text


async def optional_text(exchange: Exchange) -> str | None:
    try:
        body = await exchange.http.body.read(BODY_BYTES_MAX)
    except BodyTooLarge:
        raise Refused(queues.too_large()) from None
    if not body:
        return None
    if (plain := _PLAIN.fullmatch(body)) is not None:
        text = plain[1].decode("ascii")
        abort_if(queues.check_text(text))
        return text
    root = unwrap(xml.read(body, "QueueMessage", _LIMITS))
    for child in root.children:
        if child.name == "MessageText":
            # Markup inside a text is dropped.
            abort_if(queues.check_text(child.text))
            return child.text
    raise Refused(Refusal("MissingRequiredXmlNode", {"XmlNodeName": "MessageText"}))
