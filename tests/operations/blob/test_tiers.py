"""Access tiers with every engine: setting them, rehydration, and operations refused on archived
blobs."""

from __future__ import annotations

from dataclasses import dataclass

from msgspec.structs import replace

from etagere.clock import TICKS_PER_SECOND
from etagere.model.blobs import (
    Blob,
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
from etagere.model.common import ContentHeaders
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
from tests.operations.blob.fixture import BOX, BlobFixture, blob_test
from tests.operations.fixture import code_of

NAME = BlobName(BOX, "blob")
SECOND = TICKS_PER_SECOND
WAIT = 10 * SECOND
# The engine may slew its clock a little.
MARGIN = SECOND // 10
EMPTY = Body(b"", 0, 0)


@dataclass
class TierFixture:
    """Tier operations on one blob."""

    blobs: BlobFixture

    async def move(self, tier: str, priority: Priority = Priority.STANDARD) -> Blob:
        ticks = SECOND if priority is Priority.HIGH else WAIT
        command = SetBlobTier(NAME, tier, ticks, priority)
        return await self.blobs.write(set_blob_tier, command)

    async def place(self, snapshot: int | None = None) -> TierState:
        shown = await self.blobs.read(get_blob, GetBlob(NAME, snapshot=snapshot))
        return tier_state(shown.blob, shown.now)

    async def refused(self) -> set[str]:
        """Returns the error codes of all operations that read or change the blob."""
        put = PutBlob(NAME, EMPTY)
        described = SetBlobHeaders(NAME, ContentHeaders("text/plain"))
        named = SetBlobMetadata(NAME, (("a", "b"),))
        await self.blobs.stage("blob", b"1", b"block")
        listed = ListedBlock(BlockSource.LATEST, b"1")
        return {
            await code_of(self.blobs.get("blob")),
            await code_of(self.blobs.get("blob", 0, 1)),
            await code_of(self.blobs.commit("blob", [listed])),
            await code_of(self.blobs.put("blob", b"other")),
            await code_of(self.blobs.read(precheck_put, put)),
            await code_of(self.blobs.write(set_blob_headers, described)),
            await code_of(self.blobs.write(set_blob_metadata, named)),
        }


async def begin(blobs: BlobFixture) -> TierFixture:
    await blobs.create()
    blobs.clock.freeze()
    await blobs.put("blob", b"data")
    return TierFixture(blobs)


@blob_test
async def test_a_tier_is_set_and_nothing_else(blobs: BlobFixture) -> None:
    tiered = await begin(blobs)
    before = (await blobs.read(get_blob, GetBlob(NAME))).blob
    after = await tiered.move("Cool")
    assert after == (await blobs.read(get_blob, GetBlob(NAME))).blob
    assert after.tier_changed > before.stamp
    assert replace(after, tier="", tier_changed=0) == before
    assert await blobs.get("blob") == b"data"
    await blobs.require_sound()


@blob_test
async def test_a_blob_that_is_put_has_the_tier_it_is_put_with(blobs: BlobFixture) -> None:
    tiered = await begin(blobs)
    await tiered.move("Cool")
    put = await blobs.put("blob", b"other")
    assert (put.tier, put.tier_changed) == ("", 0)
    archived = PutBlob(NAME, EMPTY, tier="Archive")
    put = await blobs.write(put_blob, archived)
    assert await tiered.place() == TierState("Archive", put.stamp)
    assert await code_of(blobs.get("blob")) == "BlobArchived"


@blob_test
async def test_an_archived_blob_can_be_neither_read_nor_changed(blobs: BlobFixture) -> None:
    tiered = await begin(blobs)
    await tiered.move("Archive")
    assert await tiered.refused() == {"BlobArchived"}
    await tiered.move("Cold")
    assert await tiered.refused() == {"BlobBeingRehydrated"}
    blobs.clock.advance(WAIT + MARGIN)
    assert await blobs.get("blob") == b"data"
    assert await tiered.refused() == {""}
    await blobs.require_sound()


@blob_test
async def test_an_archived_blob_can_be_leased_and_deleted(blobs: BlobFixture) -> None:
    tiered = await begin(blobs)
    await tiered.move("Archive")
    lease_id = new_lease_id()
    await blobs.lease("blob", Acquire(lease_id, None))
    await blobs.write(delete_blob, DeleteBlob(NAME, lease_id=lease_id))
    assert await code_of(tiered.place()) == "BlobNotFound"
    await blobs.require_empty()


@blob_test
async def test_a_rehydration_ends_when_it_is_due(blobs: BlobFixture) -> None:
    tiered = await begin(blobs)
    archived = await tiered.move("Archive")
    begun = await tiered.move("Hot")
    pending = begun.rehydration
    assert pending is not None
    assert (pending.tier, pending.priority) == ("Hot", "Standard")
    blobs.clock.advance(WAIT - MARGIN)
    assert await tiered.place() == TierState("Archive", archived.tier_changed, pending)
    blobs.clock.advance(2 * MARGIN)
    assert await tiered.place() == TierState("Hot", pending.due)
    settled = await tiered.move("Hot")
    assert (settled.tier, settled.rehydration) == ("Hot", None)


@blob_test
async def test_a_rehydration_can_be_hastened_but_not_retargeted(blobs: BlobFixture) -> None:
    tiered = await begin(blobs)
    await tiered.move("Archive")
    begun = await tiered.move("Cool")
    assert begun.rehydration is not None
    for other in ("Hot", "Cold", "Smart", "Archive"):
        assert await code_of(tiered.move(other)) == "BlobBeingRehydrated"
    assert await tiered.move("Cool") == begun
    hurried = await tiered.move("Cool", Priority.HIGH)
    due = begun.rehydration.due - WAIT + SECOND
    assert hurried.rehydration == Rehydration("Cool", "High", due)
    blobs.clock.advance(SECOND + MARGIN)
    assert (await tiered.place()).tier == "Cool"


# Preconditions


@blob_test
async def test_no_lease_is_needed_but_a_wrong_lease_id_is_refused(blobs: BlobFixture) -> None:
    await begin(blobs)
    held, other = new_lease_id(), new_lease_id()

    async def code(lease_id: bytes | None) -> str:
        command = SetBlobTier(NAME, "Cool", WAIT, lease_id=lease_id)
        return await code_of(blobs.write(set_blob_tier, command))

    assert await code(other) == "LeaseNotPresentWithBlobOperation"
    await blobs.lease("blob", Acquire(held, None))
    assert await code(other) == "LeaseIdMismatchWithBlobOperation"
    assert await code(None) == await code(held) == ""


@blob_test
async def test_tag_conditions(blobs: BlobFixture) -> None:
    await begin(blobs)
    conditions = Conditions(if_tags="\"a\" = 'b'")
    command = SetBlobTier(NAME, "Cool", WAIT, conditions=conditions)
    assert await code_of(blobs.write(set_blob_tier, command)) == "ConditionNotMet"
    await blobs.write(put_blob, PutBlob(NAME, EMPTY, tags=(("a", "b"),)))
    assert (await blobs.write(set_blob_tier, command)).tier == "Cool"


@blob_test
async def test_a_missing_blob_has_no_tier(blobs: BlobFixture) -> None:
    command = SetBlobTier(NAME, "Cool", WAIT)
    assert await code_of(blobs.write(set_blob_tier, command)) == "ContainerNotFound"
    await blobs.create()
    assert await code_of(blobs.write(set_blob_tier, command)) == "BlobNotFound"
    await blobs.put("blob", b"data")
    no_snapshot = replace(command, snapshot=1)
    assert await code_of(blobs.write(set_blob_tier, no_snapshot)) == "BlobNotFound"


# Snapshots


@blob_test
async def test_a_snapshot_has_a_tier_of_its_own(blobs: BlobFixture) -> None:
    tiered = await begin(blobs)
    await tiered.move("Cool")
    moment = await blobs.snapshot("blob")
    other = await blobs.snapshot("blob")
    command = SetBlobTier(NAME, "Archive", WAIT, snapshot=moment)
    archived = await blobs.write(set_blob_tier, command)
    assert await tiered.place(moment) == TierState("Archive", archived.tier_changed)
    assert (await tiered.place()).tier == (await tiered.place(other)).tier == "Cool"
    assert await code_of(blobs.get("blob", snapshot=moment)) == "BlobArchived"
    assert await blobs.get("blob") == await blobs.get("blob", snapshot=other) == b"data"
    back = replace(command, tier="Hot")
    assert await code_of(blobs.write(set_blob_tier, back)) == "BlobArchived"
    await blobs.write(delete_snapshot, DeleteSnapshot(NAME, moment))
    await blobs.write(delete_blob, DeleteBlob(NAME, snapshots=DeleteSnapshots.INCLUDE))
    await blobs.require_empty()


# Page blobs


@blob_test
async def test_a_page_blob_must_fit_into_its_tier(blobs: BlobFixture) -> None:
    await blobs.create()
    put = PutBlob(NAME, EMPTY, tier="P4", kind=BlobKind.PAGE, content_id=new_id(), length=33 << 30)
    assert await code_of(blobs.write(put_blob, put)) == "BlobTierInadequateForContentLength"
    made = await blobs.write(put_blob, replace(put, tier="P6"))
    assert (made.tier, made.tier_changed) == ("P6", made.stamp)
    tiered = TierFixture(blobs)
    assert await code_of(tiered.move("P4")) == "CannotChangeToLowerTier"
    assert await code_of(tiered.move("Hot")) == "AccessTierNotSupportedForBlobType"
    assert (await tiered.move("P30")).tier == "P30"
