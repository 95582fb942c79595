"""The rules of append blobs: where and how much may be added, and when no more."""

from __future__ import annotations

from typing import Final

from etagere.errors import Refusal
from etagere.model.blobs import AppendTraits
from etagere.model.conditions import ETags
from etagere.rules.conditions import precedes_all_etags

APPENDED_BLOCKS_MAX: Final = 50_000


def check_etag(etags: ETags | None) -> Refusal | None:
    """Refuses an If-Match that no blob can ever have had: the service computes with it here, and
    finds it out of range, where every other operation finds it unmet."""
    if etags is not None and any(map(precedes_all_etags, etags)):
        return Refusal("OutOfRangeInput")
    return None


def check_position(position: int | None, length: int) -> Refusal | None:
    """Who says where the blob ends must be right: that is how a client that was not answered
    learns whether its block was added."""
    if position is None or position == length:
        return None
    return Refusal("AppendPositionConditionNotMet", {"Sent": position, "Current": length})


def check_length(length_max: int | None, length: int, added: int) -> Refusal | None:
    if length_max is None or length + added <= length_max:
        return None
    return Refusal("MaxBlobSizeConditionNotMet", {"Sent": length_max, "Current": length})


def check_appendable(traits: AppendTraits) -> Refusal | None:
    """Whether one more block can be added at all."""
    if traits.sealed:
        return Refusal("BlobIsSealed")
    if traits.blocks >= APPENDED_BLOCKS_MAX:
        return Refusal("BlockCountExceedsLimit", {"Maximum": APPENDED_BLOCKS_MAX})
    return None
