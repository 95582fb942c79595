"""Encoding of shares: response headers, and rows of listings."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from etagere.clock import TICKS_PER_SECOND
from etagere.model.shares import NO_SNAPSHOT, Share, ShareProtocol, ShareRow, TimedShare
from etagere.protocol.codecs import xml
from etagere.protocol.file.decode_shares import format_marker, format_version
from etagere.protocol.rest import leases
from etagere.protocol.rest.exchange import Exchange
from etagere.protocol.rest.metadata import metadata_element, metadata_headers
from etagere.protocol.rest.requests import endpoint
from etagere.protocol.rest.responses import Headers, http_date, stamp_headers
from etagere.rules.conditions import format_etag
from etagere.rules.dates import format_instant
from etagere.rules.leases import LeaseReport, report
from etagere.rules.shares import PREMIUM, provisioned_performance

_TIERS_SINCE: Final = "2019-12-12"
_LEASES_SINCE: Final = "2020-02-10"
_SNAPSHOT_DIRECTORY_SINCE: Final = "2023-08-03"
"""The first version that shows whether clients see snapshots as directories of an NFS share."""
_DAY_TICKS: Final = 24 * 3_600 * TICKS_PER_SECOND

# Settings have a header and, in listings, an element.
_Setting = tuple[str, str, str]
_ENCRYPTION_SCOPE: Final = (
    "<DefaultEncryptionScope>$account-encryption-key</DefaultEncryptionScope>"
    "<DenyEncryptionScopeOverride>false</DenyEncryptionScopeOverride>"
)


def _settings(share: Share, version: str, *, with_tier: bool = True) -> Iterator[_Setting]:
    """Yields header, element and value of each setting that is shown, in the order of the elements.

    Shares show the settings that those of a standard account have, and in addition those that were
    set. Premium shares also show their provisioned performance.
    """
    settings = share.settings
    yield "x-ms-share-quota", "Quota", str(settings.quota_gib)
    is_nfs = settings.protocol is ShareProtocol.NFS
    if settings.protocol_shown:
        yield "x-ms-enabled-protocols", "EnabledProtocols", settings.protocol.value
    if is_nfs:
        yield "x-ms-root-squash", "RootSquash", settings.root_squash.value
    if is_nfs and version >= _SNAPSHOT_DIRECTORY_SINCE:
        yield (
            "x-ms-enable-snapshot-virtual-directory-access",
            "EnableSnapshotVirtualDirectoryAccess",
            _word(settings.snapshot_virtual_directory),
        )
    if with_tier and version >= _TIERS_SINCE:
        yield "x-ms-access-tier", "AccessTier", settings.tier
        if settings.tier != PREMIUM:
            changed = http_date(share.tier_changed or share.created)
            yield "x-ms-access-tier-change-time", "AccessTierChangeTime", changed
    yield from _performance(share)
    if settings.smb_directory_lease is not None:
        shown = _word(settings.smb_directory_lease)
        yield "x-ms-enable-smb-directory-lease", "EnableSmbDirectoryLease", shown


def _performance(share: Share) -> Iterator[_Setting]:
    provisioned = provisioned_performance(share.settings)
    bursting = share.settings.paid_bursting
    values = (*provisioned, bursting.iops_max, bursting.bandwidth_max_mibps)
    for (header, element), value in zip(_PERFORMANCE, values, strict=True):
        if value is not None:
            yield header, element, str(value)
    if bursting.enabled is not None:
        shown = _word(bursting.enabled)
        yield "x-ms-share-paid-bursting-enabled", "PaidBurstingEnabled", shown
    # All may be lowered at any time: since the last change.
    since = http_date(share.stamp)
    if share.settings.tier == PREMIUM:
        yield (
            "x-ms-share-next-allowed-quota-downgrade-time",
            "NextAllowedQuotaDowngradeTime",
            since,
        )
    if share.settings.provisioned_iops is not None:
        yield (
            "x-ms-share-next-allowed-provisioned-iops-downgrade-time",
            "NextAllowedProvisionedIopsDowngradeTime",
            since,
        )
    if share.settings.provisioned_bandwidth_mibps is not None:
        yield (
            "x-ms-share-next-allowed-provisioned-bandwidth-downgrade-time",
            "NextAllowedProvisionedBandwidthDowngradeTime",
            since,
        )


_PERFORMANCE: Final = (
    ("x-ms-share-provisioned-iops", "ProvisionedIops"),
    ("x-ms-share-provisioned-bandwidth-mibps", "ProvisionedBandwidthMiBps"),
    ("x-ms-share-provisioned-ingress-mbps", "ProvisionedIngressMBps"),
    ("x-ms-share-provisioned-egress-mbps", "ProvisionedEgressMBps"),
    ("x-ms-share-included-burst-iops", "IncludedBurstIops"),
    ("x-ms-share-max-burst-credits-for-iops", "MaxBurstCreditsForIops"),
    ("x-ms-share-paid-bursting-max-iops", "PaidBurstingMaxIops"),
    ("x-ms-share-paid-bursting-max-bandwidth-mibps", "PaidBurstingMaxBandwidthMibps"),
)
"""Headers and elements of provisioned performance, in the order of `ProvisionedPerformance`, and of
paid bursting."""


def _word(truth: bool) -> str:
    return "true" if truth else "false"


# Headers


def share_headers(result: TimedShare, version: str) -> Headers:
    share = result.share
    headers = stamp_headers(share.stamp)
    headers += metadata_headers(share.metadata)
    if version >= _LEASES_SINCE:
        headers += leases.lease_headers(share.lease, result.now)
    headers += [(header.encode(), value.encode()) for header, _, value in _settings(share, version)]
    headers += [(b"x-ms-has-immutability-policy", b"false"), (b"x-ms-has-legal-hold", b"false")]
    return headers


def changed_share_headers(share: Share, *, with_downgrade_times: bool = False) -> Headers:
    """Returns the headers of a share that was created, changed or restored. Those with provisioned
    performance repeat it."""
    headers, settings = stamp_headers(share.stamp), share.settings
    if settings.provisioned_iops is None and settings.provisioned_bandwidth_mibps is None:
        return headers
    headers.append((b"x-ms-share-quota", b"%d" % settings.quota_gib))
    return headers + [
        (header.encode(), value.encode())
        for header, _, value in _performance(share)
        if header in _REPEATED or (with_downgrade_times and header.endswith("-downgrade-time"))
    ]


_REPEATED: Final = frozenset(
    {
        "x-ms-share-provisioned-iops",
        "x-ms-share-provisioned-bandwidth-mibps",
        "x-ms-share-included-burst-iops",
        "x-ms-share-max-burst-credits-for-iops",
    }
)


# Listings


_ECHOED: Final = {"prefix": "Prefix", "marker": "Marker", "maxresults": "MaxResults"}
"""Parameters that a listing repeats if they were sent, in the order of their elements."""


def shares_start(exchange: Exchange) -> str:
    sent = "".join(
        [
            xml.element(name, value)
            for parameter, name in _ECHOED.items()
            if (value := exchange.parameter(parameter)) is not None
        ]
    )
    address = xml.escape_attribute(endpoint(exchange))
    return f'{xml.DECLARATION}<EnumerationResults ServiceEndpoint="{address}">{sent}<Shares>'


def shares_end(following: ShareRow | None) -> str:
    marker = "" if following is None else format_marker(*following[:3])
    return f"</Shares>{xml.element('NextMarker', marker)}</EnumerationResults>"


_BROKEN: Final = LeaseReport("broken", "unlocked", None)


def share_rows(rows: Sequence[ShareRow], now: int, *, include: set[str], version: str) -> list[str]:
    with_metadata = "metadata" in include
    return [
        f"<Share><Name>{row.name}</Name>{_identification(row)}"
        f"<Properties>{_properties(row, now, version)}</Properties>"
        f"{metadata_element(row.share.metadata) if with_metadata else ''}</Share>"
        for row in rows
    ]


def _identification(row: ShareRow) -> str:
    if row.deleted is not None:
        return f"<Deleted>true</Deleted><Version>{format_version(row.version)}</Version>"
    if row.snapshot != NO_SNAPSHOT:
        return f"<Snapshot>{format_instant(row.snapshot)}</Snapshot>"
    return ""


def _properties(row: ShareRow, now: int, version: str) -> str:
    share = row.share
    parts = [
        f"<Last-Modified>{http_date(share.stamp)}</Last-Modified>"
        f"<Etag>{xml.escape(format_etag(share.stamp))}</Etag>"
    ]
    if version >= _LEASES_SINCE:
        # Deleting a share breaks its lease.
        lease = report(share.lease, now) if row.deleted is None else _BROKEN
        parts.append(f"<LeaseStatus>{lease.status}</LeaseStatus>")
        parts.append(f"<LeaseState>{lease.state}</LeaseState>")
        if lease.duration:
            parts.append(f"<LeaseDuration>{lease.duration}</LeaseDuration>")
    # Listings show the tier of a share only once, not in the rows of its snapshots.
    settings = _settings(share, version, with_tier=row.snapshot == NO_SNAPSHOT)
    parts += [f"<{element}>{value}</{element}>" for _, element, value in settings]
    if version >= _TIERS_SINCE:
        parts.append(_ENCRYPTION_SCOPE)
    if row.deleted is not None:
        # A day that has begun counts.
        days = -(-max(0, row.deleted.expires - now) // _DAY_TICKS)
        parts.append(f"<DeletedTime>{http_date(row.deleted.deleted)}</DeletedTime>")
        parts.append(f"<RemainingRetentionDays>{days}</RemainingRetentionDays>")
    return "".join(parts)


def share_stats(usage_bytes: int) -> bytes:
    return xml.document(
        f"<ShareStats><ShareUsageBytes>{usage_bytes}</ShareUsageBytes></ShareStats>"
    )
