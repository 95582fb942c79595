"""Snapshots with every engine: creating, reading and deleting them."""

from __future__ import annotations

import asyncio

import pytest

from etagere.clock import TICKS_PER_SECOND
from etagere.model.blobs import (
    BlobName,
    DeleteBlob,
    DeleteSnapshot,
    DeleteSnapshots,
    GetBlob,
    SetBlobHeaders,
    SetBlobMetadata,
    SnapshotBlob,
)
from etagere.model.common import ContentHeaders
from etagere.model.conditions import Conditions
from etagere.model.containers import DeleteContainer
from etagere.model.leases import NO_LEASE, Acquire, new_lease_id
from etagere.operations.blob.blobs import (
    delete_blob,
    get_blob,
    set_blob_headers,
    set_blob_metadata,
)
from etagere.operations.blob.containers import delete_container
from etagere.operations.blob.purging import PurgeContainers, purge_containers
from etagere.operations.blob.snapshots import (
    DELETED_TOGETHER_MAX,
    delete_snapshot,
    snapshot_blob,
)
from etagere.rules.conditions import format_etag
from tests.operations.blob.fixture import BOX, BlobFixture, blob_test, committed, latest
from tests.operations.fixture import code_of

NAME = BlobName(BOX, "blob")
SECOND = TICKS_PER_SECOND
LARGE = bytes(range(256)) * 800
MISSING = "BlobNotFound"


async def _delete(
    blobs: BlobFixture, name: str = "blob", snapshots: DeleteSnapshots = DeleteSnapshots.NO
) -> str:
    command = DeleteBlob(BlobName(BOX, name), snapshots=snapshots)
    return await code_of(blobs.write(delete_blob, command))


# Creating


@blob_test
async def test_a_snapshot_has_the_content_and_properties_of_the_blob(blobs: BlobFixture) -> None:
    await blobs.create()
    await blobs.put("blob", b"data", headers=ContentHeaders("text/plain"))
    await blobs.write(set_blob_metadata, SetBlobMetadata(NAME, (("Key", "value"),)))
    leased = await blobs.lease("blob", Acquire(new_lease_id(), None))
    taken = await blobs.write(snapshot_blob, SnapshotBlob(NAME))
    shown = await blobs.read(get_blob, GetBlob(NAME, snapshot=taken.snapshot))
    assert shown.blob == taken.blob
    # ETag and date are those of the blob; only the lease is missing.
    assert taken.blob.stamp == leased.blob.stamp
    assert taken.blob.lease == NO_LEASE
    assert (taken.blob.metadata, taken.blob.headers) == (
        leased.blob.metadata,
        leased.blob.headers,
    )
    assert (await blobs.read(get_blob, GetBlob(NAME))).blob == leased.blob
    assert taken.snapshot > leased.blob.stamp


@blob_test
async def test_a_snapshot_with_other_metadata_has_another_etag(blobs: BlobFixture) -> None:
    await blobs.create()
    await blobs.put("blob", b"data")
    noted = await blobs.write(set_blob_metadata, SetBlobMetadata(NAME, (("Key", "value"),)))
    taken = await blobs.write(snapshot_blob, SnapshotBlob(NAME, (("Other", "1"),)))
    assert taken.blob.metadata == (("Other", "1"),)
    assert taken.blob.stamp == taken.snapshot
    assert taken.blob.created == noted.created
    assert (await blobs.read(get_blob, GetBlob(NAME))).blob == noted


@blob_test
async def test_snapshot_times_are_unique(blobs: BlobFixture) -> None:
    await blobs.create()
    blobs.clock.freeze()
    await blobs.put("blob", b"data")
    taken = await asyncio.gather(*(blobs.snapshot("blob") for _ in range(20)))
    assert len(set(taken)) == 20
    await blobs.require_sound()


@blob_test
async def test_preconditions_of_snapshots(blobs: BlobFixture) -> None:
    assert await code_of(blobs.write(snapshot_blob, SnapshotBlob(NAME))) == "ContainerNotFound"
    await blobs.create()
    assert await code_of(blobs.write(snapshot_blob, SnapshotBlob(NAME))) == MISSING
    blob = await blobs.put("blob", b"data")
    mine, other = new_lease_id(), new_lease_id()

    async def code(lease_id: bytes | None, etag: str | None = None) -> str:
        conditions = Conditions(if_match=(etag,)) if etag else Conditions()
        command = SnapshotBlob(NAME, (), conditions, lease_id)
        return await code_of(blobs.write(snapshot_blob, command))

    assert await code(mine) == "LeaseNotPresentWithBlobOperation"
    blobs.clock.freeze()
    await blobs.lease("blob", Acquire(mine, 15))
    assert await code(None) == ""
    assert await code(mine, format_etag(blob.stamp)) == ""
    assert await code(other) == "LeaseIdMismatchWithBlobOperation"
    assert await code(None, '"0x1"') == "ConditionNotMet"
    assert await code(other, '"0x1"') == "LeaseIdMismatchWithBlobOperation"
    blobs.clock.advance(16 * SECOND)
    assert await code(mine) == "LeaseLost"
    unchanged = Conditions(if_none_match=(format_etag(blob.stamp),))
    command = SnapshotBlob(NAME, (), unchanged)
    assert await code_of(blobs.write(snapshot_blob, command)) == "ConditionNotMet"
    assert await _delete(blobs, snapshots=DeleteSnapshots.INCLUDE) == ""
    await blobs.require_empty()


# Lifetime


@pytest.mark.usefixtures("short_chunks")
@blob_test
async def test_a_snapshot_keeps_its_bytes(blobs: BlobFixture) -> None:
    """For every kind of content, after overwrites, new block lists and changed blocks."""
    await blobs.create()
    taken: dict[int, bytes] = {}
    blocks = {b"%d" % number: b"<%d>" % number for number in range(9)}
    for data in (b"", b"small", LARGE):
        await blobs.put("blob", data)
        taken[await blobs.snapshot("blob")] = data
    await blobs.stage_all("blob", blocks)
    await blobs.commit("blob", latest(*blocks))
    taken[await blobs.snapshot("blob")] = b"".join(blocks.values())
    await blobs.stage("blob", b"3", b"changed")
    await blobs.commit("blob", [*latest(b"3"), *committed(b"8", b"0")])
    taken[await blobs.snapshot("blob")] = b"changed<8><0>"
    await blobs.put("blob", b"last")
    await blobs.purge()
    await blobs.require_sound()
    for moment, data in taken.items():
        assert await blobs.get("blob", snapshot=moment) == data
        if data:
            assert await blobs.get("blob", 2, 9, snapshot=moment) == data[2:10]
        assert await code_of(blobs.get("blob", snapshot=moment + 1)) == MISSING
        assert await code_of(blobs.get("other", snapshot=moment)) == MISSING
    listed = await blobs.block_list("blob", snapshot=list(taken)[3])
    assert [block.name for block in listed.committed] == list(blocks)
    assert await _delete(blobs, snapshots=DeleteSnapshots.INCLUDE) == ""
    await blobs.require_empty()


@blob_test
async def test_uncommitted_blocks_are_not_in_a_snapshot(blobs: BlobFixture) -> None:
    await blobs.create()
    await blobs.put("blob", b"data")
    await blobs.stage("blob", b"a", b"1")
    taken = await blobs.snapshot("blob")
    assert (await blobs.block_list("blob", snapshot=taken)).uncommitted == ()
    assert await blobs.staged("blob") == [b"a"]


@blob_test
async def test_conditions_apply_to_the_snapshot(blobs: BlobFixture) -> None:
    await blobs.create()
    mine = new_lease_id()
    blob = await blobs.put("blob", b"data")
    taken = await blobs.snapshot("blob")
    await blobs.put("blob", b"other")
    await blobs.lease("blob", Acquire(mine, None))
    seen = Conditions(if_match=(format_etag(blob.stamp),))
    await blobs.read(get_blob, GetBlob(NAME, seen, snapshot=taken))
    assert await code_of(blobs.read(get_blob, GetBlob(NAME, seen))) == "ConditionNotMet"
    leased = GetBlob(NAME, lease_id=mine, snapshot=taken)
    assert await code_of(blobs.read(get_blob, leased)) == "LeaseNotPresentWithBlobOperation"


# Deleting


@blob_test
async def test_a_blob_with_snapshots_is_not_deleted_alone(blobs: BlobFixture) -> None:
    await blobs.create()
    await blobs.put("blob", LARGE)
    await blobs.put("blob\x00", LARGE)
    await blobs.put("blo", LARGE)
    moments = [await blobs.snapshot(name) for name in ("blob", "blob", "blob\x00", "blo")]
    assert await _delete(blobs) == "SnapshotsPresent"
    assert await blobs.get("blob") == LARGE
    assert await _delete(blobs, snapshots=DeleteSnapshots.ONLY) == ""
    assert await blobs.get("blob") == LARGE
    assert await code_of(blobs.get("blob", snapshot=moments[0])) == MISSING
    # Blobs whose names only start with this one keep theirs.
    assert await blobs.get("blob\x00", snapshot=moments[2]) == LARGE
    assert await blobs.get("blo", snapshot=moments[3]) == LARGE
    assert await _delete(blobs) == ""
    assert await _delete(blobs, snapshots=DeleteSnapshots.INCLUDE) == MISSING
    assert await _delete(blobs, snapshots=DeleteSnapshots.ONLY) == MISSING
    for name in ("blob\x00", "blo"):
        assert await _delete(blobs, name, DeleteSnapshots.INCLUDE) == ""
    await blobs.require_empty()


@blob_test
async def test_many_snapshots_are_deleted_in_one_operation(blobs: BlobFixture) -> None:
    await blobs.create()
    await blobs.put("blob", LARGE)
    for _ in range(30):
        await asyncio.gather(*(blobs.snapshot("blob") for _ in range(17)))
    # No transaction deletes so many that others would have to wait for it.
    for kind in (DeleteSnapshots.ONLY, DeleteSnapshots.INCLUDE):
        assert not await blobs.write(delete_blob, DeleteBlob(NAME, snapshots=kind))
        assert await blobs.get("blob") == LARGE
    assert 30 * 17 - 2 * DELETED_TOGETHER_MAX > 0
    assert await _delete(blobs) == "SnapshotsPresent"
    assert await blobs.write(delete_blob, DeleteBlob(NAME, snapshots=DeleteSnapshots.INCLUDE))
    await blobs.require_empty()


@blob_test
async def test_deleting_one_snapshot(blobs: BlobFixture) -> None:
    await blobs.create()
    await blobs.put("blob", LARGE)
    first, second = await blobs.snapshot("blob"), await blobs.snapshot("blob", (("Key", "1"),))
    mine = new_lease_id()
    await blobs.lease("blob", Acquire(mine, None))

    async def code(snapshot: int, conditions: Conditions, lease_id: bytes | None = None) -> str:
        command = DeleteSnapshot(NAME, snapshot, conditions, lease_id)
        return await code_of(blobs.write(delete_snapshot, command))

    own = Conditions(if_match=(format_etag(second),))
    assert await code(first, own) == "ConditionNotMet"
    assert await code(first, Conditions(), mine) == "LeaseNotPresentWithBlobOperation"
    assert await code(second, own) == ""
    assert await code(second, own) == MISSING
    assert await blobs.get("blob", snapshot=first) == LARGE
    assert await code(first, Conditions()) == ""
    assert await blobs.get("blob") == LARGE
    await blobs.require_sound()
    assert await code(first, Conditions()) == MISSING


@blob_test
async def test_a_lease_protects_the_blob_and_its_snapshots(blobs: BlobFixture) -> None:
    await blobs.create()
    before = await blobs.put("blob", b"data")
    await blobs.snapshot("blob")
    mine, other = new_lease_id(), new_lease_id()
    await blobs.lease("blob", Acquire(mine, None))
    assert await _delete(blobs) == "LeaseIdMissing"
    assert await _delete(blobs, snapshots=DeleteSnapshots.INCLUDE) == "LeaseIdMissing"
    for lease_id, etag, code in (
        (other, before.stamp, "LeaseIdMismatchWithBlobOperation"),
        (mine, before.stamp + 1, "ConditionNotMet"),
        (None, before.stamp, "LeaseIdMissing"),
        (mine, before.stamp, ""),
    ):
        seen = Conditions(if_match=(format_etag(etag),))
        command = DeleteBlob(NAME, seen, lease_id, DeleteSnapshots.ONLY)
        assert await code_of(blobs.write(delete_blob, command)) == code
    assert (await blobs.read(get_blob, GetBlob(NAME))).blob.stamp == before.stamp
    await blobs.write(delete_blob, DeleteBlob(NAME, lease_id=mine))
    await blobs.require_empty()


@blob_test
async def test_a_race_leaves_no_snapshot_without_its_blob(blobs: BlobFixture) -> None:
    await blobs.create()
    for _ in range(8):
        await blobs.put("blob", LARGE)
        taking = [code_of(blobs.write(snapshot_blob, SnapshotBlob(NAME))) for _ in range(3)]
        *taken, deleted = await asyncio.gather(*taking, _delete(blobs))
        assert set(taken) <= {"", MISSING}
        assert deleted in {"", "SnapshotsPresent"}
        await blobs.require_sound()
    await _delete(blobs, snapshots=DeleteSnapshots.INCLUDE)
    await blobs.require_empty()


@blob_test
async def test_a_blob_with_snapshots_can_change(blobs: BlobFixture) -> None:
    await blobs.create()
    await blobs.put("blob", b"data")
    taken = await blobs.snapshot("blob")
    await blobs.write(set_blob_headers, SetBlobHeaders(NAME, ContentHeaders("text/plain")))
    await blobs.write(set_blob_metadata, SetBlobMetadata(NAME, (("Key", "value"),)))
    shown = (await blobs.read(get_blob, GetBlob(NAME, snapshot=taken))).blob
    assert (shown.headers, shown.metadata) == (ContentHeaders(), ())


@pytest.mark.usefixtures("short_chunks")
@blob_test
async def test_purging_a_container_releases_everything(blobs: BlobFixture) -> None:
    await blobs.create()
    blocks = {b"%d" % number: b"<%d>" % number for number in range(6)}
    for name in ("a", "b", "c"):
        await blobs.put(name, LARGE)
        await blobs.snapshot(name)
        await blobs.stage_all(name, blocks)
        await blobs.commit(name, latest(*blocks))
        await blobs.snapshot(name)
        await blobs.stage_all(name, blocks)
    await blobs.stage_all("no blob", blocks)
    await blobs.write(delete_container, DeleteContainer(BOX))
    await blobs.create()
    await blobs.stage("a", b"x", b"new")
    rows = [6, 3, 4]  # of snapshots, blobs and stagings
    steps = []
    while step := await blobs.write(purge_containers, PurgeContainers(4)):
        assert step <= 5
        steps.append(step - 1)
    assert sum(steps) == sum(rows)
    assert await blobs.staged("a") == [b"x"]
    await blobs.put("a")
    await blobs.require_empty()
