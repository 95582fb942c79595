"""Staged blocks with every engine: replacement, limits, leases, visibility and expiry."""

from __future__ import annotations

import asyncio

import pytest

from etagere.bodies.contents import EXTENTS
from etagere.clock import TICKS_PER_SECOND
from etagere.engine.interface import ReadTxn
from etagere.model.blobs import (
    NO_SNAPSHOT,
    Blob,
    BlobName,
    BlockSize,
    DeleteBlob,
    DeleteSnapshots,
    GetBlob,
    GetBlockList,
    LeaseBlob,
    ListBlobs,
    PutBlock,
    SetBlobMetadata,
    SnapshotBlob,
    Staging,
)
from etagere.model.conditions import ANY, Conditions
from etagere.model.containers import ContainerName, DeleteContainer
from etagere.model.ids import new_id
from etagere.model.leases import Acquire, Break, new_lease_id
from etagere.operations.blob.blobs import (
    delete_blob,
    get_blob,
    lease_blob,
    set_blob_metadata,
)
from etagere.operations.blob.block_lists import get_block_list
from etagere.operations.blob.collections import STAGED_BLOCKS
from etagere.operations.blob.containers import delete_container
from etagere.operations.blob.purging import may_purge
from etagere.operations.blob.snapshots import snapshot_blob
from etagere.operations.blob.staging import (
    STALE_SECONDS,
    PurgeStagings,
    discard_stale,
    precheck_block,
    purge_discarded,
)
from tests.operations.blob.consistency import rows
from tests.operations.blob.fixture import (
    BOX,
    NOTHING_SENT,
    BlobFixture,
    blob_test,
    latest,
    uncommitted,
)
from tests.operations.fixture import ACCOUNT, code_of
from tests.operations.pages import BlobPage, list_blobs

NAME = BlobName(BOX, "blob")
SECOND = TICKS_PER_SECOND
HOUR = 3600 * SECOND
WEEK = STALE_SECONDS * SECOND


def _extents(txn: ReadTxn, _: None) -> int:
    return len(rows(txn, EXTENTS))


def _staged_blocks(txn: ReadTxn, _: None) -> int:
    return len(rows(txn, STAGED_BLOCKS))


# Deletion


@blob_test
async def test_blocks_without_a_blob_are_deleted(blobs: BlobFixture) -> None:
    await blobs.create()
    name = BlobName(BOX, "blob")
    await blobs.stage("blob", b"a", b"block")
    assert await code_of(blobs.write(delete_blob, DeleteBlob(name))) == "BlobNotFound"
    for refused, code in (
        (DeleteBlob(name, uncommitted=True, conditions=Conditions(ANY)), "ConditionNotMet"),
        (
            DeleteBlob(name, uncommitted=True, lease_id=new_lease_id()),
            "LeaseNotPresentWithBlobOperation",
        ),
        (DeleteBlob(name, uncommitted=True, snapshots=DeleteSnapshots.ONLY), "BlobNotFound"),
    ):
        assert await code_of(blobs.write(delete_blob, refused)) == code
    assert await blobs.staged("blob") == [b"a"]
    await blobs.write(delete_blob, DeleteBlob(name, uncommitted=True))
    gone = DeleteBlob(name, uncommitted=True)
    assert await code_of(blobs.write(delete_blob, gone)) == "BlobNotFound"
    await blobs.require_empty()


@blob_test
async def test_a_list_and_a_delete_of_its_blocks_follow_each_other(blobs: BlobFixture) -> None:
    await blobs.create()
    name = BlobName(BOX, "blob")
    for _ in range(8):
        await blobs.stage("blob", b"a", b"block")
        committed, deleted = await asyncio.gather(
            code_of(blobs.commit("blob", latest(b"a"))),
            code_of(blobs.write(delete_blob, DeleteBlob(name, uncommitted=True))),
        )
        assert deleted == ""
        assert committed in {"", "InvalidBlockList"}
        await blobs.require_empty()


# Names and limits


@blob_test
async def test_the_last_block_of_a_name_wins(blobs: BlobFixture) -> None:
    await blobs.create()
    await blobs.stage_all("blob", {b"b": b"first", b"a": b"other"})
    await blobs.stage("blob", b"b", b"the second")
    shown = await blobs.block_list("blob")
    assert shown.uncommitted == (BlockSize(b"a", 5), BlockSize(b"b", 10))
    assert await blobs.read(_extents, None) == 2
    await blobs.require_sound()
    await blobs.commit("blob", latest(b"a", b"b"))
    assert await blobs.get("blob") == b"otherthe second"
    await blobs.require_sound()


@blob_test
async def test_all_names_have_the_length_of_the_first(blobs: BlobFixture) -> None:
    await blobs.create()
    await blobs.stage("blob", b"aa", b"x")
    for other in (b"a", b"aaa"):
        assert await code_of(blobs.stage("blob", other, b"y")) == "InvalidBlobOrBlock"
    await blobs.stage("another", b"a", b"y")
    assert await blobs.staged("blob") == [b"aa"]
    await blobs.require_sound()
    await blobs.commit("blob", latest(b"aa"))
    # The blob has no uncommitted blocks left, so the next one sets the length again.
    await blobs.stage("blob", b"b", b"z")
    await blobs.require_sound()


@blob_test
async def test_names_are_any_bytes(blobs: BlobFixture) -> None:
    await blobs.create()
    names = [b"\x00\x00", b"\x00\xff", b"ab", b"\xff\x00", b"\xff\xff"]
    await blobs.stage_all("blob", {name: name for name in reversed(names)})
    assert await blobs.staged("blob") == names
    await blobs.commit("blob", uncommitted(*names))
    assert await blobs.get("blob") == b"".join(names)


@pytest.fixture
def room_for_three(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lowers the limit of 100,000 uncommitted blocks per blob to three."""
    monkeypatch.setattr("etagere.rules.blocks.STAGED_BLOCKS_MAX", 3)


@pytest.mark.usefixtures("room_for_three")
@blob_test
async def test_the_number_of_blocks_is_limited(blobs: BlobFixture) -> None:
    """Replacing a block is allowed at the limit; adding one is not."""
    await blobs.create()
    await blobs.stage_all("blob", {b"a": b"1", b"b": b"2", b"c": b"3"})
    assert await code_of(blobs.stage("blob", b"d", b"4")) == "BlockCountExceedsLimit"
    await blobs.stage("blob", b"c", b"5")
    assert await blobs.staged("blob") == [b"a", b"b", b"c"]
    await blobs.require_sound()


# Leases and permissions


@blob_test
async def test_a_lease_is_needed_while_it_is_held(blobs: BlobFixture) -> None:
    await blobs.create()
    before = await blobs.put("blob", b"x")
    mine, other = new_lease_id(), new_lease_id()
    blobs.clock.freeze()
    await blobs.lease("blob", Acquire(mine, 15))
    assert await code_of(blobs.stage("blob", b"a", b"1")) == "LeaseIdMissing"
    mismatch = code_of(blobs.stage("blob", b"a", b"1", lease_id=other))
    assert await mismatch == "LeaseIdMismatchWithBlobOperation"
    assert await blobs.staged("blob") == []
    await blobs.stage("blob", b"a", b"1", lease_id=mine)
    blobs.clock.advance(16 * SECOND)
    lost = blobs.stage("blob", b"b", b"2", lease_id=mine)
    assert await code_of(lost) == "LeaseLost"
    await blobs.stage("blob", b"b", b"2")
    shown = await blobs.read(get_blob, GetBlob(NAME))
    # Staging does not modify the blob: it keeps its stamp and its lease.
    assert shown.blob.stamp == before.stamp
    assert shown.blob.lease != before.lease
    absent = blobs.stage("absent", b"a", b"1", lease_id=mine)
    assert await code_of(absent) == "LeaseNotPresentWithBlobOperation"
    await blobs.require_sound()


@blob_test
async def test_create_permission_does_not_allow_staging_on_a_blob(blobs: BlobFixture) -> None:
    await blobs.create()
    await blobs.stage("blob", b"a", b"1", only_if_absent=True)
    await blobs.commit("blob", latest(b"a"), only_if_absent=True)
    refused = blobs.stage("blob", b"a", b"2", only_if_absent=True)
    assert await code_of(refused) == "UnauthorizedBlobOverwrite"
    assert await blobs.staged("blob") == []
    await blobs.require_sound()


@blob_test
async def test_the_precheck_refuses_what_would_be_refused(blobs: BlobFixture) -> None:
    ask = PutBlock(NAME, b"a", NOTHING_SENT, new_id())
    only = PutBlock(NAME, b"a", NOTHING_SENT, new_id(), only_if_absent=True)
    assert await code_of(blobs.read(precheck_block, ask)) == "ContainerNotFound"
    await blobs.create()
    await blobs.read(precheck_block, only)
    await blobs.put("blob", b"x")
    mismatch = "UnauthorizedBlobOverwrite"
    assert await code_of(blobs.read(precheck_block, only)) == mismatch
    await blobs.read(precheck_block, ask)
    await blobs.lease("blob", Acquire(new_lease_id(), None))
    assert await code_of(blobs.read(precheck_block, ask)) == "LeaseIdMissing"


@blob_test
async def test_the_container_is_deleted_during_the_upload(blobs: BlobFixture) -> None:
    await blobs.create()
    await blobs.stage("blob", b"a", b"1")
    await blobs.write(delete_container, DeleteContainer(BOX))
    assert await code_of(blobs.stage("blob", b"b", b"2")) == "ContainerNotFound"
    assert await code_of(blobs.commit("blob", latest(b"a"))) == "ContainerNotFound"
    await blobs.create()
    assert await blobs.staged("blob") == []
    assert await code_of(blobs.commit("blob", latest(b"a"))) == "InvalidBlockList"
    await blobs.require_empty()


# Visibility


@blob_test
async def test_blocks_alone_are_no_blob(blobs: BlobFixture) -> None:
    await blobs.create()
    await blobs.stage("blob", b"a", b"1")
    acquire = LeaseBlob(NAME, Acquire(new_lease_id(), 15))
    for refused in (
        blobs.read(get_blob, GetBlob(NAME)),
        blobs.get("blob"),
        blobs.write(delete_blob, DeleteBlob(NAME)),
        blobs.write(set_blob_metadata, SetBlobMetadata(NAME, ())),
        blobs.write(snapshot_blob, SnapshotBlob(NAME)),
        blobs.write(lease_blob, acquire),
        blobs.read(get_block_list, GetBlockList(NAME, True, True, snapshot=1)),
        blobs.read(get_block_list, GetBlockList(BlobName(BOX, "other"), True, True)),
    ):
        assert await code_of(refused) == "BlobNotFound"
    shown = await blobs.block_list("blob")
    assert shown.blob is None
    assert (shown.committed, shown.uncommitted) == ((), (BlockSize(b"a", 1),))
    leased = GetBlockList(NAME, True, True, new_lease_id())
    assert await code_of(blobs.read(get_block_list, leased)) == "LeaseNotPresentWithBlobOperation"


@blob_test
async def test_committed_and_uncommitted_are_listed_on_request(blobs: BlobFixture) -> None:
    await blobs.create()
    await blobs.stage("blob", b"a", b"1")
    await blobs.commit("blob", latest(b"a"))
    await blobs.stage("blob", b"b", b"22")
    for committed, listed in ((True, False), (False, True), (True, True)):
        shown = await blobs.read(get_block_list, GetBlockList(NAME, committed, listed))
        assert shown.committed == ((BlockSize(b"a", 1),) if committed else ())
        assert shown.uncommitted == ((BlockSize(b"b", 2),) if listed else ())
        assert shown.blob is not None
    await blobs.put("blob", b"whole")
    shown = await blobs.block_list("blob")
    assert (shown.committed, shown.uncommitted) == ((), ())


@blob_test
async def test_listings_include_uncommitted_blobs_on_request(blobs: BlobFixture) -> None:
    await blobs.create()
    blob = await blobs.put("both", b"x")
    await blobs.stage("both", b"a", b"1")
    await blobs.stage("blocks", b"a", b"1")
    await blobs.stage("a/blocks", b"a", b"1")

    async def listed(delimiter: str, *, staged: bool) -> BlobPage:
        ask = ListBlobs(BOX, 10, delimiter=delimiter, uncommitted=staged)
        return await blobs.read(list_blobs, ask)

    assert (await listed("", staged=False)).entries == (("both", blob, NO_SNAPSHOT),)
    assert (await listed("/", staged=False)).entries == (("both", blob, NO_SNAPSHOT),)
    kinds = [(name, type(found)) for name, found, _ in (await listed("", staged=True)).entries]
    assert kinds == [("a/blocks", Staging), ("blocks", Staging), ("both", Blob)]
    kinds = [(name, type(found)) for name, found, _ in (await listed("/", staged=True)).entries]
    assert kinds == [("a/", type(None)), ("blocks", Staging), ("both", Blob)]


# Expiry


@blob_test
async def test_replacing_or_deleting_the_blob_drops_staged_blocks(blobs: BlobFixture) -> None:
    await blobs.create()
    await blobs.stage_all("blob", {b"a": b"1", b"b": b"2"})
    await blobs.put("blob", b"whole")
    assert await blobs.staged("blob") == []
    await blobs.require_sound()
    await blobs.stage_all("blob", {b"a": b"3", b"b": b"4"})
    await blobs.write(set_blob_metadata, SetBlobMetadata(NAME, (("Key", "value"),)))
    await blobs.snapshot("blob")
    assert await blobs.staged("blob") == [b"a", b"b"]
    await blobs.commit("blob", latest(b"a"))
    assert await blobs.staged("blob") == []
    await blobs.require_sound()
    await blobs.stage("blob", b"b", b"5")
    assert await code_of(blobs.write(delete_blob, DeleteBlob(NAME))) == "SnapshotsPresent"
    assert await blobs.staged("blob") == [b"b"]
    await blobs.put("other", b"")
    await blobs.stage("other", b"b", b"5")
    await blobs.write(delete_blob, DeleteBlob(BlobName(BOX, "other")))
    assert await blobs.staged("other") == []
    await blobs.require_sound()


@blob_test
async def test_staged_blocks_expire_a_week_after_the_last_one(blobs: BlobFixture) -> None:
    await blobs.create()
    assert not await blobs.read(may_purge, None)
    blobs.clock.freeze()
    await blobs.stage("blob", b"a", b"1")
    blobs.clock.advance(WEEK - SECOND)
    assert await blobs.write(discard_stale, PurgeStagings()) == 0
    await blobs.stage("blob", b"b", b"2")  # in time: both stay for another week
    await blobs.require_sound()
    blobs.clock.advance(WEEK - SECOND)
    assert await blobs.write(discard_stale, PurgeStagings()) == 0
    assert await blobs.staged("blob") == [b"a", b"b"]
    # The time of the last block is stored by the hour, so blocks may stay for one more.
    blobs.clock.advance(HOUR + 2 * SECOND)
    assert await blobs.read(may_purge, None)
    assert await blobs.write(discard_stale, PurgeStagings()) == 1
    assert await blobs.staged("blob") == []
    assert await blobs.write(discard_stale, PurgeStagings()) == 0
    await blobs.require_empty()
    assert not await blobs.read(may_purge, None)


@blob_test
async def test_expired_blocks_are_dropped_in_bounded_steps(blobs: BlobFixture) -> None:
    other = ContainerName(ACCOUNT, "other")
    await blobs.create()
    await blobs.create(other)
    blobs.clock.freeze()
    for name in ("a", "b", "c"):
        await blobs.stage(name, b"a", b"1")
    await blobs.stage("a", b"a", b"1", container=other)
    await blobs.stage("again", b"a", b"1")
    await blobs.commit("again", latest(b"a"))
    blobs.clock.advance(2 * HOUR)
    await blobs.stage("again", b"a", b"2")
    blobs.clock.advance(WEEK - HOUR + SECOND)
    assert [await blobs.write(discard_stale, PurgeStagings(3)) for _ in range(3)] == [3, 1, 0]
    assert await blobs.staged("again") == [b"a"]
    assert await blobs.get("again") == b"1"
    await blobs.require_sound()


@blob_test
async def test_dropped_blocks_are_removed_in_bounded_steps(blobs: BlobFixture) -> None:
    await blobs.create()
    await blobs.stage_all("blob", {b"%d" % number: b"data" for number in range(7)})
    await blobs.stage("other", b"a", b"1")
    await blobs.put("blob", b"")
    left = await blobs.read(_staged_blocks, None)
    assert left == 8
    while await blobs.write(purge_discarded, PurgeStagings(3)):
        before, left = left, await blobs.read(_staged_blocks, None)
        assert before - left <= 3
        await blobs.require_sound()
    assert left == 1
    assert await blobs.staged("other") == [b"a"]


@blob_test
async def test_an_ended_lease_stays_until_blocks_become_a_blob(blobs: BlobFixture) -> None:
    await blobs.create()
    await blobs.put("blob", b"x")
    await blobs.lease("blob", Acquire(new_lease_id(), None))
    await blobs.lease("blob", Break(0))
    broken = (await blobs.read(get_blob, GetBlob(NAME))).blob.lease
    await blobs.stage("blob", b"a", b"1")
    assert (await blobs.read(get_blob, GetBlob(NAME))).blob.lease == broken
    committed = await blobs.commit("blob", latest(b"a"))
    assert committed.lease != broken
