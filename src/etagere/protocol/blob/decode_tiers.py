"""What requests say of tiers."""

from __future__ import annotations

from etagere.engine.interface import abort_if
from etagere.model.blobs import (
    BlobKind,
)
from etagere.model.tiers import Priority
from etagere.protocol.blob import decode
from etagere.protocol.exchange import Exchange
from etagere.protocol.requests import (
    invalid_header,
)
from etagere.rules import tiers as tier_rules


def tier(exchange: Exchange, kind: BlobKind = BlobKind.BLOCK) -> str:
    """That a blob is put with."""
    chosen = any_tier(exchange)
    if chosen:
        abort_if(tier_rules.check_kind(chosen, kind))
    return chosen


def any_tier(exchange: Exchange) -> str:
    """A tier, whichever kind of blob it is for; nothing if none is named."""
    written = exchange.header("x-ms-access-tier")
    if not written:
        return ""
    known = tier_rules.parse_tier(written)
    if known is None:
        raise invalid_header("x-ms-access-tier", written)
    return known


def tier_dates(exchange: Exchange) -> tuple[int | None, int | None]:
    """Since when the tier must, and must not, have changed."""
    return (
        decode.date(exchange, tier_rules.CHANGED_SINCE),
        decode.date(exchange, tier_rules.UNCHANGED_SINCE),
    )


def rehydrate_priority(exchange: Exchange) -> Priority:
    written = exchange.header("x-ms-rehydrate-priority")
    if not written:
        return Priority.STANDARD
    for priority in Priority:
        if priority.value.lower() == written.lower():
            return priority
    raise invalid_header("x-ms-rehydrate-priority", written)
