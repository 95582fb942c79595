"""The order in which a group takes its locks."""

from __future__ import annotations

import random
from typing import Any, cast

import pytest

from etagere.engine.postgres import schema
from etagere.engine.postgres.acquiring import Acquisition, LockLevel, StatementKind, WantedLocks
from etagere.engine.postgres.pipeline import Pipeline
from etagere.engine.postgres.record_cache import ABSENT, CachedRecord
from etagere.engine.records import Collection, RecordKey
from tests.engine.samples import ITEMS, NAMED, Item

_READ, _SHARED, _EXCLUSIVE = LockLevel.READ, LockLevel.SHARED, LockLevel.EXCLUSIVE


class SentStatements:
    """A pipeline that only notes the statements."""

    def __init__(self) -> None:
        self.sql: list[str] = []

    def send(self, sql: str, _: object = ()) -> None:
        self.sql.append(sql)


def look_up(record_key: RecordKey) -> CachedRecord:
    return ABSENT if b"absent" in record_key[1] else CachedRecord(1, Item(), 1)


@pytest.mark.parametrize("skip_locked", [False, True])
def test_locks_are_taken_in_the_order_of_collections_and_keys(skip_locked: bool) -> None:
    """So two groups that need the same records never wait for each other, whatever kinds of locks
    they need on them."""
    assert ITEMS.name < NAMED.name
    levels: list[tuple[Collection[Any, Any], bytes, LockLevel]] = [
        (ITEMS, b"a", _EXCLUSIVE),
        (ITEMS, b"b", _EXCLUSIVE),
        (ITEMS, b"c", _SHARED),
        (ITEMS, b"d absent", _SHARED),
        (ITEMS, b"e", _EXCLUSIVE),
        (NAMED, b"a", _SHARED),
        (NAMED, b"b", _READ),
    ]
    random.seed(1)
    for _ in range(5):
        random.shuffle(levels)
        wanted: WantedLocks = {(collection, key): level for collection, key, level in levels}
        pipeline = SentStatements()
        acquisition = Acquisition(cast("Pipeline", pipeline), look_up, skip_locked=skip_locked)
        sent = acquisition.send(wanted)
        reading = [each for each in sent if each.kind is StatementKind.READ]
        assert [(each.collection, each.keys, each.level) for each in reading] == [
            (ITEMS, [b"a", b"b"], _EXCLUSIVE),
            (ITEMS, [b"c", b"d absent"], _SHARED),
            (ITEMS, [b"e"], _EXCLUSIVE),
            (NAMED, [b"a"], _SHARED),
            (NAMED, [b"b"], _READ),
        ]
        # Placeholders come first, and records without a guard are read last.
        assert pipeline.sql[0] == schema.statements(ITEMS).insert_placeholders
        assert pipeline.sql[-1] == schema.statements(NAMED).known
