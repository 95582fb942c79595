"""Drafts of block lists with every engine: committing, invalidation and cleanup."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from etagere.clock import TICKS_PER_SECOND
from etagere.engine.interface import ReadTxn
from etagere.model.blobs import (
    AbandonDraft,
    Blob,
    BlobName,
    DeleteBlob,
    ExtendDraft,
    GetBlob,
    ListedBlock,
    PutBlockList,
    PutDraft,
    SetBlobMetadata,
)
from etagere.model.bodies import ChunkUse
from etagere.model.conditions import ANY, Conditions
from etagere.model.containers import DeleteContainer
from etagere.model.ids import new_id
from etagere.model.leases import Acquire, new_lease_id
from etagere.operations.blob.blobs import delete_blob, get_blob, set_blob_metadata
from etagere.operations.blob.block_lists import (
    PurgeDrafts,
    abandon_draft,
    extend_draft,
    purge_drafts,
    put_draft,
)
from etagere.operations.blob.collections import DRAFTS
from etagere.operations.blob.containers import delete_container
from etagere.operations.blob.purging import may_purge
from etagere.protocol.blob.drafting import Drafting
from etagere.rules.conditions import format_etag
from tests.operations.blob.consistency import rows
from tests.operations.blob.fixture import (
    BOX,
    BlobFixture,
    blob_test,
    committed,
    latest,
    uncommitted,
)
from tests.operations.fixture import code_of

pytestmark = pytest.mark.usefixtures("short_chunks")

NAME = BlobName(BOX, "blob")
SECOND = TICKS_PER_SECOND
HOUR = 3600 * SECOND
BLOCKS = {b"%02d" % number: b"<%02d>" % number for number in range(10)}
DATA = b"".join(BLOCKS.values())


def _asked(listed: list[ListedBlock], conditions: Conditions | None = None) -> PutBlockList:
    return PutBlockList(NAME, new_id(), tuple(listed), conditions=conditions or Conditions())


async def _planned(blobs: BlobFixture, asked: PutBlockList) -> tuple[list[ExtendDraft], PutDraft]:
    drafting = Drafting(blobs.engine, asked, asked.content_id)
    return [step async for step in drafting.steps()], drafting.decision()


async def _drafted(blobs: BlobFixture, asked: PutBlockList) -> PutDraft:
    todo, decision = await _planned(blobs, asked)
    assert todo
    for step in todo:
        await blobs.write(extend_draft, step)
    await blobs.require_sound()
    return decision


async def _blob_of_ten(blobs: BlobFixture) -> Blob:
    await blobs.create()
    await blobs.stage_all("blob", BLOCKS)
    return await blobs.commit("blob", latest(*BLOCKS))


async def _blob(blobs: BlobFixture) -> Blob:
    return (await blobs.read(get_blob, GetBlob(NAME))).blob


def _drafts(txn: ReadTxn, _: None) -> int:
    return len(rows(txn, DRAFTS))


async def _require_nothing_left(blobs: BlobFixture) -> None:
    """Checks that nothing remains once the drafts and the blob are gone."""
    blobs.clock.freeze()
    blobs.clock.advance(HOUR + SECOND)
    while await blobs.write(purge_drafts, PurgeDrafts()):
        pass
    await blobs.put("blob")
    await blobs.write(delete_blob, DeleteBlob(NAME))
    await blobs.require_empty()


# Committing


@blob_test
async def test_a_draft_becomes_the_blob(blobs: BlobFixture) -> None:
    await blobs.create()
    await blobs.stage_all("blob", BLOCKS)
    asked = replace(_asked(latest(*BLOCKS)), metadata=(("Key", "value"),), tier="Cool")
    decision = await _drafted(blobs, asked)
    # A draft is invisible until it is committed.
    assert await code_of(blobs.get("blob")) == "BlobNotFound"
    assert await blobs.staged("blob") == list(BLOCKS)
    made = await blobs.write(put_draft, decision)
    assert made == await _blob(blobs)
    assert made is not None
    assert (made.metadata, made.tier, made.created) == (asked.metadata, "Cool", made.stamp)
    assert await blobs.get("blob") == DATA
    assert await blobs.get("blob", 6, 25) == DATA[6:26]
    shown = await blobs.block_list("blob")
    assert [block.name for block in shown.committed] == list(BLOCKS)
    assert shown.uncommitted == ()
    assert await blobs.read(_drafts, None) == 0
    assert await blobs.write(put_draft, decision) is None
    await blobs.require_sound()
    await blobs.purge()
    await blobs.require_sound()
    assert await blobs.get("blob") == DATA
    await _require_nothing_left(blobs)


@blob_test
async def test_a_draft_shares_with_the_blob_as_it_is(blobs: BlobFixture) -> None:
    before = await _blob_of_ten(blobs)
    await blobs.stage_all("blob", {b"04": b"new", b"10": b"new"})
    mine = new_lease_id()
    await blobs.lease("blob", Acquire(mine, None))
    names = [*BLOCKS, b"10"]
    asked = replace(_asked(latest(*names)), lease_id=mine)
    todo, _ = await _planned(blobs, asked)
    assert any(step.shared for step in todo)
    made = await blobs.write(put_draft, await _drafted(blobs, asked))
    assert made is not None
    assert made.created == before.created
    assert made.lease == (await _blob(blobs)).lease != before.lease
    assert await blobs.get("blob") == DATA[:16] + b"new" + DATA[20:] + b"new"
    await blobs.require_sound()
    await blobs.purge()
    await blobs.require_sound()


@blob_test
async def test_changes_that_keep_a_draft_valid(blobs: BlobFixture) -> None:
    """Metadata, a snapshot and a lease do not change what the blocks of a list mean."""
    await _blob_of_ten(blobs)
    decision = await _drafted(blobs, _asked(committed(*reversed(BLOCKS))))
    await blobs.write(set_blob_metadata, SetBlobMetadata(NAME, (("Key", "value"),)))
    taken = await blobs.snapshot("blob")
    assert await blobs.write(put_draft, decision) is not None
    assert await blobs.get("blob") == b"".join(BLOCKS[name] for name in reversed(BLOCKS))
    assert await blobs.get("blob", snapshot=taken) == DATA
    await blobs.require_sound()


@blob_test
async def test_an_empty_list_needs_no_draft(blobs: BlobFixture) -> None:
    await blobs.create()
    todo, decision = await _planned(blobs, _asked([]))
    assert todo == []
    assert await blobs.write(put_draft, decision) is None
    assert await code_of(blobs.get("blob")) == "BlobNotFound"


# Invalidation


@blob_test
async def test_staging_a_block_invalidates_a_draft(blobs: BlobFixture) -> None:
    for block in (b"00", b"10"):  # one in the list, and another one
        await blobs.create()
        await blobs.stage_all("blob", BLOCKS)
        decision = await _drafted(blobs, _asked(latest(*BLOCKS)))
        await blobs.stage("blob", block, b"new")
        assert await blobs.write(put_draft, decision) is None
        assert await code_of(blobs.get("blob")) == "BlobNotFound"
        assert set(await blobs.staged("blob")) == {*BLOCKS, block}
        await blobs.require_sound()
        await blobs.write(abandon_draft, AbandonDraft(decision.command.content_id))
        await blobs.require_sound()
        await blobs.commit("blob", latest(*BLOCKS))
        assert (await blobs.get("blob")).startswith(b"new" if block == b"00" else b"<00>")
        await blobs.write(delete_container, DeleteContainer(BOX))
        await blobs.require_empty()


@blob_test
async def test_staging_the_first_block_invalidates_a_draft(blobs: BlobFixture) -> None:
    """`Latest` may now refer to another block."""
    await _blob_of_ten(blobs)
    decision = await _drafted(blobs, _asked(latest(*BLOCKS, *BLOCKS)))
    await blobs.stage("blob", b"03", b"new")
    assert await blobs.write(put_draft, decision) is None
    assert await blobs.get("blob") == DATA
    await _require_nothing_left(blobs)


@blob_test
async def test_replacing_the_blob_invalidates_a_draft(blobs: BlobFixture) -> None:
    await _blob_of_ten(blobs)
    decision = await _drafted(blobs, _asked(committed(*BLOCKS, *BLOCKS)))
    other = await blobs.put("blob", b"other")
    assert await blobs.write(put_draft, decision) is None
    assert await _blob(blobs) == other
    await blobs.require_sound()
    await _require_nothing_left(blobs)


@blob_test
async def test_committing_the_same_blocks_invalidates_a_draft(blobs: BlobFixture) -> None:
    await _blob_of_ten(blobs)
    decision = await _drafted(blobs, _asked(committed(*BLOCKS, *BLOCKS)))
    again = await blobs.commit("blob", committed(*BLOCKS))
    assert await blobs.write(put_draft, decision) is None
    assert await _blob(blobs) == again
    await _require_nothing_left(blobs)


@blob_test
async def test_dropping_staged_blocks_invalidates_a_draft(blobs: BlobFixture) -> None:
    await blobs.create()
    await blobs.stage_all("blob", BLOCKS)
    first = await _drafted(blobs, _asked(uncommitted(*BLOCKS)))
    await blobs.put("blob", b"whole")
    assert await blobs.write(put_draft, first) is None
    await blobs.stage_all("blob", BLOCKS)
    assert await blobs.write(put_draft, first) is None
    second = await _drafted(blobs, _asked(uncommitted(*BLOCKS)))
    await blobs.write(delete_blob, DeleteBlob(NAME))
    assert await blobs.write(put_draft, second) is None
    assert await code_of(blobs.get("blob")) == "BlobNotFound"
    await blobs.purge()
    await blobs.require_sound()
    await _require_nothing_left(blobs)


@blob_test
async def test_recreating_the_container_invalidates_a_draft(blobs: BlobFixture) -> None:
    await _blob_of_ten(blobs)
    decision = await _drafted(blobs, _asked(committed(*BLOCKS, *BLOCKS)))
    await blobs.write(delete_container, DeleteContainer(BOX))
    assert await code_of(blobs.write(put_draft, decision)) == "ContainerNotFound"
    await blobs.create()
    assert await blobs.write(put_draft, decision) is None
    await _require_nothing_left(blobs)


@blob_test
async def test_steps_whose_bytes_are_gone_are_refused(blobs: BlobFixture) -> None:
    await blobs.create()
    await blobs.stage_all("blob", BLOCKS)
    todo, decision = await _planned(blobs, _asked(latest(*BLOCKS)))
    await blobs.write(extend_draft, todo[0])
    await blobs.put("blob", b"")
    await blobs.purge()
    assert await code_of(blobs.write(extend_draft, todo[1])) == "InvalidBlockList"
    await blobs.require_sound()
    assert await blobs.write(put_draft, decision) is None
    await blobs.write(abandon_draft, AbandonDraft(decision.command.content_id))
    await blobs.require_empty()


@blob_test
async def test_steps_whose_chunks_are_gone_are_refused(blobs: BlobFixture) -> None:
    await _blob_of_ten(blobs)
    todo, decision = await _planned(blobs, _asked(committed(*BLOCKS)))
    (shared,) = todo
    assert len(shared.shared) == 3
    await blobs.put("blob", b"")
    await blobs.purge()
    assert await code_of(blobs.write(extend_draft, shared)) == "InvalidBlockList"
    unknown = replace(shared, shared=(ChunkUse(new_id(), 0, 10),))
    assert await code_of(blobs.write(extend_draft, unknown)) == "InvalidBlockList"
    assert await blobs.write(put_draft, decision) is None
    await blobs.require_empty()


@blob_test
async def test_the_commit_checks_lease_and_conditions(blobs: BlobFixture) -> None:
    before = await _blob_of_ten(blobs)
    current = Conditions(if_match=(format_etag(before.stamp),))
    asked = _asked(committed(*BLOCKS, *BLOCKS), current)
    decision = await _drafted(blobs, asked)
    mine = new_lease_id()
    await blobs.lease("blob", Acquire(mine, None))
    assert await code_of(blobs.write(put_draft, decision)) == "LeaseIdMissing"
    await blobs.write(set_blob_metadata, SetBlobMetadata(NAME, (), lease_id=mine))
    leased = replace(decision, command=replace(decision.command, lease_id=mine))
    assert await code_of(blobs.write(put_draft, leased)) == "ConditionNotMet"
    only = replace(asked, conditions=Conditions(), lease_id=mine, only_if_absent=True, blocks=())
    mismatch = code_of(blobs.write(put_draft, replace(decision, command=only)))
    assert await mismatch == "UnauthorizedBlobOverwrite"
    assert await blobs.get("blob") == DATA
    await blobs.require_sound()
    await blobs.write(abandon_draft, AbandonDraft(asked.content_id))
    await blobs.write(delete_blob, DeleteBlob(NAME, lease_id=mine))
    await blobs.require_empty()


@blob_test
async def test_refused_lists_are_not_planned(blobs: BlobFixture) -> None:
    assert await code_of(_planned(blobs, _asked([]))) == "ContainerNotFound"
    await _blob_of_ten(blobs)
    new = Conditions(if_none_match=ANY)
    for asked, code in (
        (_asked(latest(b"00", b"99")), "InvalidBlockList"),
        (_asked(uncommitted(b"00")), "InvalidBlockList"),
        (_asked(latest(b"00"), new), "BlobAlreadyExists"),
        (replace(_asked(latest(b"00")), lease_id=new_id()), "LeaseNotPresentWithBlobOperation"),
        (replace(_asked([]), only_if_absent=True), "UnauthorizedBlobOverwrite"),
    ):
        assert await code_of(_planned(blobs, asked)) == code


# Cleanup


@blob_test
async def test_an_abandoned_draft_leaves_nothing(blobs: BlobFixture) -> None:
    await _blob_of_ten(blobs)
    await blobs.stage("blob", b"10", b"new")
    decision = await _drafted(blobs, _asked(latest(b"10", *BLOCKS, b"10")))
    abandoned = AbandonDraft(decision.command.content_id)
    await blobs.write(abandon_draft, abandoned)
    await blobs.require_sound()
    await blobs.write(abandon_draft, abandoned)
    await blobs.purge()
    await blobs.require_sound()
    assert await blobs.write(put_draft, decision) is None
    assert await blobs.get("blob") == DATA
    await blobs.write(delete_blob, DeleteBlob(NAME))
    await blobs.require_empty()


@blob_test
async def test_an_unfinished_draft_is_purged_after_an_hour(blobs: BlobFixture) -> None:
    await _blob_of_ten(blobs)
    await blobs.purge()
    assert not await blobs.read(may_purge, None)
    blobs.clock.freeze()
    lists = [_asked(committed(*BLOCKS, *BLOCKS)) for _ in range(3)]
    decisions = [await _drafted(blobs, asked) for asked in lists]
    assert await blobs.read(may_purge, None)
    blobs.clock.advance(HOUR - SECOND)
    assert await blobs.write(purge_drafts, PurgeDrafts()) == 0
    young = await _drafted(blobs, _asked(committed(*BLOCKS, *BLOCKS)))
    blobs.clock.advance(2 * SECOND)
    assert [await blobs.write(purge_drafts, PurgeDrafts(2)) for _ in range(3)] == [2, 1, 0]
    await blobs.require_sound()
    for decision in decisions:
        assert await blobs.write(put_draft, decision) is None
    assert await blobs.write(put_draft, young) is not None
    assert await blobs.get("blob") == DATA * 2
    await blobs.purge()
    await blobs.require_sound()
    assert not await blobs.read(may_purge, None)


@blob_test
async def test_a_purged_draft_cannot_be_continued(blobs: BlobFixture) -> None:
    """A front end that was suspended for an hour must not make a blob of the second half."""
    await blobs.create()
    blobs.clock.freeze()
    await blobs.stage_all("blob", BLOCKS)
    todo, decision = await _planned(blobs, _asked(latest(*BLOCKS)))
    await blobs.write(extend_draft, todo[0])
    blobs.clock.advance(HOUR + SECOND)
    assert await blobs.write(purge_drafts, PurgeDrafts()) == 1
    for step in todo[1:]:
        assert await code_of(blobs.write(extend_draft, step)) == "InvalidBlockList"
    assert await blobs.write(put_draft, decision) is None
    assert await code_of(blobs.get("blob")) == "BlobNotFound"
    await blobs.require_sound()
