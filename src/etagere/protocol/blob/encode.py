"""Response headers of the blob service."""

from __future__ import annotations

from typing import Final

from etagere.model.appends import Appended
from etagere.model.blobs import (
    AppendTraits,
    Blob,
    BlobKind,
    BlobResult,
    PageTraits,
    Rehydration,
)
from etagere.model.containers import Container, ContainerResult, PublicAccess
from etagere.protocol.rest import checksums, leases, responses
from etagere.protocol.rest.metadata import metadata_headers
from etagere.protocol.rest.responses import Headers, content_headers, http_date, stamp_headers
from etagere.rules.dates import format_instant
from etagere.rules.last_access import last_access
from etagere.rules.tiers import INFERRED_TIER, SMART, tier_state

ENCRYPTED: Final = (b"x-ms-request-server-encrypted", b"true")
NOT_ENCRYPTED: Final = (b"x-ms-request-server-encrypted", b"false")
"""For an operation that stores no bytes, but has the response of one that does."""


VERSION_LEVEL_IMMUTABILITY_SINCE: Final = "2020-10-02"


def container_headers(result: ContainerResult, version: str) -> Headers:
    container = result.container
    headers = stamp_headers(container.stamp)
    headers += metadata_headers(container.metadata)
    headers += leases.lease_headers(container.lease, result.now)
    headers += access_headers(container)
    headers += [
        (b"x-ms-has-immutability-policy", b"false"),
        (b"x-ms-has-legal-hold", b"false"),
        (b"x-ms-default-encryption-scope", b"$account-encryption-key"),
        (b"x-ms-deny-encryption-scope-override", b"false"),
    ]
    if version >= VERSION_LEVEL_IMMUTABILITY_SINCE:
        headers.append((b"x-ms-immutable-storage-with-versioning-enabled", b"false"))
    return headers


def access_headers(container: Container) -> Headers:
    if container.public_access is PublicAccess.NOTHING:
        return []
    return [(b"x-ms-blob-public-access", container.public_access.value.encode())]


def blob_headers(
    result: BlobResult,
    overrides: dict[str, str],
    *,
    is_snapshot: bool,
    with_tier: bool = False,
    with_last_access: bool = False,
) -> Headers:
    """Returns the headers of a blob, except those about the bytes that are sent. Snapshots have no
    lease and no last access time."""
    blob = result.blob
    headers = stamp_headers(blob.stamp)
    headers += metadata_headers(blob.metadata)
    headers += content_headers(blob.headers, overrides)
    if with_tier:
        headers += tier_headers(blob, result.now)
    headers += [
        (b"Accept-Ranges", b"bytes"),
        (b"x-ms-creation-time", http_date(blob.created).encode()),
        (b"x-ms-blob-type", blob.kind.value.encode()),
        (b"x-ms-server-encrypted", b"true"),
    ]
    if not is_snapshot:
        headers += leases.lease_headers(blob.lease, result.now)
        if with_last_access:
            headers += last_access_headers(blob)
    if blob.traits is not None:
        headers += sequence_headers(blob) + block_count_headers(blob) + sealed_headers(blob)
    if blob.copied is not None:
        headers += copy_headers(blob)
    if blob.tags:
        headers.append((b"x-ms-tag-count", b"%d" % len(blob.tags)))
    return headers


def tier_headers(blob: Blob, now: int) -> Headers:
    """Returns the headers of the tier and of a pending rehydration."""
    if not blob.tier and blob.kind is BlobKind.BLOCK:
        return _USUAL_TIER
    place = tier_state(blob, now)
    if not place.tier:
        return []
    headers = [(b"x-ms-access-tier", place.tier.encode())]
    if place.changed:
        changed = http_date(place.changed).encode()
        headers.append((b"x-ms-access-tier-change-time", changed))
    else:
        headers.append(_INFERRED)
    if place.tier == SMART:
        headers.append((b"x-ms-smart-access-tier", INFERRED_TIER.encode()))
    if place.rehydration is not None:
        status = archive_status(place.rehydration).encode()
        headers.append((b"x-ms-archive-status", status))
        headers.append((b"x-ms-rehydrate-priority", place.rehydration.priority.encode()))
    return headers


def last_access_headers(blob: Blob) -> Headers:
    accessed = last_access(blob)
    return [] if accessed is None else [(b"x-ms-last-access-time", http_date(accessed).encode())]


def archive_status(rehydration: Rehydration) -> str:
    return f"rehydrate-pending-to-{rehydration.tier.lower()}"


_INFERRED = (b"x-ms-access-tier-inferred", b"true")
_USUAL_TIER: Headers = [(b"x-ms-access-tier", INFERRED_TIER.encode()), _INFERRED]


def md5_headers(blob: Blob, name: bytes) -> Headers:
    """Returns the MD5 of the whole blob, under this name, which depends on whether the body is the
    whole blob."""
    md5 = blob.headers.content_md5
    return [] if md5 is None else [(name, checksums.digest_text(md5))]


def length_header(blob: Blob) -> tuple[bytes, bytes]:
    """Returns the length of a blob, for a response whose body is something else."""
    return b"x-ms-blob-content-length", b"%d" % blob.content.length


# Pages and appended blocks


def sequence_headers(blob: Blob) -> Headers:
    if not isinstance(blob.traits, PageTraits):
        return []
    return [(b"x-ms-blob-sequence-number", b"%d" % blob.traits.sequence_number)]


def block_count_headers(blob: Blob) -> Headers:
    if not isinstance(blob.traits, AppendTraits):
        return []
    return [(b"x-ms-blob-committed-block-count", b"%d" % blob.traits.blocks)]


def sealed_headers(blob: Blob) -> Headers:
    if not isinstance(blob.traits, AppendTraits) or not blob.traits.sealed:
        return []
    return [(b"x-ms-blob-sealed", b"true")]


def copy_headers(blob: Blob) -> Headers:
    """Returns the status of the last copy to this blob."""
    copied = blob.copied
    if copied is None:
        return []
    headers = responses.copy_headers(copied)
    if copied.incremental:
        headers.append((b"x-ms-incremental-copy", b"true"))
    if copied.snapshot:
        moment = format_instant(copied.snapshot).encode()
        headers.append((b"x-ms-copy-destination-snapshot", moment))
    return headers


def appended_headers(done: Appended) -> Headers:
    """Returns the headers of the response to an append."""
    headers = stamp_headers(done.blob.stamp)
    headers.append((b"x-ms-blob-append-offset", b"%d" % done.offset))
    return headers + block_count_headers(done.blob)


def page_headers(blob: Blob) -> Headers:
    """Returns the headers of the response to a change of pages."""
    return stamp_headers(blob.stamp) + sequence_headers(blob)
