"""Block lists over every engine: what becomes a blob, what stays, what is let go of."""

from __future__ import annotations

import asyncio
import random

import pytest

from etagere.clock import TICKS_PER_SECOND
from etagere.model.blobs import (
    BlobHeaders,
    BlobName,
    BlockSize,
    DeleteBlob,
    GetBlob,
    PutBlockList,
    SetBlobMetadata,
)
from etagere.model.bodies import Empty
from etagere.model.conditions import ANY, Conditions
from etagere.model.ids import new_id
from etagere.model.leases import NO_LEASE, Acquire, Break, InfiniteLease, Renew, new_lease_id
from etagere.operations.blob.blobs import delete_blob, get_blob, set_blob_metadata
from etagere.operations.blob.block_lists import put_block_list
from etagere.rules.conditions import format_etag
from tests.operations.blob.shelf import (
    BOX,
    Shelf,
    code_of,
    committed,
    latest,
    on_a_shelf,
    uncommitted,
)

NAME = BlobName(BOX, "blob")
SECOND = TICKS_PER_SECOND
A, B, C, D = b"a", b"b", b"c", b"d"


async def _blob_of_a_and_b(shelf: Shelf) -> None:
    await shelf.create()
    await shelf.stage_all("blob", {A: b"alpha ", B: b"beta "})
    await shelf.commit("blob", latest(A, B))


# Which blocks


@on_a_shelf
async def test_blocks_become_a_blob_in_the_order_of_the_list(shelf: Shelf) -> None:
    await shelf.create()
    await shelf.stage_all("blob", {A: b"alpha ", B: b"beta ", C: b"gamma "})
    made = await shelf.commit("blob", [*latest(C), *uncommitted(A)])
    assert await shelf.get("blob") == b"gamma alpha "
    shown = await shelf.block_list("blob")
    assert shown.blob == made
    assert made.content.length == 12
    assert shown.committed == (BlockSize(C, 6), BlockSize(A, 6))
    assert shown.uncommitted == ()
    # What was staged and not listed is dropped, not kept for a later list.
    for listed in (latest(B), uncommitted(B), committed(B)):
        assert await code_of(shelf.commit("blob", listed)) == "InvalidBlockList"
    await shelf.require_sound()
    await shelf.write(delete_blob, DeleteBlob(NAME))
    await shelf.require_bare()


@on_a_shelf
async def test_each_source_finds_its_own(shelf: Shelf) -> None:
    await _blob_of_a_and_b(shelf)
    for listed, data in (
        (committed(A), b"alpha "),
        (uncommitted(A), b"ALPHA "),
        (latest(A), b"ALPHA "),
        (latest(B), b"beta "),
        (latest(C), b"GAMMA "),
        ([*committed(A), *uncommitted(A)], b"alpha ALPHA "),
        ([*latest(A), *committed(A), *latest(C), *latest(B)], b"ALPHA alpha GAMMA beta "),
    ):
        await shelf.stage_all("blob", {A: b"ALPHA ", C: b"GAMMA "})
        await shelf.commit("blob", listed)
        assert await shelf.get("blob") == data
        await shelf.require_sound()
        await shelf.stage_all("blob", {A: b"alpha ", B: b"beta "})
        await shelf.commit("blob", uncommitted(A, B))


@on_a_shelf
async def test_blocks_of_the_blob_are_used_again(shelf: Shelf) -> None:
    await _blob_of_a_and_b(shelf)
    await shelf.stage("blob", C, b"gamma ")
    await shelf.commit("blob", [*committed(B), *latest(C), *committed(A, B)])
    assert await shelf.get("blob") == b"beta gamma alpha beta "
    await shelf.require_sound()
    await shelf.commit("blob", committed(B))
    assert await shelf.get("blob") == b"beta "
    assert await code_of(shelf.commit("blob", committed(A))) == "InvalidBlockList"
    await shelf.require_sound()
    await shelf.write(delete_blob, DeleteBlob(NAME))
    await shelf.require_bare()


@on_a_shelf
async def test_one_block_several_times(shelf: Shelf) -> None:
    await shelf.create()
    await shelf.stage_all("blob", {A: b"x", B: b"y"})
    await shelf.commit("blob", latest(A, A, B, A))
    assert await shelf.get("blob") == b"xxyx"
    assert [block.name for block in (await shelf.block_list("blob")).committed] == [A, A, B, A]
    await shelf.require_sound()
    await shelf.commit("blob", latest(A, B, B))
    assert await shelf.get("blob") == b"xyy"
    await shelf.require_sound()
    await shelf.write(delete_blob, DeleteBlob(NAME))
    await shelf.require_bare()


@on_a_shelf
async def test_an_empty_list_makes_an_empty_blob(shelf: Shelf) -> None:
    await shelf.create()
    made = await shelf.commit("blob", [])
    assert made.content == Empty()
    assert await shelf.get("blob") == b""
    assert (await shelf.block_list("blob")).committed == ()
    await shelf.stage("blob", A, b"x")
    await shelf.commit("blob", latest(A))
    await shelf.stage("blob", A, b"y")
    await shelf.commit("blob", [])
    assert await shelf.get("blob") == b""
    assert await shelf.staged("blob") == []
    await shelf.require_bare()


@on_a_shelf
async def test_few_of_many_that_wait(shelf: Shelf) -> None:
    """They are looked up one by one; the others are dropped all the same."""
    await shelf.create()
    await shelf.stage_all("blob", {b"%02d" % number: b"%02d " % number for number in range(20)})
    assert await code_of(shelf.commit("blob", latest(b"03", b"99"))) == "InvalidBlockList"
    await shelf.commit("blob", latest(b"17", b"03"))
    assert await shelf.get("blob") == b"17 03 "
    await shelf.require_sound()
    await shelf.purge()
    await shelf.require_sound()
    assert await shelf.get("blob") == b"17 03 "


@on_a_shelf
async def test_an_unknown_block_changes_nothing(shelf: Shelf) -> None:
    await _blob_of_a_and_b(shelf)
    await shelf.stage("blob", C, b"gamma ")
    before = await shelf.block_list("blob")
    for listed in (
        latest(A, C, D),
        [*latest(A), *committed(C)],
        [*latest(C), *uncommitted(A)],
        latest(b"longer"),
    ):
        assert await code_of(shelf.commit("blob", listed)) == "InvalidBlockList"
    after = await shelf.block_list("blob")
    assert after.blob == before.blob
    assert (after.committed, after.uncommitted) == (before.committed, before.uncommitted)
    assert await shelf.get("blob") == b"alpha beta "
    await shelf.require_sound()
    assert await code_of(shelf.commit("other", latest(A))) == "InvalidBlockList"


@on_a_shelf
async def test_a_blob_that_was_put_whole_has_no_blocks(shelf: Shelf) -> None:
    await shelf.create()
    await shelf.put("blob", b"x" * 200_000)
    await shelf.stage("blob", A, b"alpha")
    assert await code_of(shelf.commit("blob", committed(A))) == "InvalidBlockList"
    await shelf.commit("blob", latest(A))
    assert await shelf.get("blob") == b"alpha"
    await shelf.require_sound()
    await shelf.put("blob", b"y")
    assert await code_of(shelf.commit("blob", committed(A))) == "InvalidBlockList"
    await shelf.require_sound()


# Bytes


@pytest.mark.usefixtures("short_chunks")
@on_a_shelf
async def test_ranges_across_blocks_and_chunks(shelf: Shelf) -> None:
    await shelf.create()
    blocks = {b"%02d" % number: b"%02d" % number * (number % 4 + 1) for number in range(11)}
    await shelf.stage_all("blob", blocks)
    order = list(blocks)
    random.Random(1).shuffle(order)
    order += order[3:6]
    await shelf.commit("blob", latest(*order))
    data = b"".join(blocks[name] for name in order)
    assert await shelf.get("blob") == data
    for first in range(len(data)):
        for last in {first, first + 1, first + 9, len(data) - 1, len(data) + 5}:
            assert await shelf.get("blob", first, last) == data[first : last + 1]
        assert await shelf.get("blob", first) == data[first:]
    assert await code_of(shelf.get("blob", len(data))) == "InvalidRange"


@pytest.mark.usefixtures("short_chunks")
@on_a_shelf
async def test_appending_shares_and_lets_go(shelf: Shelf) -> None:
    """Each list is the one before and a block more, as those do who append."""
    await shelf.create()
    names: list[bytes] = []
    for number in range(12):
        names.append(b"%02d" % number)
        await shelf.stage("blob", names[-1], b"<%02d>" % number)
        await shelf.commit("blob", latest(*names))
        if number % 4 == 3:
            await shelf.require_sound()
            await shelf.purge()
            await shelf.require_sound()
    assert await shelf.get("blob") == b"".join(b"<%s>" % name for name in names)
    await shelf.write(delete_blob, DeleteBlob(NAME))
    await shelf.require_bare()


# What the blob keeps


@on_a_shelf
async def test_described_anew_and_still_the_same_blob(shelf: Shelf) -> None:
    await _blob_of_a_and_b(shelf)
    mine = new_lease_id()
    await shelf.write(set_blob_metadata, SetBlobMetadata(NAME, (("Old", "1"),)))
    before = (await shelf.lease("blob", Acquire(mine, None))).blob
    taken = await shelf.snapshot("blob")
    headers = BlobHeaders("text/plain", content_md5=b"m" * 16)
    command = PutBlockList(
        NAME, new_id(), tuple(committed(B)), headers, (("New", "2"),), lease_id=mine, tier="Cool"
    )
    after = await shelf.write(put_block_list, command)
    assert after is not None
    assert after.stamp > before.stamp
    assert after.created == before.created
    assert after.lease == InfiniteLease(mine)
    assert (after.headers, after.metadata) == (headers, (("New", "2"),))
    assert (after.tier, after.tier_changed) == ("Cool", after.stamp)
    assert await shelf.get("blob", snapshot=taken) == b"alpha beta "
    plain = await shelf.commit("blob", committed(B), lease_id=mine)
    assert (plain.headers, plain.metadata, plain.tier) == (BlobHeaders(), (), "")
    await shelf.require_sound()


@on_a_shelf
async def test_a_lease_that_has_ended_is_forgotten(shelf: Shelf) -> None:
    await _blob_of_a_and_b(shelf)
    mine = new_lease_id()
    shelf.clock.freeze()
    await shelf.lease("blob", Acquire(mine, 15))
    shelf.clock.advance(16 * SECOND)
    lost = shelf.commit("blob", committed(A), lease_id=mine)
    assert await code_of(lost) == "LeaseLost"
    assert (await shelf.commit("blob", committed(A))).lease == NO_LEASE
    renewed = shelf.lease("blob", Renew(mine))
    assert await code_of(renewed) == "LeaseIdMismatchWithLeaseOperation"


# Who may


@on_a_shelf
async def test_lease_and_conditions_decide_at_the_end(shelf: Shelf) -> None:
    await _blob_of_a_and_b(shelf)
    await shelf.stage("blob", C, b"gamma ")
    blob = (await shelf.read(get_blob, GetBlob(NAME))).blob
    current, stale = (Conditions(if_match=(tag,)) for tag in (format_etag(blob.stamp), '"0x1"'))
    new = Conditions(if_none_match=ANY)
    mine = new_lease_id()
    for refused, code in (
        (shelf.commit("blob", latest(C), stale), "ConditionNotMet"),
        (shelf.commit("blob", latest(C), new), "BlobAlreadyExists"),
        (
            shelf.commit("blob", latest(C), only_if_absent=True),
            "UnauthorizedBlobOverwrite",
        ),
        (shelf.commit("blob", latest(C), lease_id=mine), "LeaseNotPresentWithBlobOperation"),
        (shelf.commit("other", latest(C), current), "ConditionNotMet"),
        # What is wrong with the list is said only to those who may put one.
        (shelf.commit("blob", latest(D), stale), "ConditionNotMet"),
    ):
        assert await code_of(refused) == code
    await shelf.lease("blob", Acquire(mine, None))
    other = new_lease_id()
    for lease_id, conditions, code in (
        (None, current, "LeaseIdMissing"),
        (None, new, "LeaseIdMissing"),
        (other, current, "LeaseIdMismatchWithBlobOperation"),
        (mine, stale, "ConditionNotMet"),
    ):
        refused = shelf.commit("blob", latest(C), conditions, lease_id=lease_id)
        assert await code_of(refused) == code
    assert await shelf.get("blob") == b"alpha beta "
    assert await shelf.staged("blob") == [C]
    await shelf.require_sound()
    await shelf.commit("blob", latest(C), current, lease_id=mine)
    assert await shelf.get("blob") == b"gamma "
    await shelf.lease("blob", Break(0))
    await shelf.commit("blob", [])


@on_a_shelf
async def test_of_many_lists_one_has_the_blocks(shelf: Shelf) -> None:
    """The others find them gone, or, if they name them as those of the blob, use them again."""
    await shelf.create()
    for _ in range(5):
        await shelf.stage_all("blob", {A: b"1", B: b"2"})
        lists = [uncommitted(A, B), uncommitted(B, A), uncommitted(A), uncommitted(B)]
        datas = [b"12", b"21", b"1", b"2"]
        codes = await asyncio.gather(*(code_of(shelf.commit("blob", each)) for each in lists))
        assert sorted(codes) == ["", *["InvalidBlockList"] * 3]
        assert await shelf.get("blob") == datas[codes.index("")]
        await shelf.require_sound()
    await shelf.write(delete_blob, DeleteBlob(NAME))
    await shelf.require_bare()


@on_a_shelf
async def test_created_once(shelf: Shelf) -> None:
    await shelf.create()
    await shelf.stage("blob", A, b"1")
    new = Conditions(if_none_match=ANY)
    racers = [code_of(shelf.commit("blob", latest(A), new)) for _ in range(6)]
    codes = await asyncio.gather(*racers)
    assert sorted(codes) == ["", *["BlobAlreadyExists"] * 5]
    await shelf.require_sound()
