"""Tiers over every engine: chosen, left, and what blobs out of reach refuse."""

from __future__ import annotations

from dataclasses import dataclass

from msgspec.structs import replace

from etagere.clock import TICKS_PER_SECOND
from etagere.model.blobs import (
    Blob,
    BlobHeaders,
    BlobKind,
    BlobName,
    BlockSource,
    DeleteBlob,
    DeleteSnapshot,
    DeleteSnapshots,
    GetBlob,
    ListedBlock,
    PutBlob,
    Rehydration,
    SetBlobHeaders,
    SetBlobMetadata,
)
from etagere.model.bodies import Body
from etagere.model.conditions import Conditions
from etagere.model.ids import new_id
from etagere.model.leases import Acquire, new_lease_id
from etagere.model.tiers import Priority, SetBlobTier
from etagere.operations.blob.blobs import (
    delete_blob,
    get_blob,
    precheck_put,
    put_blob,
    set_blob_headers,
    set_blob_metadata,
)
from etagere.operations.blob.snapshots import delete_snapshot
from etagere.operations.blob.tiers import set_blob_tier
from etagere.rules.tiers import TierState, tier_state
from tests.operations.blob.shelf import BOX, Shelf, code_of, on_a_shelf

NAME = BlobName(BOX, "blob")
SECOND = TICKS_PER_SECOND
WAIT = 10 * SECOND
# Time may be slewed a little.
MARGIN = SECOND // 10
EMPTY = Body(b"", 0, 0)


@dataclass
class Tiered:
    """What tests say again and again."""

    shelf: Shelf

    async def move(self, tier: str, priority: Priority = Priority.STANDARD) -> Blob:
        ticks = SECOND if priority is Priority.HIGH else WAIT
        command = SetBlobTier(NAME, tier, ticks, priority)
        return await self.shelf.write(set_blob_tier, command)

    async def place(self, snapshot: int | None = None) -> TierState:
        shown = await self.shelf.read(get_blob, GetBlob(NAME, snapshot=snapshot))
        return tier_state(shown.blob, shown.now)

    async def refused(self) -> set[str]:
        """With what all that reads or changes the blob is refused."""
        put = PutBlob(NAME, EMPTY)
        described = SetBlobHeaders(NAME, BlobHeaders("text/plain"))
        named = SetBlobMetadata(NAME, (("a", "b"),))
        await self.shelf.stage("blob", b"1", b"block")
        listed = ListedBlock(BlockSource.LATEST, b"1")
        return {
            await code_of(self.shelf.get("blob")),
            await code_of(self.shelf.get("blob", 0, 1)),
            await code_of(self.shelf.commit("blob", [listed])),
            await code_of(self.shelf.put("blob", b"other")),
            await code_of(self.shelf.read(precheck_put, put)),
            await code_of(self.shelf.write(set_blob_headers, described)),
            await code_of(self.shelf.write(set_blob_metadata, named)),
        }


async def begin(shelf: Shelf) -> Tiered:
    await shelf.create()
    shelf.clock.freeze()
    await shelf.put("blob", b"data")
    return Tiered(shelf)


@on_a_shelf
async def test_a_tier_is_set_and_nothing_else(shelf: Shelf) -> None:
    tiered = await begin(shelf)
    before = (await shelf.read(get_blob, GetBlob(NAME))).blob
    after = await tiered.move("Cool")
    assert after == (await shelf.read(get_blob, GetBlob(NAME))).blob
    assert after.tier_changed > before.stamp
    assert replace(after, tier="", tier_changed=0) == before
    assert await shelf.get("blob") == b"data"
    await shelf.require_sound()


@on_a_shelf
async def test_a_blob_that_is_put_has_the_tier_it_is_put_with(shelf: Shelf) -> None:
    tiered = await begin(shelf)
    await tiered.move("Cool")
    put = await shelf.put("blob", b"other")
    assert (put.tier, put.tier_changed) == ("", 0)
    archived = PutBlob(NAME, EMPTY, tier="Archive")
    put = await shelf.write(put_blob, archived)
    assert await tiered.place() == TierState("Archive", put.stamp)
    assert await code_of(shelf.get("blob")) == "BlobArchived"


@on_a_shelf
async def test_what_is_archived_can_be_neither_read_nor_changed(shelf: Shelf) -> None:
    tiered = await begin(shelf)
    await tiered.move("Archive")
    assert await tiered.refused() == {"BlobArchived"}
    await tiered.move("Cold")
    assert await tiered.refused() == {"BlobBeingRehydrated"}
    shelf.clock.advance(WAIT + MARGIN)
    assert await shelf.get("blob") == b"data"
    assert await tiered.refused() == {""}
    await shelf.require_sound()


@on_a_shelf
async def test_what_is_archived_can_be_leased_and_deleted(shelf: Shelf) -> None:
    tiered = await begin(shelf)
    await tiered.move("Archive")
    lease_id = new_lease_id()
    await shelf.lease("blob", Acquire(lease_id, None))
    await shelf.write(delete_blob, DeleteBlob(NAME, lease_id=lease_id))
    assert await code_of(tiered.place()) == "BlobNotFound"
    await shelf.require_bare()


@on_a_shelf
async def test_a_rehydration_ends_when_it_is_due(shelf: Shelf) -> None:
    tiered = await begin(shelf)
    archived = await tiered.move("Archive")
    begun = await tiered.move("Hot")
    pending = begun.rehydration
    assert pending is not None
    assert (pending.tier, pending.priority) == ("Hot", "Standard")
    shelf.clock.advance(WAIT - MARGIN)
    assert await tiered.place() == TierState("Archive", archived.tier_changed, pending)
    shelf.clock.advance(2 * MARGIN)
    assert await tiered.place() == TierState("Hot", pending.due)
    settled = await tiered.move("Hot")
    assert (settled.tier, settled.rehydration) == ("Hot", None)


@on_a_shelf
async def test_a_rehydration_is_hurried_but_not_led_elsewhere(shelf: Shelf) -> None:
    tiered = await begin(shelf)
    await tiered.move("Archive")
    begun = await tiered.move("Cool")
    assert begun.rehydration is not None
    for other in ("Hot", "Cold", "Smart", "Archive"):
        assert await code_of(tiered.move(other)) == "BlobBeingRehydrated"
    assert await tiered.move("Cool") == begun
    hurried = await tiered.move("Cool", Priority.HIGH)
    due = begun.rehydration.due - WAIT + SECOND
    assert hurried.rehydration == Rehydration("Cool", "High", due)
    shelf.clock.advance(SECOND + MARGIN)
    assert (await tiered.place()).tier == "Cool"


# On what terms


@on_a_shelf
async def test_a_lease_keeps_nobody_from_it_but_an_id_must_be_right(shelf: Shelf) -> None:
    await begin(shelf)
    held, other = new_lease_id(), new_lease_id()

    async def code(lease_id: bytes | None) -> str:
        command = SetBlobTier(NAME, "Cool", WAIT, lease_id=lease_id)
        return await code_of(shelf.write(set_blob_tier, command))

    assert await code(other) == "LeaseNotPresentWithBlobOperation"
    await shelf.lease("blob", Acquire(held, None))
    assert await code(other) == "LeaseIdMismatchWithBlobOperation"
    assert await code(None) == await code(held) == ""


@on_a_shelf
async def test_tags_may_be_asked_for(shelf: Shelf) -> None:
    await begin(shelf)
    conditions = Conditions(if_tags="\"a\" = 'b'")
    command = SetBlobTier(NAME, "Cool", WAIT, conditions=conditions)
    assert await code_of(shelf.write(set_blob_tier, command)) == "ConditionNotMet"
    await shelf.write(put_blob, PutBlob(NAME, EMPTY, tags=(("a", "b"),)))
    assert (await shelf.write(set_blob_tier, command)).tier == "Cool"


@on_a_shelf
async def test_what_is_not_there_has_no_tier(shelf: Shelf) -> None:
    command = SetBlobTier(NAME, "Cool", WAIT)
    assert await code_of(shelf.write(set_blob_tier, command)) == "ContainerNotFound"
    await shelf.create()
    assert await code_of(shelf.write(set_blob_tier, command)) == "BlobNotFound"
    await shelf.put("blob", b"data")
    no_snapshot = replace(command, snapshot=1)
    assert await code_of(shelf.write(set_blob_tier, no_snapshot)) == "BlobNotFound"


# Snapshots


@on_a_shelf
async def test_a_snapshot_has_a_tier_of_its_own(shelf: Shelf) -> None:
    tiered = await begin(shelf)
    await tiered.move("Cool")
    moment = await shelf.snapshot("blob")
    other = await shelf.snapshot("blob")
    command = SetBlobTier(NAME, "Archive", WAIT, snapshot=moment)
    archived = await shelf.write(set_blob_tier, command)
    assert await tiered.place(moment) == TierState("Archive", archived.tier_changed)
    assert (await tiered.place()).tier == (await tiered.place(other)).tier == "Cool"
    assert await code_of(shelf.get("blob", snapshot=moment)) == "BlobArchived"
    assert await shelf.get("blob") == await shelf.get("blob", snapshot=other) == b"data"
    back = replace(command, tier="Hot")
    assert await code_of(shelf.write(set_blob_tier, back)) == "BlobArchived"
    await shelf.write(delete_snapshot, DeleteSnapshot(NAME, moment))
    await shelf.write(delete_blob, DeleteBlob(NAME, snapshots=DeleteSnapshots.INCLUDE))
    await shelf.require_bare()


# Page blobs


@on_a_shelf
async def test_a_page_blob_must_fit_into_its_tier(shelf: Shelf) -> None:
    await shelf.create()
    put = PutBlob(NAME, EMPTY, tier="P4", kind=BlobKind.PAGE, content_id=new_id(), length=33 << 30)
    assert await code_of(shelf.write(put_blob, put)) == "BlobTierInadequateForContentLength"
    made = await shelf.write(put_blob, replace(put, tier="P6"))
    assert (made.tier, made.tier_changed) == ("P6", made.stamp)
    tiered = Tiered(shelf)
    assert await code_of(tiered.move("P4")) == "CannotChangeToLowerTier"
    assert await code_of(tiered.move("Hot")) == "AccessTierNotSupportedForBlobType"
    assert (await tiered.move("P30")).tier == "P30"
