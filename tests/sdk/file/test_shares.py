"""Shares: creation, settings, metadata, access policies, leases, snapshots, deletion, listings."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from azure.storage.fileshare import (
    AccessPolicy,
    ShareClient,
    ShareLeaseClient,
    ShareProperties,
    ShareSasPermissions,
    ShareServiceClient,
)

from tests.sdk.file.clients import async_file_service, file_service
from tests.sdk.file.service_settings import keep_deleted_shares
from tests.sdk.harness import HOUR, ResponseRecorder, refused, with_headers
from tests.server import SECOND_ACCOUNT, SECOND_KEYS, Server, unique

A, B = str(uuid.uuid4()), str(uuid.uuid4())


def test_create_and_properties(files: ShareServiceClient) -> None:
    answer = ResponseRecorder()
    share = files.get_share_client(unique("share"))
    made = share.create_share(metadata={"Some": "thing"}, raw_response_hook=answer)
    assert answer.status == 201
    assert "x-ms-share-quota" not in answer.headers
    shown = share.get_share_properties(raw_response_hook=answer)
    assert shown.name == share.share_name
    assert (shown.etag, shown.last_modified) == (made["etag"], made["last_modified"])
    assert abs(datetime.now(UTC) - shown.last_modified) < timedelta(minutes=1)
    assert shown.metadata == {"Some": "thing"}
    assert (shown.quota, shown.access_tier) == (5_120, "TransactionOptimized")
    assert (shown.lease.status, shown.lease.state, shown.lease.duration) == (
        "unlocked",
        "available",
        None,
    )
    assert shown.protocols is None
    assert shown.root_squash is None
    assert answer.headers["x-ms-has-immutability-policy"] == "false"
    assert answer.headers["x-ms-has-legal-hold"] == "false"
    assert answer.headers["x-ms-access-tier-change-time"] == answer.headers["last-modified"]
    unset = ("provisioned", "bursting", "directory", "protocols", "root-squash")
    assert not [name for name in answer.headers if any(word in name for word in unset)]
    with refused(409, "ShareAlreadyExists"):
        share.create_share()
    share.delete_share(raw_response_hook=answer)
    assert answer.status == 202
    with refused(404, "ShareNotFound"):
        share.get_share_properties()
    share.create_share()
    share.delete_share()


def test_what_older_versions_do_not_have(share: ShareClient) -> None:
    answer = ResponseRecorder()
    share.get_share_properties(
        raw_request_hook=with_headers(x_ms_version="2019-02-02"), raw_response_hook=answer
    )
    assert not [name for name in answer.headers if "lease" in name or "tier" in name]


def test_a_missing_share(files: ShareServiceClient) -> None:
    share = files.get_share_client(unique("share"))
    for call in (
        share.delete_share,
        share.get_share_properties,
        share.get_share_access_policy,
        share.get_share_stats,
        share.create_snapshot,
        share.acquire_lease,
        lambda: share.set_share_metadata({"a": "b"}),
        lambda: share.set_share_quota(1),
        lambda: share.set_share_access_policy({}),
        lambda: share.create_permission_for_share("O:SYG:SYD:"),
    ):
        with refused(404, "ShareNotFound"):
            call()


@pytest.mark.parametrize("name", ["ab", "a" * 64])
def test_names_of_a_wrong_length(files: ShareServiceClient, name: str) -> None:
    with refused(400, "OutOfRangeInput"):
        files.create_share(name)


@pytest.mark.parametrize("name", ["Upper", "two--hyphens", "-start", "end-", "under_score", "ünï"])
def test_names_with_wrong_characters(files: ShareServiceClient, name: str) -> None:
    with refused(400, "InvalidResourceName") as error:
        files.create_share(name)
    assert "The specifed resource name contains invalid characters." in error.message


def test_settings(share: ShareClient) -> None:
    first = share.get_share_properties()
    share.set_share_properties(quota=3, access_tier="Cool")
    second = share.get_share_properties()
    assert (second.quota, second.access_tier) == (3, "Cool")
    assert second.etag != first.etag
    share.set_share_quota(102_400)
    assert share.get_share_properties().quota == 102_400
    assert share.get_share_properties().access_tier == "Cool"
    for headers in (
        {"x_ms_share_quota": "0"},
        {"x_ms_share_quota": "102401"},
        {"x_ms_share_quota": "much"},
        {"x_ms_access_tier": "Archive"},
        {"x_ms_root_squash": "AllSquash"},
        {"x_ms_enable_smb_directory_lease": "perhaps"},
    ):
        with refused(400, "InvalidHeaderValue"):
            share.set_share_properties(access_tier="Hot", raw_request_hook=with_headers(**headers))
    assert share.get_share_properties().access_tier == "Cool"


def test_performance_is_stored_and_shown(files: ShareServiceClient) -> None:
    answer = ResponseRecorder()
    share = files.get_share_client(unique("share"))
    share.create_share(
        provisioned_iops=500, provisioned_bandwidth_mibps=120, raw_response_hook=answer
    )
    assert answer.headers["x-ms-share-quota"] == "5120"
    assert answer.headers["x-ms-share-provisioned-iops"] == "500"
    assert answer.headers["x-ms-share-included-burst-iops"] == "5000"
    times = ("iops", "bandwidth")
    times_headers = [f"x-ms-share-next-allowed-provisioned-{each}-downgrade-time" for each in times]
    assert not set(times_headers) & set(answer.headers)
    share.set_share_properties(
        access_tier="Hot",
        paid_bursting_enabled=True,
        paid_bursting_iops=700,
        paid_bursting_bandwidth_mibps=300,
        raw_response_hook=answer,
    )
    assert set(times_headers) < set(answer.headers)
    shown = share.get_share_properties()
    assert (shown.provisioned_iops, shown.provisioned_bandwidth) == (500, 120)
    assert shown.paid_bursting_enabled is True
    assert (shown.paid_bursting_iops, shown.paid_bursting_bandwidth_mibps) == (700, 300)
    (row,) = files.list_shares(name_starts_with=share.share_name)
    assert (row.provisioned_iops, row.provisioned_bandwidth) == (500, 120)
    assert (row.paid_bursting_enabled, row.paid_bursting_iops) == (True, 700)
    with refused(400, "FileShareProvisionedIopsInvalid"):
        share.set_share_properties(quota=1, provisioned_iops=5)
    with refused(400, "FileShareProvisionedBandwidthInvalid"):
        share.set_share_properties(quota=1, provisioned_bandwidth_mibps=1_000_000)
    share.delete_share()


def test_premium_shares(files: ShareServiceClient) -> None:
    share = files.create_share(unique("share"), quota=100, access_tier="Premium")
    answer = ResponseRecorder()
    shown = share.get_share_properties(raw_response_hook=answer)
    (row,) = files.list_shares(share.share_name)
    for each in (shown, row):
        assert (each.access_tier, each.quota) == ("Premium", 100)
        assert (each.provisioned_iops, each.provisioned_bandwidth) == (3_100, 110)
        assert (each.provisioned_ingress_mbps, each.provisioned_egress_mbps) == (110, 110)
        assert each.next_allowed_quota_downgrade_time is not None
    assert "x-ms-access-tier-change-time" not in answer.headers
    share.delete_share()


def test_shares_for_nfs(files: ShareServiceClient) -> None:
    share = files.get_share_client(unique("share"))
    share.create_share(protocols="NFS", root_squash="RootSquash")
    shown = share.get_share_properties()
    assert (shown.protocols, shown.root_squash) == (["NFS"], "RootSquash")
    assert shown.enable_snapshot_virtual_directory_access is True
    share.set_share_properties(
        root_squash="AllSquash", enable_snapshot_virtual_directory_access=False
    )
    (row,) = files.list_shares(name_starts_with=share.share_name)
    assert (row.protocols, row.root_squash) == (["NFS"], "AllSquash")
    assert row.enable_snapshot_virtual_directory_access is False
    share.delete_share()
    share.create_share(protocols="SMB")
    assert share.get_share_properties().protocols == ["SMB"]
    share.delete_share()


def test_metadata(share: ShareClient) -> None:
    before = share.get_share_properties()
    changed = share.set_share_metadata({"One": "1", "two": "zwei"})
    assert changed["etag"] != before.etag
    assert share.get_share_properties().metadata == {"One": "1", "two": "zwei"}
    share.set_share_metadata({})
    assert share.get_share_properties().metadata == {}


def test_access_policies(share: ShareClient) -> None:
    assert share.get_share_access_policy()["signed_identifiers"] == []
    start = datetime(2026, 1, 2, tzinfo=UTC)
    policy = AccessPolicy(ShareSasPermissions(read=True, write=True), start + HOUR, start)
    changed = share.set_share_access_policy({"one": policy, "two": AccessPolicy()})
    shown = share.get_share_access_policy()
    assert shown["signed_identifiers"][0].id == "one"
    assert shown["signed_identifiers"][0].access_policy.permission == "rw"
    assert [each.id for each in shown["signed_identifiers"]] == ["one", "two"]
    assert changed["etag"] == share.get_share_properties().etag
    share.set_share_access_policy({})
    assert share.get_share_access_policy()["signed_identifiers"] == []


def test_statistics_and_account_separation(server: Server, share: ShareClient) -> None:
    answer = ResponseRecorder()
    assert share.get_share_stats(raw_response_hook=answer) == 0
    assert "etag" not in answer.headers
    with file_service(server, SECOND_ACCOUNT, SECOND_KEYS[0]) as other:
        assert not list(other.list_shares(share.share_name))
        with refused(404, "ShareNotFound"):
            other.get_share_client(share.share_name).get_share_properties()


# Leases


def test_lease_actions(share: ShareClient) -> None:
    before = share.get_share_properties()
    answer = ResponseRecorder()
    lease = share.acquire_lease(lease_duration=-1, lease_id=A, raw_response_hook=answer)
    assert (answer.status, lease.id, answer.headers["x-ms-lease-id"]) == (201, A, A)
    shown = share.get_share_properties()
    assert (shown.etag, shown.last_modified) == (before.etag, before.last_modified)
    assert (shown.lease.status, shown.lease.state, shown.lease.duration) == (
        "locked",
        "leased",
        "infinite",
    )
    assert share.acquire_lease(lease_id=A).id == A
    with refused(409, "LeaseAlreadyPresent"):
        share.acquire_lease(lease_id=B)
    lease.change(B)
    assert lease.id == B
    lease.renew()
    lease.release(raw_response_hook=answer)
    assert (answer.status, answer.headers["x-ms-lease-time"]) == (200, "0")
    lease = share.acquire_lease(lease_duration=15)
    assert share.get_share_properties().lease.duration == "fixed"
    assert lease.break_lease(lease_break_period=5) <= 5
    assert lease.break_lease(lease_break_period=0) == 0
    with refused(412, "LeaseLost") as error:
        share.delete_share(lease=lease)
    assert (
        "A lease ID was specified, but the lease for the file share has expired." in error.message
    )
    for duration in (14, 61):
        with refused(400, "InvalidHeaderValue"):
            share.acquire_lease(lease_duration=duration)


def test_what_a_lease_protects(share: ShareClient) -> None:
    lease = share.acquire_lease(lease_id=A)
    wrong: Any = {"lease": B}
    for call in (
        share.delete_share,
        lambda **options: share.set_share_metadata({"a": "b"}, **options),
        lambda **options: share.set_share_quota(2, **options),
        lambda **options: share.set_share_access_policy({}, **options),
    ):
        with refused(412, "LeaseIdMissing") as error:
            call()
        assert "There is currently a lease on the file share" in error.message
        with refused(412, "LeaseIdMismatchWithContainerOperation"):
            call(**wrong)
    for read in (share.get_share_properties, share.get_share_stats, share.get_share_access_policy):
        read()
        read(lease=lease)
        with refused(412, "LeaseIdMismatchWithContainerOperation") as error:
            read(lease=B)
        assert "did not match the lease ID for the file share." in error.message
    share.set_share_metadata({"a": "b"}, lease=lease)
    share.set_share_quota(2, lease=lease)
    share.set_share_access_policy({}, lease=lease)
    share.create_snapshot()
    share.delete_share(delete_snapshots=True, lease=lease)


# Snapshots


def test_snapshots(files: ShareServiceClient, share: ShareClient) -> None:
    before = share.get_share_properties()
    first = share.create_snapshot()
    assert first["snapshot"].endswith(".0000000Z")
    assert (first["etag"], first["last_modified"]) == (before.etag, before.last_modified)
    second = share.create_snapshot(metadata={"of": "second"})
    assert second["snapshot"] > first["snapshot"]
    assert second["etag"] != before.etag
    share.set_share_properties(quota=9)
    share.set_share_metadata({"now": "other"})
    old = files.get_share_client(share.share_name, snapshot=first["snapshot"])
    shown = old.get_share_properties()
    assert (shown.quota, shown.metadata, shown.etag) == (5_120, {}, before.etag)
    new = files.get_share_client(share.share_name, snapshot=second["snapshot"])
    assert new.get_share_properties().metadata == {"of": "second"}
    listed = list(
        files.list_shares(share.share_name, include_snapshots=True, include_metadata=True)
    )
    assert [row.snapshot for row in listed] == [first["snapshot"], second["snapshot"], None]
    assert [row.metadata or {} for row in listed] == [{}, {"of": "second"}, {"now": "other"}]
    old.delete_share()
    with refused(404, "ShareSnapshotNotFound"):
        old.get_share_properties()
    with refused(409, "ShareHasSnapshots") as error:
        share.delete_share()
    assert "The share has snapshots and the operation requires no snapshots." in error.message
    share.delete_share(delete_snapshots=True)


def test_leases_of_snapshots(files: ShareServiceClient, share: ShareClient) -> None:
    taken = share.create_snapshot()
    snapshot = files.get_share_client(share.share_name, snapshot=taken["snapshot"])
    lease = snapshot.acquire_lease(lease_id=A)
    assert snapshot.get_share_properties().lease.state == "leased"
    assert share.get_share_properties().lease.state == "available"
    with refused(412, "LeaseIdMissing"):
        snapshot.delete_share()
    with refused(409, "DeleteShareWhenSnapshotLeased") as error:
        share.delete_share(delete_snapshots="include")
    assert "Unable to delete share because one or more share snapshots" in error.message
    lease.release()
    snapshot.acquire_lease(lease_id=B)
    share.delete_share(delete_snapshots="include-leased")
    with refused(404, "ShareNotFound"):
        share.get_share_properties()


# Restoration


@pytest.fixture
def retention(server: Server) -> Iterator[None]:
    keep_deleted_shares(server, 7)
    yield
    keep_deleted_shares(server, 0)


@pytest.mark.usefixtures("retention")
def test_deleted_shares_are_restored(files: ShareServiceClient) -> None:
    name = unique("share")
    share = files.create_share(name, metadata={"kept": "yes"})
    before = share.get_share_properties()
    share.create_snapshot()
    share.delete_share(delete_snapshots=True)
    assert list(files.list_shares(name)) == []
    (deleted,) = files.list_shares(name, include_deleted=True, include_metadata=True)
    assert deleted.deleted is True
    assert deleted.deleted_time is not None
    assert deleted.version is not None
    assert deleted.metadata == {"kept": "yes"}
    assert abs(datetime.now(UTC) - deleted.deleted_time) < timedelta(minutes=1)
    assert deleted.remaining_retention_days in (6, 7)
    with refused(404, "ShareNotFound"):
        files.undelete_share(name, f"{int(deleted.version, 16) + 1:016X}")
    for version in ("", "1", "no version", "g" * 16):
        with refused(400, "InvalidHeaderValue" if version else "MissingRequiredHeader"):
            files.undelete_share(name, version)
    files.create_share(name)
    assert [row.deleted for row in files.list_shares(name, include_deleted=True)] == [None, True]
    with refused(409, "ShareAlreadyExists"):
        files.undelete_share(name, deleted.version)
    # It is kept, too.
    files.delete_share(name)
    restored = files.undelete_share(name, deleted.version)
    shown = restored.get_share_properties()
    assert (shown.metadata, shown.quota) == (before.metadata, before.quota)
    with refused(404, "ShareNotFound"):
        files.undelete_share(unique("share"), deleted.version)
    rows = list(files.list_shares(name, include_deleted=True, include_snapshots=True))
    assert [(row.snapshot is None, row.deleted) for row in rows] == [
        (False, None),
        (True, None),
        (True, True),
    ]
    restored.delete_share(delete_snapshots=True)


# Listings


def test_listing_in_pages(files: ShareServiceClient) -> None:
    prefix = unique("page")
    names = [f"{prefix}-{number}" for number in range(5)]
    for name in names:
        files.create_share(name)
    ShareLeaseClient(files.get_share_client(names[1])).acquire()
    taken = files.get_share_client(names[2]).create_snapshot()["snapshot"]
    expected = [(name, None) for name in names]
    expected.insert(2, (names[2], taken))

    def listed(**options: Any) -> list[tuple[str, str | None]]:
        found: list[tuple[str, str | None]] = []
        token, sizes = None, []
        while True:
            pages: Any = files.list_shares(
                prefix, include_snapshots=True, results_per_page=2, **options
            ).by_page(token)
            page: list[ShareProperties] = list(next(pages))
            found += [(row.name, row.snapshot) for row in page]
            sizes.append(len(page))
            token = pages.continuation_token
            if not token:
                assert sizes == [2, 2, 2]
                return found

    assert listed() == expected
    rows = {row.name: row for row in files.list_shares(prefix)}
    assert list(rows) == names
    assert rows[names[0]].lease.state == "available"
    assert (rows[names[1]].lease.state, rows[names[1]].lease.duration) == ("leased", "infinite")
    assert rows[names[0]].etag == files.get_share_client(names[0]).get_share_properties().etag
    assert not list(files.list_shares(f"{prefix}-x"))
    ShareLeaseClient(files.get_share_client(names[1])).break_lease()
    for name in names:
        files.delete_share(name, delete_snapshots=True)


def test_the_asynchronous_client(server: Server) -> None:
    async def work() -> None:
        async with async_file_service(server) as files:
            share = await files.create_share(unique("share"), metadata={"a": "b"})
            assert (await share.get_share_properties()).metadata == {"a": "b"}
            taken = await share.create_snapshot()
            rows = [
                row.snapshot
                async for row in files.list_shares(share.share_name, include_snapshots=True)
            ]
            assert rows == [taken["snapshot"], None]
            lease = await share.acquire_lease(lease_id=A)
            with refused(412, "LeaseIdMissing"):
                await share.delete_share(delete_snapshots=True)
            await lease.release()
            key = await share.create_permission_for_share("O:SYG:SYD:")
            assert (await share.get_permission_for_share(str(key))).startswith("O:SYG:SYD:")
            await share.delete_share(delete_snapshots=True)

    asyncio.run(work())
