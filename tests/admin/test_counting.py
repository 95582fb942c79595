"""Counting what a store contains, with every engine."""

from __future__ import annotations

import pytest

from etagere.admin import counting
from etagere.admin.counting import COUNTED, LEASED_KINDS, StoreCounter
from etagere.clock import TICKS_PER_SECOND
from etagere.metrics.snapshots import Snapshot
from etagere.model.blobs import BlobName, LeaseBlob
from etagere.model.leases import Acquire, Break, LeaseAction
from etagere.operations.blob.blobs import lease_blob
from tests.engine.conftest import start
from tests.operations.blob.fixture import BOX, BlobFixture, blob_test

__all__ = ["start"]

A = bytes([0xAA]) * 16


@pytest.fixture(autouse=True)
def short_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counting, "_ROWS_PER_SLICE", 3)
    monkeypatch.setattr(counting, "_BUSY_SHARE", 1.0)


def _values(counter: StoreCounter) -> dict[tuple[str, ...], float]:
    snapshot = Snapshot()
    counter.report(snapshot)
    return {(one.metric, *one.labels): one.value for one in snapshot.values}


@blob_test
async def test_objects_and_leases(fixture: BlobFixture) -> None:
    """An expired or broken lease does not count, a lease that is breaking does."""
    counter = StoreCounter(fixture.engine)
    assert _values(counter) == {}
    fixture.clock.freeze()
    await fixture.create()
    for number in range(8):
        await fixture.put(f"blob-{number}")

    async def lease(number: int, action: LeaseAction) -> None:
        name = BlobName(BOX, f"blob-{number}")
        await fixture.write(lease_blob, LeaseBlob(name, action))

    for number in range(4):
        await lease(number, Acquire(A, None))
    await lease(4, Acquire(A, 15))
    await lease(2, Break(0))
    await lease(3, Break(60))
    await counter.count_objects()
    values = _values(counter)
    assert values["objects", "container"] == 1
    assert values["objects", "blob"] == 8
    assert values["objects", "entity"] == 0
    assert values["leases", "blob"] == 4
    assert values["leases", "container"] == 0
    fixture.clock.advance(20 * TICKS_PER_SECOND)
    await counter.count_objects()
    assert _values(counter)["leases", "blob"] == 3


@blob_test
async def test_segments(fixture: BlobFixture) -> None:
    counter = StoreCounter(fixture.engine)
    await counter.examine_segments()
    assert _values(counter)["segments", "open"] == 0
    await fixture.create()
    await fixture.put("blob", bytes(100_000))
    await counter.examine_segments()
    values = _values(counter)
    assert values["segments", "open"] == 1
    assert values["segment_bytes", "live"] == values["segment_bytes", "dead"] == 0


def test_kinds_are_distinct() -> None:
    kinds = [kind for counted in COUNTED for kind in counted.kinds]
    assert len(set(kinds)) == len(kinds)
    assert set(LEASED_KINDS) < set(kinds)
    for counted in COUNTED:
        assert len(counted.kinds) == 1 or counted.kind_of is not None
