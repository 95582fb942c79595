"""Rules for the settings of shares."""

from __future__ import annotations

from typing import Final, NamedTuple

from msgspec.structs import replace

from etagere.errors import Refusal
from etagere.model.shares import (
    PaidBursting,
    RootSquash,
    ShareProtocol,
    ShareSettings,
    ShareSettingsChange,
)

QUOTA_GIB_MIN: Final = 1
QUOTA_GIB_MAX: Final = 102_400
IOPS_MIN: Final = 100
IOPS_MAX: Final = 102_400
BANDWIDTH_MIBPS_MIN: Final = 1
BANDWIDTH_MIBPS_MAX: Final = 10_340

PREMIUM: Final = "Premium"
"""The tier of provisioned shares: all shares of premium accounts, and in other accounts those for
which clients choose it."""
_TIERS: Final = {tier.lower(): tier for tier in ("TransactionOptimized", "Hot", "Cool", PREMIUM)}


_PREMIUM_QUOTA_GIB: Final = 100
"""The quota of new premium shares, unless clients set another one."""


def default_settings(
    named: ShareProtocol | None, *, premium_account: bool = False
) -> ShareSettings:
    """Returns the settings of a new share for which the client has named a protocol, or None. Only
    premium shares can be mounted with NFS."""
    if premium_account or named is ShareProtocol.NFS:
        protocol = named or ShareProtocol.SMB
        return ShareSettings(_PREMIUM_QUOTA_GIB, PREMIUM, protocol, protocol_shown=True)
    return ShareSettings(protocol_shown=named is not None)


def parse_share_tier(written: str) -> str | None:
    """Returns the access tier of this name; None if there is none."""
    return _TIERS.get(written.lower())


def changed_settings(old: ShareSettings, change: ShareSettingsChange) -> ShareSettings | Refusal:
    """Returns the settings of a share after a change; a new one is a change of the defaults."""
    if old.protocol is not ShareProtocol.NFS:
        if change.root_squash not in (None, RootSquash.NO_ROOT_SQUASH):
            return _needs_nfs("x-ms-root-squash")
        if change.snapshot_virtual_directory is not None:
            return _needs_nfs("x-ms-enable-snapshot-virtual-directory-access")
    bursting = replace(old.paid_bursting, **_given(change.paid_bursting))
    fields = {**_given(change), "paid_bursting": bursting}
    return _check_performance(change) or replace(old, **fields)


def _given(change: ShareSettingsChange | PaidBursting) -> dict[str, object]:
    fields = {name: getattr(change, name) for name in change.__struct_fields__}
    return {name: value for name, value in fields.items() if value is not None}


def _needs_nfs(header: str) -> Refusal:
    return Refusal("InvalidHeaderValue", {"HeaderName": header})


def _check_performance(change: ShareSettingsChange) -> Refusal | None:
    bursting = change.paid_bursting
    for iops in (change.provisioned_iops, bursting.iops_max):
        if iops is not None and not IOPS_MIN <= iops <= IOPS_MAX:
            return Refusal("FileShareProvisionedIopsInvalid")
    for bandwidth in (change.provisioned_bandwidth_mibps, bursting.bandwidth_max_mibps):
        if bandwidth is not None and not BANDWIDTH_MIBPS_MIN <= bandwidth <= BANDWIDTH_MIBPS_MAX:
            return Refusal("FileShareProvisionedBandwidthInvalid")
    return None


# Provisioned performance


class ProvisionedPerformance(NamedTuple):
    """The performance that a provisioned share reports; it is not enforced. None: not reported."""

    iops: int | None = None
    bandwidth_mibps: int | None = None
    ingress_mibps: int | None = None
    egress_mibps: int | None = None
    burst_iops: int | None = None
    burst_credits: int | None = None


def provisioned_performance(settings: ShareSettings) -> ProvisionedPerformance:
    """Returns what clients have provisioned. Premium shares derive the rest from their quota, as in
    the public description of premium file shares."""
    iops, bandwidth = settings.provisioned_iops, settings.provisioned_bandwidth_mibps
    burst_iops = burst_credits = None
    if iops is not None:
        burst_iops = min(max(3 * iops, _BURST_IOPS_MIN), IOPS_MAX)
        burst_credits = (burst_iops - iops) * _BURST_SECONDS
    if settings.tier != PREMIUM:
        return ProvisionedPerformance(iops, bandwidth, None, None, burst_iops, burst_credits)
    if iops is None:
        iops = min(3_000 + settings.quota_gib, IOPS_MAX)
    if bandwidth is None:
        # 0.04 MiB/s per GiB to write and 0.06 to read, each rounded up.
        ingress, egress = -(-settings.quota_gib // 25), -(-3 * settings.quota_gib // 50)
        bandwidth = min(100 + ingress + egress, BANDWIDTH_MIBPS_MAX)
    # All of the bandwidth can be used in either direction.
    return ProvisionedPerformance(iops, bandwidth, bandwidth, bandwidth, burst_iops, burst_credits)


_BURST_IOPS_MIN: Final = 5_000
_BURST_SECONDS: Final = 3_600
