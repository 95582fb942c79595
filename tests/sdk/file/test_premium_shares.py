"""Shares of premium accounts: their defaults, what they report, and the tiers that they refuse."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from azure.storage.fileshare import ShareClient, ShareProperties, ShareServiceClient

from tests.sdk.file.clients import file_service
from tests.sdk.harness import ResponseRecorder, refused
from tests.server import PREMIUM_ACCOUNT, PREMIUM_KEY, Server, unique


@pytest.fixture(scope="module")
def premium(server: Server) -> Iterator[ShareServiceClient]:
    with file_service(server, PREMIUM_ACCOUNT, PREMIUM_KEY) as client:
        yield client


def listed(files: ShareServiceClient, name: str, **options: Any) -> ShareProperties:
    (found,) = files.list_shares(name, **options)
    return found


def performance(shown: ShareProperties) -> tuple[Any, ...]:
    return (
        shown.provisioned_iops,
        shown.provisioned_bandwidth,
        shown.provisioned_ingress_mbps,
        shown.provisioned_egress_mbps,
    )


def test_new_shares_are_premium(premium: ShareServiceClient) -> None:
    answer = ResponseRecorder()
    share = premium.create_share(unique("share"))
    for shown in (
        share.get_share_properties(raw_response_hook=answer),
        listed(premium, share.share_name),
    ):
        assert (shown.quota, shown.access_tier) == (100, "Premium")
        assert performance(shown) == (3_100, 110, 110, 110)
        assert shown.next_allowed_quota_downgrade_time == shown.last_modified
        assert (shown.protocols, shown.root_squash) == (["SMB"], None)
    for absent in ("x-ms-access-tier-change-time", "x-ms-share-included-burst-iops"):
        assert absent not in answer.headers
    premium.delete_share(share.share_name)


def test_performance_follows_the_quota(premium: ShareServiceClient) -> None:
    share = premium.create_share(unique("share"), quota=1_000)
    assert performance(share.get_share_properties()) == (4_000, 200, 200, 200)
    share.set_share_properties(quota=200)
    assert performance(share.get_share_properties()) == (3_200, 120, 120, 120)
    snapshot = premium.get_share_client(share.share_name, share.create_snapshot()["snapshot"])
    share.set_share_properties(quota=300)
    assert performance(snapshot.get_share_properties()) == (3_200, 120, 120, 120)
    share.delete_share(delete_snapshots=True)


def test_shares_for_nfs(premium: ShareServiceClient) -> None:
    share = premium.create_share(unique("share"), protocols="NFS", root_squash="AllSquash")
    for shown in (share.get_share_properties(), listed(premium, share.share_name)):
        assert (shown.protocols, shown.root_squash) == (["NFS"], "AllSquash")
        assert (shown.quota, shown.access_tier) == (100, "Premium")
    share.delete_share()


@pytest.mark.parametrize("tier", ["TransactionOptimized", "Hot", "Cool"])
def test_other_tiers_are_refused(premium: ShareServiceClient, tier: str) -> None:
    share: ShareClient = premium.get_share_client(unique("share"))
    with refused(400, "InvalidHeaderValue") as error:
        share.create_share(access_tier=tier)
    assert error.details["headername"] == "x-ms-access-tier"
    with refused(404, "ShareNotFound"):
        share.get_share_properties()
    share.create_share(access_tier="Premium")
    with refused(400, "InvalidHeaderValue"):
        share.set_share_properties(access_tier=tier, quota=300)
    shown = share.get_share_properties()
    assert (shown.quota, shown.access_tier) == (100, "Premium")
    share.set_share_properties(access_tier="Premium")
    share.delete_share()


def test_other_accounts_are_not_premium(files: ShareServiceClient, share: ShareClient) -> None:
    shown = listed(files, share.share_name)
    assert (shown.quota, shown.access_tier) == (5_120, "TransactionOptimized")
    assert performance(shown) == (None, None, None, None)
