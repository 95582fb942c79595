"""Decoding of requests for listings of directories."""

from __future__ import annotations

from typing import Final, NamedTuple

from etagere.model.files import ListEntries
from etagere.protocol.file import decode
from etagere.protocol.rest.continuation_tokens import parse_token
from etagere.protocol.rest.exchange import Exchange
from etagere.protocol.rest.requests import bad_parameter, included, page_limit, text_parameter
from etagere.rules.file_names import COMPONENT_LENGTH_MAX, fold_name

TIMESTAMPS: Final = "timestamps"
ETAG: Final = "etag"
ATTRIBUTES: Final = "attributes"
PERMISSION_KEY: Final = "permissionkey"
_DETAILS: Final = frozenset({TIMESTAMPS, ETAG, ATTRIBUTES, PERMISSION_KEY})


class DirectoryListing(NamedTuple):
    """A request for a page of a directory."""

    asked: ListEntries
    include: set[str]
    """The details of each entry that are wanted."""


def list_entries(exchange: Exchange) -> DirectoryListing:
    # The details need no `x-ms-file-extended-info`: to name one is enough.
    decode.switch(exchange, "x-ms-file-extended-info")
    asked = ListEntries(
        decode.path_to_read(exchange),
        page_limit(exchange),
        text_parameter(exchange, "prefix"),
        _marker(exchange),
    )
    return DirectoryListing(asked, included(exchange, _DETAILS))


def _marker(exchange: Exchange) -> str:
    """Returns the first folded name of the page; "" for the first page."""
    written = exchange.parameter("marker")
    if not written:
        return ""
    name = parse_token(written)
    if not name or len(name) > COMPONENT_LENGTH_MAX:
        raise bad_parameter("InvalidQueryParameterValue", "marker", written)
    return fold_name(name)
