"""Drafts of block lists over every engine: what they become, when they are worth nothing, and
that they leave nothing behind."""

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
from tests.operations.blob.accounts import rows
from tests.operations.blob.shelf import (
    BOX,
    Shelf,
    code_of,
    committed,
    latest,
    on_a_shelf,
    uncommitted,
)

pytestmark = pytest.mark.usefixtures("short_chunks")

NAME = BlobName(BOX, "blob")
SECOND = TICKS_PER_SECOND
HOUR = 3600 * SECOND
BLOCKS = {b"%02d" % number: b"<%02d>" % number for number in range(10)}
DATA = b"".join(BLOCKS.values())


def _asked(listed: list[ListedBlock], conditions: Conditions | None = None) -> PutBlockList:
    return PutBlockList(NAME, new_id(), tuple(listed), conditions=conditions or Conditions())


async def _planned(shelf: Shelf, asked: PutBlockList) -> tuple[list[ExtendDraft], PutDraft]:
    drafting = Drafting(shelf.engine, asked, asked.content_id)
    return [step async for step in drafting.steps()], drafting.decision()


async def _drafted(shelf: Shelf, asked: PutBlockList) -> PutDraft:
    todo, decision = await _planned(shelf, asked)
    assert todo
    for step in todo:
        await shelf.write(extend_draft, step)
    await shelf.require_sound()
    return decision


async def _blob_of_ten(shelf: Shelf) -> Blob:
    await shelf.create()
    await shelf.stage_all("blob", BLOCKS)
    return await shelf.commit("blob", latest(*BLOCKS))


async def _blob(shelf: Shelf) -> Blob:
    return (await shelf.read(get_blob, GetBlob(NAME))).blob


def _drafts(txn: ReadTxn, _: None) -> int:
    return len(rows(txn, DRAFTS))


async def _require_nothing_left(shelf: Shelf) -> None:
    """Once the drafts are gone and the blob is."""
    shelf.clock.freeze()
    shelf.clock.advance(HOUR + SECOND)
    while await shelf.write(purge_drafts, PurgeDrafts()):
        pass
    await shelf.put("blob")
    await shelf.write(delete_blob, DeleteBlob(NAME))
    await shelf.require_bare()


# What they become


@on_a_shelf
async def test_a_draft_becomes_the_blob(shelf: Shelf) -> None:
    await shelf.create()
    await shelf.stage_all("blob", BLOCKS)
    asked = replace(_asked(latest(*BLOCKS)), metadata=(("Key", "value"),), tier="Cool")
    decision = await _drafted(shelf, asked)
    # Nobody sees it before it is decided.
    assert await code_of(shelf.get("blob")) == "BlobNotFound"
    assert await shelf.staged("blob") == list(BLOCKS)
    made = await shelf.write(put_draft, decision)
    assert made == await _blob(shelf)
    assert made is not None
    assert (made.metadata, made.tier, made.created) == (asked.metadata, "Cool", made.stamp)
    assert await shelf.get("blob") == DATA
    assert await shelf.get("blob", 6, 25) == DATA[6:26]
    shown = await shelf.block_list("blob")
    assert [block.name for block in shown.committed] == list(BLOCKS)
    assert shown.uncommitted == ()
    assert await shelf.read(_drafts, None) == 0
    assert await shelf.write(put_draft, decision) is None
    await shelf.require_sound()
    await shelf.purge()
    await shelf.require_sound()
    assert await shelf.get("blob") == DATA
    await _require_nothing_left(shelf)


@on_a_shelf
async def test_a_draft_shares_with_the_blob_as_it_is(shelf: Shelf) -> None:
    before = await _blob_of_ten(shelf)
    await shelf.stage_all("blob", {b"04": b"new", b"10": b"new"})
    mine = new_lease_id()
    await shelf.lease("blob", Acquire(mine, None))
    names = [*BLOCKS, b"10"]
    asked = replace(_asked(latest(*names)), lease_id=mine)
    todo, _ = await _planned(shelf, asked)
    assert any(step.shared for step in todo)
    made = await shelf.write(put_draft, await _drafted(shelf, asked))
    assert made is not None
    assert made.created == before.created
    assert made.lease == (await _blob(shelf)).lease != before.lease
    assert await shelf.get("blob") == DATA[:16] + b"new" + DATA[20:] + b"new"
    await shelf.require_sound()
    await shelf.purge()
    await shelf.require_sound()


@on_a_shelf
async def test_what_others_may_do_meanwhile(shelf: Shelf) -> None:
    """Neither metadata nor a snapshot nor a lease's coming and going changes what blocks mean."""
    await _blob_of_ten(shelf)
    decision = await _drafted(shelf, _asked(committed(*reversed(BLOCKS))))
    await shelf.write(set_blob_metadata, SetBlobMetadata(NAME, (("Key", "value"),)))
    taken = await shelf.snapshot("blob")
    assert await shelf.write(put_draft, decision) is not None
    assert await shelf.get("blob") == b"".join(BLOCKS[name] for name in reversed(BLOCKS))
    assert await shelf.get("blob", snapshot=taken) == DATA
    await shelf.require_sound()


@on_a_shelf
async def test_an_empty_list_needs_no_draft(shelf: Shelf) -> None:
    await shelf.create()
    todo, decision = await _planned(shelf, _asked([]))
    assert todo == []
    assert await shelf.write(put_draft, decision) is None
    assert await code_of(shelf.get("blob")) == "BlobNotFound"


# When they are worth nothing


@on_a_shelf
async def test_a_block_is_staged_meanwhile(shelf: Shelf) -> None:
    for block in (b"00", b"10"):  # one that the list names, and another
        await shelf.create()
        await shelf.stage_all("blob", BLOCKS)
        decision = await _drafted(shelf, _asked(latest(*BLOCKS)))
        await shelf.stage("blob", block, b"new")
        assert await shelf.write(put_draft, decision) is None
        assert await code_of(shelf.get("blob")) == "BlobNotFound"
        assert set(await shelf.staged("blob")) == {*BLOCKS, block}
        await shelf.require_sound()
        await shelf.write(abandon_draft, AbandonDraft(decision.command.content_id))
        await shelf.require_sound()
        await shelf.commit("blob", latest(*BLOCKS))
        assert (await shelf.get("blob")).startswith(b"new" if block == b"00" else b"<00>")
        await shelf.write(delete_container, DeleteContainer(BOX))
        await shelf.require_bare()


@on_a_shelf
async def test_a_block_is_staged_where_none_was(shelf: Shelf) -> None:
    """`Latest` may mean another one now."""
    await _blob_of_ten(shelf)
    decision = await _drafted(shelf, _asked(latest(*BLOCKS, *BLOCKS)))
    await shelf.stage("blob", b"03", b"new")
    assert await shelf.write(put_draft, decision) is None
    assert await shelf.get("blob") == DATA
    await _require_nothing_left(shelf)


@on_a_shelf
async def test_the_blob_is_replaced_meanwhile(shelf: Shelf) -> None:
    await _blob_of_ten(shelf)
    decision = await _drafted(shelf, _asked(committed(*BLOCKS, *BLOCKS)))
    other = await shelf.put("blob", b"other")
    assert await shelf.write(put_draft, decision) is None
    assert await _blob(shelf) == other
    await shelf.require_sound()
    await _require_nothing_left(shelf)


@on_a_shelf
async def test_the_blob_gets_the_same_blocks_meanwhile(shelf: Shelf) -> None:
    await _blob_of_ten(shelf)
    decision = await _drafted(shelf, _asked(committed(*BLOCKS, *BLOCKS)))
    again = await shelf.commit("blob", committed(*BLOCKS))
    assert await shelf.write(put_draft, decision) is None
    assert await _blob(shelf) == again
    await _require_nothing_left(shelf)


@on_a_shelf
async def test_what_was_staged_is_dropped_meanwhile(shelf: Shelf) -> None:
    await shelf.create()
    await shelf.stage_all("blob", BLOCKS)
    first = await _drafted(shelf, _asked(uncommitted(*BLOCKS)))
    await shelf.put("blob", b"whole")
    assert await shelf.write(put_draft, first) is None
    await shelf.stage_all("blob", BLOCKS)
    assert await shelf.write(put_draft, first) is None
    second = await _drafted(shelf, _asked(uncommitted(*BLOCKS)))
    await shelf.write(delete_blob, DeleteBlob(NAME))
    assert await shelf.write(put_draft, second) is None
    assert await code_of(shelf.get("blob")) == "BlobNotFound"
    await shelf.purge()
    await shelf.require_sound()
    await _require_nothing_left(shelf)


@on_a_shelf
async def test_the_container_is_another_one_meanwhile(shelf: Shelf) -> None:
    await _blob_of_ten(shelf)
    decision = await _drafted(shelf, _asked(committed(*BLOCKS, *BLOCKS)))
    await shelf.write(delete_container, DeleteContainer(BOX))
    assert await code_of(shelf.write(put_draft, decision)) == "ContainerNotFound"
    await shelf.create()
    assert await shelf.write(put_draft, decision) is None
    await _require_nothing_left(shelf)


@on_a_shelf
async def test_steps_whose_bytes_are_gone_are_refused(shelf: Shelf) -> None:
    await shelf.create()
    await shelf.stage_all("blob", BLOCKS)
    todo, decision = await _planned(shelf, _asked(latest(*BLOCKS)))
    await shelf.write(extend_draft, todo[0])
    await shelf.put("blob", b"")
    await shelf.purge()
    assert await code_of(shelf.write(extend_draft, todo[1])) == "InvalidBlockList"
    await shelf.require_sound()
    assert await shelf.write(put_draft, decision) is None
    await shelf.write(abandon_draft, AbandonDraft(decision.command.content_id))
    await shelf.require_bare()


@on_a_shelf
async def test_steps_whose_chunks_are_gone_are_refused(shelf: Shelf) -> None:
    await _blob_of_ten(shelf)
    todo, decision = await _planned(shelf, _asked(committed(*BLOCKS)))
    (shared,) = todo
    assert len(shared.shared) == 3
    await shelf.put("blob", b"")
    await shelf.purge()
    assert await code_of(shelf.write(extend_draft, shared)) == "InvalidBlockList"
    unknown = replace(shared, shared=(ChunkUse(new_id(), 0, 10),))
    assert await code_of(shelf.write(extend_draft, unknown)) == "InvalidBlockList"
    assert await shelf.write(put_draft, decision) is None
    await shelf.require_bare()


@on_a_shelf
async def test_who_decides_at_the_end_may_be_refused(shelf: Shelf) -> None:
    before = await _blob_of_ten(shelf)
    current = Conditions(if_match=(format_etag(before.stamp),))
    asked = _asked(committed(*BLOCKS, *BLOCKS), current)
    decision = await _drafted(shelf, asked)
    mine = new_lease_id()
    await shelf.lease("blob", Acquire(mine, None))
    assert await code_of(shelf.write(put_draft, decision)) == "LeaseIdMissing"
    await shelf.write(set_blob_metadata, SetBlobMetadata(NAME, (), lease_id=mine))
    leased = replace(decision, command=replace(decision.command, lease_id=mine))
    assert await code_of(shelf.write(put_draft, leased)) == "ConditionNotMet"
    only = replace(asked, conditions=Conditions(), lease_id=mine, only_if_absent=True, blocks=())
    mismatch = code_of(shelf.write(put_draft, replace(decision, command=only)))
    assert await mismatch == "UnauthorizedBlobOverwrite"
    assert await shelf.get("blob") == DATA
    await shelf.require_sound()
    await shelf.write(abandon_draft, AbandonDraft(asked.content_id))
    await shelf.write(delete_blob, DeleteBlob(NAME, lease_id=mine))
    await shelf.require_bare()


@on_a_shelf
async def test_what_would_be_refused_is_not_planned(shelf: Shelf) -> None:
    assert await code_of(_planned(shelf, _asked([]))) == "ContainerNotFound"
    await _blob_of_ten(shelf)
    new = Conditions(if_none_match=ANY)
    for asked, code in (
        (_asked(latest(b"00", b"99")), "InvalidBlockList"),
        (_asked(uncommitted(b"00")), "InvalidBlockList"),
        (_asked(latest(b"00"), new), "BlobAlreadyExists"),
        (replace(_asked(latest(b"00")), lease_id=new_id()), "LeaseNotPresentWithBlobOperation"),
        (replace(_asked([]), only_if_absent=True), "UnauthorizedBlobOverwrite"),
    ):
        assert await code_of(_planned(shelf, asked)) == code


# What is left behind


@on_a_shelf
async def test_an_abandoned_draft_leaves_nothing(shelf: Shelf) -> None:
    await _blob_of_ten(shelf)
    await shelf.stage("blob", b"10", b"new")
    decision = await _drafted(shelf, _asked(latest(b"10", *BLOCKS, b"10")))
    abandoned = AbandonDraft(decision.command.content_id)
    await shelf.write(abandon_draft, abandoned)
    await shelf.require_sound()
    await shelf.write(abandon_draft, abandoned)
    await shelf.purge()
    await shelf.require_sound()
    assert await shelf.write(put_draft, decision) is None
    assert await shelf.get("blob") == DATA
    await shelf.write(delete_blob, DeleteBlob(NAME))
    await shelf.require_bare()


@on_a_shelf
async def test_a_draft_that_nobody_finishes_is_purged_after_an_hour(shelf: Shelf) -> None:
    await _blob_of_ten(shelf)
    await shelf.purge()
    assert not await shelf.read(may_purge, None)
    shelf.clock.freeze()
    lists = [_asked(committed(*BLOCKS, *BLOCKS)) for _ in range(3)]
    decisions = [await _drafted(shelf, asked) for asked in lists]
    assert await shelf.read(may_purge, None)
    shelf.clock.advance(HOUR - SECOND)
    assert await shelf.write(purge_drafts, PurgeDrafts()) == 0
    young = await _drafted(shelf, _asked(committed(*BLOCKS, *BLOCKS)))
    shelf.clock.advance(2 * SECOND)
    assert [await shelf.write(purge_drafts, PurgeDrafts(2)) for _ in range(3)] == [2, 1, 0]
    await shelf.require_sound()
    for decision in decisions:
        assert await shelf.write(put_draft, decision) is None
    assert await shelf.write(put_draft, young) is not None
    assert await shelf.get("blob") == DATA * 2
    await shelf.purge()
    await shelf.require_sound()
    assert not await shelf.read(may_purge, None)


@on_a_shelf
async def test_a_draft_that_was_purged_is_not_gone_on_with(shelf: Shelf) -> None:
    """A front end that stood still for an hour must not make a blob of the second half."""
    await shelf.create()
    shelf.clock.freeze()
    await shelf.stage_all("blob", BLOCKS)
    todo, decision = await _planned(shelf, _asked(latest(*BLOCKS)))
    await shelf.write(extend_draft, todo[0])
    shelf.clock.advance(HOUR + SECOND)
    assert await shelf.write(purge_drafts, PurgeDrafts()) == 1
    for step in todo[1:]:
        assert await code_of(shelf.write(extend_draft, step)) == "InvalidBlockList"
    assert await shelf.write(put_draft, decision) is None
    assert await code_of(shelf.get("blob")) == "BlobNotFound"
    await shelf.require_sound()
