"""The bodies of errors, in the form of each service.

    blob, queue, file   XML      details as elements after Message
    table               OData    details beside the error; XML for what is no entity or table
    dfs                 JSON     details in detail

The details of a refusal are included only if the caller may see them, which the caller of this
module decides.
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
"""Details repeat what a client sent, which may be long."""
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_.-]")
_NOT_FIRST_IN_NAMES = re.compile(r"[0-9.-]+|xml", re.IGNORECASE)
_TAKEN: Final = frozenset({"Code", "Message"})


class ErrorContext(NamedTuple):
    """The context of an error: the request and the time."""

    request_id: str
    now: int
    """Ticks since 1970."""
    shows_details: bool = False
    """Whether the caller may see the details of the refusal."""
    operation_index: int | None = None
    """The operation of a change set that failed; tables prefix the message with it."""


def encode_xml(refusal: Refusal, context: ErrorContext) -> bytes:
    details = "".join(xml.element(*detail) for detail in _details(refusal, context).items())
    return xml.document(
        f"<Error>{xml.element('Code', refusal.code)}"
        f"{xml.element('Message', _message(refusal, context))}{details}</Error>"
    )


def encode_odata(refusal: Refusal, context: ErrorContext) -> bytes:
    message = _message(refusal, context)
    if context.operation_index is not None:
        message = f"{context.operation_index}:{message}"
    error = {"code": refusal.code, "message": {"lang": "en-US", "value": message}}
    answer: dict[str, object] = {"odata.error": error}
    # Outside of the error: Microsoft's Python SDK accepts no other members in it.
    details = _details(refusal, context)
    if details:
        answer["details"] = details
    return msgspec.json.encode(answer)


def encode_table_xml(refusal: Refusal, context: ErrorContext) -> bytes:
    """Encodes an error of the table service for requests that are not OData. It has details only
    for authentication failures, such as the string to sign."""
    details = ""
    if refusal.code in AUTHENTICATION_CODES and (facts := _details(refusal, context)):
        elements = "".join(xml.element(f"m:{name}", fact) for name, fact in facts.items())
        details = f"<m:innererror>{elements}</m:innererror>"
    message = xml.escape(_message(refusal, context))
    return xml.document(
        f'<m:error xmlns:m="{_ODATA_NAMESPACE}">{xml.element("m:code", refusal.code)}'
        f'<m:message xml:lang="en-US">{message}</m:message>{details}</m:error>'
    )


AUTHENTICATION_CODES: Final = frozenset(
    {"AuthenticationFailed", "InvalidAuthenticationInfo", "NoAuthenticationInformation"}
)
"""The codes of authentication failures."""
_ODATA_NAMESPACE: Final = "http://schemas.microsoft.com/ado/2007/08/dataservices/metadata"


def encode_json(refusal: Refusal, context: ErrorContext) -> bytes:
    error: dict[str, object] = {"code": refusal.code, "message": _message(refusal, context)}
    details = _details(refusal, context)
    if details:
        error["detail"] = details
    return msgspec.json.encode({"error": error})


Encoder = Callable[[Refusal, ErrorContext], bytes]

BY_SERVICE: Final[dict[str, tuple[str, Encoder]]] = {
    "blob": (XML_TYPE, encode_xml),
    "queue": (XML_TYPE, encode_xml),
    "file": (XML_TYPE, encode_xml),
    "table": (ODATA_TYPE, encode_odata),
    "dfs": (JSON_TYPE, encode_json),
}
"""The Content-Type and the encoder of the errors of each service."""


def _message(refusal: Refusal, context: ErrorContext) -> str:
    return _text(
        f"{refusal.message}\nRequestId:{context.request_id}\nTime:{format_instant(context.now)}"
    )


def _details(refusal: Refusal, context: ErrorContext) -> dict[str, str]:
    if not context.shows_details:
        return {}
    return {
        detail_name(name): _text(str(fact)[:_DETAIL_CHARACTERS_MAX])
        for name, fact in refusal.facts.items()
    }


def detail_name(name: str) -> str:
    """Returns the name of a detail as a valid XML element name."""
    name = _NOT_IN_NAMES.sub("", name)
    while (first := _NOT_FIRST_IN_NAMES.match(name)) is not None:
        name = name[first.end() :]
    return f"Detail{name}" if not name or name in _TAKEN else name


def _text(text: str) -> str:
    """Replaces lone surrogates, which have no UTF-8 form."""
    return text if text.isascii() else text.encode(errors="replace").decode()
