"""The check reports nothing for a consistent store, and exactly the damage of a damaged one."""

from __future__ import annotations

import asyncio
import errno
import itertools
import os
import random
import signal
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

from etagere.bodies.audit import findings as kinds
from etagere.bodies.audit import walk
from etagere.bodies.audit.audited_segments import AuditedFiles
from etagere.bodies.audit.findings import LEAK, FindingKind, Report
from etagere.bodies.audit.remedies import repair
from etagere.bodies.audit.snapshot import CannotCheck
from etagere.bodies.audit.walk import check
from etagere.bodies.collector import Collector
from etagere.bodies.contents import (
    BLOCK_LISTS,
    CHUNK_SHARERS,
    CHUNKS,
    CONTENT_SHARERS,
    CONTENTS_TO_REAP,
    COUNTED_DEAD,
    COUNTERS,
    DEAD_TOTALS,
    EXTENTS,
    INLINE,
    MOVES,
    SEGMENTS,
    UNCOUNTED_DEAD,
)
from etagere.bodies.files import FileBodyStore
from etagere.bodies.maps import (
    FORMER_INTERVALS,
    GENERATIONS,
    INTERVAL_MAPS,
    INTERVALS,
    MAPS_TO_FLATTEN,
    MAPS_TO_REAP,
)
from etagere.clock import SystemClock
from etagere.engine.interface import Engine, Refused
from etagere.engine.ledger import NotALedger, SchemaTooNew, database_path, open_for_reading
from etagere.engine.records import Collection
from etagere.model.bodies import (
    BlockList,
    ChunkUse,
    DeadExtent,
    SegmentState,
)
from etagere.model.ids import new_id
from tests.bodies import map_damages, mapped_objects
from tests.bodies.damages import (
    DAMAGES,
    Damage,
    byte_flipped,
    file_added,
    flip,
    inline_added,
    inline_changed,
    inline_deleted,
    list_deleted,
    list_of_chunk_deleted,
    references_raised,
)
from tests.bodies.objects import (
    OBJECTS,
    STAGED,
    CopyObject,
    ListBlocks,
    Object,
    copy_object,
    delete_object,
    list_blocks,
    stage,
    upload,
)
from tests.bodies.stores import CONFIG, DamagedStore, build, data_of, expected, read_all
from tests.engine.sqlite_harness import SqliteHarness

replace = msgspec.structs.replace


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A stopped store with records of every kind."""
    directory = tmp_path_factory.mktemp("sound") / "data"
    asyncio.run(build(directory))
    return directory


@pytest.fixture
def broken(sound: Path, tmp_path: Path) -> DamagedStore:
    return DamagedStore(sound, tmp_path / "data")


def found(report: Report) -> list[str]:
    return sorted(finding.kind.name for finding in report.findings)


def show(report: Report) -> str:
    return "\n".join(f"{f.kind.name}: {f.where}: {f.what}" for f in report.findings)


@pytest.mark.parametrize(
    ("damage", "expected_kinds"), DAMAGES, ids=[damage.__name__ for damage, _ in DAMAGES]
)
def test_finds_what_was_damaged(
    broken: DamagedStore, damage: Damage, expected_kinds: tuple[FindingKind, ...]
) -> None:
    damage(broken)
    report = check(broken.directory)
    assert found(report) == sorted(kind.name for kind in expected_kinds), show(report)


def test_every_kind_of_finding_is_tested() -> None:
    covered = {kind for _, expected_kinds in DAMAGES for kind in expected_kinds}
    elsewhere = {kinds.ACCOUNT_UNREADABLE, kinds.DATABASE_DAMAGED, kinds.TABLE_UNREADABLE}
    # Findings of indexes have tests of their own.
    elsewhere |= {kinds.INDEX_ROW_MISSING, kinds.INDEX_ROW_UNUSED}
    elsewhere |= {kinds.ENTRY_UNREACHABLE, kinds.ENTRY_MISPLACED, kinds.ENTRY_ID_SHARED}
    elsewhere |= {kinds.LINKS_WRONG, kinds.USAGE_WRONG, kinds.SHARE_UNKNOWN}
    elsewhere |= {kinds.PERMISSION_MISSING}
    defined = {kind for kind in vars(kinds).values() if isinstance(kind, FindingKind)}
    assert covered | elsewhere == defined


@pytest.mark.parametrize(
    "collection",
    [
        OBJECTS,
        STAGED,
        INLINE,
        BLOCK_LISTS,
        CHUNKS,
        INTERVAL_MAPS,
        INTERVALS,
        FORMER_INTERVALS,
        EXTENTS,
        MOVES,
    ],
    ids=lambda collection: collection.name,
)
def test_unreadable_records_are_losses_and_nothing_is_reported_unused(
    broken: DamagedStore, collection: Collection[tuple[str], Object]
) -> None:
    for key, _ in broken.rows(collection)[:2]:
        broken.corrupt(collection, key)
    report = check(broken.directory)
    assert set(found(report)) == {kinds.RECORD_UNREADABLE.name}, show(report)
    assert not report.is_complete
    assert collection.name in report.findings[0].where


@pytest.mark.parametrize(
    "collection",
    [
        CONTENT_SHARERS,
        CHUNK_SHARERS,
        CONTENTS_TO_REAP,
        GENERATIONS,
        MAPS_TO_REAP,
        MAPS_TO_FLATTEN,
        COUNTED_DEAD,
        UNCOUNTED_DEAD,
        DEAD_TOTALS,
        SEGMENTS,
        COUNTERS,
    ],
    ids=lambda collection: collection.name,
)
def test_unreadable_counts_are_faults(
    broken: DamagedStore, collection: Collection[Any, Any]
) -> None:
    if collection is COUNTED_DEAD:
        broken.put(COUNTED_DEAD, (900, 0), DeadExtent(1))
    broken.corrupt(collection, broken.rows(collection)[-1][0])
    report = check(broken.directory)
    assert found(report) == [kinds.ACCOUNT_UNREADABLE.name], show(report)
    assert not report.is_complete


def test_messages_name_object_and_place(broken: DamagedStore) -> None:
    piece = broken.content("single").pieces[0]
    flip(broken, *piece.extent)
    inline_deleted(broken)
    missing, damaged = check(broken.directory).findings
    assert missing.where == "test_objects 'small'"
    assert damaged.where == f"segments/{piece.segment:08x}.seg at {piece.offset}"
    expected_words = "5000 bytes do not match their checksum; used by test_objects 'single'"
    assert damaged.what == expected_words


# A consistent store


def test_a_consistent_store_has_no_findings(sound: Path, tmp_path: Path) -> None:
    store = DamagedStore(sound, tmp_path / "data")
    seen: list[tuple[str, int, int]] = []
    report = check(store.directory, progress=lambda *step: seen.append(step))
    assert not report.findings, show(report)
    assert report.objects == len(expected())
    assert report.extents == len(store.rows(EXTENTS))
    assert report.segments == len(store.rows(SEGMENTS))
    assert ("bytes", report.extent_bytes, report.extent_bytes) in seen
    assert {state for (_,), s in store.rows(SEGMENTS) for state in [s.state]} == set(SegmentState)
    assert store.rows(MOVES)
    assert store.rows(CONTENTS_TO_REAP)
    assert not list((store.directory / "processes").iterdir())


def test_fast_check_reads_no_bytes(broken: DamagedStore) -> None:
    byte_flipped(broken)
    assert not check(broken.directory, fast=True).findings
    inline_changed(broken)
    assert found(check(broken.directory, fast=True)) == [kinds.INLINE_DAMAGED.name]


async def work(directory: Path, engine: Engine, seed: int) -> None:
    """Uploads, copies, lists, deletes and collects in an endless loop."""
    store = FileBodyStore(directory, engine, CONFIG)
    collector = Collector(engine, store, CONFIG)
    dice = random.Random(seed)
    for step in itertools.count():
        name, other = (f"{dice.randrange(30)}" for _ in range(2))
        try:
            match dice.randrange(9):
                case 0 | 1:
                    size = dice.choice((10, 3_000, 20_000, 120_000))
                    await upload(engine, store, name, data_of(f"{step}", size))
                case 2:
                    await engine.write(copy_object, CopyObject(name, other))
                case 3:
                    await stage(engine, store, name, [data_of(f"{step}", 900)] * 3)
                case 4:
                    await engine.write(list_blocks, ListBlocks(name, new_id()))
                case 5:
                    await engine.write(delete_object, name)
                case 6 | 7:
                    await mapped_objects.write(
                        engine, store, name, dice.randrange(50_000), data_of(f"{step}", 2_000)
                    )
                case 8:
                    await mapped_objects.begin(engine, name, 60_000)
                    await mapped_objects.clear(engine, other, dice.randrange(50_000), 60_000)
        except Refused:
            pass
        if not step % 20:
            await store.maintain()
            await collector.collect()


def test_no_findings_beside_a_busy_server(tmp_path: Path) -> None:
    async def scenario() -> None:
        harness = SqliteHarness(tmp_path / "data", CONFIG)
        harness.start()
        try:
            engine = await harness.open()
            workers = [
                asyncio.create_task(work(harness.directory, engine, seed)) for seed in range(3)
            ]
            store = FileBodyStore(harness.directory, engine, CONFIG)
            async with store.writer(40_000) as sealed, store.writer() as unfinished:
                await sealed.append(bytes(40_000))
                await sealed.seal()
                await unfinished.append(bytes(2 << 20))
                for _ in range(12):
                    report = await asyncio.to_thread(check, harness.directory, CONFIG)
                    assert not report.findings, show(report)
                    await asyncio.sleep(0.05)
            for worker in workers:
                assert not worker.done()
                worker.cancel()
            await asyncio.gather(*workers, return_exceptions=True)
        finally:
            await harness.close()

    asyncio.run(asyncio.wait_for(scenario(), timeout=60))


def test_no_findings_after_a_kill(tmp_path: Path) -> None:
    directory = tmp_path / "data"
    for seed in range(4):
        harness = SqliteHarness(directory, CONFIG)
        harness.start()
        worker = os.fork()
        if worker == 0:
            try:
                asyncio.run(_work_in_child(harness, seed))
            finally:
                os._exit(1)
        _wait_for_objects(directory)
        time.sleep(0.3)
        for pid in (worker, harness.writer_pid(), harness.supervisor_pid):
            os.kill(pid, signal.SIGKILL)
        for pid in (worker, harness.supervisor_pid):
            os.waitpid(pid, 0)
        report = check(directory)
        assert not report.findings, show(report)
        assert report.objects


def _wait_for_objects(directory: Path) -> None:
    """Waits for the first objects; a busy machine may take a while."""
    connection = open_for_reading(directory, CONFIG)
    deadline = time.monotonic() + 20
    while not list(connection.execute(f"SELECT 1 FROM {OBJECTS.name} LIMIT 1")):  # noqa: S608
        assert time.monotonic() < deadline
        time.sleep(0.01)
    connection.close()


async def _work_in_child(harness: SqliteHarness, seed: int) -> None:
    await work(harness.directory, await harness.open(), seed)


# Repair

LEAKS = [
    damage
    for damage, expected_kinds in DAMAGES
    if expected_kinds and all(kind.severity is LEAK for kind in expected_kinds)
]


def repaired(directory: Path) -> Report:
    report = check(directory)
    leaks = report.count(LEAK)
    removed, failures = repair(directory, report.findings, CONFIG, SystemClock())
    assert (removed, failures) == (leaks, [])
    return check(directory)


@pytest.mark.parametrize("damage", LEAKS, ids=lambda damage: damage.__name__)
def test_repair_removes_a_leak(broken: DamagedStore, damage: Damage) -> None:
    damage(broken)
    report = repaired(broken.directory)
    assert not report.findings, show(report)


def test_repairing_every_leak_keeps_the_objects(broken: DamagedStore) -> None:
    gone = {"single", "moved", "moved-many"}
    for damage in LEAKS:
        # Two damages would delete the same row, and a lost interval looks like a hole.
        if damage not in (list_of_chunk_deleted, map_damages.interval_deleted):
            damage(broken)
    report = repaired(broken.directory)
    assert not report.findings, show(report)
    objects = asyncio.run(read_all(broken.directory))
    assert objects == {name: None if name in gone else data for name, data in expected().items()}
    report = check(broken.directory)
    assert not report.findings, show(report)


def test_repair_leaves_losses_alone(broken: DamagedStore) -> None:
    byte_flipped(broken)
    inline_deleted(broken)
    references_raised(broken)
    file_added(broken)
    before = {finding.kind.name for finding in check(broken.directory).findings}
    report = repaired(broken.directory)
    assert before - {finding.kind.name for finding in report.findings} == {"file-unused"}
    assert len(report.findings) == 3


def test_segments_that_are_newer_than_a_copy_of_the_ledger(broken: DamagedStore) -> None:
    """Nodes of a cluster create segments between the copy and the list of files."""

    def found() -> list[str]:
        segments = AuditedFiles(broken.directory, may_be_newer=True)
        report = check(broken.directory, open_segments=lambda: segments)
        return [finding.kind.name for finding in report.findings]

    file_added(broken)
    assert found() == []
    # This number has been given before.
    unused = min(set(range(1, 100)) - {number for (number,), _ in broken.rows(SEGMENTS)})
    broken.path(unused).write_bytes(b"what is this")
    assert found() == ["file-unused"]


def test_chunks_of_a_deleted_list_are_no_leaks(broken: DamagedStore) -> None:
    """The remains of a damaged object may be all there is to restore it from."""
    list_deleted(broken)
    inline_added(broken)
    report = check(broken.directory)
    assert not report.is_complete
    assert report.count(LEAK) == 0


def test_repair_reports_what_it_could_not_remove(broken: DamagedStore) -> None:
    key = (new_id(), 0)
    chunk = broken.get(CHUNKS, (broken.content("moved-many").id, 0))
    broken.put(CHUNKS, key, chunk)
    findings = check(broken.directory).findings
    broken.execute("UPDATE extents SET value = x'c1'")
    removed, (failure,) = repair(broken.directory, findings, CONFIG, SystemClock())
    assert removed == 0
    assert "release_unused_chunk" in failure
    assert "DecodeError" in failure


def test_many_records_of_a_segment_are_removed_in_steps(broken: DamagedStore) -> None:
    with broken.database() as connection, connection:
        for number in range(2_500):
            for dead in (UNCOUNTED_DEAD, COUNTED_DEAD):
                row = dead.pack((900, number)), dead.encode(DeadExtent(1))
                connection.execute(f"INSERT INTO {dead.name} VALUES (?, ?)", row)  # noqa: S608
    report = repaired(broken.directory)
    assert not report.findings, show(report)


# Unreadable ledgers


def test_damaged_pages_are_found(broken: DamagedStore) -> None:
    """Whichever page is damaged, the check ends and reports a damaged database."""
    path = database_path(broken.directory)
    pages = path.stat().st_size // CONFIG.page_bytes
    dice = random.Random(1)
    intact = path.read_bytes()
    outcomes = set()
    for page in range(1, pages):
        spoilt = bytearray(intact)
        start = page * CONFIG.page_bytes
        spoilt[start : start + 64] = dice.randbytes(64)
        path.write_bytes(spoilt)
        try:
            report = check(broken.directory)
        except CannotCheck as error:
            assert "damaged" in str(error)
            continue
        outcomes |= set(found(report))
        if report.findings:
            assert kinds.DATABASE_DAMAGED.name in found(report), show(report)
            assert not report.is_complete
    assert {kinds.DATABASE_DAMAGED.name, kinds.TABLE_UNREADABLE.name} <= outcomes


def test_a_full_disk_is_reported_with_the_directory(
    broken: DamagedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error of a write, unlike one of an open, has no file name."""

    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(walk, "LocalCoordinator", fail)
    with pytest.raises(CannotCheck, match=f"{broken.directory} cannot be written: No space left"):
        check(broken.directory)


def test_other_files_are_refused(broken: DamagedStore, tmp_path: Path) -> None:
    with pytest.raises(CannotCheck, match="no directory"):
        check(tmp_path / "nowhere")
    with pytest.raises(CannotCheck, match="not a data directory"):
        check(tmp_path)
    assert not (tmp_path / "processes").exists()
    broken.execute("PRAGMA user_version = 99")
    with pytest.raises(SchemaTooNew, match="schema 99"):
        check(broken.directory)
    broken.execute("PRAGMA application_id = 5")
    with pytest.raises(NotALedger):
        check(broken.directory)
    database_path(broken.directory).write_bytes(b"something else entirely" * 1_000)
    with pytest.raises(NotALedger):
        check(broken.directory)


def test_chunk_shared_by_lists_that_disagree(broken: DamagedStore) -> None:
    """Two lists with different lengths for one chunk cannot both be right."""
    content = broken.content("list")
    first, *rest = broken.get(BLOCK_LISTS, (content.id,)).chunks
    wrong = ChunkUse(first.content, first.number, first.length + 1)
    broken.put(BLOCK_LISTS, (content.id,), BlockList((wrong, *rest)))
    broken.put_content("list", replace(content, length=content.length + 1))
    report = check(broken.directory)
    assert found(report) == [kinds.LENGTH_WRONG.name], show(report)
    assert f"{first.length} to {first.length + 1}" in report.findings[0].what
