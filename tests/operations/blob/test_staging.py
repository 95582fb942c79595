"""Staged blocks over every engine: which count, who may add them, how long they wait."""

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
from tests.operations.blob.accounts import rows
from tests.operations.blob.shelf import (
    ACCOUNT,
    BOX,
    NOTHING_SENT,
    Shelf,
    code_of,
    latest,
    on_a_shelf,
    uncommitted,
)
from tests.operations.pages import BlobPage, list_blobs

NAME = BlobName(BOX, "blob")
SECOND = TICKS_PER_SECOND
HOUR = 3600 * SECOND
WEEK = STALE_SECONDS * SECOND


def _extents(txn: ReadTxn, _: None) -> int:
    return len(rows(txn, EXTENTS))


def _staged_blocks(txn: ReadTxn, _: None) -> int:
    return len(rows(txn, STAGED_BLOCKS))


# Deleted


@on_a_shelf
async def test_blocks_without_a_blob_are_deleted(shelf: Shelf) -> None:
    await shelf.create()
    name = BlobName(BOX, "blob")
    await shelf.stage("blob", b"a", b"block")
    assert await code_of(shelf.write(delete_blob, DeleteBlob(name))) == "BlobNotFound"
    for refused, code in (
        (DeleteBlob(name, uncommitted=True, conditions=Conditions(ANY)), "ConditionNotMet"),
        (
            DeleteBlob(name, uncommitted=True, lease_id=new_lease_id()),
            "LeaseNotPresentWithBlobOperation",
        ),
        (DeleteBlob(name, uncommitted=True, snapshots=DeleteSnapshots.ONLY), "BlobNotFound"),
    ):
        assert await code_of(shelf.write(delete_blob, refused)) == code
    assert await shelf.staged("blob") == [b"a"]
    await shelf.write(delete_blob, DeleteBlob(name, uncommitted=True))
    gone = DeleteBlob(name, uncommitted=True)
    assert await code_of(shelf.write(delete_blob, gone)) == "BlobNotFound"
    await shelf.require_bare()


@on_a_shelf
async def test_a_list_and_a_delete_of_its_blocks_follow_each_other(shelf: Shelf) -> None:
    await shelf.create()
    name = BlobName(BOX, "blob")
    for _ in range(8):
        await shelf.stage("blob", b"a", b"block")
        committed, deleted = await asyncio.gather(
            code_of(shelf.commit("blob", latest(b"a"))),
            code_of(shelf.write(delete_blob, DeleteBlob(name, uncommitted=True))),
        )
        assert deleted == ""
        assert committed in {"", "InvalidBlockList"}
        await shelf.require_bare()


# Which count


@on_a_shelf
async def test_the_last_block_of_a_name_counts(shelf: Shelf) -> None:
    await shelf.create()
    await shelf.stage_all("blob", {b"b": b"first", b"a": b"other"})
    await shelf.stage("blob", b"b", b"the second")
    shown = await shelf.block_list("blob")
    assert shown.uncommitted == (BlockSize(b"a", 5), BlockSize(b"b", 10))
    assert await shelf.read(_extents, None) == 2
    await shelf.require_sound()
    await shelf.commit("blob", latest(b"a", b"b"))
    assert await shelf.get("blob") == b"otherthe second"
    await shelf.require_sound()


@on_a_shelf
async def test_all_names_have_the_length_of_the_first(shelf: Shelf) -> None:
    await shelf.create()
    await shelf.stage("blob", b"aa", b"x")
    for other in (b"a", b"aaa"):
        assert await code_of(shelf.stage("blob", other, b"y")) == "InvalidBlobOrBlock"
    await shelf.stage("another", b"a", b"y")
    assert await shelf.staged("blob") == [b"aa"]
    await shelf.require_sound()
    await shelf.commit("blob", latest(b"aa"))
    # The blob has none that wait any more, so the next one is the first again.
    await shelf.stage("blob", b"b", b"z")
    await shelf.require_sound()


@on_a_shelf
async def test_names_are_any_bytes(shelf: Shelf) -> None:
    await shelf.create()
    names = [b"\x00\x00", b"\x00\xff", b"ab", b"\xff\x00", b"\xff\xff"]
    await shelf.stage_all("blob", {name: name for name in reversed(names)})
    assert await shelf.staged("blob") == names
    await shelf.commit("blob", uncommitted(*names))
    assert await shelf.get("blob") == b"".join(names)


@pytest.fixture
def room_for_three(monkeypatch: pytest.MonkeyPatch) -> None:
    """In place of the hundred thousand blocks that may wait for one blob."""
    monkeypatch.setattr("etagere.rules.blocks.STAGED_BLOCKS_MAX", 3)


@pytest.mark.usefixtures("room_for_three")
@on_a_shelf
async def test_so_many_and_no_more(shelf: Shelf) -> None:
    """To replace a block takes no room; a new one does."""
    await shelf.create()
    await shelf.stage_all("blob", {b"a": b"1", b"b": b"2", b"c": b"3"})
    assert await code_of(shelf.stage("blob", b"d", b"4")) == "BlockCountExceedsLimit"
    await shelf.stage("blob", b"c", b"5")
    assert await shelf.staged("blob") == [b"a", b"b", b"c"]
    await shelf.require_sound()


# Who may add them


@on_a_shelf
async def test_a_lease_is_needed_while_it_is_held(shelf: Shelf) -> None:
    await shelf.create()
    before = await shelf.put("blob", b"x")
    mine, other = new_lease_id(), new_lease_id()
    shelf.clock.freeze()
    await shelf.lease("blob", Acquire(mine, 15))
    assert await code_of(shelf.stage("blob", b"a", b"1")) == "LeaseIdMissing"
    mismatch = code_of(shelf.stage("blob", b"a", b"1", lease_id=other))
    assert await mismatch == "LeaseIdMismatchWithBlobOperation"
    assert await shelf.staged("blob") == []
    await shelf.stage("blob", b"a", b"1", lease_id=mine)
    shelf.clock.advance(16 * SECOND)
    lost = shelf.stage("blob", b"b", b"2", lease_id=mine)
    assert await code_of(lost) == "LeaseLost"
    await shelf.stage("blob", b"b", b"2")
    shown = await shelf.read(get_blob, GetBlob(NAME))
    # It modifies nothing yet: the blob has its stamp, and remembers the lease.
    assert shown.blob.stamp == before.stamp
    assert shown.blob.lease != before.lease
    absent = shelf.stage("absent", b"a", b"1", lease_id=mine)
    assert await code_of(absent) == "LeaseNotPresentWithBlobOperation"
    await shelf.require_sound()


@on_a_shelf
async def test_who_may_only_create_adds_nothing_to_a_blob(shelf: Shelf) -> None:
    await shelf.create()
    await shelf.stage("blob", b"a", b"1", only_if_absent=True)
    await shelf.commit("blob", latest(b"a"), only_if_absent=True)
    refused = shelf.stage("blob", b"a", b"2", only_if_absent=True)
    assert await code_of(refused) == "UnauthorizedBlobOverwrite"
    assert await shelf.staged("blob") == []
    await shelf.require_sound()


@on_a_shelf
async def test_the_precheck_refuses_what_would_be_refused(shelf: Shelf) -> None:
    ask = PutBlock(NAME, b"a", NOTHING_SENT, new_id())
    only = PutBlock(NAME, b"a", NOTHING_SENT, new_id(), only_if_absent=True)
    assert await code_of(shelf.read(precheck_block, ask)) == "ContainerNotFound"
    await shelf.create()
    await shelf.read(precheck_block, only)
    await shelf.put("blob", b"x")
    mismatch = "UnauthorizedBlobOverwrite"
    assert await code_of(shelf.read(precheck_block, only)) == mismatch
    await shelf.read(precheck_block, ask)
    await shelf.lease("blob", Acquire(new_lease_id(), None))
    assert await code_of(shelf.read(precheck_block, ask)) == "LeaseIdMissing"


@on_a_shelf
async def test_the_container_is_deleted_meanwhile(shelf: Shelf) -> None:
    await shelf.create()
    await shelf.stage("blob", b"a", b"1")
    await shelf.write(delete_container, DeleteContainer(BOX))
    assert await code_of(shelf.stage("blob", b"b", b"2")) == "ContainerNotFound"
    assert await code_of(shelf.commit("blob", latest(b"a"))) == "ContainerNotFound"
    await shelf.create()
    assert await shelf.staged("blob") == []
    assert await code_of(shelf.commit("blob", latest(b"a"))) == "InvalidBlockList"
    await shelf.require_bare()


# Who sees them


@on_a_shelf
async def test_blocks_alone_are_no_blob(shelf: Shelf) -> None:
    await shelf.create()
    await shelf.stage("blob", b"a", b"1")
    acquire = LeaseBlob(NAME, Acquire(new_lease_id(), 15))
    for refused in (
        shelf.read(get_blob, GetBlob(NAME)),
        shelf.get("blob"),
        shelf.write(delete_blob, DeleteBlob(NAME)),
        shelf.write(set_blob_metadata, SetBlobMetadata(NAME, ())),
        shelf.write(snapshot_blob, SnapshotBlob(NAME)),
        shelf.write(lease_blob, acquire),
        shelf.read(get_block_list, GetBlockList(NAME, True, True, snapshot=1)),
        shelf.read(get_block_list, GetBlockList(BlobName(BOX, "other"), True, True)),
    ):
        assert await code_of(refused) == "BlobNotFound"
    shown = await shelf.block_list("blob")
    assert shown.blob is None
    assert (shown.committed, shown.uncommitted) == ((), (BlockSize(b"a", 1),))
    leased = GetBlockList(NAME, True, True, new_lease_id())
    assert await code_of(shelf.read(get_block_list, leased)) == "LeaseNotPresentWithBlobOperation"


@on_a_shelf
async def test_only_what_is_asked_for_is_listed(shelf: Shelf) -> None:
    await shelf.create()
    await shelf.stage("blob", b"a", b"1")
    await shelf.commit("blob", latest(b"a"))
    await shelf.stage("blob", b"b", b"22")
    for committed, listed in ((True, False), (False, True), (True, True)):
        shown = await shelf.read(get_block_list, GetBlockList(NAME, committed, listed))
        assert shown.committed == ((BlockSize(b"a", 1),) if committed else ())
        assert shown.uncommitted == ((BlockSize(b"b", 2),) if listed else ())
        assert shown.blob is not None
    await shelf.put("blob", b"whole")
    shown = await shelf.block_list("blob")
    assert (shown.committed, shown.uncommitted) == ((), ())


@on_a_shelf
async def test_listings_show_them_if_asked(shelf: Shelf) -> None:
    await shelf.create()
    blob = await shelf.put("both", b"x")
    await shelf.stage("both", b"a", b"1")
    await shelf.stage("blocks", b"a", b"1")
    await shelf.stage("a/blocks", b"a", b"1")

    async def listed(delimiter: str, *, staged: bool) -> BlobPage:
        ask = ListBlobs(BOX, 10, delimiter=delimiter, uncommitted=staged)
        return await shelf.read(list_blobs, ask)

    assert (await listed("", staged=False)).entries == (("both", blob, NO_SNAPSHOT),)
    assert (await listed("/", staged=False)).entries == (("both", blob, NO_SNAPSHOT),)
    kinds = [(name, type(found)) for name, found, _ in (await listed("", staged=True)).entries]
    assert kinds == [("a/blocks", Staging), ("blocks", Staging), ("both", Blob)]
    kinds = [(name, type(found)) for name, found, _ in (await listed("/", staged=True)).entries]
    assert kinds == [("a/", type(None)), ("blocks", Staging), ("both", Blob)]


# How long they wait


@on_a_shelf
async def test_what_makes_or_unmakes_a_blob_drops_them(shelf: Shelf) -> None:
    await shelf.create()
    await shelf.stage_all("blob", {b"a": b"1", b"b": b"2"})
    await shelf.put("blob", b"whole")
    assert await shelf.staged("blob") == []
    await shelf.require_sound()
    await shelf.stage_all("blob", {b"a": b"3", b"b": b"4"})
    await shelf.write(set_blob_metadata, SetBlobMetadata(NAME, (("Key", "value"),)))
    await shelf.snapshot("blob")
    assert await shelf.staged("blob") == [b"a", b"b"]
    await shelf.commit("blob", latest(b"a"))
    assert await shelf.staged("blob") == []
    await shelf.require_sound()
    await shelf.stage("blob", b"b", b"5")
    assert await code_of(shelf.write(delete_blob, DeleteBlob(NAME))) == "SnapshotsPresent"
    assert await shelf.staged("blob") == [b"b"]
    await shelf.put("other", b"")
    await shelf.stage("other", b"b", b"5")
    await shelf.write(delete_blob, DeleteBlob(BlobName(BOX, "other")))
    assert await shelf.staged("other") == []
    await shelf.require_sound()


@on_a_shelf
async def test_a_week_after_the_last_one_they_are_dropped(shelf: Shelf) -> None:
    await shelf.create()
    assert not await shelf.read(may_purge, None)
    shelf.clock.freeze()
    await shelf.stage("blob", b"a", b"1")
    shelf.clock.advance(WEEK - SECOND)
    assert await shelf.write(discard_stale, PurgeStagings()) == 0
    await shelf.stage("blob", b"b", b"2")  # in good time: both wait for another week
    await shelf.require_sound()
    shelf.clock.advance(WEEK - SECOND)
    assert await shelf.write(discard_stale, PurgeStagings()) == 0
    assert await shelf.staged("blob") == [b"a", b"b"]
    # It is noted to the hour when that was, so they may stay for one more.
    shelf.clock.advance(HOUR + 2 * SECOND)
    assert await shelf.read(may_purge, None)
    assert await shelf.write(discard_stale, PurgeStagings()) == 1
    assert await shelf.staged("blob") == []
    assert await shelf.write(discard_stale, PurgeStagings()) == 0
    await shelf.require_bare()
    assert not await shelf.read(may_purge, None)


@on_a_shelf
async def test_only_the_stale_are_dropped_and_so_many_at_once(shelf: Shelf) -> None:
    other = ContainerName(ACCOUNT, "other")
    await shelf.create()
    await shelf.create(other)
    shelf.clock.freeze()
    for name in ("a", "b", "c"):
        await shelf.stage(name, b"a", b"1")
    await shelf.stage("a", b"a", b"1", container=other)
    await shelf.stage("again", b"a", b"1")
    await shelf.commit("again", latest(b"a"))
    shelf.clock.advance(2 * HOUR)
    await shelf.stage("again", b"a", b"2")
    shelf.clock.advance(WEEK - HOUR + SECOND)
    assert [await shelf.write(discard_stale, PurgeStagings(3)) for _ in range(3)] == [3, 1, 0]
    assert await shelf.staged("again") == [b"a"]
    assert await shelf.get("again") == b"1"
    await shelf.require_sound()


@on_a_shelf
async def test_what_was_dropped_is_removed_in_bounded_steps(shelf: Shelf) -> None:
    await shelf.create()
    await shelf.stage_all("blob", {b"%d" % number: b"data" for number in range(7)})
    await shelf.stage("other", b"a", b"1")
    await shelf.put("blob", b"")
    left = await shelf.read(_staged_blocks, None)
    assert left == 8
    while await shelf.write(purge_discarded, PurgeStagings(3)):
        before, left = left, await shelf.read(_staged_blocks, None)
        assert before - left <= 3
        await shelf.require_sound()
    assert left == 1
    assert await shelf.staged("other") == [b"a"]


@on_a_shelf
async def test_an_ended_lease_stays_until_blocks_become_a_blob(shelf: Shelf) -> None:
    await shelf.create()
    await shelf.put("blob", b"x")
    await shelf.lease("blob", Acquire(new_lease_id(), None))
    await shelf.lease("blob", Break(0))
    broken = (await shelf.read(get_blob, GetBlob(NAME))).blob.lease
    await shelf.stage("blob", b"a", b"1")
    assert (await shelf.read(get_blob, GetBlob(NAME))).blob.lease == broken
    committed = await shelf.commit("blob", latest(b"a"))
    assert committed.lease != broken
