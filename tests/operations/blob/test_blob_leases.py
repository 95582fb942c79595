"""Leases of blobs over every engine: all actions in all states, and what writes do to them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from etagere.clock import TICKS_PER_SECOND
from etagere.model.blobs import (
    BlobHeaders,
    BlobName,
    DeleteBlob,
    GetBlob,
    GetBlockList,
    LeaseBlob,
    SetBlobHeaders,
    SetBlobMetadata,
    SnapshotBlob,
)
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
from tests.operations.blob.shelf import BOX, Shelf, code_of, latest, on_a_shelf

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


async def _bring_into(shelf: Shelf, name: str, state: LeaseState) -> None:
    """A blob whose lease by A is in a state; time goes on by 16 seconds at most."""
    await shelf.put(name, b"data")
    if state is not LeaseState.AVAILABLE:
        await shelf.lease(name, Acquire(A, 15))
    if state is LeaseState.EXPIRED:
        shelf.clock.advance(16 * SECOND)
    elif state in {LeaseState.BREAKING, LeaseState.BROKEN}:
        await shelf.lease(name, Break(10 if state is LeaseState.BREAKING else 0))


async def _state(shelf: Shelf, name: str) -> str:
    shown = await shelf.read(get_blob, GetBlob(BlobName(BOX, name)))
    lease = shown.blob.lease
    state = effective_state(lease, shown.now).value
    lease_id = getattr(lease, "id", None)
    return f"{state} {LETTERS[lease_id]}" if lease_id is not None else state


@on_a_shelf
async def test_every_action_in_every_state(shelf: Shelf) -> None:
    await shelf.create()
    shelf.clock.freeze()
    for number, (action, outcomes) in enumerate(OUTCOMES):
        for state, outcome in zip(STATES, outcomes, strict=True):
            name = f"{number} {state.value}"
            await _bring_into(shelf, name, state)
            before = (await shelf.read(get_blob, GetBlob(BlobName(BOX, name)))).blob
            code = await code_of(shelf.lease(name, action))
            assert (code or await _state(shelf, name)) == outcome, (action, state)
            after = (await shelf.read(get_blob, GetBlob(BlobName(BOX, name)))).blob
            # Whatever becomes of the lease, the blob was not modified.
            assert after.stamp == before.stamp
            assert not code or after == before


@on_a_shelf
async def test_time_ends_a_lease_and_a_renewal_begins_it_anew(shelf: Shelf) -> None:
    await shelf.create()
    await shelf.put("blob", b"data")
    shelf.clock.freeze()
    await shelf.lease("blob", Acquire(A, 20))
    shelf.clock.advance(19 * SECOND)
    await shelf.lease("blob", Renew(A))
    shelf.clock.advance(19 * SECOND)
    assert await _state(shelf, "blob") == "leased A"
    await shelf.lease("blob", Change(A, B))
    shelf.clock.advance(2 * SECOND)
    assert await _state(shelf, "blob") == "expired B"
    await shelf.lease("blob", Acquire(A, None))
    shelf.clock.advance(1_000_000 * SECOND)
    assert await _state(shelf, "blob") == "leased A"
    await shelf.lease("blob", Break(10))
    await shelf.lease("blob", Break(60))  # a longer period changes nothing
    shelf.clock.advance(9 * SECOND)
    assert await _state(shelf, "blob") == "breaking A"
    shelf.clock.advance(2 * SECOND)
    assert await _state(shelf, "blob") == "broken A"


@on_a_shelf
async def test_what_is_leased_must_be_there_and_as_asked(shelf: Shelf) -> None:
    acquire = LeaseBlob(NAME, Acquire(A, 15))
    assert await code_of(shelf.write(lease_blob, acquire)) == "ContainerNotFound"
    await shelf.create()
    assert await code_of(shelf.write(lease_blob, acquire)) == "BlobNotFound"
    put = await shelf.put("blob", b"data")
    stale, current = (Conditions(if_match=(tag,)) for tag in ('"0x1"', format_etag(put.stamp)))
    refused = shelf.write(lease_blob, LeaseBlob(NAME, Acquire(A, 15), stale))
    assert await code_of(refused) == "ConditionNotMet"
    await shelf.write(lease_blob, LeaseBlob(NAME, Acquire(A, 15), current))


Call = Callable[[Shelf, bytes | None], Awaitable[object]]


async def _put(shelf: Shelf, lease_id: bytes | None) -> None:
    await shelf.put("blob", b"new", lease_id=lease_id)


async def _commit(shelf: Shelf, lease_id: bytes | None) -> None:
    await shelf.commit("blob", [], lease_id=lease_id)


async def _set_headers(shelf: Shelf, lease_id: bytes | None) -> None:
    command = SetBlobHeaders(NAME, BlobHeaders("text/plain"), lease_id=lease_id)
    await shelf.write(set_blob_headers, command)


async def _set_metadata(shelf: Shelf, lease_id: bytes | None) -> None:
    await shelf.write(set_blob_metadata, SetBlobMetadata(NAME, (), lease_id=lease_id))


async def _stage(shelf: Shelf, lease_id: bytes | None) -> None:
    await shelf.stage("blob", b"a", b"1", lease_id=lease_id)


async def _delete(shelf: Shelf, lease_id: bytes | None) -> None:
    await shelf.write(delete_blob, DeleteBlob(NAME, lease_id=lease_id))


async def _get(shelf: Shelf, lease_id: bytes | None) -> None:
    await shelf.read(get_blob, GetBlob(NAME, lease_id=lease_id))


async def _get_blocks(shelf: Shelf, lease_id: bytes | None) -> None:
    await shelf.read(get_block_list, GetBlockList(NAME, True, True, lease_id))


async def _snapshot(shelf: Shelf, lease_id: bytes | None) -> None:
    await shelf.write(snapshot_blob, SnapshotBlob(NAME, lease_id=lease_id))


CHANGES: tuple[Call, ...] = (_put, _commit, _set_headers, _set_metadata)
USES_NOTHING_OF: tuple[Call, ...] = (_get, _get_blocks, _snapshot)

MISSING, WRONG = "LeaseIdMissing", "LeaseIdMismatchWithBlobOperation"
ABSENT, LOST = "LeaseNotPresentWithBlobOperation", "LeaseLost"
# By what is sent: nothing, A, B.
TO_WRITES = {
    LeaseState.AVAILABLE: ("", ABSENT, ABSENT),
    LeaseState.LEASED: (MISSING, "", WRONG),
    LeaseState.EXPIRED: ("", LOST, LOST),
    LeaseState.BREAKING: (MISSING, "", WRONG),
    LeaseState.BROKEN: ("", LOST, LOST),
}


async def _afresh(shelf: Shelf, state: LeaseState) -> None:
    shelf.clock.advance(100 * SECOND)
    await shelf.put("blob", b"data")
    await _bring_into(shelf, "blob", state)


@on_a_shelf
async def test_who_may_write_in_every_state(shelf: Shelf) -> None:
    """A lease that is held stays as it is; one that has ended is forgotten by a change, though
    not by a block, which changes nothing yet."""
    await shelf.create()
    shelf.clock.freeze()
    for state, codes in TO_WRITES.items():
        for call in (*CHANGES, _stage, _delete):
            for lease_id, code in zip((None, A, B), codes, strict=True):
                await _afresh(shelf, state)
                before = await _state(shelf, "blob")
                assert await code_of(call(shelf, lease_id)) == code, (state, call)
                if call is _delete and not code:
                    continue
                ended = state in {LeaseState.EXPIRED, LeaseState.BROKEN}
                forgotten = ended and not code and call in CHANGES
                assert await _state(shelf, "blob") == ("available" if forgotten else before)


@on_a_shelf
async def test_who_may_read_in_every_state(shelf: Shelf) -> None:
    """Everybody, but an id that is sent is a condition. No read changes a lease."""
    await shelf.create()
    shelf.clock.freeze()
    for state, (_, with_a, with_b) in TO_WRITES.items():
        await _afresh(shelf, state)
        before = await _state(shelf, "blob")
        for call in USES_NOTHING_OF:
            for lease_id, code in ((None, ""), (A, with_a), (B, with_b)):
                assert await code_of(call(shelf, lease_id)) == code, (state, call)
        assert await _state(shelf, "blob") == before


@on_a_shelf
async def test_a_lease_that_ended_is_renewed_unless_somebody_wrote(shelf: Shelf) -> None:
    await shelf.create()
    shelf.clock.freeze()
    await _bring_into(shelf, "blob", LeaseState.EXPIRED)
    await _stage(shelf, None)
    await shelf.lease("blob", Renew(A))
    assert await _state(shelf, "blob") == "leased A"
    for change in CHANGES:
        shelf.clock.advance(16 * SECOND)
        await change(shelf, None)
        assert await code_of(shelf.lease("blob", Renew(A))) == MISMATCH
        assert await code_of(shelf.lease("blob", Release(A))) == MISMATCH
        await shelf.lease("blob", Acquire(A, 15))


@on_a_shelf
async def test_a_lease_goes_with_its_blob(shelf: Shelf) -> None:
    await shelf.create()
    await shelf.put("blob", b"data")
    await shelf.lease("blob", Acquire(A, None))
    await _delete(shelf, A)
    await shelf.stage("blob", b"a", b"1")
    await shelf.commit("blob", latest(b"a"))
    assert await _state(shelf, "blob") == "available"
