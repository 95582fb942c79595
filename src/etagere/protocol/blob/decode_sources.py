"""Decoding of what only copies of blobs, and uploads of blobs from URLs, have."""

from __future__ import annotations

from etagere.engine.interface import Refused
from etagere.errors import Refusal
from etagere.protocol.rest.exchange import Exchange
from etagere.protocol.rest.requests import invalid_header


def copies_properties(exchange: Exchange) -> bool:
    """Returns whether properties that the request does not set are copied from the source."""
    name = "x-ms-copy-source-blob-properties"
    written = exchange.header(name)
    if written is None or written.lower() == "true":
        return True
    if written.lower() != "false":
        raise invalid_header(name, written)
    return False


def copies_tags(exchange: Exchange) -> bool:
    """Returns whether the tags of the source are copied, instead of those in the request."""
    name = "x-ms-copy-source-tag-option"
    written = exchange.header(name)
    if written is None or written.lower() == "replace":
        return False
    if written.lower() != "copy":
        raise invalid_header(name, written)
    if exchange.header("x-ms-tags"):
        raise Refused(Refusal("BothUserTagsAndSourceTagsCopyPresentException"))
    return True


def seals(exchange: Exchange) -> bool | None:
    """Returns whether to seal the copy; None: like the source."""
    name = "x-ms-seal-blob"
    written = exchange.header(name)
    if written is None:
        return None
    if written.lower() not in ("true", "false"):
        raise invalid_header(name, written)
    return written.lower() == "true"
