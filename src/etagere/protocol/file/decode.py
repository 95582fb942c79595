"""Decoding of requests to the file service: the address, and what many operations have."""

from __future__ import annotations

from typing import Final

from etagere.auth.request import is_text
from etagere.clock import TICKS_PER_SECOND
from etagere.engine.interface import Refused, abort_if
from etagere.errors import Refusal
from etagere.model.files import EntryPath
from etagere.model.shares import ShareName, ShareRef
from etagere.opens.table import REST_WAIT_SECONDS_MAX
from etagere.protocol.rest.exchange import Exchange
from etagere.protocol.rest.requests import bad_parameter, invalid_header
from etagere.rules import dates
from etagere.rules.file_names import check_path, check_share_name, split_path

_TRAILING_DOT_HEADER: Final = "x-ms-allow-trailing-dot"


def target(exchange: Exchange, trailing_dot_header: str = _TRAILING_DOT_HEADER) -> str:
    """Returns the resource of a request, as the operation looks it up: a token for a file whose
    name ends in a dot is not valid for the file without the dot."""
    share, path = exchange.request.resource
    if not path:
        return share
    allow_trailing_dot = (exchange.header(trailing_dot_header) or "").lower() == "true"
    return "/".join((share, *split_path(path, allow_trailing_dot=allow_trailing_dot)))


def share_name(exchange: Exchange) -> ShareName:
    name, _ = exchange.request.resource
    abort_if(check_share_name(name))
    return ShareName(exchange.request.account, name)


def share_ref(exchange: Exchange) -> ShareRef:
    """Returns the share of a request, or the snapshot that the request names."""
    return ShareRef(share_name(exchange), snapshot_time(exchange, "sharesnapshot"))


def snapshot_time(exchange: Exchange, name: str) -> int | None:
    """Returns the parameter with the time of a snapshot, which is a whole second."""
    written = exchange.parameter(name)
    if not written:
        return None
    parsed = dates.parse_instant(written)
    if parsed is None or parsed % TICKS_PER_SECOND:
        raise bad_parameter("InvalidQueryParameterValue", name, written)
    return parsed


def refuse_snapshot(exchange: Exchange) -> None:
    """Refuses a snapshot in a request that would change it: snapshots are read-only."""
    if exchange.parameter("sharesnapshot"):
        facts: dict[str, str | int] = {"QueryParameterName": "sharesnapshot"}
        raise Refused(Refusal("InvalidQueryParameterValue", facts))


def path_to_read(exchange: Exchange) -> EntryPath:
    """Returns the path of a request that may read a snapshot."""
    return EntryPath(share_ref(exchange), components(exchange))


def path_to_change(exchange: Exchange) -> EntryPath:
    refuse_snapshot(exchange)
    return EntryPath(ShareRef(share_name(exchange)), components(exchange))


def components(
    exchange: Exchange, trailing_dot_header: str = _TRAILING_DOT_HEADER
) -> tuple[str, ...]:
    """Returns the checked components of the path of a request."""
    _, path = exchange.request.resource
    return components_of(path, allow_trailing_dot=switch(exchange, trailing_dot_header))


def components_of(path: str, *, allow_trailing_dot: bool) -> tuple[str, ...]:
    """Returns the checked components of a decoded path."""
    if not is_text(path):
        raise Refused(Refusal("InvalidResourceName"))
    components = split_path(path, allow_trailing_dot=allow_trailing_dot)
    abort_if(check_path(components))
    return components


def switch(exchange: Exchange, name: str, *, default: bool = False) -> bool:
    """Returns a header that is `true` or `false`."""
    written = exchange.header(name)
    if not written:
        return default
    if written.lower() not in ("true", "false"):
        raise invalid_header(name, written)
    return written.lower() == "true"


def wait_seconds(exchange: Exchange) -> float:
    """Returns how long a request waits for SMB clients to give up their caches."""
    written = exchange.parameter("timeout")
    return min(float(written), REST_WAIT_SECONDS_MAX) if written else REST_WAIT_SECONDS_MAX
