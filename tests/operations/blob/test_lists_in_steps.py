"""Block lists that are put and shown in several transactions: changes in between never lead to a
result that one transaction could not have."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from itertools import product
from pathlib import Path

import pytest
from msgspec.structs import replace

from etagere.engine.interface import (
    C,
    Engine,
    Fault,
    FaultReason,
    ReadClass,
    ReadTxn,
    Refused,
    Steps,
    T,
    WriteTxn,
)
from etagere.model.blobs import (
    BlobName,
    BlockSource,
    DeleteBlob,
    DeleteSnapshots,
    GetBlockList,
    ListedBlock,
    PutBlockList,
    SetBlobMetadata,
)
from etagere.model.conditions import Conditions
from etagere.model.ids import new_id
from etagere.operations.blob.blobs import delete_blob, set_blob_metadata
from etagere.operations.blob.block_lists import (
    find_committed_blocks,
    find_staged_blocks,
    get_block_list,
    open_block_list,
    put_block_list,
)
from etagere.protocol.blob import drafting
from etagere.protocol.blob.block_listing import list_blocks
from etagere.protocol.blob.drafting import Drafting, Outdated, put_drafted, put_list
from tests.engine.harness import Start
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

Event = Callable[[BlobFixture, str], Awaitable[object]]

NAMES = [b"%02d" % number for number in range(10)]
BLOCKS = {name: b"<%s>" % name for name in NAMES}
MIXED = [
    *latest(*NAMES),  # 04 is staged too
    *uncommitted(b"10", b"04"),
    *committed(b"04", *NAMES[4:8], b"04"),
    *latest(b"10", b"10", *NAMES[:4]),
]
LISTS: dict[str, list[ListedBlock]] = {
    "mixed": MIXED,
    "all committed": committed(*NAMES, *NAMES),
    "all staged": [*uncommitted(b"04", b"10"), *latest(*[b"04", b"10"] * 4)],
    "one missing": [*MIXED, *committed(b"10")],
}


class InterruptedEngine:
    """An engine that counts its reads and runs a callback before one of them."""

    def __init__(
        self, engine: Engine, place: int = -1, event: Callable[[], Awaitable[object]] | None = None
    ) -> None:
        self._engine = engine
        self._place = place
        self._event = event
        self.reads: list[str] = []

    async def read(self, operation: Callable[[ReadTxn, C], T], command: C) -> T:
        if self._event is not None and len(self.reads) == self._place:
            await self._event()
        self.reads.append(operation.__name__)
        return await self._engine.read(operation, command)

    async def read_in_thread(
        self, operation: Callable[[ReadTxn, C], T], command: C, read_class: ReadClass | None = None
    ) -> T:
        raise AssertionError("a thread keeps others waiting")

    async def read_in_steps(
        self,
        operation: Callable[[ReadTxn, C], Steps[T]],
        command: C,
        read_class: ReadClass | None = None,
    ) -> T:
        return await self._engine.read_in_steps(operation, command, read_class)

    async def write(self, operation: Callable[[WriteTxn, C], T], command: C) -> T:
        return await self._engine.write(operation, command)

    async def close(self) -> None:
        raise AssertionError("somebody else's")


async def _prepare(blobs: BlobFixture, name: str) -> None:
    """Creates a blob of ten blocks, stages one of them again and one new block."""
    await _stage(blobs, name, BLOCKS)
    await blobs.commit(name, latest(*NAMES))
    await _stage(blobs, name, {b"04": b"again", b"10": b"new"})


async def _stage(blobs: BlobFixture, name: str, blocks: dict[bytes, bytes]) -> None:
    """Stages blocks concurrently, which is faster."""
    await asyncio.gather(*(blobs.stage(name, block, data) for block, data in blocks.items()))


def _asked(name: str, listed: list[ListedBlock]) -> PutBlockList:
    return PutBlockList(BlobName(BOX, name), new_id(), tuple(listed))


async def _outcome(blobs: BlobFixture, name: str, put: Awaitable[object]) -> object:
    """Returns the result of a list: the refusal, or the bytes and blocks of the blob."""
    try:
        await put
    except Refused as refused:
        return refused.refusal
    shown = await blobs.block_list(name)
    return await blobs.get(name), shown.committed, shown.uncommitted


async def _put_in_steps(blobs: BlobFixture, engine: Engine, asked: PutBlockList) -> None:
    """Puts a list as a front end does."""
    if await put_drafted(engine, asked) is None:
        await blobs.write(put_block_list, asked)


async def _remove(blobs: BlobFixture, name: str) -> None:
    """Removes a blob and its blocks, and checks that nothing was lost or counted wrongly."""
    await blobs.purge()
    await blobs.require_sound()
    await blobs.put(name)
    await blobs.write(
        delete_blob, DeleteBlob(BlobName(BOX, name), snapshots=DeleteSnapshots.INCLUDE)
    )


# Changes between two steps


async def _nothing(_blobs: BlobFixture, _name: str) -> None:
    pass


async def _replace(blobs: BlobFixture, name: str) -> None:
    await blobs.put(name, b"other")
    await blobs.purge()


async def _delete(blobs: BlobFixture, name: str) -> None:
    await blobs.write(delete_blob, DeleteBlob(BlobName(BOX, name)))
    await blobs.purge()


async def _delete_and_stage(blobs: BlobFixture, name: str) -> None:
    await _delete(blobs, name)
    await _stage(blobs, name, dict.fromkeys([*NAMES, b"10"], b"late"))


async def _commit_same(blobs: BlobFixture, name: str) -> None:
    await blobs.commit(name, committed(*NAMES))
    await blobs.purge()


async def _commit_others(blobs: BlobFixture, name: str) -> None:
    await _stage(blobs, name, dict.fromkeys(NAMES, b"late"))
    await blobs.commit(name, [*latest(*NAMES[2:]), *committed(b"00")])
    await blobs.stage(name, b"10", b"late")
    await blobs.purge()


async def _stage_named(blobs: BlobFixture, name: str) -> None:
    await blobs.stage(name, b"06", b"late")


async def _stage_another(blobs: BlobFixture, name: str) -> None:
    await blobs.stage(name, b"99", b"late")


async def _describe(blobs: BlobFixture, name: str) -> None:
    await blobs.write(set_blob_metadata, SetBlobMetadata(BlobName(BOX, name), (("K", "v"),)))


EVENTS: list[Event] = [
    _nothing,
    _replace,
    _delete,
    _delete_and_stage,
    _commit_same,
    _commit_others,
    _stage_named,
    _stage_another,
    _describe,
]


@pytest.mark.parametrize("listed", LISTS.values(), ids=LISTS)
def test_changes_between_two_steps(start: Start, tmp_path: Path, listed: list[ListedBlock]) -> None:
    """The decision is made afterwards, so the result is as if all had happened there."""

    async def body(blobs: BlobFixture) -> None:
        await blobs.create()
        for event in EVENTS:
            await _prepare(blobs, "at once")
            await event(blobs, "at once")
            put = blobs.write(put_block_list, _asked("at once", listed))
            expected = await _outcome(blobs, "at once", put)
            place = 0
            while await _interrupted(blobs, f"{place}", listed, event, place) == expected:
                place += 1
            assert await _interrupted(blobs, f"{place}", listed, event, place) is None
            assert place > 2
            await blobs.require_sound()
            names = ("at once", *map(str, range(place + 1)))
            await asyncio.gather(*(blobs.put(name) for name in names))
            deletes = (DeleteBlob(BlobName(BOX, name)) for name in names)
            await asyncio.gather(*(blobs.write(delete_blob, delete) for delete in deletes))
            await blobs.require_empty()

    blob_test(body)(start, tmp_path)


async def _interrupted(
    blobs: BlobFixture, name: str, listed: list[ListedBlock], event: Event, place: int
) -> object:
    """Returns the result of a list with a change before a step; None if there is no such step."""
    await _prepare(blobs, name)
    watched = InterruptedEngine(blobs.engine, place, lambda: event(blobs, name))
    put = _put_in_steps(blobs, watched, _asked(name, listed))
    outcome = await _outcome(blobs, name, put)
    return outcome if place < len(watched.reads) else None


@blob_test
async def test_a_replaced_blob_ends_the_draft(blobs: BlobFixture) -> None:
    await blobs.create()
    await blobs.stage_all("blob", BLOCKS)
    before = await blobs.commit("blob", latest(*NAMES))
    asked = _asked("blob", committed(*NAMES))
    drafting = Drafting(
        InterruptedEngine(blobs.engine, 2, lambda: blobs.put("blob", b"other")), asked, b""
    )
    with pytest.raises(Outdated):
        [step async for step in drafting.steps()]
    assert drafting.decision().base_id == before.content.id  # type: ignore[union-attr]


@blob_test
async def test_a_refusal_comes_at_the_first_step_that_shows_it(blobs: BlobFixture) -> None:
    await blobs.create()
    await _prepare(blobs, "blob")
    conditions = Conditions(if_match=('"0x1"',))
    asked = PutBlockList(BlobName(BOX, "blob"), new_id(), tuple(MIXED), conditions=conditions)
    watched = InterruptedEngine(blobs.engine)
    assert await code_of(put_drafted(watched, asked)) == "ConditionNotMet"
    assert len(watched.reads) == 1
    await _remove(blobs, "blob")


# Reads and sharing


@blob_test
async def test_the_blob_is_read_only_if_needed(blobs: BlobFixture) -> None:
    await blobs.create()
    looks = (find_staged_blocks.__name__, find_committed_blocks.__name__)
    for listed, expected in (
        (latest(b"04", b"10"), (1, 0)),
        (uncommitted(*[b"04", b"10"] * 4), (2, 0)),
        (committed(*NAMES), (0, 3)),
        (latest(*NAMES), (3, 3)),
    ):
        await _prepare(blobs, "blob")
        watched = InterruptedEngine(blobs.engine)
        assert await put_drafted(watched, _asked("blob", listed)) is not None
        assert tuple(watched.reads.count(look) for look in looks) == expected
        await _remove(blobs, "blob")


@blob_test
async def test_chunks_are_shared_with_the_blob_and_its_snapshots(blobs: BlobFixture) -> None:
    await blobs.create()
    await blobs.stage_all("blob", BLOCKS)
    await blobs.commit("blob", latest(*NAMES))
    taken = await blobs.snapshot("blob")
    asked = _asked("blob", [*committed(*NAMES), *latest(*NAMES)])
    steps = [step async for step in Drafting(blobs.engine, asked, new_id()).steps()]
    assert not any(step.blocks for step in steps)
    assert sum(len(step.shared) for step in steps) == 6
    assert await put_drafted(blobs.engine, asked) is not None
    await blobs.purge()
    await blobs.require_sound()
    data = b"".join(BLOCKS.values())
    assert await blobs.get("blob") == 2 * data
    assert await blobs.get("blob", snapshot=taken) == data
    await blobs.put("blob", b"other")
    await blobs.purge()
    await blobs.require_sound()
    assert await blobs.get("blob", snapshot=taken) == data
    await _remove(blobs, "blob")
    await blobs.require_empty()


@blob_test
async def test_the_last_of_two_committed_blocks_of_one_name_wins(blobs: BlobFixture) -> None:
    await blobs.create()
    await _prepare(blobs, "blob")
    both = [ListedBlock(BlockSource.UNCOMMITTED, b"04"), *committed(*NAMES)]
    await blobs.commit("blob", both)
    asked = _asked("blob", committed(*NAMES[:6]))
    assert await put_drafted(blobs.engine, asked) is not None
    assert await blobs.get("blob") == b"".join([BLOCKS[name] for name in NAMES[:6]])
    await _remove(blobs, "blob")


# Lists put in one transaction


@blob_test
async def test_one_transaction_reads_a_bounded_part_of_the_blob(blobs: BlobFixture) -> None:
    await blobs.create()
    await _prepare(blobs, "blob")
    before = await blobs.block_list("blob")
    asked = replace(_asked("blob", latest(*NAMES)), base_chunks_max=2)
    assert await blobs.write(put_block_list, asked) is None
    assert replace(await blobs.block_list("blob"), now=before.now) == before
    # Nor does it read what it does not need.
    asked = replace(_asked("blob", latest(b"04", b"10")), base_chunks_max=0)
    assert await blobs.write(put_block_list, asked) is not None
    assert await blobs.get("blob") == b"againnew"
    await _remove(blobs, "blob")


@blob_test
async def test_a_draft_keeps_only_the_blocks_that_the_list_names(blobs: BlobFixture) -> None:
    """Otherwise, many short lists at once take much memory if the blob is large."""
    await blobs.create()
    await _prepare(blobs, "blob")
    drafting = Drafting(blobs.engine, _asked("blob", latest(b"02", b"04", b"09")), new_id())
    async for _ in drafting.steps():
        assert drafting._committed is not None
        assert set(drafting._committed) == {b"02", b"04", b"09"}
        assert not drafting._chunker._shareable
    await _remove(blobs, "blob")


class ConcurrentStagingEngine(InterruptedEngine):
    """An engine that stages another block of the blob before every read."""

    def __init__(self, blobs: BlobFixture) -> None:
        super().__init__(blobs.engine)
        self._blobs = blobs

    async def read(self, operation: Callable[[ReadTxn, C], T], command: C) -> T:
        await self._blobs.stage("blob", b"99", b"another")
        return await super().read(operation, command)


def test_a_long_list_during_constant_staging(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is not put in one transaction, for which all others would wait."""
    monkeypatch.setattr(drafting, "_ONE_STEP", drafting._StepLimits(2, 4))
    monkeypatch.setattr(drafting, "_ONE_LONG_STEP", drafting._StepLimits(len(NAMES), 4))

    async def body(blobs: BlobFixture) -> None:
        await blobs.create()
        await _prepare(blobs, "blob")
        asked = _asked("blob", latest(*NAMES, b"10"))
        with pytest.raises(Fault) as caught:
            await put_list(ConcurrentStagingEngine(blobs), asked)
        assert caught.value.reason is FaultReason.CONTENTION
        assert (
            await put_list(ConcurrentStagingEngine(blobs), _asked("blob", latest(*NAMES)))
            is not None
        )
        await _stage(blobs, "blob", {b"10": b"new"})
        assert await put_list(blobs.engine, asked) is not None
        await _remove(blobs, "blob")
        await blobs.require_empty()

    blob_test(body)(start, tmp_path)


@pytest.mark.parametrize(("count", "expected"), [(2_000, Refused), (2_001, Fault)])
def test_the_longest_list_that_is_put_during_constant_staging(
    start: Start,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    count: int,
    expected: type[Exception],
) -> None:
    """Only a list that is put in one transaction is refused because its blocks are missing."""
    monkeypatch.setattr(drafting, "_DRAFT_PAUSES_SECONDS", (0.0, 0.0))

    async def body(blobs: BlobFixture) -> None:
        await blobs.create()
        asked = _asked("blob", uncommitted(*(b"%04d" % number for number in range(count))))
        with pytest.raises(expected):
            await put_list(ConcurrentStagingEngine(blobs), asked)

    blob_test(body)(start, tmp_path)


# Get Block List


def _question(*, committed: bool, uncommitted: bool) -> GetBlockList:
    return GetBlockList(BlobName(BOX, "blob"), committed, uncommitted)


@blob_test
async def test_lists_read_in_steps_are_equal(blobs: BlobFixture) -> None:
    await blobs.create()
    blobs.clock.freeze()
    await blobs.stage_all("blob", BLOCKS)
    for kinds in ((True, True), (True, False), (False, True)):
        question = _question(committed=kinds[0], uncommitted=kinds[1])
        for staged in ({}, {b"\x00\x00": b"1", b"\xff\xff": b"22", b"zz": b"333"}):
            await blobs.stage_all("blob", staged)
            opened = await blobs.read(open_block_list, question)
            shown = await list_blocks(blobs.engine, opened)
            assert shown == await blobs.read(get_block_list, question)
            assert shown is not None
            assert bool(shown.committed) == (kinds[0] and shown.blob is not None)
            assert len(shown.uncommitted) >= 3 * bool(staged and kinds[1])
        await blobs.commit("blob", latest(*NAMES))


@blob_test
async def test_changes_while_a_list_is_read(blobs: BlobFixture) -> None:
    """The list is as it was when it was opened, or the read fails."""
    await blobs.create()
    both = _question(committed=True, uncommitted=True)
    for question, event in product((both, replace(both, uncommitted=False)), EVENTS):
        outcomes: list[bool] = []
        happened = True
        while happened:
            await _prepare(blobs, "blob")
            opened = await blobs.read(open_block_list, question)
            before = await blobs.read(get_block_list, question)
            place = len(outcomes)
            watched = InterruptedEngine(blobs.engine, place, partial(event, blobs, "blob"))
            shown = await list_blocks(watched, opened)
            happened = place < len(watched.reads)
            if shown is not None:
                assert (shown.blob, shown.committed) == (before.blob, before.committed)
                assert shown.uncommitted == before.uncommitted
            outcomes.append(shown is not None)
            await blobs.put("blob")
            await blobs.purge()
        assert len(outcomes) > 2
        harmless = {_nothing, _describe}
        if question is not both:
            harmless |= {_stage_named, _stage_another, _commit_same}  # which shares the chunks
        assert set(outcomes) == ({True} if event in harmless else {True, False})
