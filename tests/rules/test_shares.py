"""The rules for settings of shares."""

from __future__ import annotations

import pytest

from etagere.errors import Refusal
from etagere.model.shares import (
    PaidBursting,
    RootSquash,
    ShareProtocol,
    ShareSettings,
    ShareSettingsChange,
)
from etagere.rules.shares import (
    ProvisionedPerformance,
    changed_settings,
    default_settings,
    parse_share_tier,
    provisioned_performance,
)

SMB = ShareSettings()
NFS = default_settings(ShareProtocol.NFS)


def test_new_shares_for_nfs_are_premium() -> None:
    assert (NFS.tier, NFS.quota_gib) == ("Premium", 100)
    smb = default_settings(ShareProtocol.SMB)
    assert (smb.tier, smb.quota_gib, smb.protocol_shown) == ("TransactionOptimized", 5_120, True)
    assert default_settings(None) == SMB


@pytest.mark.parametrize("protocol", [None, *ShareProtocol])
def test_new_shares_of_premium_accounts_are_premium(protocol: ShareProtocol | None) -> None:
    made = default_settings(protocol, premium_account=True)
    assert (made.tier, made.quota_gib) == ("Premium", 100)
    assert (made.protocol, made.protocol_shown) == (protocol or ShareProtocol.SMB, True)


def test_what_a_change_omits_stays() -> None:
    change = ShareSettingsChange(quota_gib=3, paid_bursting=PaidBursting(iops_max=500))
    first = changed_settings(SMB, change)
    assert first == ShareSettings(quota_gib=3, paid_bursting=PaidBursting(iops_max=500))
    assert isinstance(first, ShareSettings)
    change = ShareSettingsChange(tier="Hot", paid_bursting=PaidBursting(enabled=False))
    assert changed_settings(first, change) == ShareSettings(
        quota_gib=3, tier="Hot", paid_bursting=PaidBursting(enabled=False, iops_max=500)
    )
    assert changed_settings(first, ShareSettingsChange()) == first


@pytest.mark.parametrize(
    "change",
    [
        ShareSettingsChange(root_squash=RootSquash.ALL_SQUASH),
        ShareSettingsChange(snapshot_virtual_directory=False),
    ],
)
def test_some_settings_are_only_for_nfs(change: ShareSettingsChange) -> None:
    assert isinstance(changed_settings(NFS, change), ShareSettings)
    no_change = ShareSettingsChange(root_squash=RootSquash.NO_ROOT_SQUASH)
    assert changed_settings(SMB, no_change) == SMB
    refusal = changed_settings(SMB, change)
    assert isinstance(refusal, Refusal)
    assert refusal.code == "InvalidHeaderValue"


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (ShareSettingsChange(provisioned_iops=99), "FileShareProvisionedIopsInvalid"),
        (ShareSettingsChange(provisioned_iops=102_401), "FileShareProvisionedIopsInvalid"),
        (
            ShareSettingsChange(paid_bursting=PaidBursting(iops_max=102_401)),
            "FileShareProvisionedIopsInvalid",
        ),
        (
            ShareSettingsChange(provisioned_bandwidth_mibps=0),
            "FileShareProvisionedBandwidthInvalid",
        ),
        (
            ShareSettingsChange(paid_bursting=PaidBursting(bandwidth_max_mibps=10_341)),
            "FileShareProvisionedBandwidthInvalid",
        ),
    ],
)
def test_performance_is_limited(change: ShareSettingsChange, code: str) -> None:
    refusal = changed_settings(SMB, change)
    assert isinstance(refusal, Refusal)
    assert refusal.code == code


def test_tiers_are_named_in_any_case() -> None:
    assert parse_share_tier("TRANSACTIONoptimized") == "TransactionOptimized"
    assert parse_share_tier("cool") == "Cool"
    assert parse_share_tier("premium") == "Premium"
    assert parse_share_tier("Archive") is None


def test_performance_of_a_standard_share_is_what_was_provisioned() -> None:
    assert provisioned_performance(SMB) == ProvisionedPerformance()
    settings = ShareSettings(provisioned_iops=500, provisioned_bandwidth_mibps=150)
    expected = ProvisionedPerformance(500, 150, None, None, 5_000, 4_500 * 3_600)
    assert provisioned_performance(settings) == expected


@pytest.mark.parametrize(
    ("quota", "expected"),
    [
        # As the service answers for 100 GiB.
        (100, (3_100, 110, 110, 110)),
        (1, (3_001, 102, 102, 102)),
        (102_400, (102_400, 10_340, 10_340, 10_340)),
    ],
)
def test_performance_of_a_premium_share_follows_from_its_quota(
    quota: int, expected: tuple[int, ...]
) -> None:
    settings = ShareSettings(quota_gib=quota, tier="Premium")
    assert provisioned_performance(settings)[:4] == expected
