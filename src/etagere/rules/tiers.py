"""Rules for access tiers.

Block blobs are online (hot, cool, cold or smart) or in the archive tier. Archived blobs, and those
that are being rehydrated, can be deleted and their properties read, but their bytes cannot be read
or changed. Page blobs have tiers of different sizes, and never move to a smaller one. Append blobs
have none. A rehydration is complete when its time has come; nothing has to end it.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from msgspec.structs import replace

from etagere.clock import TICKS_PER_SECOND
from etagere.errors import Refusal
from etagere.model.blobs import Blob, BlobKind, Rehydration
from etagere.model.tiers import Priority
from etagere.rules.dates import format_http_date

ARCHIVE: Final = "Archive"
SMART: Final = "Smart"
INFERRED_TIER: Final = "Hot"
"""The default tier of the account."""
STANDARD_TIERS: Final = (INFERRED_TIER, "Cool", "Cold", SMART, ARCHIVE)
PREMIUM_TIERS: Final = {
    "P4": 32 << 30,
    "P6": 64 << 30,
    "P10": 128 << 30,
    "P15": 256 << 30,
    "P20": 512 << 30,
    "P30": 1 << 40,
    "P40": 2 << 40,
    "P50": 4 << 40,
    "P60": 8 << 40,
    "P70": 16 << 40,
    "P80": 32 << 40,
}
"""The maximum length of a blob in each, in ascending order."""

_KNOWN: Final = {tier.lower(): tier for tier in (*STANDARD_TIERS, *PREMIUM_TIERS)}
_RANKS: Final = {tier: rank for rank, tier in enumerate(PREMIUM_TIERS)}
_INFERRED_PREMIUM: Final = tuple(PREMIUM_TIERS)[_RANKS["P10"] :]
_NOT_OF_THIS_KIND: Final = "AccessTierNotSupportedForBlobType"
_OF_KIND: Final = {
    BlobKind.BLOCK: frozenset(STANDARD_TIERS),
    BlobKind.PAGE: frozenset(PREMIUM_TIERS),
    BlobKind.APPEND: frozenset[str](),
}


def parse_tier(written: str) -> str | None:
    """Returns the tier of this name; None if there is none."""
    return _KNOWN.get(written.lower())


def check_kind(tier: str, kind: BlobKind) -> Refusal | None:
    return None if tier in _OF_KIND[kind] else Refusal(_NOT_OF_THIS_KIND)


def check_length(tier: str, length: int) -> Refusal | None:
    """Refuses a length that exceeds the limit of a tier, if it has one."""
    bytes_max = PREMIUM_TIERS.get(tier)
    if bytes_max is None or length <= bytes_max:
        return None
    return Refusal("BlobTierInadequateForContentLength")


# State


class TierState(NamedTuple):
    """The tier of a blob at a given time."""

    tier: str
    """"" if blobs of this type have no tier."""
    changed: int
    """When it was set; 0 if it is inferred."""
    rehydration: Rehydration | None = None
    """The pending rehydration, if any."""


def tier_state(blob: Blob, now: int) -> TierState:
    if not blob.tier:
        return TierState(_inferred(blob), 0)
    rehydration = blob.rehydration
    if rehydration is not None and rehydration.due <= now:
        return TierState(rehydration.tier, rehydration.due)
    return TierState(blob.tier, blob.tier_changed, rehydration)


def _inferred(blob: Blob) -> str:
    """Returns the tier of a blob without an explicit one. For page blobs, the smallest that fits,
    except that P4 and P6 are never inferred."""
    if blob.kind is BlobKind.BLOCK:
        return INFERRED_TIER
    if blob.kind is BlobKind.APPEND:
        return ""
    length = blob.content.length
    return next(tier for tier in _INFERRED_PREMIUM if length <= PREMIUM_TIERS[tier])


def check_online(blob: Blob, now: int) -> Refusal | None:
    """Refuses a blob that is archived or being rehydrated."""
    if blob.tier != ARCHIVE:
        return None
    state = tier_state(blob, now)
    if state.rehydration is not None:
        return Refusal("BlobBeingRehydrated")
    return Refusal("BlobArchived") if state.tier == ARCHIVE else None


def check_changed(
    blob: Blob, now: int, *, since: int | None, not_since: int | None
) -> Refusal | None:
    """Checks the conditions on the time at which the tier was set, in seconds since 1970. An
    inferred tier is as old as the blob."""
    second = (tier_state(blob, now).changed or blob.created) // TICKS_PER_SECOND
    for name, asked, is_met in (
        (CHANGED_SINCE, since, since is None or second > since),
        (UNCHANGED_SINCE, not_since, not_since is None or second <= not_since),
    ):
        if asked is not None and not is_met:
            sent, current = format_http_date(asked), format_http_date(second)
            facts: dict[str, str | int] = {"Condition": name, "Sent": sent, "Current": current}
            return Refusal("ConditionNotMet", facts)
    return None


CHANGED_SINCE: Final = "x-ms-access-tier-if-modified-since"
UNCHANGED_SINCE: Final = "x-ms-access-tier-if-unmodified-since"


# Changes


class TierChange(NamedTuple):
    """A requested change of the tier."""

    tier: str
    priority: Priority
    due: int
    """When a rehydration would be complete."""


def change_tier(
    blob: Blob, asked: TierChange, now: int, stamp: int, *, is_snapshot: bool
) -> Blob | Refusal:
    """Returns the blob with the new tier. Archived snapshots cannot be rehydrated."""
    refusal = check_kind(asked.tier, blob.kind)
    if refusal is not None:
        return refusal
    state = tier_state(blob, now)
    if blob.kind is BlobKind.PAGE:
        refusal = _check_premium(state, asked.tier, blob.content.length)
        if refusal is not None:
            return refusal
    if state.rehydration is not None:
        return _with_priority(blob, state.rehydration, asked)
    if state.tier == ARCHIVE and asked.tier != ARCHIVE:
        if is_snapshot:
            return Refusal("BlobArchived")
        rehydration = Rehydration(asked.tier, asked.priority.value, asked.due)
        return replace(blob, rehydration=rehydration)
    changed = state.changed if state.tier == asked.tier else 0
    return replace(blob, tier=asked.tier, tier_changed=changed or stamp, rehydration=None)


def _check_premium(state: TierState, tier: str, length: int) -> Refusal | None:
    if state.changed and _RANKS[tier] < _RANKS[state.tier]:
        return Refusal("CannotChangeToLowerTier")
    return check_length(tier, length)


def _with_priority(blob: Blob, rehydration: Rehydration, asked: TierChange) -> Blob | Refusal:
    """Raises the priority of a pending rehydration. Its tier cannot be changed, nor its priority
    lowered."""
    if rehydration.tier != asked.tier:
        return Refusal("BlobBeingRehydrated")
    if asked.priority is not Priority.HIGH or rehydration.priority == Priority.HIGH.value:
        return blob
    due = min(rehydration.due, asked.due)
    sooner = Rehydration(asked.tier, asked.priority.value, due)
    return replace(blob, rehydration=sooner)
