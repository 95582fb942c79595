"""The byte ranges of requests."""

from __future__ import annotations

from etagere.protocol.http.ranges import Range, parse_range
from etagere.protocol.rest.exchange import Exchange
from etagere.protocol.rest.requests import invalid_header


def byte_range(exchange: Exchange) -> Range | None:
    written = exchange.header("x-ms-range") or exchange.header("range")
    return None if written is None else parse_range(written)


def source_range(exchange: Exchange) -> Range | None:
    """Returns the requested range of a source; None for all of it."""
    written = exchange.header("x-ms-source-range")
    if written is None:
        return None
    found = parse_range(written)
    if found is None:
        raise invalid_header("x-ms-source-range", written)
    return found
