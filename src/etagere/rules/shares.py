"""Rules for the settings of shares."""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from etagere.errors import Refusal
from etagere.model.shares import (
    PaidBursting,
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

_TIERS: Final = {tier.lower(): tier for tier in ("TransactionOptimized", "Hot", "Cool")}


def parse_share_tier(written: str) -> str | None:
    """Returns the access tier of this name; None if there is none."""
    return _TIERS.get(written.lower())


def changed_settings(old: ShareSettings, change: ShareSettingsChange) -> ShareSettings | Refusal:
    """Returns the settings of a share after a change; a new one is a change of the defaults."""
    if old.protocol is not ShareProtocol.NFS:
        if change.root_squash is not None:
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
