"""Decoding of access tiers."""

from __future__ import annotations

from etagere.engine.interface import abort_if
from etagere.model.blobs import (
    BlobKind,
)
from etagere.model.tiers import Priority
from etagere.protocol.rest.conditions import date
from etagere.protocol.rest.exchange import Exchange
from etagere.protocol.rest.requests import invalid_header
from etagere.rules import tiers as tier_rules


def tier(exchange: Exchange, kind: BlobKind = BlobKind.BLOCK) -> str:
    """Returns the tier of a new blob."""
    chosen = any_tier(exchange)
    if chosen:
        abort_if(tier_rules.check_kind(chosen, kind))
    return chosen


def any_tier(exchange: Exchange) -> str:
    """Returns the tier, for any type of blob; "" if there is none."""
    written = exchange.header("x-ms-access-tier")
    if not written:
        return ""
    known = tier_rules.parse_tier(written)
    if known is None:
        raise invalid_header("x-ms-access-tier", written)
    return known


def tier_dates(exchange: Exchange) -> tuple[int | None, int | None]:
    """Returns the conditions on the time at which the tier was changed."""
    return (
        date(exchange, tier_rules.CHANGED_SINCE),
        date(exchange, tier_rules.UNCHANGED_SINCE),
    )


def rehydrate_priority(exchange: Exchange) -> Priority:
    written = exchange.header("x-ms-rehydrate-priority")
    if not written:
        return Priority.STANDARD
    for priority in Priority:
        if priority.value.lower() == written.lower():
            return priority
    raise invalid_header("x-ms-rehydrate-priority", written)
