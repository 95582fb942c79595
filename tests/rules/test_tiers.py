"""Access tiers: every transition, for every kind of blob."""

from __future__ import annotations

from itertools import product
from typing import Final

import pytest
from msgspec.structs import replace

from etagere.clock import TICKS_PER_SECOND
from etagere.errors import ERRORS, Refusal
from etagere.model.blobs import Blob, BlobKind, Rehydration
from etagere.model.bodies import Empty, Inline
from etagere.model.tiers import Priority
from etagere.rules.dates import format_http_date
from etagere.rules.tiers import (
    ARCHIVE,
    PREMIUM_TIERS,
    STANDARD_TIERS,
    TierChange,
    TierState,
    change_tier,
    check_changed,
    check_kind,
    check_length,
    check_online,
    parse_tier,
    tier_state,
)

NOW, STAMP, DUE = 1_000, 2_000, 1_500
CHOSEN = 500
GIB = 1 << 30
BLOCK, PAGE, APPEND = BlobKind.BLOCK, BlobKind.PAGE, BlobKind.APPEND
ONLINE = [tier for tier in STANDARD_TIERS if tier != ARCHIVE]
EVERY = (*STANDARD_TIERS, *PREMIUM_TIERS)
WRONG_KIND = "AccessTierNotSupportedForBlobType"


def blob(kind: BlobKind = BLOCK, tier: str = "", length: int = 0) -> Blob:
    content = Inline(b"id", length, 0) if length else Empty()
    return Blob(kind, 1, 2, content, tier=tier, tier_changed=CHOSEN if tier else 0)


def on_the_way(tier: str, priority: Priority = Priority.STANDARD, due: int = DUE) -> Blob:
    return replace(blob(tier=ARCHIVE), rehydration=Rehydration(tier, priority.value, due))


def moved(
    start: Blob, tier: str, priority: Priority = Priority.STANDARD, *, is_snapshot: bool = False
) -> Blob | str:
    """Returns the blob, or the error code."""
    result = change_tier(
        start, TierChange(tier, priority, DUE), NOW, STAMP, is_snapshot=is_snapshot
    )
    if isinstance(result, Refusal):
        assert result.code in ERRORS
        return result.code
    # Nothing else of the blob changes.
    same = replace(
        result, tier=start.tier, tier_changed=start.tier_changed, rehydration=start.rehydration
    )
    assert same == start
    return result


# Names


def test_tiers_of_the_service() -> None:
    assert STANDARD_TIERS == ("Hot", "Cool", "Cold", "Smart", "Archive")
    assert list(PREMIUM_TIERS) == [f"P{n}" for n in (4, 6, 10, 15, 20, 30, 40, 50, 60, 70, 80)]
    assert list(PREMIUM_TIERS.values()) == [32 * GIB << power for power in range(11)]


@pytest.mark.parametrize("tier", EVERY)
def test_tier_names_ignore_case(tier: str) -> None:
    assert parse_tier(tier.upper()) == parse_tier(tier.lower()) == tier


@pytest.mark.parametrize("written", ["", "warm", "P5", "P", "Hot ", "Premium"])
def test_unknown_tiers(written: str) -> None:
    assert parse_tier(written) is None


@pytest.mark.parametrize(("kind", "tier"), list(product(BlobKind, EVERY)))
def test_tiers_by_kind_of_blob(kind: BlobKind, tier: str) -> None:
    fits = {BLOCK: tier in STANDARD_TIERS, PAGE: tier in PREMIUM_TIERS, APPEND: False}[kind]
    assert check_kind(tier, kind) == (None if fits else Refusal(WRONG_KIND))


def test_only_premium_tiers_have_a_size() -> None:
    assert check_length("P4", 32 * GIB) is None
    assert check_length("P4", 32 * GIB + 1) == Refusal("BlobTierInadequateForContentLength")
    assert check_length("", 1 << 50) is check_length("Hot", 1 << 50) is None


# The current tier


def test_default_tiers() -> None:
    assert tier_state(blob(), NOW) == TierState("Hot", 0)
    assert tier_state(blob(APPEND), NOW) == TierState("", 0)


@pytest.mark.parametrize(
    ("length", "tier"),
    [(0, "P10"), (128 * GIB, "P10"), (128 * GIB + 1, "P15"), (1 << 40, "P30"), (8 << 40, "P60")],
)
def test_the_inferred_tier_of_a_page_blob_fits_its_size(length: int, tier: str) -> None:
    assert tier_state(blob(PAGE, length=length), NOW) == TierState(tier, 0)


def test_a_rehydration_ends_when_it_is_due() -> None:
    start = on_the_way("Cool")
    assert tier_state(start, DUE - 1) == TierState(ARCHIVE, CHOSEN, start.rehydration)
    assert tier_state(start, DUE) == TierState("Cool", DUE)


@pytest.mark.parametrize("tier", ["", *ONLINE])
def test_online_tiers_can_be_read(tier: str) -> None:
    assert check_online(blob(tier=tier), NOW) is None


def test_offline_tiers_cannot_be_read() -> None:
    assert check_online(blob(tier=ARCHIVE), NOW) == Refusal("BlobArchived")
    assert check_online(on_the_way("Hot"), DUE - 1) == Refusal("BlobBeingRehydrated")
    assert check_online(on_the_way("Hot"), DUE) is None


@pytest.mark.parametrize(
    ("since", "not_since", "met"),
    [
        (None, None, True),
        (6, None, True),
        (7, None, False),
        (None, 7, True),
        (None, 6, False),
        (6, 7, True),
        (6, 6, False),
        (7, 7, False),
    ],
)
def test_time_of_the_last_change(since: int | None, not_since: int | None, met: bool) -> None:
    second = TICKS_PER_SECOND
    chosen = replace(blob(tier="Cool"), tier_changed=7 * second + 1)
    inferred = replace(blob(), created=7 * second + 1)
    arrived = on_the_way("Hot", due=7 * second + 1)
    for changed in (chosen, inferred, arrived):
        result = check_changed(changed, 8 * second, since=since, not_since=not_since)
        assert (result is None) is met
        if result is not None:
            assert result.code == "ConditionNotMet"
            assert result.facts["Current"] == format_http_date(7)


# Block blobs, every pair. "=" unchanged, "+" changed at once, "~" rehydration starts, "x" refused
# because a rehydration to another tier is pending.

WAYS: Final = """
                 Hot  Cool Cold Smart Archive
    inferred      +    +    +    +     +
    Hot           =    +    +    +     +
    Cool          +    =    +    +     +
    Cold          +    +    =    +     +
    Smart         +    +    +    =     +
    Archive       ~    ~    ~    ~     =
    >Hot          =    x    x    x     x
    >Cool         x    =    x    x     x
    >Cold         x    x    =    x     x
    >Smart        x    x    x    =     x
"""


def pairs() -> list[tuple[str, str, str]]:
    head, *rows = [line.split() for line in WAYS.strip().splitlines()]
    return [(row[0], to, mark) for row in rows for to, mark in zip(head, row[1:], strict=True)]


def test_the_table_is_complete() -> None:
    starts = ["inferred", *STANDARD_TIERS, *(f">{tier}" for tier in ONLINE)]
    assert sorted(pair[:2] for pair in pairs()) == sorted(product(starts, STANDARD_TIERS))


@pytest.mark.parametrize(("start", "to", "mark"), pairs())
def test_transitions_of_block_blobs(start: str, to: str, mark: str) -> None:
    named = "" if start == "inferred" else start
    begun = on_the_way(start[1:]) if start.startswith(">") else blob(tier=named)
    arrived = replace(begun, tier=to, tier_changed=STAMP, rehydration=None)
    expected = {
        "=": begun,
        "+": arrived,
        "~": replace(begun, rehydration=Rehydration(to, "Standard", DUE)),
        "x": "BlobBeingRehydrated",
    }
    assert moved(begun, to) == expected[mark]


@pytest.mark.parametrize("to", STANDARD_TIERS)
def test_a_rehydrated_blob_changes_like_others(to: str) -> None:
    arrived = on_the_way("Cool", due=NOW)
    result = moved(arrived, to)
    assert isinstance(result, Blob)
    since = NOW if to == "Cool" else STAMP
    assert (result.tier, result.tier_changed, result.rehydration) == (to, since, None)


@pytest.mark.parametrize(("start", "to"), list(product(["", *STANDARD_TIERS], STANDARD_TIERS)))
def test_a_snapshot_never_leaves_the_archive(start: str, to: str) -> None:
    begun = blob(tier=start)
    if start == ARCHIVE and to != ARCHIVE:
        assert moved(begun, to, is_snapshot=True) == "BlobArchived"
    else:
        assert moved(begun, to, is_snapshot=True) == moved(begun, to)


# Rehydration priority


@pytest.mark.parametrize("priority", Priority)
def test_rehydration_has_a_priority(priority: Priority) -> None:
    result = moved(blob(tier=ARCHIVE), "Hot", priority)
    assert isinstance(result, Blob)
    assert result.rehydration == Rehydration("Hot", priority.value, DUE)


def test_raising_the_priority_never_delays_the_end() -> None:
    for due, sooner in ((DUE + 7, DUE), (DUE - 7, DUE - 7)):
        result = moved(on_the_way("Hot", due=due), "Hot", Priority.HIGH)
        assert isinstance(result, Blob)
        assert result.rehydration == Rehydration("Hot", "High", sooner)


@pytest.mark.parametrize("priority", Priority)
def test_the_priority_cannot_be_lowered(priority: Priority) -> None:
    begun = on_the_way("Hot", Priority.HIGH, DUE + 7)
    assert moved(begun, "Hot", priority) == begun


# Page blobs, every pair


@pytest.mark.parametrize(("start", "to"), list(product(["", *PREMIUM_TIERS], EVERY)))
def test_transitions_of_page_blobs(start: str, to: str) -> None:
    begun = blob(PAGE, start, 512)
    ranks = list(PREMIUM_TIERS)
    expected: Blob | str = replace(begun, tier=to, tier_changed=STAMP)
    if to in STANDARD_TIERS:
        expected = WRONG_KIND
    elif start == to:
        expected = begun
    elif start and ranks.index(to) < ranks.index(start):
        expected = "CannotChangeToLowerTier"
    assert moved(begun, to) == expected


def test_a_page_blob_must_fit() -> None:
    large = blob(PAGE, length=33 * GIB)
    assert moved(large, "P4") == "BlobTierInadequateForContentLength"
    assert isinstance(moved(large, "P6"), Blob)


# Others


@pytest.mark.parametrize("to", EVERY)
def test_append_blobs_have_no_tiers(to: str) -> None:
    assert moved(blob(APPEND), to) == WRONG_KIND


@pytest.mark.parametrize("to", PREMIUM_TIERS)
def test_block_blobs_have_no_premium_tiers(to: str) -> None:
    assert moved(blob(), to) == WRONG_KIND
    assert moved(on_the_way("Hot"), to) == WRONG_KIND
