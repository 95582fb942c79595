"""Resetting timestamps that a wrong clock has set in the future."""

from __future__ import annotations

import asyncio

from hypothesis import given, settings
from hypothesis import strategies as st

from etagere.engine.memory import MemoryEngine
from etagere.engine.records import Collection, K, R
from etagere.model.accounts import Account
from etagere.model.blobs import Blob, BlobKind
from etagere.model.bodies import Empty
from etagere.model.queues import Message, MessageIndexRow
from etagere.model.tables import Entity, Properties, PropertyIndex, Table
from etagere.operations.account_records import ACCOUNTS
from etagere.operations.blob.collections import BLOBS
from etagere.operations.clock_reset import ResetClock, TimesReset, reset_clock
from etagere.operations.queue.collections import EXPIRING, MESSAGES, VISIBLE
from etagere.operations.table.collections import ENTITIES, TABLES

WALL = 1_000_000
AHEAD = 500_000
TABLE = bytes(16)
NOTHING = Properties((), "", ())

STAMPS = st.lists(
    st.one_of(
        st.integers(min_value=1, max_value=2 * WALL),
        st.integers(min_value=WALL - 2, max_value=WALL + 6),
    ),
    unique=True,
    max_size=30,
)


def run(engine: MemoryEngine) -> TimesReset:
    return asyncio.run(engine.write(reset_clock, ResetClock(WALL, AHEAD)))


def put(engine: MemoryEngine, collection: Collection[K, R], rows: dict[K, R]) -> None:
    txn = engine.begin()
    for key, record in rows.items():
        txn.put(collection, key, record)
    txn.commit()


def rows(engine: MemoryEngine, collection: Collection[K, R]) -> dict[K, R]:
    return dict(engine.begin_read().scan(collection, collection.all(), 1_000))


@settings(deadline=None)
@given(STAMPS)
def test_stamps_keep_their_order_and_stay_unique(stamps: list[int]) -> None:
    engine = MemoryEngine()
    keys = {(TABLE, "", f"{number:03}"): stamp for number, stamp in enumerate(stamps)}
    put(engine, ENTITIES, {key: Entity(stamp, NOTHING) for key, stamp in keys.items()})
    done = run(engine)
    lowered = {key: entity.stamp for key, entity in rows(engine, ENTITIES).items()}
    assert sorted(lowered, key=lambda key: lowered[key]) == sorted(keys, key=lambda key: keys[key])
    assert len(set(lowered.values())) == len(stamps)
    future = [stamp for stamp in stamps if stamp > WALL]
    assert done.last_stamp == WALL + len(future)
    for key, stamp in keys.items():
        assert lowered[key] == stamp if stamp <= WALL else WALL < lowered[key] <= done.last_stamp


def test_equal_stamps_stay_equal() -> None:
    """One change may have its stamp on several records, or several times on one."""
    engine = MemoryEngine()
    put(engine, ACCOUNTS, {("account",): Account(b"1", b"2", 2 * WALL, 2 * WALL, 3 * WALL)})
    put(engine, ENTITIES, {(TABLE, "", ""): Entity(2 * WALL, NOTHING)})
    assert run(engine) == TimesReset(WALL + 2, 2)
    assert rows(engine, ACCOUNTS) == {
        ("account",): Account(b"1", b"2", WALL + 1, WALL + 1, WALL + 2)
    }
    assert rows(engine, ENTITIES) == {(TABLE, "", ""): Entity(WALL + 1, NOTHING)}


def test_messages_are_shifted_by_the_error_of_their_times() -> None:
    engine = MemoryEngine()
    late = WALL + AHEAD
    cases = {
        # Put and received before: unchanged.
        (10, 900_000 + WALL, 20, 15): (10, 900_000 + WALL, 20, 15),
        # Put before, received while the clock was wrong.
        (10, None, late + 30, late): (10, None, WALL + 30, WALL + 1),
        # Put while the clock was wrong.
        (late - 5, late + 70, late + 20, late + 1): (WALL - 5, WALL + 70, WALL + 20, WALL + 2),
    }
    given_, expected = {}, {}
    for number, (before, after) in enumerate(cases.items()):
        key = (TABLE, bytes([number]) * 16)
        given_[key] = Message(*before, text="text")
        expected[key] = Message(*after, text="text")
    put(engine, MESSAGES, given_)
    visible = {(TABLE, each.visible, key[1]): MessageIndexRow() for key, each in given_.items()}
    put(engine, VISIBLE, visible)
    expiring = {
        (each.expires, TABLE, key[1]): MessageIndexRow()
        for key, each in given_.items()
        if each.expires is not None
    }
    put(engine, EXPIRING, expiring)
    run(engine)
    assert rows(engine, MESSAGES) == expected
    assert set(rows(engine, VISIBLE)) == {
        (TABLE, each.visible, key[1]) for key, each in expected.items()
    }
    assert set(rows(engine, EXPIRING)) == {
        (each.expires, TABLE, key[1]) for key, each in expected.items() if each.expires is not None
    }


def test_indexes_can_be_dropped_again() -> None:
    engine = MemoryEngine()
    before = PropertyIndex(1, "before", created_at=WALL - 5, used_at=WALL - 1)
    later = PropertyIndex(2, "later", created_at=WALL + 7, used_at=WALL + AHEAD)
    put(engine, TABLES, {("account", "table"): Table(TABLE, "Table", indexes=(before, later))})
    assert run(engine).records == 1
    (table,) = rows(engine, TABLES).values()
    assert table.indexes == (
        before,
        PropertyIndex(2, "later", created_at=WALL, used_at=WALL),
    )


def test_a_second_reset_changes_nothing() -> None:
    engine = MemoryEngine()
    put(engine, ENTITIES, {(TABLE, "", ""): Entity(2 * WALL, NOTHING)})
    assert run(engine).records == 1
    later = ResetClock(WALL + 10, 0)
    assert asyncio.run(engine.write(reset_clock, later)) == TimesReset(WALL + 10, 0)


def test_recorded_reads_of_the_future_become_reads_of_the_present() -> None:
    """Otherwise no read would be recorded until then."""
    engine = MemoryEngine()
    dates = {"never": 0, "before": WALL - 1, "ahead": WALL + AHEAD}
    blobs = {
        (TABLE, name): Blob(BlobKind.BLOCK, 1, 1, Empty(), read_at=date)
        for name, date in dates.items()
    }
    put(engine, BLOBS, blobs)
    run(engine)
    found = {name: blob.read_at for (_, name), blob in rows(engine, BLOBS).items()}
    assert found == {"never": 0, "before": WALL - 1, "ahead": WALL}
