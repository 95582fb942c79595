"""The bodies of errors: one row and one refusal, in the form that each service's clients read.

    blob, queue, file   XML      details as elements after Message
    table               OData    details beside the error; XML for what is no entity or table
    dfs                 JSON     details in detail

A refusal's facts are shown only if the caller may see them, which whoever knows the caller says.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, NamedTuple

import msgspec

from etagere.errors import Refusal
from etagere.protocol.codecs import xml
from etagere.rules.dates import format_instant

XML_TYPE: Final = "application/xml"
ODATA_TYPE: Final = "application/json;odata=minimalmetadata;streaming=true;charset=utf-8"
JSON_TYPE: Final = "application/json;charset=utf-8"

_DETAIL_CHARACTERS_MAX = 1024
"""Facts repeat what a client sent, which may be long."""
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_.-]")
_NOT_FIRST_IN_NAMES = re.compile(r"[0-9.-]+|xml", re.IGNORECASE)
_TAKEN: Final = frozenset({"Code", "Message"})


class Occasion(NamedTuple):
    """What the edge adds to a refusal: whose it was, and when."""

    request_id: str
    now: int
    """Ticks since 1970."""
    shows_details: bool = False
    """Whether the caller may see what the refusal is based on."""
    operation_index: int | None = None
    """Which operation of a change set failed; tables put it before the message."""


def encode_xml(refusal: Refusal, occasion: Occasion) -> bytes:
    details = "".join(xml.element(*detail) for detail in _details(refusal, occasion).items())
    return xml.document(
        f"<Error>{xml.element('Code', refusal.code)}"
        f"{xml.element('Message', _message(refusal, occasion))}{details}</Error>"
    )


def encode_odata(refusal: Refusal, occasion: Occasion) -> bytes:
    message = _message(refusal, occasion)
    if occasion.operation_index is not None:
        message = f"{occasion.operation_index}:{message}"
    error = {"code": refusal.code, "message": {"lang": "en-US", "value": message}}
    answer: dict[str, object] = {"odata.error": error}
    # Beside the error: Microsoft's client for Python takes none that has more members than these.
    details = _details(refusal, occasion)
    if details:
        answer["details"] = details
    return msgspec.json.encode(answer)


def encode_table_xml(refusal: Refusal, occasion: Occasion) -> bytes:
    """The form of the table service for requests that are no OData. It has no details, but for
    those who sign requests: they are told what was to be signed."""
    details = ""
    if refusal.code in AUTHENTICATION_CODES and (facts := _details(refusal, occasion)):
        elements = "".join(xml.element(f"m:{name}", fact) for name, fact in facts.items())
        details = f"<m:innererror>{elements}</m:innererror>"
    message = xml.escape(_message(refusal, occasion))
    return xml.document(
        f'<m:error xmlns:m="{_ODATA_NAMESPACE}">{xml.element("m:code", refusal.code)}'
        f'<m:message xml:lang="en-US">{message}</m:message>{details}</m:error>'
    )


AUTHENTICATION_CODES: Final = frozenset(
    {"AuthenticationFailed", "InvalidAuthenticationInfo", "NoAuthenticationInformation"}
)
"""Refusals of requests whose sender is not known."""
_ODATA_NAMESPACE: Final = "http://schemas.microsoft.com/ado/2007/08/dataservices/metadata"


def encode_json(refusal: Refusal, occasion: Occasion) -> bytes:
    error: dict[str, object] = {"code": refusal.code, "message": _message(refusal, occasion)}
    details = _details(refusal, occasion)
    if details:
        error["detail"] = details
    return msgspec.json.encode({"error": error})


Encoder = Callable[[Refusal, Occasion], bytes]

BY_SERVICE: Final[dict[str, tuple[str, Encoder]]] = {
    "blob": (XML_TYPE, encode_xml),
    "queue": (XML_TYPE, encode_xml),
    "file": (XML_TYPE, encode_xml),
    "table": (ODATA_TYPE, encode_odata),
    "dfs": (JSON_TYPE, encode_json),
}
"""The Content-Type of each service's errors, and what encodes them."""


def _message(refusal: Refusal, occasion: Occasion) -> str:
    return _text(
        f"{refusal.message}\nRequestId:{occasion.request_id}\nTime:{format_instant(occasion.now)}"
    )


def _details(refusal: Refusal, occasion: Occasion) -> dict[str, str]:
    if not occasion.shows_details:
        return {}
    return {
        detail_name(name): _text(str(fact)[:_DETAIL_CHARACTERS_MAX])
        for name, fact in refusal.facts.items()
    }


def detail_name(name: str) -> str:
    """A fact's name as that of an element, which may have fewer characters."""
    name = _NOT_IN_NAMES.sub("", name)
    while (first := _NOT_FIRST_IN_NAMES.match(name)) is not None:
        name = name[first.end() :]
    return f"Detail{name}" if not name or name in _TAKEN else name


def _text(text: str) -> str:
    """Half of a surrogate pair has no UTF-8."""
    return text if text.isascii() else text.encode(errors="replace").decode()
