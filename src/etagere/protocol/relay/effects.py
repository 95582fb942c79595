"""When a relayed request can have changed something in the other cell."""

from __future__ import annotations

import enum
from typing import Final
from urllib.parse import parse_qsl

from etagere.protocol.http.messages import Request

_SAFE_METHODS: Final = frozenset({"GET", "HEAD", "OPTIONS"})
_NEED_BODY: Final = {
    ("blob", "PUT"): frozenset({"block", "blocklist", "appendblock", "page"}),
    ("queue", "POST"): frozenset({""}),
    ("table", "POST"): frozenset({""}),
    ("table", "PUT"): frozenset({""}),
    ("table", "MERGE"): frozenset({""}),
    ("table", "PATCH"): frozenset({""}),
    ("file", "PUT"): frozenset({"range"}),
}
"""Values of `comp`, by service and method, with which an operation reads all of a body before it
changes anything."""
_OTHER_OPERATION_HEADERS: Final = (b"x-ms-copy-source", b"x-http-method")
"""Headers that select another operation, which may ignore the body."""


class Effect(enum.Enum):
    """When a request can have changed something."""

    NONE = enum.auto()
    """Never, so it can be repeated."""
    AFTER_BODY = enum.auto()
    """Once the node has received all of its body."""
    AT_ONCE = enum.auto()
    """Once the node has received its head: the operation may ignore the body."""


def effect_of(service: str, request: Request) -> Effect:
    """Returns when a request can have an effect; the earliest time if it is not known."""
    if _is_safe(service, request):
        return Effect.NONE
    return Effect.AFTER_BODY if _needs_body(service, request) else Effect.AT_ONCE


def _is_safe(service: str, request: Request) -> bool:
    """Returns whether a request changes nothing. Get Messages hides the messages that it returns. A
    path with escapes may be one of Get Messages."""
    path = request.target.partition(b"?")[0].lower()
    may_hide_messages = service == "queue" and (b"/messages" in path or b"%" in path)
    return request.method in _SAFE_METHODS and not may_hide_messages


def _needs_body(service: str, request: Request) -> bool:
    fields = request.fields
    # Clearing a range has the same address as writing one, but is refused if a length is declared.
    if request.body.length is None or any(name in fields for name in _OTHER_OPERATION_HEADERS):
        return False
    query = request.target.partition(b"?")[2].decode("latin-1")
    sent = [(name.lower(), value) for name, value in parse_qsl(query, keep_blank_values=True)]
    comp = ",".join(value for name, value in sent if name == "comp")
    if comp in _NEED_BODY.get((service, request.method), ()):
        return True
    is_blob = service == "blob" and "restype" not in dict(sent)
    is_upload = request.method == "PUT" and fields.get(b"x-ms-blob-type") == b"BlockBlob"
    return is_blob and is_upload and not comp
