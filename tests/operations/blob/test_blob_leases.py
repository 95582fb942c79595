"""Blob leases with every engine: every action in every state, and the effect of writes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from etagere.clock import TICKS_PER_SECOND
from etagere.model.blobs import (
    BlobName,
    DeleteBlob,
    GetBlob,
    GetBlockList,
    LeaseBlob,
    SetBlobHeaders,
    SetBlobMetadata,
    SnapshotBlob,
)
from etagere.model.common import ContentHeaders
from etagere.model.conditions import Conditions
from etagere.model.leases import Acquire, Break, Change, LeaseAction, LeaseState, Release, Renew
from etagere.operations.blob.blobs import (
    delete_blob,
    get_blob,
    lease_blob,
    set_blob_headers,
    set_blob_metadata,
)
from etagere.operations.blob.block_lists import get_block_list
from etagere.operations.blob.snapshots import snapshot_blob
from etagere.rules.conditions import format_etag
from etagere.rules.leases import effective_state
from tests.operations.blob.fixture import BOX, BlobFixture, blob_test, latest
from tests.operations.fixture import code_of

NAME = BlobName(BOX, "blob")
SECOND = TICKS_PER_SECOND
A, B, C, X = (bytes([number]) * 16 for number in (0xAA, 0xBB, 0xCC, 0xDD))
LETTERS = {A: "A", B: "B", X: "X"}
STATES = tuple(LeaseState)

ALREADY_PRESENT = "LeaseAlreadyPresent"
MISMATCH = "LeaseIdMismatchWithLeaseOperation"
NOT_PRESENT = "LeaseNotPresentWithLeaseOperation"
CANNOT_ACQUIRE = "LeaseIsBreakingAndCannotBeAcquired"
CANNOT_CHANGE = "LeaseIsBreakingAndCannotBeChanged"
CANNOT_RENEW = "LeaseIsBrokenAndCannotBeRenewed"

# By state: available, leased, expired, breaking, broken, each by A.
OUTCOMES: list[tuple[LeaseAction, tuple[str, str, str, str, str]]] = [
    (Acquire(X, 30), ("leased X", ALREADY_PRESENT, "leased X", ALREADY_PRESENT, "leased X")),
    (Acquire(A, 30), ("leased A", "leased A", "leased A", CANNOT_ACQUIRE, "leased A")),
    (Acquire(A, None), ("leased A", "leased A", "leased A", CANNOT_ACQUIRE, "leased A")),
    (Break(0), (NOT_PRESENT, "broken A", "broken A", "broken A", "broken A")),
    (Break(5), (NOT_PRESENT, "breaking A", "broken A", "breaking A", "broken A")),
    (Break(), (NOT_PRESENT, "breaking A", "broken A", "breaking A", "broken A")),
    (Change(A, B), (NOT_PRESENT, "leased B", NOT_PRESENT, CANNOT_CHANGE, NOT_PRESENT)),
    (Change(B, A), (NOT_PRESENT, "leased A", NOT_PRESENT, MISMATCH, NOT_PRESENT)),
    (Change(B, C), (NOT_PRESENT, MISMATCH, NOT_PRESENT, MISMATCH, NOT_PRESENT)),
    (Renew(A), (MISMATCH, "leased A", "leased A", CANNOT_RENEW, CANNOT_RENEW)),
    (Renew(B), (MISMATCH, MISMATCH, MISMATCH, MISMATCH, MISMATCH)),
    (Release(A), (MISMATCH, "available", "available", "available", "available")),
    (Release(B), (MISMATCH, MISMATCH, MISMATCH, MISMATCH, MISMATCH)),
]


async def _bring_into(blobs: BlobFixture, name: str, state: LeaseState) -> None:
    """Creates a blob whose lease by A is in a given state; advances the clock by at most 16
    seconds."""
    await blobs.put(name, b"data")
    if state is not LeaseState.AVAILABLE:
        await blobs.lease(name, Acquire(A, 15))
    if state is LeaseState.EXPIRED:
        blobs.clock.advance(16 * SECOND)
    elif state in {LeaseState.BREAKING, LeaseState.BROKEN}:
        await blobs.lease(name, Break(10 if state is LeaseState.BREAKING else 0))


async def _state(blobs: BlobFixture, name: str) -> str:
    shown = await blobs.read(get_blob, GetBlob(BlobName(BOX, name)))
    lease = shown.blob.lease
    state = effective_state(lease, shown.now).value
    lease_id = getattr(lease, "id", None)
    return f"{state} {LETTERS[lease_id]}" if lease_id is not None else state


@blob_test
async def test_every_action_in_every_state(blobs: BlobFixture) -> None:
    await blobs.create()
    blobs.clock.freeze()
    for number, (action, outcomes) in enumerate(OUTCOMES):
        for state, outcome in zip(STATES, outcomes, strict=True):
            name = f"{number} {state.value}"
            await _bring_into(blobs, name, state)
            before = (await blobs.read(get_blob, GetBlob(BlobName(BOX, name)))).blob
            code = await code_of(blobs.lease(name, action))
            assert (code or await _state(blobs, name)) == outcome, (action, state)
            after = (await blobs.read(get_blob, GetBlob(BlobName(BOX, name)))).blob
            # No lease action modifies the blob.
            assert after.stamp == before.stamp
            assert not code or after == before


@blob_test
async def test_a_lease_expires_and_can_be_renewed(blobs: BlobFixture) -> None:
    await blobs.create()
    await blobs.put("blob", b"data")
    blobs.clock.freeze()
    await blobs.lease("blob", Acquire(A, 20))
    blobs.clock.advance(19 * SECOND)
    await blobs.lease("blob", Renew(A))
    blobs.clock.advance(19 * SECOND)
    assert await _state(blobs, "blob") == "leased A"
    await blobs.lease("blob", Change(A, B))
    blobs.clock.advance(2 * SECOND)
    assert await _state(blobs, "blob") == "expired B"
    await blobs.lease("blob", Acquire(A, None))
    blobs.clock.advance(1_000_000 * SECOND)
    assert await _state(blobs, "blob") == "leased A"
    await blobs.lease("blob", Break(10))
    await blobs.lease("blob", Break(60))  # a longer period changes nothing
    blobs.clock.advance(9 * SECOND)
    assert await _state(blobs, "blob") == "breaking A"
    blobs.clock.advance(2 * SECOND)
    assert await _state(blobs, "blob") == "broken A"


@blob_test
async def test_leasing_needs_the_blob_and_its_conditions(blobs: BlobFixture) -> None:
    acquire = LeaseBlob(NAME, Acquire(A, 15))
    assert await code_of(blobs.write(lease_blob, acquire)) == "ContainerNotFound"
    await blobs.create()
    assert await code_of(blobs.write(lease_blob, acquire)) == "BlobNotFound"
    put = await blobs.put("blob", b"data")
    stale, current = (Conditions(if_match=(tag,)) for tag in ('"0x1"', format_etag(put.stamp)))
    refused = blobs.write(lease_blob, LeaseBlob(NAME, Acquire(A, 15), stale))
    assert await code_of(refused) == "ConditionNotMet"
    await blobs.write(lease_blob, LeaseBlob(NAME, Acquire(A, 15), current))


Call = Callable[[BlobFixture, bytes | None], Awaitable[object]]


async def _put(blobs: BlobFixture, lease_id: bytes | None) -> None:
    await blobs.put("blob", b"new", lease_id=lease_id)


async def _commit(blobs: BlobFixture, lease_id: bytes | None) -> None:
    await blobs.commit("blob", [], lease_id=lease_id)


async def _set_headers(blobs: BlobFixture, lease_id: bytes | None) -> None:
    command = SetBlobHeaders(NAME, ContentHeaders("text/plain"), lease_id=lease_id)
    await blobs.write(set_blob_headers, command)


async def _set_metadata(blobs: BlobFixture, lease_id: bytes | None) -> None:
    await blobs.write(set_blob_metadata, SetBlobMetadata(NAME, (), lease_id=lease_id))


async def _stage(blobs: BlobFixture, lease_id: bytes | None) -> None:
    await blobs.stage("blob", b"a", b"1", lease_id=lease_id)


async def _delete(blobs: BlobFixture, lease_id: bytes | None) -> None:
    await blobs.write(delete_blob, DeleteBlob(NAME, lease_id=lease_id))


async def _get(blobs: BlobFixture, lease_id: bytes | None) -> None:
    await blobs.read(get_blob, GetBlob(NAME, lease_id=lease_id))


async def _get_blocks(blobs: BlobFixture, lease_id: bytes | None) -> None:
    await blobs.read(get_block_list, GetBlockList(NAME, True, True, lease_id))


async def _snapshot(blobs: BlobFixture, lease_id: bytes | None) -> None:
    await blobs.write(snapshot_blob, SnapshotBlob(NAME, lease_id=lease_id))


CHANGES: tuple[Call, ...] = (_put, _commit, _set_headers, _set_metadata)
USES_NOTHING_OF: tuple[Call, ...] = (_get, _get_blocks, _snapshot)

MISSING, WRONG = "LeaseIdMissing", "LeaseIdMismatchWithBlobOperation"
ABSENT, LOST = "LeaseNotPresentWithBlobOperation", "LeaseLost"
# By lease ID in the request: none, A, B.
TO_WRITES = {
    LeaseState.AVAILABLE: ("", ABSENT, ABSENT),
    LeaseState.LEASED: (MISSING, "", WRONG),
    LeaseState.EXPIRED: ("", LOST, LOST),
    LeaseState.BREAKING: (MISSING, "", WRONG),
    LeaseState.BROKEN: ("", LOST, LOST),
}


async def _afresh(blobs: BlobFixture, state: LeaseState) -> None:
    blobs.clock.advance(100 * SECOND)
    await blobs.put("blob", b"data")
    await _bring_into(blobs, "blob", state)


@blob_test
async def test_writes_in_every_lease_state(blobs: BlobFixture) -> None:
    """An active lease is unchanged by a write. A change clears an ended lease; staging a block does
    not, because it changes nothing yet."""
    await blobs.create()
    blobs.clock.freeze()
    for state, codes in TO_WRITES.items():
        for call in (*CHANGES, _stage, _delete):
            for lease_id, code in zip((None, A, B), codes, strict=True):
                await _afresh(blobs, state)
                before = await _state(blobs, "blob")
                assert await code_of(call(blobs, lease_id)) == code, (state, call)
                if call is _delete and not code:
                    continue
                ended = state in {LeaseState.EXPIRED, LeaseState.BROKEN}
                forgotten = ended and not code and call in CHANGES
                assert await _state(blobs, "blob") == ("available" if forgotten else before)


@blob_test
async def test_reads_in_every_lease_state(blobs: BlobFixture) -> None:
    """Reads need no lease, but a lease ID in the request is a condition. No read changes a
    lease."""
    await blobs.create()
    blobs.clock.freeze()
    for state, (_, with_a, with_b) in TO_WRITES.items():
        await _afresh(blobs, state)
        before = await _state(blobs, "blob")
        for call in USES_NOTHING_OF:
            for lease_id, code in ((None, ""), (A, with_a), (B, with_b)):
                assert await code_of(call(blobs, lease_id)) == code, (state, call)
        assert await _state(blobs, "blob") == before


@blob_test
async def test_an_ended_lease_can_be_renewed_unless_the_blob_changed(blobs: BlobFixture) -> None:
    await blobs.create()
    blobs.clock.freeze()
    await _bring_into(blobs, "blob", LeaseState.EXPIRED)
    await _stage(blobs, None)
    await blobs.lease("blob", Renew(A))
    assert await _state(blobs, "blob") == "leased A"
    for change in CHANGES:
        blobs.clock.advance(16 * SECOND)
        await change(blobs, None)
        assert await code_of(blobs.lease("blob", Renew(A))) == MISMATCH
        assert await code_of(blobs.lease("blob", Release(A))) == MISMATCH
        await blobs.lease("blob", Acquire(A, 15))


@blob_test
async def test_deleting_the_blob_deletes_its_lease(blobs: BlobFixture) -> None:
    await blobs.create()
    await blobs.put("blob", b"data")
    await blobs.lease("blob", Acquire(A, None))
    await _delete(blobs, A)
    await blobs.stage("blob", b"a", b"1")
    await blobs.commit("blob", latest(b"a"))
    assert await _state(blobs, "blob") == "available"
