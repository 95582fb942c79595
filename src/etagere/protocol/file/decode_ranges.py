"""Decoding of requests about ranges of files."""

from __future__ import annotations

from typing import Final

from etagere.config import MIB
from etagere.model.bodies import Body
from etagere.model.files import ClearRange, ListRanges, OpenFile, PutRange
from etagere.protocol.file import decode, decode_entries
from etagere.protocol.file.decode_entries import LAST_WRITE_TIME_HEADER
from etagere.protocol.http.ranges import Range, parse_range
from etagere.protocol.rest import leases
from etagere.protocol.rest.exchange import Exchange
from etagere.protocol.rest.ranges import byte_range
from etagere.protocol.rest.requests import (
    NUMBER,
    bad_parameter,
    invalid_header,
    required_header,
)
from etagere.protocol.rest.uploads import Limits

RANGE_BYTES_MAX: Final[Limits] = (("", 4 * MIB),)
"""The maximum length of a range that is written."""
RANGES_PAGED_SINCE: Final = "2026-10-06"
"""The first version in which lists of ranges have markers."""
_PAGE_RANGES_MAX: Final = 10_000
_RANGES_AT_ONCE_MAX: Final = 250_000
"""The maximum length of a list without markers."""
_WRITE_TIMES: Final = {"now": False, "preserve": True}


# Writing


def is_clear(exchange: Exchange) -> bool:
    """Returns whether a range is to be cleared rather than written."""
    written = required_header(exchange, "x-ms-write")
    if written.lower() not in {"update", "clear"}:
        raise invalid_header("x-ms-write", written)
    return written.lower() == "clear"


def range_to_change(exchange: Exchange) -> tuple[int, int]:
    """Returns the range that a request changes; the end is exclusive."""
    name = "range" if exchange.header("x-ms-range") is None else "x-ms-range"
    written = required_header(exchange, name)
    asked = parse_range(written)
    if asked is None or asked.end is None:
        raise invalid_header(name, written)
    return asked.start, asked.end + 1


def preserves_write_time(exchange: Exchange) -> bool:
    """Returns whether the last write time stays as it is."""
    written = exchange.header(LAST_WRITE_TIME_HEADER) or "now"
    preserves = _WRITE_TIMES.get(written.lower())
    if preserves is None:
        raise invalid_header(LAST_WRITE_TIME_HEADER, written)
    return preserves


def put_range(exchange: Exchange, start: int, body: Body, child_id: bytes) -> PutRange:
    return PutRange(
        decode.path_to_change(exchange),
        start,
        body,
        child_id,
        leases.lease_id(exchange),
        preserves_write_time(exchange),
    )


def clear_range(exchange: Exchange, child_id: bytes) -> ClearRange:
    return ClearRange(
        decode.path_to_change(exchange),
        *range_to_change(exchange),
        child_id,
        leases.lease_id(exchange),
        preserves_write_time(exchange),
    )


# Reading


def open_file(exchange: Exchange, asked: Range | None) -> OpenFile:
    """Decodes a download, with a lookup that is given up if it would take long."""
    first, last = (None, None) if asked is None else asked
    return OpenFile(decode_entries.get_file(exchange), first, last, brief=True)


def list_ranges(exchange: Exchange) -> ListRanges:
    """Decodes a request for the ranges of a file. Older versions have no markers, so they get all
    ranges at once."""
    first, last = byte_range(exchange) or (None, None)
    paged = exchange.version >= RANGES_PAGED_SINCE
    return ListRanges(
        decode_entries.get_file(exchange),
        _page_limit(exchange) if paged else _RANGES_AT_ONCE_MAX,
        first,
        last,
        _marker(exchange) if paged else 0,
        decode.snapshot_time(exchange, "prevsharesnapshot"),
        _follows_renames(exchange),
    )


def asks_for_page(exchange: Exchange) -> bool:
    """Returns whether a request for ranges has a limit or a marker."""
    return bool(exchange.parameter("maxresults") or exchange.parameter("marker"))


def _page_limit(exchange: Exchange) -> int:
    written = exchange.parameter("maxresults")
    if not written:
        return _PAGE_RANGES_MAX
    if NUMBER.fullmatch(written) is None or int(written) < 1:
        limits: dict[str, str | int] = {"MinimumAllowed": 1, "MaximumAllowed": _PAGE_RANGES_MAX}
        raise bad_parameter("OutOfRangeQueryParameterValue", "maxresults", written, limits)
    return min(int(written), _PAGE_RANGES_MAX)


def _marker(exchange: Exchange) -> int:
    """Returns the offset at which a page begins."""
    written = exchange.parameter("marker") or "0"
    if NUMBER.fullmatch(written) is None:
        raise bad_parameter("InvalidContinuationToken", "marker", written)
    return int(written)


def _follows_renames(exchange: Exchange) -> bool:
    """Returns whether the file may have been renamed since the earlier snapshot, without which the
    header makes no sense."""
    name = "x-ms-file-support-rename"
    written = exchange.header(name)
    if written is not None and not exchange.parameter("prevsharesnapshot"):
        raise invalid_header(name, written)
    return decode.switch(exchange, name)
