"""Block lists with every engine: which blocks they commit, keep and release."""

from __future__ import annotations

import asyncio
import random

import pytest

from etagere.clock import TICKS_PER_SECOND
from etagere.model.blobs import (
    BlobName,
    BlockSize,
    DeleteBlob,
    GetBlob,
    PutBlockList,
    SetBlobMetadata,
)
from etagere.model.bodies import Empty
from etagere.model.common import ContentHeaders
from etagere.model.conditions import ANY, Conditions
from etagere.model.ids import new_id
from etagere.model.leases import NO_LEASE, Acquire, Break, InfiniteLease, Renew, new_lease_id
from etagere.operations.blob.blobs import delete_blob, get_blob, set_blob_metadata
from etagere.operations.blob.block_lists import put_block_list
from etagere.rules.conditions import format_etag
from tests.operations.blob.fixture import (
    BOX,
    BlobFixture,
    blob_test,
    committed,
    latest,
    uncommitted,
)
from tests.operations.fixture import code_of

NAME = BlobName(BOX, "blob")
SECOND = TICKS_PER_SECOND
A, B, C, D = b"a", b"b", b"c", b"d"


async def _blob_of_a_and_b(blobs: BlobFixture) -> None:
    await blobs.create()
    await blobs.stage_all("blob", {A: b"alpha ", B: b"beta "})
    await blobs.commit("blob", latest(A, B))


# Blocks


@blob_test
async def test_blocks_become_a_blob_in_the_order_of_the_list(blobs: BlobFixture) -> None:
    await blobs.create()
    await blobs.stage_all("blob", {A: b"alpha ", B: b"beta ", C: b"gamma "})
    made = await blobs.commit("blob", [*latest(C), *uncommitted(A)])
    assert await blobs.get("blob") == b"gamma alpha "
    shown = await blobs.block_list("blob")
    assert shown.blob == made
    assert made.content.length == 12
    assert shown.committed == (BlockSize(C, 6), BlockSize(A, 6))
    assert shown.uncommitted == ()
    # Staged blocks that are not listed are dropped, not kept for a later list.
    for listed in (latest(B), uncommitted(B), committed(B)):
        assert await code_of(blobs.commit("blob", listed)) == "InvalidBlockList"
    await blobs.require_sound()
    await blobs.write(delete_blob, DeleteBlob(NAME))
    await blobs.require_empty()


@blob_test
async def test_sources_of_blocks(blobs: BlobFixture) -> None:
    await _blob_of_a_and_b(blobs)
    for listed, data in (
        (committed(A), b"alpha "),
        (uncommitted(A), b"ALPHA "),
        (latest(A), b"ALPHA "),
        (latest(B), b"beta "),
        (latest(C), b"GAMMA "),
        ([*committed(A), *uncommitted(A)], b"alpha ALPHA "),
        ([*latest(A), *committed(A), *latest(C), *latest(B)], b"ALPHA alpha GAMMA beta "),
    ):
        await blobs.stage_all("blob", {A: b"ALPHA ", C: b"GAMMA "})
        await blobs.commit("blob", listed)
        assert await blobs.get("blob") == data
        await blobs.require_sound()
        await blobs.stage_all("blob", {A: b"alpha ", B: b"beta "})
        await blobs.commit("blob", uncommitted(A, B))


@blob_test
async def test_committed_blocks_can_be_reused(blobs: BlobFixture) -> None:
    await _blob_of_a_and_b(blobs)
    await blobs.stage("blob", C, b"gamma ")
    await blobs.commit("blob", [*committed(B), *latest(C), *committed(A, B)])
    assert await blobs.get("blob") == b"beta gamma alpha beta "
    await blobs.require_sound()
    await blobs.commit("blob", committed(B))
    assert await blobs.get("blob") == b"beta "
    assert await code_of(blobs.commit("blob", committed(A))) == "InvalidBlockList"
    await blobs.require_sound()
    await blobs.write(delete_blob, DeleteBlob(NAME))
    await blobs.require_empty()


@blob_test
async def test_one_block_several_times(blobs: BlobFixture) -> None:
    await blobs.create()
    await blobs.stage_all("blob", {A: b"x", B: b"y"})
    await blobs.commit("blob", latest(A, A, B, A))
    assert await blobs.get("blob") == b"xxyx"
    assert [block.name for block in (await blobs.block_list("blob")).committed] == [A, A, B, A]
    await blobs.require_sound()
    await blobs.commit("blob", latest(A, B, B))
    assert await blobs.get("blob") == b"xyy"
    await blobs.require_sound()
    await blobs.write(delete_blob, DeleteBlob(NAME))
    await blobs.require_empty()


@blob_test
async def test_an_empty_list_makes_an_empty_blob(blobs: BlobFixture) -> None:
    await blobs.create()
    made = await blobs.commit("blob", [])
    assert made.content == Empty()
    assert await blobs.get("blob") == b""
    assert (await blobs.block_list("blob")).committed == ()
    await blobs.stage("blob", A, b"x")
    await blobs.commit("blob", latest(A))
    await blobs.stage("blob", A, b"y")
    await blobs.commit("blob", [])
    assert await blobs.get("blob") == b""
    assert await blobs.staged("blob") == []
    await blobs.require_empty()


@blob_test
async def test_a_few_of_many_staged_blocks(blobs: BlobFixture) -> None:
    """They are looked up one by one; the others are dropped all the same."""
    await blobs.create()
    await blobs.stage_all("blob", {b"%02d" % number: b"%02d " % number for number in range(20)})
    assert await code_of(blobs.commit("blob", latest(b"03", b"99"))) == "InvalidBlockList"
    await blobs.commit("blob", latest(b"17", b"03"))
    assert await blobs.get("blob") == b"17 03 "
    await blobs.require_sound()
    await blobs.purge()
    await blobs.require_sound()
    assert await blobs.get("blob") == b"17 03 "


@blob_test
async def test_an_unknown_block_changes_nothing(blobs: BlobFixture) -> None:
    await _blob_of_a_and_b(blobs)
    await blobs.stage("blob", C, b"gamma ")
    before = await blobs.block_list("blob")
    for listed in (
        latest(A, C, D),
        [*latest(A), *committed(C)],
        [*latest(C), *uncommitted(A)],
        latest(b"longer"),
    ):
        assert await code_of(blobs.commit("blob", listed)) == "InvalidBlockList"
    after = await blobs.block_list("blob")
    assert after.blob == before.blob
    assert (after.committed, after.uncommitted) == (before.committed, before.uncommitted)
    assert await blobs.get("blob") == b"alpha beta "
    await blobs.require_sound()
    assert await code_of(blobs.commit("other", latest(A))) == "InvalidBlockList"


@blob_test
async def test_a_blob_from_put_blob_has_no_blocks(blobs: BlobFixture) -> None:
    await blobs.create()
    await blobs.put("blob", b"x" * 200_000)
    await blobs.stage("blob", A, b"alpha")
    assert await code_of(blobs.commit("blob", committed(A))) == "InvalidBlockList"
    await blobs.commit("blob", latest(A))
    assert await blobs.get("blob") == b"alpha"
    await blobs.require_sound()
    await blobs.put("blob", b"y")
    assert await code_of(blobs.commit("blob", committed(A))) == "InvalidBlockList"
    await blobs.require_sound()


# Bytes


@pytest.mark.usefixtures("short_chunks")
@blob_test
async def test_ranges_across_blocks_and_chunks(blobs: BlobFixture) -> None:
    await blobs.create()
    blocks = {b"%02d" % number: b"%02d" % number * (number % 4 + 1) for number in range(11)}
    await blobs.stage_all("blob", blocks)
    order = list(blocks)
    random.Random(1).shuffle(order)
    order += order[3:6]
    await blobs.commit("blob", latest(*order))
    data = b"".join(blocks[name] for name in order)
    assert await blobs.get("blob") == data
    for first in range(len(data)):
        for last in {first, first + 1, first + 9, len(data) - 1, len(data) + 5}:
            assert await blobs.get("blob", first, last) == data[first : last + 1]
        assert await blobs.get("blob", first) == data[first:]
    assert await code_of(blobs.get("blob", len(data))) == "InvalidRange"


@pytest.mark.usefixtures("short_chunks")
@blob_test
async def test_appending_a_block_shares_the_others(blobs: BlobFixture) -> None:
    """Each list is the previous one with one more block, as clients do that append."""
    await blobs.create()
    names: list[bytes] = []
    for number in range(12):
        names.append(b"%02d" % number)
        await blobs.stage("blob", names[-1], b"<%02d>" % number)
        await blobs.commit("blob", latest(*names))
        if number % 4 == 3:
            await blobs.require_sound()
            await blobs.purge()
            await blobs.require_sound()
    assert await blobs.get("blob") == b"".join(b"<%s>" % name for name in names)
    await blobs.write(delete_blob, DeleteBlob(NAME))
    await blobs.require_empty()


# Properties and leases


@blob_test
async def test_a_list_replaces_properties_and_keeps_the_creation_time(blobs: BlobFixture) -> None:
    await _blob_of_a_and_b(blobs)
    mine = new_lease_id()
    await blobs.write(set_blob_metadata, SetBlobMetadata(NAME, (("Old", "1"),)))
    before = (await blobs.lease("blob", Acquire(mine, None))).blob
    taken = await blobs.snapshot("blob")
    headers = ContentHeaders("text/plain", content_md5=b"m" * 16)
    command = PutBlockList(
        NAME, new_id(), tuple(committed(B)), headers, (("New", "2"),), lease_id=mine, tier="Cool"
    )
    after = await blobs.write(put_block_list, command)
    assert after is not None
    assert after.stamp > before.stamp
    assert after.created == before.created
    assert after.lease == InfiniteLease(mine)
    assert (after.headers, after.metadata) == (headers, (("New", "2"),))
    assert (after.tier, after.tier_changed) == ("Cool", after.stamp)
    assert await blobs.get("blob", snapshot=taken) == b"alpha beta "
    plain = await blobs.commit("blob", committed(B), lease_id=mine)
    assert (plain.headers, plain.metadata, plain.tier) == (ContentHeaders(), (), "")
    await blobs.require_sound()


@blob_test
async def test_an_ended_lease_is_cleared(blobs: BlobFixture) -> None:
    await _blob_of_a_and_b(blobs)
    mine = new_lease_id()
    blobs.clock.freeze()
    await blobs.lease("blob", Acquire(mine, 15))
    blobs.clock.advance(16 * SECOND)
    lost = blobs.commit("blob", committed(A), lease_id=mine)
    assert await code_of(lost) == "LeaseLost"
    assert (await blobs.commit("blob", committed(A))).lease == NO_LEASE
    renewed = blobs.lease("blob", Renew(mine))
    assert await code_of(renewed) == "LeaseIdMismatchWithLeaseOperation"


# Preconditions


@blob_test
async def test_lease_and_conditions_are_checked_before_the_list(blobs: BlobFixture) -> None:
    await _blob_of_a_and_b(blobs)
    await blobs.stage("blob", C, b"gamma ")
    blob = (await blobs.read(get_blob, GetBlob(NAME))).blob
    current, stale = (Conditions(if_match=(tag,)) for tag in (format_etag(blob.stamp), '"0x1"'))
    new = Conditions(if_none_match=ANY)
    mine = new_lease_id()
    for refused, code in (
        (blobs.commit("blob", latest(C), stale), "ConditionNotMet"),
        (blobs.commit("blob", latest(C), new), "BlobAlreadyExists"),
        (
            blobs.commit("blob", latest(C), only_if_absent=True),
            "UnauthorizedBlobOverwrite",
        ),
        (blobs.commit("blob", latest(C), lease_id=mine), "LeaseNotPresentWithBlobOperation"),
        (blobs.commit("other", latest(C), current), "ConditionNotMet"),
        # Errors in the list are reported only to callers who may put one.
        (blobs.commit("blob", latest(D), stale), "ConditionNotMet"),
    ):
        assert await code_of(refused) == code
    await blobs.lease("blob", Acquire(mine, None))
    other = new_lease_id()
    for lease_id, conditions, code in (
        (None, current, "LeaseIdMissing"),
        (None, new, "LeaseIdMissing"),
        (other, current, "LeaseIdMismatchWithBlobOperation"),
        (mine, stale, "ConditionNotMet"),
    ):
        refused = blobs.commit("blob", latest(C), conditions, lease_id=lease_id)
        assert await code_of(refused) == code
    assert await blobs.get("blob") == b"alpha beta "
    assert await blobs.staged("blob") == [C]
    await blobs.require_sound()
    await blobs.commit("blob", latest(C), current, lease_id=mine)
    assert await blobs.get("blob") == b"gamma "
    await blobs.lease("blob", Break(0))
    await blobs.commit("blob", [])


@blob_test
async def test_one_of_many_lists_gets_the_staged_blocks(blobs: BlobFixture) -> None:
    """The others find them gone, or reuse them if they name them as committed blocks."""
    await blobs.create()
    for _ in range(5):
        await blobs.stage_all("blob", {A: b"1", B: b"2"})
        lists = [uncommitted(A, B), uncommitted(B, A), uncommitted(A), uncommitted(B)]
        datas = [b"12", b"21", b"1", b"2"]
        codes = await asyncio.gather(*(code_of(blobs.commit("blob", each)) for each in lists))
        assert sorted(codes) == ["", *["InvalidBlockList"] * 3]
        assert await blobs.get("blob") == datas[codes.index("")]
        await blobs.require_sound()
    await blobs.write(delete_blob, DeleteBlob(NAME))
    await blobs.require_empty()


@blob_test
async def test_one_of_many_creators_wins(blobs: BlobFixture) -> None:
    await blobs.create()
    await blobs.stage("blob", A, b"1")
    new = Conditions(if_none_match=ANY)
    racers = [code_of(blobs.commit("blob", latest(A), new)) for _ in range(6)]
    codes = await asyncio.gather(*racers)
    assert sorted(codes) == ["", *["BlobAlreadyExists"] * 5]
    await blobs.require_sound()
