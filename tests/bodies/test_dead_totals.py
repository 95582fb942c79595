"""Totals of dead bytes over the life of a store, and in stores of schema 1."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from etagere.bodies import own_segments
from etagere.bodies.audit.walk import check
from etagere.bodies.collector import Collector
from etagere.bodies.contents import (
    COUNTED_DEAD,
    DEAD_TOTALS,
    EXTENTS,
    SEGMENTS,
    UNCOUNTED_DEAD,
)
from etagere.bodies.files import FileBodyStore
from etagere.engine.interface import Engine
from etagere.engine.ledger import database_path
from etagere.model.bodies import DeadExtent, DeadTotal, Segment, SegmentState
from tests.bodies.objects import delete_object, upload
from tests.bodies.stores import CONFIG, DamagedStore, build, data_of, expected, read_all
from tests.engine.sqlite_harness import SqliteHarness
from tests.model.consistency import rows


@pytest.fixture(scope="module")
def first_schema(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns a store of schema 1: every dead extent has a record and is in the totals."""
    folder = tmp_path_factory.mktemp("schema")
    asyncio.run(build(folder / "built"))
    store = DamagedStore(folder / "built", folder / "data")
    laid = [(key, row.length) for key, row in store.rows(EXTENTS)]
    laid += [(key, row.length) for key, row in store.rows(UNCOUNTED_DEAD)]
    for (number,), segment in store.rows(SEGMENTS):
        dead = [(at, row.length) for (of, at), row in store.rows(UNCOUNTED_DEAD) if of == number]
        if segment.state is not SegmentState.OPEN:
            at = 0
            for offset, length in [
                *sorted((at, length) for (of, at), length in laid if of == number),
                (segment.length, 0),
            ]:
                if offset > at:
                    dead.append((at, offset - at))
                at = offset + length
        for at, length in dead:
            store.put(COUNTED_DEAD, (number, at), DeadExtent(length))
        store.put(DEAD_TOTALS, (number,), DeadTotal(sum(length for _, length in dead)))
        old = Segment(segment.owner, segment.state, segment.length, segment.closed)
        store.put(SEGMENTS, (number,), old)
    store.execute("DROP TABLE uncounted_dead_extents")
    store.execute("PRAGMA user_version = 1")
    return store.directory


def test_a_store_of_schema_1_is_consistent(first_schema: Path, tmp_path: Path) -> None:
    store = DamagedStore(first_schema, tmp_path / "data")
    assert store.rows(COUNTED_DEAD)
    assert check(store.directory).findings == []
    assert asyncio.run(read_all(store.directory)) == expected()
    assert check(store.directory).findings == []
    assert store.execute("PRAGMA user_version") == [(2,)]


def test_a_store_of_schema_1_is_collected(first_schema: Path, tmp_path: Path) -> None:
    store = DamagedStore(first_schema, tmp_path / "data")

    async def scenario(engine: Engine, bodies: FileBodyStore, collector: Collector) -> None:
        for name in expected():
            await engine.write(delete_object, name)
        for _ in range(3):
            await collector.collect()

    run_in(store.directory, scenario)
    assert check(store.directory).findings == []
    # The staged blocks remain.
    assert len(store.rows(SEGMENTS)) <= 2
    assert {number for (number, _), _ in store.rows(COUNTED_DEAD)} <= {
        number for (number,), _ in store.rows(SEGMENTS)
    }


def test_dead_bytes_are_counted_in_the_next_round(tmp_path: Path) -> None:
    async def scenario(engine: Engine, store: FileBodyStore, collector: Collector) -> None:
        for number in range(300):
            await upload(engine, store, f"{number}", data_of(f"{number}", 1_100))
        await store.maintain()
        for number in range(0, 300, 10):
            await engine.write(delete_object, f"{number}")
        segments = await engine.read(rows, SEGMENTS)
        sealed = {n for (n,), s in segments.items() if s.state is SegmentState.SEALED}
        assert sealed
        dead = await engine.read(rows, UNCOUNTED_DEAD)
        assert len(dead) == 30
        await collector.collect()
        totals = await engine.read(rows, DEAD_TOTALS)
        left = await engine.read(rows, UNCOUNTED_DEAD)
        assert not {number for number, _ in left} & sealed
        for number in sealed:
            counted = sum(row.length for (of, _), row in dead.items() if of == number)
            assert totals[number,].length == counted > 0

    directory = tmp_path / "data"
    run_in(directory, scenario)
    assert check(directory).findings == []


def test_dead_extents_of_an_open_segment_are_counted_over_rounds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each round reads a bounded number of them. A segment with many dead bytes is sealed."""
    monkeypatch.setattr(own_segments, "_DEAD_ROWS_PER_SLICE", 5)
    monkeypatch.setattr(own_segments, "_DEAD_SLICES_PER_ROUND", 1)

    async def scenario(engine: Engine, store: FileBodyStore, collector: Collector) -> None:
        for number in range(60):
            await upload(engine, store, f"{number}", data_of(f"{number}", 1_100))
        for number in range(30):
            await engine.write(delete_object, f"{number}")
        states = []
        for _ in range(2):
            await store.maintain()
            (segment,) = (await engine.read(rows, SEGMENTS)).values()
            states.append(segment.state)
        # 5 of 60 are below the share at which a segment is sealed, 10 are above.
        assert states == [SegmentState.OPEN, SegmentState.SEALED]
        assert (await engine.read(rows, DEAD_TOTALS))[1,].length == 30 * 1_100

    run_in(tmp_path / "data", scenario)


Scenario = Callable[[Engine, FileBodyStore, Collector], Coroutine[Any, Any, None]]


def run_in(directory: Path, scenario: Scenario) -> None:
    """Runs a scenario in a store as a server would."""

    async def run() -> None:
        harness = SqliteHarness(directory, CONFIG)
        harness.start()
        try:
            engine = await harness.open()
            store = FileBodyStore(directory, engine, CONFIG)
            await scenario(engine, store, Collector(engine, store, CONFIG))
            await store.close()
        finally:
            await harness.close()
        (directory / "writer.sock").unlink(missing_ok=True)

    asyncio.run(run())
    assert database_path(directory).exists()
