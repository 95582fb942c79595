"""Rules for append blobs: positions, lengths and limits."""

from __future__ import annotations

from typing import Final

from etagere.errors import Refusal
from etagere.model.blobs import AppendTraits
from etagere.model.conditions import ETags
from etagere.rules.conditions import precedes_all_etags

APPENDED_BLOCKS_MAX: Final = 50_000


def check_etag(etags: ETags | None) -> Refusal | None:
    """Refuses an If-Match with an ETag before the first possible one: Append Block answers "out of
    range", where every other operation answers "condition not met"."""
    if etags is not None and any(map(precedes_all_etags, etags)):
        return Refusal("OutOfRangeInput")
    return None


def check_position(position: int | None, length: int) -> Refusal | None:
    """Refuses an append whose expected position is not the end of the blob. With it, a client that
    got no response can find out whether its block was appended."""
    if position is None or position == length:
        return None
    return Refusal("AppendPositionConditionNotMet", {"Sent": position, "Current": length})


def check_length(length_max: int | None, length: int, added: int) -> Refusal | None:
    if length_max is None or length + added <= length_max:
        return None
    return Refusal("MaxBlobSizeConditionNotMet", {"Sent": length_max, "Current": length})


def check_appendable(traits: AppendTraits) -> Refusal | None:
    """Refuses an append to a sealed blob, or to one with the maximum number of blocks."""
    if traits.sealed:
        return Refusal("BlobIsSealed")
    if traits.blocks >= APPENDED_BLOCKS_MAX:
        return Refusal("BlockCountExceedsLimit", {"Maximum": APPENDED_BLOCKS_MAX})
    return None
