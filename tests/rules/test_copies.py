"""The rules of copies."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from etagere.errors import Refusal
from etagere.model.blobs import (
    AppendTraits,
    Blob,
    BlobKind,
    BlobName,
    Copied,
    CopyStatus,
    PageTraits,
    Rehydration,
)
from etagere.model.bodies import Empty, Mapped
from etagere.model.containers import ContainerName
from etagere.rules import copies
from etagere.rules.dates import format_instant

NAME = BlobName(ContainerName("account", "box"), "a/b c")
ADDRESS = "http://127.0.0.1:10000/account/box/a/b%20c"
BLOCK = Blob(BlobKind.BLOCK, 1, 1, Empty())
PAGE = Blob(BlobKind.PAGE, 1, 1, Mapped(b"m" * 16, 512, 1), traits=PageTraits(7))
APPEND = Blob(BlobKind.APPEND, 1, 1, Empty(), traits=AppendTraits(3))
MOMENT = 17_000_000_000_000_000
NOW = MOMENT + 1
TOO_SMALL = "BlobTierInadequateForContentLength"


def code(refusal: Refusal | None) -> str:
    return "" if refusal is None else refusal.code


def copied(source: str, **fields: Any) -> Copied:
    return replace(Copied(b"c" * 16, source, CopyStatus.SUCCESS, 512, 512), **fields)


def at(moment: int, address: str = ADDRESS) -> str:
    return f"{address}?snapshot={format_instant(moment)}"


# Properties of a copy


def test_only_a_copy_that_has_not_ended_is_pending() -> None:
    assert not copies.is_pending(BLOCK)
    for status in CopyStatus:
        blob = replace(BLOCK, copied=copied(ADDRESS, status=status))
        assert copies.is_pending(blob) == (status is CopyStatus.PENDING)


def test_properties_are_those_of_the_source_except_a_requested_seal() -> None:
    sealed = replace(APPEND, traits=AppendTraits(3, sealed=True))
    assert copies.copied_traits(PAGE, None) == PageTraits(7)
    assert copies.copied_traits(BLOCK, True) is None
    assert copies.copied_traits(PAGE, True) == PageTraits(7)
    assert copies.copied_traits(APPEND, None) == AppendTraits(3)
    assert copies.copied_traits(APPEND, True) == AppendTraits(3, sealed=True)
    assert copies.copied_traits(sealed, None) == AppendTraits(3, sealed=True)
    assert copies.copied_traits(sealed, False) == AppendTraits(3)


def test_a_copy_does_not_change_the_kind_of_its_destination() -> None:
    for old in (BLOCK, PAGE, APPEND):
        for kind in BlobKind:
            expected = "" if old.kind is kind else "InvalidBlobType"
            assert code(copies.check_kind(old, kind)) == expected
    assert copies.check_kind(None, BlobKind.PAGE) is None


ARCHIVED = replace(BLOCK, tier="Archive", tier_changed=1)
ON_ITS_WAY = replace(ARCHIVED, rehydration=Rehydration("Hot", "High", NOW + 1))
ARRIVED = replace(ARCHIVED, rehydration=Rehydration("Hot", "High", NOW))


@pytest.mark.parametrize(
    ("source", "tier", "expected"),
    [
        (BLOCK, "", ""),
        (BLOCK, "Cool", ""),
        (BLOCK, "Archive", ""),
        (PAGE, "P10", ""),
        (replace(PAGE, content=Mapped(b"m" * 16, 1 << 40, 1)), "P10", TOO_SMALL),
        (APPEND, "", ""),
        (ARCHIVED, "", "BlobArchived"),
        (ARCHIVED, "Archive", "BlobArchived"),
        (ARCHIVED, "Hot", ""),
        (ON_ITS_WAY, "", "BlobBeingRehydrated"),
        (ON_ITS_WAY, "Cool", ""),
        (ARRIVED, "", ""),
    ],
)
def test_tiers(source: Blob, tier: str, expected: str) -> None:
    assert code(copies.check_tier(source, tier, NOW)) == expected


# Incremental copies


def incremental(source: str, **fields: Any) -> Blob:
    return replace(PAGE, copied=copied(source, incremental=True, **fields))


@pytest.mark.parametrize(
    ("old", "source", "snapshot", "expected"),
    [
        (None, PAGE, MOMENT, ""),
        (None, PAGE, None, "IncrementalCopySourceMustBeSnapshot"),
        (None, BLOCK, MOMENT, "InvalidSourceBlobType"),
        (None, APPEND, MOMENT, "InvalidSourceBlobType"),
        (BLOCK, PAGE, MOMENT, "InvalidBlobType"),
        (PAGE, PAGE, MOMENT, "IncrementalCopyBlobMismatch"),
        (replace(PAGE, copied=copied(ADDRESS)), PAGE, MOMENT, "IncrementalCopyBlobMismatch"),
        (incremental(at(MOMENT, f"{ADDRESS}d")), PAGE, NOW, "IncrementalCopyBlobMismatch"),
        (incremental(at(MOMENT)), PAGE, NOW, ""),
        (incremental(at(MOMENT)), PAGE, MOMENT, "IncrementalCopyOfEarlierSnapshotNotAllowed"),
        (incremental(at(NOW)), PAGE, MOMENT, "IncrementalCopyOfEarlierSnapshotNotAllowed"),
    ],
)
def test_snapshots_are_copied_in_order(
    old: Blob | None, source: Blob, snapshot: int | None, expected: str
) -> None:
    assert code(copies.check_incremental(old, source, NAME, snapshot)) == expected


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        (ADDRESS, True),
        (at(MOMENT), True),
        ("https://account.blob.core.windows.net/box/a/b%20c", True),
        ("https://account.blob.core.windows.net:443/box/a%2Fb%20c?x=1", True),
        ("http://localhost:10000/account-secondary/box/a/b%20c", True),
        ("https://account-secondary.blob.core.windows.net/box/a/b%20c", True),
        ("http://127.0.0.1:10000/other/box/a/b%20c", False),
        ("http://127.0.0.1:10000/account/box/a/b", False),
        ("http://127.0.0.1:10000/account/a/b%20c", False),
        ("https://other.blob.core.windows.net/box/a/b%20c", False),
        ("", False),
    ],
)
def test_urls_of_the_same_blob(address: str, expected: bool) -> None:
    assert copies.is_address_of(address, NAME) is expected


def test_the_root_container_may_be_omitted() -> None:
    name = BlobName(ContainerName("account", "$root"), "blob")
    assert copies.is_address_of("http://127.0.0.1:10000/account/blob", name)
    assert copies.is_address_of("http://127.0.0.1:10000/account/$root/blob", name)
    assert copies.is_address_of("https://account.blob.core.windows.net/blob", name)
    assert not copies.is_address_of("https://other.blob.core.windows.net/blob", name)


def test_snapshot_of_a_url() -> None:
    assert copies.snapshot_in(at(MOMENT)) == MOMENT
    assert copies.snapshot_in(ADDRESS) is None
    assert copies.snapshot_in(f"{ADDRESS}?snapshot=yesterday") is None
