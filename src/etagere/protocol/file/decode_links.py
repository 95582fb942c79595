"""Decoding of requests about links: the text of a symbolic link, and the target of a hard link."""

from __future__ import annotations

from typing import Final
from urllib.parse import unquote_to_bytes

from etagere.auth.request import is_text, octets
from etagere.protocol.file import decode
from etagere.protocol.rest.exchange import Exchange
from etagere.protocol.rest.requests import invalid_header, required_header
from etagere.protocol.sources import addresses
from etagere.rules.posix import LINK_TEXT_BYTES_MAX

_TEXT_HEADER: Final = "x-ms-link-text"
_TARGET_HEADER: Final = "x-ms-file-target-file"


def link_text(exchange: Exchange) -> str:
    """Returns the decoded text of a symbolic link. Some clients encode it, and some do not."""
    written = required_header(exchange, _TEXT_HEADER)
    text = _decoded(_TEXT_HEADER, written)
    if len(octets(text)) > LINK_TEXT_BYTES_MAX:
        raise invalid_header(_TEXT_HEADER, written)
    return text


def target(exchange: Exchange) -> tuple[str, ...]:
    """Returns the path of the file that a hard link is to be created to. It is either a path in
    the share, or a URL of a file of the same share."""
    written = required_header(exchange, _TARGET_HEADER)
    if "://" not in written:
        path = _decoded(_TARGET_HEADER, written).removeprefix("/")
        return decode.components_of(path, allow_trailing_dot=_allow_trailing_dot(exchange))
    address = addresses.parse(written)
    if address is None or not is_text(written):
        raise invalid_header(_TARGET_HEADER, written.partition("?")[0])
    file = exchange.nested("GET", f"{address.path}?{address.query}", {}, host=address.authority)
    outer, inner = exchange.request, file.request
    is_same_share = (inner.account, inner.resource[0]) == (outer.account, outer.resource[0])
    if not is_same_share or file.parameter("sharesnapshot"):
        raise invalid_header(_TARGET_HEADER, address.without_secrets())
    return decode.components_of(inner.resource[1], allow_trailing_dot=_allow_trailing_dot(exchange))


def _allow_trailing_dot(exchange: Exchange) -> bool:
    return decode.switch(exchange, "x-ms-allow-trailing-dot")


def _decoded(name: str, written: str) -> str:
    decoded = unquote_to_bytes(octets(written))
    try:
        text = decoded.decode()
    except UnicodeDecodeError:
        raise invalid_header(name, written) from None
    if "\0" in text:
        raise invalid_header(name, written)
    return text
