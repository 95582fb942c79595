"""Listings of containers and blobs, as XML.

A page has up to 5,000 rows, so what rows have in common is put together once, and what is looked
for in each name is looked for in many of them at once.
"""

from __future__ import annotations

import base64
from binascii import b2a_base64
from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from etagere.auth.request import octets
from etagere.clock import TICKS_PER_SECOND
from etagere.model.blobs import (
    NO_SNAPSHOT,
    AppendTraits,
    Blob,
    BlobEntry,
    BlobKind,
    Copied,
    ListBlobs,
    PageTraits,
    Staging,
)
from etagere.model.containers import Container, ListContainers, NamedContainer
from etagere.model.leases import Lease, NoLease
from etagere.protocol.answers import http_date, metadata_element
from etagere.protocol.blob.encode import archive_status
from etagere.protocol.codecs import xml
from etagere.protocol.codecs.tags import tags_element
from etagere.protocol.codecs.xml import element, escape
from etagere.rules.conditions import ETAG_OFFSET, format_etag
from etagere.rules.dates import format_http_date, format_instant
from etagere.rules.leases import format_lease_id, report
from etagere.rules.tiers import INFERRED_TIER, SMART, place_of

# Containers


def containers_start(asked: ListContainers, endpoint: str) -> str:
    marker = format_marker(asked.marker)
    return (
        f"{xml.DECLARATION}"
        f'<EnumerationResults ServiceEndpoint="{xml.escape_attribute(endpoint)}">'
        f"{_asked(asked.prefix, marker, asked.limit)}<Containers>"
    )


def containers_end(following: NamedContainer | None) -> str:
    marker = "" if following is None else format_marker(following[0])
    return f"</Containers>{_next(marker)}</EnumerationResults>"


def container_rows(
    containers: Sequence[NamedContainer], now: int, *, include: set[str]
) -> list[str]:
    with_metadata = "metadata" in include
    return [
        f"<Container><Name>{name}</Name>"
        f"<Properties>{_container_properties(container, now)}</Properties>"
        f"{metadata_element(container.metadata) if with_metadata else ''}</Container>"
        for name, container in containers
    ]


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


# Blobs


def blobs_start(asked: ListBlobs, endpoint: str) -> str:
    delimiter = xml.element("Delimiter", asked.delimiter) if asked.delimiter else ""
    marker = format_marker(asked.start, asked.start_snapshot) if asked.start else ""
    return (
        f"{xml.DECLARATION}"
        f'<EnumerationResults ServiceEndpoint="{xml.escape_attribute(endpoint)}" '
        f'ContainerName="{xml.escape_attribute(asked.container.name)}">'
        f"{_asked(asked.prefix, marker, asked.limit)}{delimiter}<Blobs>"
    )


def blobs_end(following: BlobEntry | None) -> str:
    marker = ""
    if following is not None:
        name, _, snapshot = following
        marker = format_marker(name, snapshot)
    return f"</Blobs>{_next(marker)}</EnumerationResults>"


def blob_rows(entries: Sequence[BlobEntry], now: int, *, include: set[str]) -> list[str]:
    """In one loop, because calls would cost more than what they do. What a blob has in common with
    the one before is not put together again."""
    with_more = not include.isdisjoint(_MORE)
    plain = xml.is_plain("".join([name for name, _, _ in entries]))
    rows = []
    block, usual = BlobKind.BLOCK, _USUAL_STATE
    described: tuple[str, ...] = ()
    before_md5 = after_md5 = changed = ""
    second = -1
    for name, blob, snapshot in entries:
        shown = f"<Name>{name}</Name>" if plain else xml.name_element("Name", name)
        if not isinstance(blob, Blob):
            rows.append(_other_row(shown, blob))
            continue
        if snapshot != NO_SNAPSHOT:
            shown += f"<Snapshot>{format_instant(snapshot)}</Snapshot>"
        headers, stamp = blob.headers, blob.stamp
        told = (
            headers.content_type,
            headers.content_encoding,
            headers.content_language,
            headers.content_disposition,
            headers.cache_control,
        )
        if told != described:
            described = told
            before_md5, after_md5 = _described(*told)
        if stamp // TICKS_PER_SECOND != second:
            second = stamp // TICKS_PER_SECOND
            changed = format_http_date(second)
        created = changed if blob.created == stamp else http_date(blob.created)
        md5 = headers.content_md5
        is_usual = (
            blob.kind is block
            and isinstance(blob.lease, NoLease)
            and not (blob.tier or blob.tags or blob.copied)
        )
        rows.append(
            f"<Blob>{shown}<Properties>"
            f"<Creation-Time>{created}</Creation-Time><Last-Modified>{changed}</Last-Modified>"
            f"<Etag>0x{stamp + ETAG_OFFSET:X}</Etag>"
            f"<Content-Length>{blob.content.length}</Content-Length>"
            f"{before_md5}{b2a_base64(md5, newline=False).decode() if md5 else ''}{after_md5}"
            f"{usual if is_usual else _state(blob, now, include)}"
            f"{_more(blob, include) if with_more else ''}</Blob>"
        )
    return rows


def _other_row(name: str, staging: Staging | None) -> str:
    """A prefix, or blocks for a blob that is not there yet: it has no ETag."""
    if staging is None:
        return f"<BlobPrefix>{name}</BlobPrefix>"
    staged = http_date(staging.staged)
    return (
        f"<Blob>{name}<Properties><Creation-Time>{staged}</Creation-Time>"
        f"<Last-Modified>{staged}</Last-Modified><Content-Length>0</Content-Length>"
        f"<BlobType>{BlobKind.BLOCK.value}</BlobType>{_NOT_LEASED}"
        "<ServerEncrypted>true</ServerEncrypted></Properties></Blob>"
    )


_ENCRYPTED = "<ServerEncrypted>true</ServerEncrypted></Properties>"


def _state(blob: Blob, now: int, include: set[str]) -> str:
    """What nobody said of a blob when it was put, up to the end of its properties."""
    kind = f"<BlobType>{blob.kind.value}</BlobType>"
    copied = _copy(blob.copied) if blob.copied is not None and "copy" in include else ""
    tagged = f"<TagCount>{len(blob.tags)}</TagCount>" if blob.tags else ""
    traits = f"{kind}{_traits(blob.traits)}{_lease(blob.lease, now)}"
    return f"{traits}{copied}{_tier(blob, now)}{tagged}{_ENCRYPTED}"


def _traits(traits: PageTraits | AppendTraits | None) -> str:
    if isinstance(traits, PageTraits):
        number = traits.sequence_number
        return f"<x-ms-blob-sequence-number>{number}</x-ms-blob-sequence-number>"
    return "<Sealed>true</Sealed>" if traits is not None and traits.sealed else ""


def _copy(copied: Copied) -> str:
    shown = (
        f"<CopyId>{format_lease_id(copied.id)}</CopyId>"
        f"<CopyStatus>{copied.status.value}</CopyStatus>"
        f"{element('CopySource', copied.source)}"
        f"<CopyProgress>{copied.copied}/{copied.total}</CopyProgress>"
    )
    if copied.ended:
        shown += f"<CopyCompletionTime>{http_date(copied.ended)}</CopyCompletionTime>"
    if copied.description:
        shown += element("CopyStatusDescription", copied.description)
    if copied.incremental:
        shown += "<IncrementalCopy>true</IncrementalCopy>"
    if copied.snapshot:
        moment = format_instant(copied.snapshot)
        shown += f"<DestinationSnapshot>{moment}</DestinationSnapshot>"
    return shown


_MORE: Final = frozenset({"metadata", "tags"})


def _more(blob: Blob, include: set[str]) -> str:
    """What is only told if it is asked for, behind the properties."""
    shown = metadata_element(blob.metadata) if "metadata" in include else ""
    return shown + tags_element(blob.tags) if blob.tags and "tags" in include else shown


def _tier(blob: Blob, now: int) -> str:
    place = place_of(blob, now)
    if not place.tier:
        return ""
    shown = f"<AccessTier>{place.tier}</AccessTier>"
    rehydration = place.rehydration
    if rehydration is not None:
        shown += f"<ArchiveStatus>{archive_status(rehydration)}</ArchiveStatus>"
        shown += f"<RehydratePriority>{rehydration.priority}</RehydratePriority>"
    if place.tier == SMART:
        shown += f"<SmartAccessTier>{INFERRED_TIER}</SmartAccessTier>"
    if not place.changed:
        return f"{shown}<AccessTierInferred>true</AccessTierInferred>"
    changed = http_date(place.changed)
    return f"{shown}<AccessTierChangeTime>{changed}</AccessTierChangeTime>"


_INFERRED_TIER = (
    f"<AccessTier>{INFERRED_TIER}</AccessTier><AccessTierInferred>true</AccessTierInferred>"
)


@lru_cache(maxsize=256)
def _described(
    content_type: str, encoding: str, language: str, disposition: str, cache_control: str
) -> tuple[str, str]:
    """What the client said of a blob, before and after the checksum. Most blobs of a container
    have the same."""
    return (
        f"{element('Content-Type', content_type)}{element('Content-Encoding', encoding)}"
        f"{element('Content-Language', language)}<Content-CRC64 /><Content-MD5>",
        f"</Content-MD5>{element('Cache-Control', cache_control)}"
        f"{element('Content-Disposition', disposition)}",
    )


# What both have


def _lease(lease: Lease, now: int) -> str:
    shown = report(lease, now)
    duration = f"<LeaseDuration>{shown.duration}</LeaseDuration>" if shown.duration else ""
    return (
        f"<LeaseStatus>{shown.status}</LeaseStatus><LeaseState>{shown.state}</LeaseState>{duration}"
    )


_NOT_LEASED = _lease(NoLease(), 0)
_USUAL_STATE = (
    f"<BlobType>{BlobKind.BLOCK.value}</BlobType>{_NOT_LEASED}{_INFERRED_TIER}{_ENCRYPTED}"
)
"""Of block blobs that nobody leased or chose a tier for: nearly all."""


def _asked(prefix: str, marker: str, limit: int) -> str:
    shown = xml.element("Prefix", prefix) if prefix else ""
    if marker:
        shown += f"<Marker>{marker}</Marker>"
    return f"{shown}<MaxResults>{limit}</MaxResults>"


def _next(marker: str) -> str:
    return f"<NextMarker>{marker}</NextMarker>" if marker else "<NextMarker />"


def format_marker(name: str, snapshot: int = NO_SNAPSHOT) -> str:
    """Names may hold what XML cannot; a marker is opaque to clients anyway. What stands between
    name and snapshot is in no name."""
    place = octets(name)
    if snapshot != NO_SNAPSHOT:
        place += b"\xff%d" % snapshot
    return base64.urlsafe_b64encode(place).decode()
