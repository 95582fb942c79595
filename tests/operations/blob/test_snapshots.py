"""Snapshots over every engine: what they show, what they outlive, how they go."""

from __future__ import annotations

import asyncio

import pytest

from etagere.clock import TICKS_PER_SECOND
from etagere.model.blobs import (
    BlobHeaders,
    BlobName,
    DeleteBlob,
    DeleteSnapshot,
    DeleteSnapshots,
    GetBlob,
    SetBlobHeaders,
    SetBlobMetadata,
    SnapshotBlob,
)
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
from tests.operations.blob.shelf import BOX, Shelf, code_of, committed, latest, on_a_shelf

NAME = BlobName(BOX, "blob")
SECOND = TICKS_PER_SECOND
LARGE = bytes(range(256)) * 800
MISSING = "BlobNotFound"


async def _delete(
    shelf: Shelf, name: str = "blob", snapshots: DeleteSnapshots = DeleteSnapshots.NO
) -> str:
    command = DeleteBlob(BlobName(BOX, name), snapshots=snapshots)
    return await code_of(shelf.write(delete_blob, command))


# Taking


@on_a_shelf
async def test_a_snapshot_is_the_blob_as_it_was(shelf: Shelf) -> None:
    await shelf.create()
    await shelf.put("blob", b"data", headers=BlobHeaders("text/plain"))
    await shelf.write(set_blob_metadata, SetBlobMetadata(NAME, (("Key", "value"),)))
    leased = await shelf.lease("blob", Acquire(new_lease_id(), None))
    taken = await shelf.write(snapshot_blob, SnapshotBlob(NAME))
    shown = await shelf.read(get_blob, GetBlob(NAME, snapshot=taken.snapshot))
    assert shown.blob == taken.blob
    # The same ETag and date, since nothing about it differs but that nobody leases it.
    assert taken.blob.stamp == leased.blob.stamp
    assert taken.blob.lease == NO_LEASE
    assert (taken.blob.metadata, taken.blob.headers) == (
        leased.blob.metadata,
        leased.blob.headers,
    )
    assert (await shelf.read(get_blob, GetBlob(NAME))).blob == leased.blob
    assert taken.snapshot > leased.blob.stamp


@on_a_shelf
async def test_metadata_of_its_own_give_it_an_etag_of_its_own(shelf: Shelf) -> None:
    await shelf.create()
    await shelf.put("blob", b"data")
    noted = await shelf.write(set_blob_metadata, SetBlobMetadata(NAME, (("Key", "value"),)))
    taken = await shelf.write(snapshot_blob, SnapshotBlob(NAME, (("Other", "1"),)))
    assert taken.blob.metadata == (("Other", "1"),)
    assert taken.blob.stamp == taken.snapshot
    assert taken.blob.created == noted.created
    assert (await shelf.read(get_blob, GetBlob(NAME))).blob == noted


@on_a_shelf
async def test_each_has_a_moment_of_its_own(shelf: Shelf) -> None:
    await shelf.create()
    shelf.clock.freeze()
    await shelf.put("blob", b"data")
    taken = await asyncio.gather(*(shelf.snapshot("blob") for _ in range(20)))
    assert len(set(taken)) == 20
    await shelf.require_sound()


@on_a_shelf
async def test_who_may_take_one(shelf: Shelf) -> None:
    assert await code_of(shelf.write(snapshot_blob, SnapshotBlob(NAME))) == "ContainerNotFound"
    await shelf.create()
    assert await code_of(shelf.write(snapshot_blob, SnapshotBlob(NAME))) == MISSING
    blob = await shelf.put("blob", b"data")
    mine, other = new_lease_id(), new_lease_id()

    async def code(lease_id: bytes | None, etag: str | None = None) -> str:
        conditions = Conditions(if_match=(etag,)) if etag else Conditions()
        command = SnapshotBlob(NAME, (), conditions, lease_id)
        return await code_of(shelf.write(snapshot_blob, command))

    assert await code(mine) == "LeaseNotPresentWithBlobOperation"
    shelf.clock.freeze()
    await shelf.lease("blob", Acquire(mine, 15))
    assert await code(None) == ""
    assert await code(mine, format_etag(blob.stamp)) == ""
    assert await code(other) == "LeaseIdMismatchWithBlobOperation"
    assert await code(None, '"0x1"') == "ConditionNotMet"
    assert await code(other, '"0x1"') == "LeaseIdMismatchWithBlobOperation"
    shelf.clock.advance(16 * SECOND)
    assert await code(mine) == "LeaseLost"
    unchanged = Conditions(if_none_match=(format_etag(blob.stamp),))
    command = SnapshotBlob(NAME, (), unchanged)
    assert await code_of(shelf.write(snapshot_blob, command)) == "ConditionNotMet"
    assert await _delete(shelf, snapshots=DeleteSnapshots.INCLUDE) == ""
    await shelf.require_bare()


# What they outlive


@pytest.mark.usefixtures("short_chunks")
@on_a_shelf
async def test_its_bytes_stay(shelf: Shelf) -> None:
    """Of every kind of content, through overwrites, new lists and changed blocks."""
    await shelf.create()
    taken: dict[int, bytes] = {}
    blocks = {b"%d" % number: b"<%d>" % number for number in range(9)}
    for data in (b"", b"small", LARGE):
        await shelf.put("blob", data)
        taken[await shelf.snapshot("blob")] = data
    await shelf.stage_all("blob", blocks)
    await shelf.commit("blob", latest(*blocks))
    taken[await shelf.snapshot("blob")] = b"".join(blocks.values())
    await shelf.stage("blob", b"3", b"changed")
    await shelf.commit("blob", [*latest(b"3"), *committed(b"8", b"0")])
    taken[await shelf.snapshot("blob")] = b"changed<8><0>"
    await shelf.put("blob", b"last")
    await shelf.purge()
    await shelf.require_sound()
    for moment, data in taken.items():
        assert await shelf.get("blob", snapshot=moment) == data
        if data:
            assert await shelf.get("blob", 2, 9, snapshot=moment) == data[2:10]
        assert await code_of(shelf.get("blob", snapshot=moment + 1)) == MISSING
        assert await code_of(shelf.get("other", snapshot=moment)) == MISSING
    listed = await shelf.block_list("blob", snapshot=list(taken)[3])
    assert [block.name for block in listed.committed] == list(blocks)
    assert await _delete(shelf, snapshots=DeleteSnapshots.INCLUDE) == ""
    await shelf.require_bare()


@on_a_shelf
async def test_blocks_that_wait_are_not_in_it(shelf: Shelf) -> None:
    await shelf.create()
    await shelf.put("blob", b"data")
    await shelf.stage("blob", b"a", b"1")
    taken = await shelf.snapshot("blob")
    assert (await shelf.block_list("blob", snapshot=taken)).uncommitted == ()
    assert await shelf.staged("blob") == [b"a"]


@on_a_shelf
async def test_reading_one_asks_of_its_own_state(shelf: Shelf) -> None:
    await shelf.create()
    mine = new_lease_id()
    blob = await shelf.put("blob", b"data")
    taken = await shelf.snapshot("blob")
    await shelf.put("blob", b"other")
    await shelf.lease("blob", Acquire(mine, None))
    seen = Conditions(if_match=(format_etag(blob.stamp),))
    await shelf.read(get_blob, GetBlob(NAME, seen, snapshot=taken))
    assert await code_of(shelf.read(get_blob, GetBlob(NAME, seen))) == "ConditionNotMet"
    leased = GetBlob(NAME, lease_id=mine, snapshot=taken)
    assert await code_of(shelf.read(get_blob, leased)) == "LeaseNotPresentWithBlobOperation"


# How they go


@on_a_shelf
async def test_a_blob_with_snapshots_is_not_deleted_alone(shelf: Shelf) -> None:
    await shelf.create()
    await shelf.put("blob", LARGE)
    await shelf.put("blob\x00", LARGE)
    await shelf.put("blo", LARGE)
    moments = [await shelf.snapshot(name) for name in ("blob", "blob", "blob\x00", "blo")]
    assert await _delete(shelf) == "SnapshotsPresent"
    assert await shelf.get("blob") == LARGE
    assert await _delete(shelf, snapshots=DeleteSnapshots.ONLY) == ""
    assert await shelf.get("blob") == LARGE
    assert await code_of(shelf.get("blob", snapshot=moments[0])) == MISSING
    # Those whose names only begin so are others.
    assert await shelf.get("blob\x00", snapshot=moments[2]) == LARGE
    assert await shelf.get("blo", snapshot=moments[3]) == LARGE
    assert await _delete(shelf) == ""
    assert await _delete(shelf, snapshots=DeleteSnapshots.INCLUDE) == MISSING
    assert await _delete(shelf, snapshots=DeleteSnapshots.ONLY) == MISSING
    for name in ("blob\x00", "blo"):
        assert await _delete(shelf, name, DeleteSnapshots.INCLUDE) == ""
    await shelf.require_bare()


@on_a_shelf
async def test_many_at_once(shelf: Shelf) -> None:
    await shelf.create()
    await shelf.put("blob", LARGE)
    for _ in range(30):
        await asyncio.gather(*(shelf.snapshot("blob") for _ in range(17)))
    # No transaction deletes so many that others would have to wait for it.
    for kind in (DeleteSnapshots.ONLY, DeleteSnapshots.INCLUDE):
        assert not await shelf.write(delete_blob, DeleteBlob(NAME, snapshots=kind))
        assert await shelf.get("blob") == LARGE
    assert 30 * 17 - 2 * DELETED_TOGETHER_MAX > 0
    assert await _delete(shelf) == "SnapshotsPresent"
    assert await shelf.write(delete_blob, DeleteBlob(NAME, snapshots=DeleteSnapshots.INCLUDE))
    await shelf.require_bare()


@on_a_shelf
async def test_one_is_deleted_by_its_moment(shelf: Shelf) -> None:
    await shelf.create()
    await shelf.put("blob", LARGE)
    first, second = await shelf.snapshot("blob"), await shelf.snapshot("blob", (("Key", "1"),))
    mine = new_lease_id()
    await shelf.lease("blob", Acquire(mine, None))

    async def code(snapshot: int, conditions: Conditions, lease_id: bytes | None = None) -> str:
        command = DeleteSnapshot(NAME, snapshot, conditions, lease_id)
        return await code_of(shelf.write(delete_snapshot, command))

    own = Conditions(if_match=(format_etag(second),))
    assert await code(first, own) == "ConditionNotMet"
    assert await code(first, Conditions(), mine) == "LeaseNotPresentWithBlobOperation"
    assert await code(second, own) == ""
    assert await code(second, own) == MISSING
    assert await shelf.get("blob", snapshot=first) == LARGE
    assert await code(first, Conditions()) == ""
    assert await shelf.get("blob") == LARGE
    await shelf.require_sound()
    assert await code(first, Conditions()) == MISSING


@on_a_shelf
async def test_a_lease_keeps_others_from_the_blob_and_its_snapshots(shelf: Shelf) -> None:
    await shelf.create()
    before = await shelf.put("blob", b"data")
    await shelf.snapshot("blob")
    mine, other = new_lease_id(), new_lease_id()
    await shelf.lease("blob", Acquire(mine, None))
    assert await _delete(shelf) == "LeaseIdMissing"
    assert await _delete(shelf, snapshots=DeleteSnapshots.INCLUDE) == "LeaseIdMissing"
    for lease_id, etag, code in (
        (other, before.stamp, "LeaseIdMismatchWithBlobOperation"),
        (mine, before.stamp + 1, "ConditionNotMet"),
        (None, before.stamp, "LeaseIdMissing"),
        (mine, before.stamp, ""),
    ):
        seen = Conditions(if_match=(format_etag(etag),))
        command = DeleteBlob(NAME, seen, lease_id, DeleteSnapshots.ONLY)
        assert await code_of(shelf.write(delete_blob, command)) == code
    assert (await shelf.read(get_blob, GetBlob(NAME))).blob.stamp == before.stamp
    await shelf.write(delete_blob, DeleteBlob(NAME, lease_id=mine))
    await shelf.require_bare()


@on_a_shelf
async def test_no_snapshot_is_left_behind_by_a_race(shelf: Shelf) -> None:
    await shelf.create()
    for _ in range(8):
        await shelf.put("blob", LARGE)
        taking = [code_of(shelf.write(snapshot_blob, SnapshotBlob(NAME))) for _ in range(3)]
        *taken, deleted = await asyncio.gather(*taking, _delete(shelf))
        assert set(taken) <= {"", MISSING}
        assert deleted in {"", "SnapshotsPresent"}
        await shelf.require_sound()
    await _delete(shelf, snapshots=DeleteSnapshots.INCLUDE)
    await shelf.require_bare()


@on_a_shelf
async def test_a_blob_changes_under_its_snapshots(shelf: Shelf) -> None:
    await shelf.create()
    await shelf.put("blob", b"data")
    taken = await shelf.snapshot("blob")
    await shelf.write(set_blob_headers, SetBlobHeaders(NAME, BlobHeaders("text/plain")))
    await shelf.write(set_blob_metadata, SetBlobMetadata(NAME, (("Key", "value"),)))
    shown = (await shelf.read(get_blob, GetBlob(NAME, snapshot=taken))).blob
    assert (shown.headers, shown.metadata) == (BlobHeaders(), ())


@pytest.mark.usefixtures("short_chunks")
@on_a_shelf
async def test_a_purge_of_a_container_lets_go_of_everything(shelf: Shelf) -> None:
    await shelf.create()
    blocks = {b"%d" % number: b"<%d>" % number for number in range(6)}
    for name in ("a", "b", "c"):
        await shelf.put(name, LARGE)
        await shelf.snapshot(name)
        await shelf.stage_all(name, blocks)
        await shelf.commit(name, latest(*blocks))
        await shelf.snapshot(name)
        await shelf.stage_all(name, blocks)
    await shelf.stage_all("no blob", blocks)
    await shelf.write(delete_container, DeleteContainer(BOX))
    await shelf.create()
    await shelf.stage("a", b"x", b"new")
    rows = [6, 3, 4]  # of snapshots, blobs and stagings
    steps = []
    while step := await shelf.write(purge_containers, PurgeContainers(4)):
        assert step <= 5
        steps.append(step - 1)
    assert sum(steps) == sum(rows)
    assert await shelf.staged("a") == [b"x"]
    await shelf.put("a")
    await shelf.require_bare()
