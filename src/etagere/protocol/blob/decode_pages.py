"""Decoding of requests about pages and append blobs."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import urlsplit

from etagere.auth.request import RestRequest, address
from etagere.engine.interface import Refused, abort_if
from etagere.errors import Refusal
from etagere.model.appends import AppendBlock, SealBlob
from etagere.model.bodies import Body
from etagere.model.page_blobs import (
    ClearPages,
    GetPageRanges,
    PutPage,
    SequenceAction,
    SequenceChange,
    SequenceConditions,
    SetPageBlobProperties,
)
from etagere.protocol.blob import decode
from etagere.protocol.http.ranges import Range, parse_range
from etagere.protocol.rest import leases, requests
from etagere.protocol.rest.conditions import write_conditions
from etagere.protocol.rest.exchange import Exchange
from etagere.protocol.rest.ranges import byte_range
from etagere.protocol.rest.requests import (
    NUMBER,
    bad_parameter,
    invalid_header,
    page_limit,
    required_header,
)
from etagere.rules.dates import parse_instant
from etagere.rules.page_blobs import (
    LENGTH_HEADER,
    PAGE_BLOB_BYTES_MAX,
    PAGE_BYTES,
    SEQUENCE_NUMBER_MAX,
    check_pages,
)

_LONG = re.compile(r"[0-9]{1,19}")


def page_blob_length(exchange: Exchange) -> int:
    name = LENGTH_HEADER
    written = required_header(exchange, name)
    length = requests.integer_header(exchange, name, 0, PAGE_BLOB_BYTES_MAX)
    if length is None or length % PAGE_BYTES:
        raise invalid_header(name, written)
    return length


def sequence_number(exchange: Exchange) -> int | None:
    return _long(exchange, "x-ms-blob-sequence-number")


def _sequence_conditions(exchange: Exchange) -> SequenceConditions:
    return SequenceConditions(
        _long(exchange, "x-ms-if-sequence-number-le"),
        _long(exchange, "x-ms-if-sequence-number-lt"),
        _long(exchange, "x-ms-if-sequence-number-eq"),
    )


def _long(exchange: Exchange, name: str) -> int | None:
    """Parses a header with a number of up to 63 bits."""
    written = exchange.header(name)
    if written is None:
        return None
    if _LONG.fullmatch(written) is None or int(written) > SEQUENCE_NUMBER_MAX:
        raise invalid_header(name, written)
    return int(written)


def is_clear(exchange: Exchange) -> bool:
    """Returns whether pages are to be cleared rather than written."""
    written = required_header(exchange, "x-ms-page-write")
    if written.lower() not in {"update", "clear"}:
        raise invalid_header("x-ms-page-write", written)
    return written.lower() == "clear"


def pages(exchange: Exchange) -> tuple[int, int]:
    """Returns the range of pages to change; the end is exclusive."""
    name = "range" if exchange.header("range") else "x-ms-range"
    written = exchange.header("x-ms-range") or required_header(exchange, name)
    asked = parse_range(written)
    if asked is None or asked.end is None:
        raise invalid_header(name, written)
    abort_if(check_pages(asked.start, asked.end + 1))
    return asked.start, asked.end + 1


def put_page(exchange: Exchange, start: int, body: Body, child_id: bytes) -> PutPage:
    return PutPage(
        decode.blob_name(exchange),
        start,
        body,
        child_id,
        write_conditions(exchange),
        leases.lease_id(exchange),
        _sequence_conditions(exchange),
    )


def clear_pages(exchange: Exchange, child_id: bytes) -> ClearPages:
    return ClearPages(
        decode.blob_name(exchange),
        *pages(exchange),
        child_id,
        write_conditions(exchange),
        leases.lease_id(exchange),
        _sequence_conditions(exchange),
    )


_PAGE_PROPERTIES: Final = (
    LENGTH_HEADER,
    "x-ms-blob-sequence-number",
    "x-ms-sequence-number-action",
)
_DESCRIPTIONS: Final = (
    "x-ms-blob-cache-control",
    "x-ms-blob-content-disposition",
    "x-ms-blob-content-encoding",
    "x-ms-blob-content-language",
    "x-ms-blob-content-md5",
    "x-ms-blob-content-type",
)


def page_blob_properties(exchange: Exchange, child_id: bytes) -> SetPageBlobProperties | None:
    """Returns the changes of properties that only page blobs have; None if there are none. The
    headers are set together, but only if one of them is present."""
    if all(exchange.header(name) is None for name in _PAGE_PROPERTIES):
        return None
    described = any(exchange.header(name) is not None for name in _DESCRIPTIONS)
    resized = exchange.header(LENGTH_HEADER) is not None
    return SetPageBlobProperties(
        decode.blob_name(exchange),
        child_id,
        decode.blob_headers(exchange) if described else None,
        page_blob_length(exchange) if resized else None,
        _sequence_change(exchange),
        write_conditions(exchange),
        leases.lease_id(exchange),
    )


def _sequence_change(exchange: Exchange) -> SequenceChange | None:
    name = "x-ms-sequence-number-action"
    written, number = exchange.header(name), sequence_number(exchange)
    if written is None:
        if number is not None:
            # The number alone does not say how to use it.
            required_header(exchange, name)
        return None
    try:
        action = SequenceAction(written.lower())
    except ValueError:
        raise invalid_header(name, written) from None
    if action is not SequenceAction.INCREMENT:
        required_header(exchange, "x-ms-blob-sequence-number")
    elif number is not None:
        raise invalid_header("x-ms-blob-sequence-number", str(number))
    return SequenceChange(action, number or 0)


PAGE_RANGES_MAX: Final = 10_000
PAGE_RANGES_IN_PARTS_SINCE: Final = "2020-10-02"
_PAGE_RANGES_AT_ONCE_MAX: Final = 1_000_000


def asks_for_part(exchange: Exchange) -> bool:
    """Returns whether a request for page ranges has a limit or a marker."""
    return bool(exchange.parameter("maxresults") or exchange.parameter("marker"))


def get_page_ranges(exchange: Exchange) -> GetPageRanges:
    """Decodes a request for page ranges. Older versions have no markers, so they get all ranges at
    once."""
    asked = byte_range(exchange) or Range(0, None)
    in_parts = exchange.version >= PAGE_RANGES_IN_PARTS_SINCE
    limit = page_limit(exchange) if exchange.parameter("maxresults") else PAGE_RANGES_MAX
    marker = exchange.parameter("marker") or "0"
    if NUMBER.fullmatch(marker) is None:
        raise bad_parameter("OutOfRangeInput", "marker", marker)
    return GetPageRanges(
        decode.get_blob(exchange),
        limit if in_parts else _PAGE_RANGES_AT_ONCE_MAX,
        asked.start,
        asked.end,
        int(marker),
        _previous_snapshot(exchange),
    )


def _previous_snapshot(exchange: Exchange) -> int | None:
    """Returns the previous snapshot, from its time or its URL."""
    written = exchange.parameter("prevsnapshot")
    if written:
        moment = parse_instant(written)
        if moment is None:
            raise bad_parameter("InvalidQueryParameterValue", "prevsnapshot", written)
        return moment
    name = "x-ms-previous-snapshot-url"
    url = exchange.header(name)
    if url is None:
        return None
    try:
        parts = urlsplit(url)
    except ValueError:
        raise invalid_header(name, url) from None
    where = address(parts.netloc, parts.path)
    named = RestRequest("blob", "GET", where, parts.path, parts.query, {})
    moment = parse_instant(named.parameters.get("snapshot", ""))
    if moment is None:
        raise invalid_header(name, url)
    if (named.account, named.resource) != (exchange.request.account, exchange.request.resource):
        raise Refused(Refusal("PreviousSnapshotOperationNotSupported"))
    return moment


def append_block(exchange: Exchange, body: Body, child_id: bytes) -> AppendBlock:
    return AppendBlock(
        decode.blob_name(exchange),
        body,
        child_id,
        _long(exchange, "x-ms-blob-condition-appendpos"),
        _long(exchange, "x-ms-blob-condition-maxsize"),
        write_conditions(exchange),
        leases.lease_id(exchange),
    )


def seal_blob(exchange: Exchange) -> SealBlob:
    return SealBlob(
        decode.blob_name(exchange),
        _long(exchange, "x-ms-blob-condition-appendpos"),
        write_conditions(exchange),
        leases.lease_id(exchange),
    )
