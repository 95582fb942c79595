"""Tasks of a cluster: epochs increase, and keep former holders from writing."""

from __future__ import annotations

import pytest

from etagere.engine.interface import Refused, WriteTxn, operation
from etagere.engine.tasks import get_task_holder, leave_task, require_epoch, take_task
from etagere.model.cluster import LeaveTask, TakeTask, TaskHolder
from tests.engine.harness import Harness, conformance

TASK = "testing"
FIRST, SECOND = TaskHolder(1, "one", "10.0.0.1", 7_000), TaskHolder(2, "two", "::1", 7_001)


@operation
def write_in_epoch(txn: WriteTxn, epoch: int) -> None:
    require_epoch(txn, TASK, epoch)


@conformance
async def test_epochs_increase(harness: Harness) -> None:
    engine = await harness.open()
    assert await engine.read(get_task_holder, TASK) is None
    assert await engine.write(take_task, TakeTask(TASK, FIRST)) == FIRST
    assert await engine.write(take_task, TakeTask(TASK, SECOND)) == SECOND
    for late in (FIRST, SECOND):
        with pytest.raises(Refused, match="ServerBusy"):
            await engine.write(take_task, TakeTask(TASK, late))
    assert await engine.read(get_task_holder, TASK) == SECOND


@conformance
async def test_a_holder_that_stopped_has_no_address(harness: Harness) -> None:
    engine = await harness.open()
    await engine.write(leave_task, LeaveTask(TASK, 1))
    assert await engine.read(get_task_holder, TASK) is None
    await engine.write(take_task, TakeTask(TASK, SECOND))
    await engine.write(leave_task, LeaveTask(TASK, 1))
    assert await engine.read(get_task_holder, TASK) == SECOND
    await engine.write(leave_task, LeaveTask(TASK, 2))
    assert await engine.read(get_task_holder, TASK) == TaskHolder(2, "two")


@conformance
async def test_only_the_last_holder_writes(harness: Harness) -> None:
    engine = await harness.open()
    with pytest.raises(Refused, match="ServerBusy"):
        await engine.write(write_in_epoch, 1)
    await engine.write(take_task, TakeTask(TASK, FIRST))
    await engine.write(write_in_epoch, 1)
    await engine.write(take_task, TakeTask(TASK, SECOND))
    with pytest.raises(Refused, match="ServerBusy"):
        await engine.write(write_in_epoch, 1)
    await engine.write(write_in_epoch, 2)
