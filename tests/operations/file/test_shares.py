"""Shares with every engine: settings, leases, snapshots, deletion, restoration and listings."""

from __future__ import annotations

from typing import Any

from etagere.clock import TICKS_PER_SECOND
from etagere.engine.interface import ReadTxn
from etagere.model.accounts import AddAccount, RemoveAccount
from etagere.model.files import CreatePermission, NewPermission
from etagere.model.leases import Acquire, Break, Change, LeaseAction, Release, Renew, new_lease_id
from etagere.model.shares import (
    NO_SNAPSHOT,
    GetShare,
    LeaseShare,
    ListShares,
    RestoreShare,
    SetShareMetadata,
    SetSharePolicies,
    SetShareProperties,
    Share,
    ShareName,
    ShareRef,
    ShareRow,
    ShareSettingsChange,
    SnapshotShare,
    SnapshotsOfShare,
    TimedShare,
)
from etagere.operations.accounts import add_account, remove_account
from etagere.operations.file import collections, listing, shares
from etagere.operations.file.permissions import create_permission
from etagere.operations.file.purging import OF_SHARES, may_purge
from tests.operations.blob.consistency import rows
from tests.operations.file.fixture import SHARE, FileFixture, file_test
from tests.operations.fixture import ACCOUNT, code_of
from tests.operations.pages import filled

DAY = 24 * 3_600 * TICKS_PER_SECOND
OTHER = ShareName(ACCOUNT, "other")
A, B = new_lease_id(), new_lease_id()


async def _get(files: FileFixture, snapshot: int | None = None, **asked: Any) -> TimedShare:
    return await files.read(shares.get_share, GetShare(ShareRef(SHARE, snapshot), **asked))


async def _lease(
    files: FileFixture, action: LeaseAction, snapshot: int | None = None
) -> TimedShare:
    return await files.write(shares.lease_share, LeaseShare(ShareRef(SHARE, snapshot), action))


async def _restore(files: FileFixture, version: int, name: ShareName = SHARE) -> Share:
    return await files.write(shares.restore_share, RestoreShare(name, SHARE.name, version))


@file_test
async def test_shares_are_created_changed_and_deleted(files: FileFixture) -> None:
    made = await files.create()
    assert (made.settings.quota_gib, made.settings.tier) == (5_120, "TransactionOptimized")
    assert await code_of(files.create()) == "ShareAlreadyExists"
    changed = await files.write(
        shares.set_share_properties,
        SetShareProperties(SHARE, ShareSettingsChange(quota_gib=7, tier="Hot")),
    )
    assert (changed.settings.quota_gib, changed.settings.tier) == (7, "Hot")
    assert changed.tier_changed
    assert changed.stamp > made.stamp
    await files.write(shares.set_share_metadata, SetShareMetadata(SHARE, (("k", "v"),)))
    last = await files.write(shares.set_share_policies, SetSharePolicies(SHARE, ()))
    assert (last.settings, last.metadata) == (changed.settings, (("k", "v"),))
    assert (await _get(files)).share == last
    await files.delete_share()
    assert await code_of(_get(files)) == "ShareNotFound"
    assert await code_of(files.put("a")) == "ShareNotFound"
    await files.require_empty()


@file_test
async def test_a_lease_protects_a_share(files: FileFixture) -> None:
    await files.create()
    await _lease(files, Acquire(A, 15))

    async def outcomes(lease_id: bytes | None) -> set[str]:
        properties = SetShareProperties(SHARE, ShareSettingsChange(), lease_id)
        return {
            await code_of(files.write(shares.set_share_properties, properties)),
            await code_of(
                files.write(shares.set_share_metadata, SetShareMetadata(SHARE, (), lease_id))
            ),
            await code_of(
                files.write(shares.set_share_policies, SetSharePolicies(SHARE, (), lease_id))
            ),
        }

    wrong = "LeaseIdMismatchWithContainerOperation"
    assert await outcomes(None) == {"LeaseIdMissing"}
    assert await outcomes(B) == {wrong}
    assert await outcomes(A) == {""}
    assert await code_of(files.delete_share()) == "LeaseIdMissing"
    assert await code_of(files.delete_share(lease_id=B)) == wrong
    assert await code_of(_get(files)) == ""
    assert await code_of(_get(files, lease_id=B)) == wrong
    await files.put("inside")  # files are not protected
    await _lease(files, Renew(A))
    await _lease(files, Change(A, B))
    await _lease(files, Break(0))
    assert await outcomes(B) == {"LeaseLost"}
    assert await outcomes(None) == {""}
    await _lease(files, Release(B))
    await files.delete_share()


@file_test
async def test_snapshots_have_leases_of_their_own(files: FileFixture) -> None:
    await files.create()
    taken = await files.snapshot()
    await _lease(files, Acquire(A, None), taken)
    await files.write(shares.set_share_metadata, SetShareMetadata(SHARE, ()))
    include, refuse = SnapshotsOfShare.INCLUDE, SnapshotsOfShare.REFUSE
    assert await code_of(files.delete_snapshot(taken)) == "LeaseIdMissing"
    assert await code_of(files.delete_share(snapshots=refuse)) == "ShareHasSnapshots"
    assert await code_of(files.delete_share(snapshots=include)) == "DeleteShareWhenSnapshotLeased"
    await files.delete_share(snapshots=SnapshotsOfShare.INCLUDE_LEASED)
    await files.require_empty()


@file_test
async def test_the_time_of_a_deleted_snapshot_is_not_used_again(files: FileFixture) -> None:
    """A client that knows the deleted one would see the other."""
    await files.create()
    first = await files.snapshot()
    await files.delete_snapshot(first)
    assert await files.snapshot() == first + TICKS_PER_SECOND
    assert await code_of(_get(files, first)) == "ShareSnapshotNotFound"


@file_test
async def test_a_snapshot_freezes_the_properties(files: FileFixture) -> None:
    made = await files.create()
    first = await files.snapshot()
    assert first % TICKS_PER_SECOND == 0
    second = (
        await files.write(shares.snapshot_share, SnapshotShare(SHARE, (("own", "value"),)))
    ).snapshot
    assert second == first + TICKS_PER_SECOND
    change = ShareSettingsChange(quota_gib=7)
    await files.write(shares.set_share_properties, SetShareProperties(SHARE, change))
    frozen = (await _get(files, first)).share
    assert (frozen.stamp, frozen.settings, frozen.metadata) == (made.stamp, made.settings, ())
    assert (await _get(files, second)).share.metadata == (("own", "value"),)
    assert (await _get(files, second)).share.stamp > made.stamp
    assert await code_of(_get(files, first + 1)) == "ShareSnapshotNotFound"
    await files.delete_snapshot(first)
    assert await code_of(_get(files, first)) == "ShareSnapshotNotFound"
    assert await code_of(files.names("", first)) == "ShareSnapshotNotFound"


@file_test
async def test_a_new_share_does_not_show_the_files_of_a_deleted_one(files: FileFixture) -> None:
    await files.create()
    await files.mkdir("dir")
    await files.put("dir/f", b"bytes")
    taken = await files.snapshot()
    await files.put("dir/f", b"other")
    descriptor = CreatePermission(SHARE, NewPermission(b"descriptor", b"d" * 32))
    await files.write(create_permission, descriptor)
    await files.delete_share()
    await files.create()
    assert await files.names() == []
    assert await files.usage() == 0
    assert await code_of(files.names("", taken)) == "ShareSnapshotNotFound"
    await files.put("new", b"new")
    await files.purge(rows_max=2)
    assert await files.tree() == {"new": b"new"}
    await files.require_sound()
    await files.delete_share()
    await files.require_empty()

    def left(txn: ReadTxn, _: None) -> int:
        marks = (collections.SHARES_TO_PURGE, collections.HISTORIES_TO_PURGE)
        return sum(len(rows(txn, each)) for each in (*OF_SHARES, *marks))

    assert await files.read(left, None) == 0
    assert not await files.read(may_purge, None)


@file_test
async def test_a_deleted_share_can_be_restored_until_its_retention_ends(
    files: FileFixture,
) -> None:
    files.clock.freeze()
    await files.create()
    await files.put("f", b"bytes")
    taken = await files.snapshot()
    await files.put("f", b"changed")
    await _lease(files, Acquire(A, None))
    await files.delete_share(lease_id=A, retention_days=2)
    (row,) = await files.shares(deleted=True)
    assert row.deleted is not None
    await files.purge()
    await files.require_sound()
    await files.create()
    assert await code_of(_restore(files, row.version)) == "ShareAlreadyExists"
    await files.delete_share()
    assert await code_of(_restore(files, row.version + 1)) == "ShareNotFound"
    await _restore(files, row.version)
    assert await code_of(_restore(files, row.version, OTHER)) == "ShareNotFound"
    assert await files.tree() == {"f": b"changed"}
    assert await files.tree(taken) == {"f": b"bytes"}
    assert await files.shares(deleted=True) == [
        ShareRow(SHARE.name, 0, NO_SNAPSHOT, (await _get(files)).share)
    ]
    await files.delete_share(retention_days=2)
    (row,) = await files.shares(deleted=True)
    files.clock.advance(2 * DAY + TICKS_PER_SECOND)
    assert await files.shares(deleted=True) == []
    assert await code_of(_restore(files, row.version)) == "ShareNotFound"
    assert await files.read(may_purge, None)
    await files.require_empty()


@file_test
async def test_a_deletion_can_be_repeated_for_a_while(files: FileFixture) -> None:
    files.clock.freeze()
    assert await code_of(files.delete_share()) == "ShareNotFound"
    await files.create()
    moment = await files.snapshot()
    await files.delete_share()
    await files.delete_share()
    assert await code_of(files.delete_snapshot(moment)) == "ShareNotFound"
    await files.create()
    await files.put("new")
    assert await code_of(_get(files)) == ""
    await files.delete_share()
    files.clock.advance(29 * TICKS_PER_SECOND)
    await files.delete_share()
    await files.purge()
    assert not await files.read(may_purge, None)
    files.clock.advance(2 * TICKS_PER_SECOND)
    assert await code_of(files.delete_share()) == "ShareNotFound"
    assert await files.read(may_purge, None)
    await files.require_empty()
    assert not await files.read(may_purge, None)


@file_test
async def test_shares_are_listed_in_pages(files: FileFixture) -> None:
    names = [f"share-{number:02}" for number in range(20)]
    for name in names:
        await files.create(ShareName(ACCOUNT, name))
    await files.create(ShareName("neighbour", "share-00"))
    for _ in range(3):
        await files.snapshot(ShareName(ACCOUNT, names[4]))
    await files.delete_share(ShareName(ACCOUNT, names[7]), retention_days=1)
    await files.create(ShareName(ACCOUNT, names[7]))
    assert [row.name for row in await files.shares()] == names
    assert [row.name for row in await files.shares(prefix="share-1")] == names[10:]
    everything = await files.shares(snapshots=True, deleted=True)
    assert [row.name for row in everything] == sorted([*names, *[names[4]] * 3, names[7]])
    assert [row.snapshot == NO_SNAPSHOT for row in everything[4:8]] == [False] * 3 + [True]
    assert [bool(row.deleted) for row in everything if row.name == names[7]] == [False, True]
    for limit in (1, 2, 5):
        found: list[ShareRow] = []
        command = ListShares(ACCOUNT, limit, snapshots=True, deleted=True)
        while True:
            page, more = await files.read(
                lambda txn, c: filled(txn, listing.list_shares, c), command
            )
            assert len(page) == limit or more is None
            found += page
            if more is None:
                break
            command = ListShares(ACCOUNT, limit, "", *more[:3], snapshots=True, deleted=True)
        assert found == everything


@file_test
async def test_an_account_with_a_share_cannot_be_removed(files: FileFixture) -> None:
    """A new account of that name must not see the content of the old one, deleted or not."""
    files.clock.freeze()
    await files.write(add_account, AddAccount(ACCOUNT, b"key one", b"key two"))
    await files.create()
    removal = RemoveAccount(ACCOUNT)
    assert await code_of(files.write(remove_account, removal)) == "AccountProtectedFromDeletion"
    await files.delete_share(retention_days=1)
    assert await code_of(files.write(remove_account, removal)) == "AccountProtectedFromDeletion"
    files.clock.advance(DAY + TICKS_PER_SECOND)
    await files.purge()
    await files.write(remove_account, removal)
