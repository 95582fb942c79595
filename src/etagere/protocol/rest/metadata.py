"""Metadata in requests, responses and listings."""

from __future__ import annotations

from typing import Final

from etagere.auth.request import octets, text
from etagere.engine.interface import abort_if
from etagere.model.common import Metadata
from etagere.protocol.codecs import xml
from etagere.protocol.rest.exchange import Exchange
from etagere.protocol.rest.responses import Headers
from etagere.rules import names

_META: Final = b"x-ms-meta-"


def read_metadata(exchange: Exchange) -> Metadata:
    """Returns the metadata of a request. Names keep the case in which they were sent."""
    pairs = tuple(
        (text(name[len(_META) :]), text(value))
        for name, value in exchange.http.headers
        if name[: len(_META)].lower() == _META
    )
    abort_if(names.check_metadata(pairs))
    return pairs


def metadata_headers(metadata: Metadata) -> Headers:
    return [(b"x-ms-meta-" + octets(name), octets(value)) for name, value in metadata]


def metadata_element(metadata: Metadata) -> str:
    content = "".join(f"<{name}>{xml.escape(value)}</{name}>" for name, value in metadata)
    return f"<Metadata>{content}</Metadata>" if content else "<Metadata />"
