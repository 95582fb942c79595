"""Rules for copies: sources and destinations, what a copy takes from its source, and the order of
the snapshots of an incremental copy."""

from __future__ import annotations

from typing import Final
from urllib.parse import parse_qsl, unquote, urlsplit

import msgspec

from etagere.errors import Refusal
from etagere.model.blobs import AppendTraits, Blob, BlobKind, BlobName, CopyStatus, PageTraits
from etagere.rules import tiers
from etagere.rules.dates import parse_instant

SYNCHRONOUS_BYTES_MAX: Final = 256 << 20
"""The maximum length of a synchronous copy."""
COPY_BYTES_MAX: Final = 50_000 * (4_000 << 20)
"""The maximum length of a block blob."""
ROOT: Final = "$root"
_SECONDARY: Final = "-secondary"


def is_pending(blob: Blob) -> bool:
    return blob.copied is not None and blob.copied.status is CopyStatus.PENDING


def check_source(source: Blob) -> Refusal | None:
    """Refuses a source whose own copy is pending, since it has no bytes yet."""
    return Refusal("PendingCopyOperation") if is_pending(source) else None


def check_tier(source: Blob, tier: str, now: int) -> Refusal | None:
    """Refuses a copy of an archived blob, unless it goes to an online tier."""
    if tier not in ("", tiers.ARCHIVE):
        return tiers.check_length(tier, source.content.length)
    return tiers.check_online(source, now)


def check_kind(old: Blob | None, kind: BlobKind) -> Refusal | None:
    """Refuses a copy that would change the type of a blob."""
    if old is None or old.kind is kind:
        return None
    return Refusal("InvalidBlobType", {"Current": old.kind.value, "Source": kind.value})


def copied_traits(source: Blob, seals: bool | None) -> PageTraits | AppendTraits | None:
    """Returns the sequence number or block count of a copy, which are those of its source."""
    traits = source.traits
    if isinstance(traits, AppendTraits) and seals is not None:
        return msgspec.structs.replace(traits, sealed=seals)
    return traits


# Incremental copies


def check_incremental(
    old: Blob | None, source: Blob, name: BlobName, snapshot: int | None
) -> Refusal | None:
    """Refuses an incremental copy of anything but a later snapshot of the same page blob."""
    if snapshot is None:
        return Refusal("IncrementalCopySourceMustBeSnapshot")
    if source.kind is not BlobKind.PAGE:
        return Refusal("InvalidSourceBlobType", {"Source": source.kind.value})
    if old is None:
        return None
    if old.kind is not BlobKind.PAGE:
        return Refusal("InvalidBlobType", {"Current": old.kind.value})
    former = old.copied
    if former is None or not former.incremental or not is_address_of(former.source, name):
        return Refusal("IncrementalCopyBlobMismatch")
    if snapshot <= (snapshot_in(former.source) or 0):
        return Refusal("IncrementalCopyOfEarlierSnapshotNotAllowed")
    return None


def is_address_of(address: str, name: BlobName) -> bool:
    """Returns whether the URL of an earlier source names this blob. The account may be in the host
    or in the path, and the root container may be omitted."""
    parts = urlsplit(address)
    path = unquote(parts.path).removeprefix("/")
    account, container = name.container.account, name.container.name
    first, _, rest = path.partition("/")
    host = (parts.hostname or "").partition(".")[0]
    inside = {f"{container}/{name.name}"} | ({name.name} if container == ROOT else set())
    if first.removesuffix(_SECONDARY) == account and rest in inside:
        return True
    return host.removesuffix(_SECONDARY) == account and path in inside


def snapshot_in(address: str) -> int | None:
    """Returns the time of the snapshot that a URL names."""
    for parameter, value in parse_qsl(urlsplit(address).query):
        if parameter.lower() == "snapshot":
            return parse_instant(value)
    return None
