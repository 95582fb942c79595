"""What the blob service answers: headers."""

from __future__ import annotations

import base64
import hashlib
from typing import Final

from awscrt.checksums import crc64nvme

from etagere.auth.request import octets
from etagere.model.blobs import Blob, ShownBlob
from etagere.model.containers import Container, PublicAccess, ShownContainer
from etagere.model.leases import BrokenLease, FixedLease, InfiniteLease, Lease, LeaseVerb
from etagere.protocol.answers import Headers, http_date, metadata_headers
from etagere.rules.conditions import format_etag
from etagere.rules.leases import format_lease_id, report, seconds_until_free


def stamp_headers(stamp: int) -> Headers:
    return [
        (b"ETag", format_etag(stamp).encode()),
        (b"Last-Modified", http_date(stamp).encode()),
    ]


def lease_headers(lease: Lease, now: int) -> Headers:
    shown = report(lease, now)
    headers = [
        (b"x-ms-lease-status", shown.status.encode()),
        (b"x-ms-lease-state", shown.state.encode()),
    ]
    if shown.duration is not None:
        headers.append((b"x-ms-lease-duration", shown.duration.encode()))
    return headers


LEASE_STATUS: Final = {LeaseVerb.ACQUIRE: 201, LeaseVerb.BREAK: 202}
"""Of the answers to the actions that have one of their own."""


def lease_action_headers(lease: Lease, now: int) -> Headers:
    """What the answer to an action says of the lease as it is then."""
    if isinstance(lease, FixedLease | InfiniteLease):
        return [(b"x-ms-lease-id", format_lease_id(lease.id).encode())]
    if isinstance(lease, BrokenLease):
        return [(b"x-ms-lease-time", b"%d" % seconds_until_free(lease, now))]
    return []


def container_headers(shown: ShownContainer) -> Headers:
    container = shown.container
    headers = stamp_headers(container.stamp)
    headers += metadata_headers(container.metadata)
    headers += lease_headers(container.lease, shown.now)
    headers += access_headers(container)
    headers += [
        (b"x-ms-has-immutability-policy", b"false"),
        (b"x-ms-has-legal-hold", b"false"),
        (b"x-ms-immutable-storage-with-versioning-enabled", b"false"),
        (b"x-ms-default-encryption-scope", b"$account-encryption-key"),
        (b"x-ms-deny-encryption-scope-override", b"false"),
    ]
    return headers


def access_headers(container: Container) -> Headers:
    if container.public_access is PublicAccess.NOTHING:
        return []
    return [(b"x-ms-blob-public-access", container.public_access.value.encode())]


def blob_headers(shown: ShownBlob, overrides: dict[str, str]) -> Headers:
    """All but what concerns the bytes that are sent."""
    blob = shown.blob
    headers = stamp_headers(blob.stamp)
    headers += metadata_headers(blob.metadata)
    told = blob.headers
    for name, value in (
        (b"Content-Type", told.content_type),
        (b"Content-Encoding", told.content_encoding),
        (b"Content-Language", told.content_language),
        (b"Content-Disposition", told.content_disposition),
        (b"Cache-Control", told.cache_control),
    ):
        shown_value = overrides.get(name.decode().lower(), value) if overrides else value
        if shown_value:
            headers.append((name, octets(shown_value)))
    headers += tier_headers(blob)
    headers += [
        (b"Accept-Ranges", b"bytes"),
        (b"x-ms-creation-time", http_date(blob.created).encode()),
        (b"x-ms-blob-type", blob.kind.value.encode()),
        (b"x-ms-server-encrypted", b"true"),
    ]
    headers += lease_headers(blob.lease, shown.now)
    return headers


def tier_headers(blob: Blob) -> Headers:
    """Where nobody chose one, it is that of the account."""
    if not blob.tier:
        return _INFERRED_TIER
    return [
        (b"x-ms-access-tier", blob.tier.encode()),
        (b"x-ms-access-tier-change-time", http_date(blob.tier_changed).encode()),
    ]


INFERRED_TIER: Final = "Hot"
_INFERRED_TIER: Headers = [
    (b"x-ms-access-tier", INFERRED_TIER.encode()),
    (b"x-ms-access-tier-inferred", b"true"),
]


def digest_text(digest: bytes) -> bytes:
    return base64.b64encode(digest)


def md5_headers(blob: Blob, name: bytes) -> Headers:
    """The checksum of the whole blob, under the name that does not claim it for a part."""
    md5 = blob.headers.content_md5
    return [] if md5 is None else [(name, digest_text(md5))]


def crc64_header(crc: int) -> tuple[bytes, bytes]:
    return b"x-ms-content-crc64", digest_text(crc.to_bytes(8, "little"))


def checksum_headers(data: bytes, wanted: set[str]) -> Headers:
    """Checksums of exactly what is sent."""
    headers = []
    if "md5" in wanted:
        md5 = hashlib.md5(data, usedforsecurity=False).digest()
        headers.append((b"Content-MD5", digest_text(md5)))
    if "crc64" in wanted:
        headers.append(crc64_header(crc64nvme(data)))
    return headers
