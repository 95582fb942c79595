"""What the blob service answers: headers and listings."""

from __future__ import annotations

import base64
import hashlib
import time

from awscrt.checksums import crc64nvme

from etagere.auth.request import octets
from etagere.clock import TICKS_PER_SECOND
from etagere.model.blobs import (
    Blob,
    BlobPage,
    Container,
    ContainerPage,
    ListBlobs,
    ListContainers,
    Metadata,
    PublicAccess,
    ShownBlob,
    ShownContainer,
)
from etagere.model.leases import Lease
from etagere.protocol.codecs import xml
from etagere.protocol.codecs.xml import escape
from etagere.rules.conditions import format_etag
from etagere.rules.dates import format_http_date
from etagere.rules.leases import report

Headers = list[tuple[bytes, bytes]]


def stamp_headers(stamp: int) -> Headers:
    return [
        (b"ETag", format_etag(stamp).encode()),
        (b"Last-Modified", http_date(stamp).encode()),
    ]


def http_date(stamp: int) -> str:
    return format_http_date(stamp // TICKS_PER_SECOND)


def lease_headers(lease: Lease, now: int) -> Headers:
    shown = report(lease, now)
    headers = [
        (b"x-ms-lease-status", shown.status.encode()),
        (b"x-ms-lease-state", shown.state.encode()),
    ]
    if shown.duration is not None:
        headers.append((b"x-ms-lease-duration", shown.duration.encode()))
    return headers


def metadata_headers(metadata: Metadata) -> Headers:
    return [(b"x-ms-meta-" + octets(name), octets(value)) for name, value in metadata]


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
    described = {
        "content-type": blob.headers.content_type,
        "content-encoding": blob.headers.content_encoding,
        "content-language": blob.headers.content_language,
        "content-disposition": blob.headers.content_disposition,
        "cache-control": blob.headers.cache_control,
    } | overrides
    headers += [
        (name.title().encode(), octets(value)) for name, value in described.items() if value
    ]
    headers += [
        (b"Accept-Ranges", b"bytes"),
        (b"x-ms-creation-time", http_date(blob.created).encode()),
        (b"x-ms-blob-type", blob.kind.value.encode()),
        (b"x-ms-server-encrypted", b"true"),
    ]
    headers += lease_headers(blob.lease, shown.now)
    return headers


def digest_text(digest: bytes) -> bytes:
    return base64.b64encode(digest)


def md5_headers(blob: Blob, name: bytes) -> Headers:
    """The checksum of the whole blob, under the name that does not claim it for a part."""
    md5 = blob.headers.content_md5
    return [] if md5 is None else [(name, digest_text(md5))]


def checksum_headers(data: bytes, wanted: set[str]) -> Headers:
    """Checksums of exactly what is sent."""
    headers = []
    if "md5" in wanted:
        md5 = hashlib.md5(data, usedforsecurity=False).digest()
        headers.append((b"Content-MD5", digest_text(md5)))
    if "crc64" in wanted:
        crc = crc64nvme(data).to_bytes(8, "little")
        headers.append((b"x-ms-content-crc64", digest_text(crc)))
    return headers


def stats() -> bytes:
    synced = http_date(time.time_ns() // 100)
    return xml.document(
        "<StorageServiceStats><GeoReplication><Status>live</Status>"
        f"<LastSyncTime>{synced}</LastSyncTime></GeoReplication></StorageServiceStats>"
    )


# Listings


def containers_page(
    page: ContainerPage, command: ListContainers, endpoint: str, *, include: set[str]
) -> bytes:
    with_metadata = "metadata" in include
    rows = [
        f"<Container><Name>{name}</Name>"
        f"<Properties>{_container_properties(container, page.now)}</Properties>"
        f"{_metadata(container.metadata) if with_metadata else ''}</Container>"
        for name, container in page.containers
    ]
    return xml.document(
        f'<EnumerationResults ServiceEndpoint="{xml.escape_attribute(endpoint)}">'
        f"{_asked(command.prefix, command.marker, command.limit)}"
        f"<Containers>{''.join(rows)}</Containers>{_next(page.next_marker)}</EnumerationResults>"
    )


def _container_properties(container: Container, now: int) -> str:
    access = container.public_access.value
    return (
        f"<Last-Modified>{http_date(container.stamp)}</Last-Modified>"
        f"<Etag>{escape(format_etag(container.stamp))}</Etag>{_lease(container.lease, now)}"
        f"{f'<PublicAccess>{access}</PublicAccess>' if access else ''}"
        "<HasImmutabilityPolicy>false</HasImmutabilityPolicy><HasLegalHold>false</HasLegalHold>"
        "<ImmutableStorageWithVersioningEnabled>false</ImmutableStorageWithVersioningEnabled>"
        "<DefaultEncryptionScope>$account-encryption-key</DefaultEncryptionScope>"
        "<DenyEncryptionScopeOverride>false</DenyEncryptionScopeOverride>"
    )


def blobs_page(page: BlobPage, command: ListBlobs, endpoint: str, *, include: set[str]) -> bytes:
    with_metadata = "metadata" in include
    rows = [
        f"<BlobPrefix>{xml.name_element('Name', name)}</BlobPrefix>"
        if blob is None
        else f"<Blob>{xml.name_element('Name', name)}"
        f"<Properties>{_blob_properties(blob, page.now)}</Properties>"
        f"{_metadata(blob.metadata) if with_metadata else ''}</Blob>"
        for name, blob in page.entries
    ]
    delimiter = xml.element("Delimiter", command.delimiter) if command.delimiter else ""
    return xml.document(
        f'<EnumerationResults ServiceEndpoint="{xml.escape_attribute(endpoint)}" '
        f'ContainerName="{xml.escape_attribute(command.container.name)}">'
        f"{_asked(command.prefix, command.marker, command.limit)}{delimiter}"
        f"<Blobs>{''.join(rows)}</Blobs>{_next(page.next_marker)}</EnumerationResults>"
    )


def _blob_properties(blob: Blob, now: int) -> str:
    headers = blob.headers
    md5 = digest_text(headers.content_md5).decode() if headers.content_md5 else ""
    return (
        f"<Creation-Time>{http_date(blob.created)}</Creation-Time>"
        f"<Last-Modified>{http_date(blob.stamp)}</Last-Modified>"
        f"<Etag>{format_etag(blob.stamp)[1:-1]}</Etag>"
        f"<Content-Length>{blob.content.length}</Content-Length>"
        f"<Content-Type>{escape(headers.content_type)}</Content-Type>"
        f"<Content-Encoding>{escape(headers.content_encoding)}</Content-Encoding>"
        f"<Content-Language>{escape(headers.content_language)}</Content-Language>"
        f"<Content-CRC64 /><Content-MD5>{md5}</Content-MD5>"
        f"<Cache-Control>{escape(headers.cache_control)}</Cache-Control>"
        f"<Content-Disposition>{escape(headers.content_disposition)}</Content-Disposition>"
        f"<BlobType>{blob.kind.value}</BlobType>{_lease(blob.lease, now)}"
        "<ServerEncrypted>true</ServerEncrypted>"
    )


def _lease(lease: Lease, now: int) -> str:
    shown = report(lease, now)
    duration = f"<LeaseDuration>{shown.duration}</LeaseDuration>" if shown.duration else ""
    return (
        f"<LeaseStatus>{shown.status}</LeaseStatus><LeaseState>{shown.state}</LeaseState>{duration}"
    )


def _metadata(metadata: Metadata) -> str:
    return f"<Metadata>{''.join(f'<{n}>{escape(v)}</{n}>' for n, v in metadata)}</Metadata>"


def _asked(prefix: str, marker: str, limit: int) -> str:
    shown = xml.element("Prefix", prefix) if prefix else ""
    if marker:
        shown += f"<Marker>{format_marker(marker)}</Marker>"
    return f"{shown}<MaxResults>{limit}</MaxResults>"


def _next(marker: str) -> str:
    return f"<NextMarker>{format_marker(marker)}</NextMarker>" if marker else "<NextMarker />"


def format_marker(name: str) -> str:
    """Names may hold what XML cannot; a marker is opaque to clients anyway."""
    return base64.urlsafe_b64encode(octets(name)).decode()
