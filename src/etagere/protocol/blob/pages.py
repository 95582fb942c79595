"""Listings of containers and blobs, as XML.

A page has up to 5,000 rows, so common parts of rows are built once, and names are checked many at a
time.
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
from etagere.model.containers import Container, NamedContainer
from etagere.model.leases import Lease, NoLease
from etagere.protocol.blob.encode import VERSION_LEVEL_IMMUTABILITY_SINCE, archive_status
from etagere.protocol.codecs import xml
from etagere.protocol.codecs.tags import tags_element
from etagere.protocol.codecs.xml import element, escape, name_element
from etagere.protocol.rest.exchange import Exchange
from etagere.protocol.rest.metadata import metadata_element
from etagere.protocol.rest.requests import endpoint
from etagere.protocol.rest.responses import http_date
from etagere.rules.conditions import ETAG_OFFSET, format_etag
from etagere.rules.dates import format_http_date, format_instant
from etagere.rules.last_access import last_access
from etagere.rules.leases import format_lease_id, report
from etagere.rules.tiers import INFERRED_TIER, SMART, tier_state

_REPLICATION_SINCE: Final = "2021-08-06"
"""The first version in which each blob has an element for its replication rules."""


# Containers


def containers_start(exchange: Exchange) -> str:
    return (
        f"{xml.DECLARATION}<EnumerationResults {_endpoint(exchange)}>{echo(exchange)}<Containers>"
    )


def containers_end(following: NamedContainer | None) -> str:
    marker = "" if following is None else format_marker(following[0])
    return f"</Containers>{_next(marker)}</EnumerationResults>"


def container_rows(
    containers: Sequence[NamedContainer], now: int, *, include: set[str], version: str
) -> list[str]:
    with_metadata = "metadata" in include
    protection = _PROTECTION
    if version >= VERSION_LEVEL_IMMUTABILITY_SINCE:
        protection += _VERSION_LEVEL_IMMUTABILITY
    return [
        f"<Container><Name>{name}</Name>"
        f"<Properties>{_container_properties(container, now)}{protection}</Properties>"
        f"{metadata_element(container.metadata) if with_metadata else ''}</Container>"
        for name, container in containers
    ]


def _container_properties(container: Container, now: int) -> str:
    access = container.public_access.value
    lease = report(container.lease, now)
    return (
        f"<Last-Modified>{http_date(container.stamp)}</Last-Modified>"
        f"<Etag>{escape(format_etag(container.stamp))}</Etag>"
        f"<LeaseStatus>{lease.status}</LeaseStatus><LeaseState>{lease.state}</LeaseState>"
        f"{f'<PublicAccess>{access}</PublicAccess>' if access else ''}"
        f"{f'<LeaseDuration>{lease.duration}</LeaseDuration>' if lease.duration else ''}"
    )


_PROTECTION: Final = (
    "<DefaultEncryptionScope>$account-encryption-key</DefaultEncryptionScope>"
    "<DenyEncryptionScopeOverride>false</DenyEncryptionScopeOverride>"
    "<HasImmutabilityPolicy>false</HasImmutabilityPolicy><HasLegalHold>false</HasLegalHold>"
)
_VERSION_LEVEL_IMMUTABILITY: Final = (
    "<ImmutableStorageWithVersioningEnabled>false</ImmutableStorageWithVersioningEnabled>"
)


# Blobs


def blobs_start(asked: ListBlobs, exchange: Exchange) -> str:
    container = xml.escape_attribute(asked.container.name)
    return (
        f"{xml.DECLARATION}<EnumerationResults {_endpoint(exchange)} "
        f'ContainerName="{container}">{echo(exchange)}<Blobs>'
    )


def blobs_end(following: BlobEntry | None) -> str:
    marker = ""
    if following is not None:
        name, _, snapshot = following
        marker = format_marker(name, snapshot)
    return f"</Blobs>{_next(marker)}</EnumerationResults>"


def blob_rows(
    entries: Sequence[BlobEntry],
    now: int,
    *,
    include: set[str],
    version: str,
    with_last_access: bool = False,
) -> list[str]:
    """Encodes rows in one loop, because function calls would cost more than their work. Parts that
    equal those of the previous blob are reused."""
    with_more = not include.isdisjoint(_MORE)
    plain = xml.is_plain("".join([name for name, _, _ in entries]))
    rows = []
    block, usual_state = BlobKind.BLOCK, _USUAL_STATE
    end = "<OrMetadata /></Blob>" if version >= _REPLICATION_SINCE else "</Blob>"
    described: tuple[str, ...] = ()
    before_md5 = after_md5 = without_md5 = changed = accessed = ""
    second = -1
    for name, blob, snapshot in entries:
        shown = f"<Name>{name}</Name>" if plain else xml.name_element("Name", name)
        if not isinstance(blob, Blob):
            rows.append(_other_row(shown, blob, end))
            continue
        usual = usual_state
        if snapshot != NO_SNAPSHOT:
            shown += f"<Snapshot>{format_instant(snapshot)}</Snapshot>"
            usual = _USUAL_STATE_OF_SNAPSHOTS
        headers, stamp = blob.headers, blob.stamp
        fields = (
            headers.content_type,
            headers.content_encoding,
            headers.content_language,
            headers.content_disposition,
            headers.cache_control,
        )
        if fields != described:
            described = fields
            before_md5, after_md5, without_md5 = _described(*fields)
        if stamp // TICKS_PER_SECOND != second:
            second = stamp // TICKS_PER_SECOND
            changed = format_http_date(second)
        created = changed if blob.created == stamp else http_date(blob.created)
        md5 = headers.content_md5
        if md5:
            told_by_client = f"{before_md5}{b2a_base64(md5, newline=False).decode()}{after_md5}"
        else:
            told_by_client = without_md5
        if with_last_access:
            accessed = "" if snapshot != NO_SNAPSHOT else _last_access(blob)
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
            f"{told_by_client}{accessed}"
            f"{usual if is_usual else _state(blob, now, include, snapshot != NO_SNAPSHOT)}"
            f"{_more(blob, include) + end if with_more else end}"
        )
    return rows


def _other_row(name: str, staging: Staging | None, end: str) -> str:
    """Encodes a prefix, or uncommitted blocks without a blob, which have neither an ETag nor
    times."""
    if staging is None:
        return f"<BlobPrefix>{name}</BlobPrefix>"
    return f"<Blob>{name}<Properties><Content-Length>0</Content-Length>{_USUAL_STATE}{end}"


def _last_access(blob: Blob) -> str:
    accessed = last_access(blob)
    return "" if accessed is None else f"<LastAccessTime>{http_date(accessed)}</LastAccessTime>"


_ENCRYPTED = "<ServerEncrypted>true</ServerEncrypted>"


def _state(blob: Blob, now: int, include: set[str], is_snapshot: bool) -> str:
    """Encodes the state of a blob, up to the end of its properties. Snapshots have no lease."""
    traits = blob.traits
    number = sealed = ""
    if isinstance(traits, PageTraits):
        number = f"<{_SEQUENCE_NUMBER}>{traits.sequence_number}</{_SEQUENCE_NUMBER}>"
    elif isinstance(traits, AppendTraits) and traits.sealed:
        sealed = "<Sealed>true</Sealed>"
    lease = "" if is_snapshot else _lease(blob.lease, now)
    copied = _copy(blob.copied) if blob.copied is not None and "copy" in include else ""
    tagged = f"<TagCount>{len(blob.tags)}</TagCount>" if blob.tags else ""
    kind = f"<BlobType>{blob.kind.value}</BlobType>"
    return (
        f"{number}{kind}{_tier(blob, now)}{lease}{copied}{_ENCRYPTED}{sealed}{tagged}</Properties>"
    )


_SEQUENCE_NUMBER: Final = "x-ms-blob-sequence-number"


def _copy(copied: Copied) -> str:
    shown = (
        f"<CopyId>{format_lease_id(copied.id)}</CopyId>"
        f"{element('CopySource', copied.source)}"
        f"<CopyStatus>{copied.status.value}</CopyStatus>"
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
    """Encodes the optional details after the properties."""
    tagged = tags_element(blob.tags) if blob.tags and "tags" in include else ""
    return tagged + metadata_element(blob.metadata) if "metadata" in include else tagged


def _tier(blob: Blob, now: int) -> str:
    place = tier_state(blob, now)
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
) -> tuple[str, str, str]:
    """Encodes the headers of a blob: before and after the checksum, and without one. Cached,
    because most blobs of a container have the same."""
    before = (
        f"{element('Content-Type', content_type)}{element('Content-Encoding', encoding)}"
        f"{element('Content-Language', language)}<Content-CRC64 />"
    )
    after = (
        f"{element('Cache-Control', cache_control)}{element('Content-Disposition', disposition)}"
    )
    return f"{before}<Content-MD5>", f"</Content-MD5>{after}", f"{before}<Content-MD5 />{after}"


# Shared


def _lease(lease: Lease, now: int) -> str:
    shown = report(lease, now)
    duration = f"<LeaseDuration>{shown.duration}</LeaseDuration>" if shown.duration else ""
    return (
        f"<LeaseStatus>{shown.status}</LeaseStatus><LeaseState>{shown.state}</LeaseState>{duration}"
    )


_IN_USUAL_TIER = f"<BlobType>{BlobKind.BLOCK.value}</BlobType>{_INFERRED_TIER}"
_USUAL_STATE = f"{_IN_USUAL_TIER}{_lease(NoLease(), 0)}{_ENCRYPTED}</Properties>"
"""The state of block blobs without a lease and an explicit tier: nearly all."""
_USUAL_STATE_OF_SNAPSHOTS = f"{_IN_USUAL_TIER}{_ENCRYPTED}</Properties>"


def _endpoint(exchange: Exchange) -> str:
    return f'ServiceEndpoint="{xml.escape_attribute(endpoint(exchange))}"'


_ECHOED: Final = (
    ("prefix", "Prefix"),
    ("marker", "Marker"),
    ("maxresults", "MaxResults"),
    ("delimiter", "Delimiter"),
)


def echo(exchange: Exchange) -> str:
    """Returns the elements that repeat the parameters of the request, if they are present."""
    sent = [(tag, exchange.parameter(name)) for name, tag in _ECHOED]
    return "".join(
        [
            name_element(tag, value) if value else f"<{tag} />"
            for tag, value in sent
            if value is not None
        ]
    )


def _next(marker: str) -> str:
    return f"<NextMarker>{marker}</NextMarker>" if marker else "<NextMarker />"


def format_marker(name: str, snapshot: int = NO_SNAPSHOT) -> str:
    """Formats a marker, which is opaque to clients and may contain characters that XML does not
    allow. The separator between name and snapshot occurs in no name."""
    place = octets(name)
    if snapshot != NO_SNAPSHOT:
        place += b"\xff%d" % snapshot
    return base64.urlsafe_b64encode(place).decode()
