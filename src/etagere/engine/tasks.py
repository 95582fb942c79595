"""Tasks that one node of a cluster does at a time, and the epochs that keep former holders out.

Which node may have a task is decided by the coordinator, with an epoch that increases with each
holder. A new holder stores its epoch in the ledger before anything else. Every write of the holder
carries its epoch and is refused if another one is stored, in the same transaction: so a former
holder that was paused, and does not know yet that it lost the task, changes nothing.
"""

from __future__ import annotations

from typing import Final

from etagere.engine.interface import (
    EXCLUSIVE,
    SHARED,
    ReadTxn,
    Refused,
    WriteTxn,
    operation,
)
from etagere.engine.records import TEXT, Collection
from etagere.errors import Refusal
from etagere.model.cluster import LeaveTask, TakeTask, TaskHolder

TASK_HOLDERS: Final[Collection[tuple[str], TaskHolder]] = Collection(
    "task_holders", TaskHolder, (TEXT,)
)


@operation
def take_task(txn: WriteTxn, command: TakeTask) -> TaskHolder:
    """Stores the epoch of a new holder, unless there is a newer one."""
    key, holder = (command.task,), command.holder
    stored = txn.get(TASK_HOLDERS, key, EXCLUSIVE)
    if stored is not None and stored.epoch >= holder.epoch:
        raise Refused(Refusal("ServerBusy"))
    return txn.put(TASK_HOLDERS, key, holder)


@operation
def leave_task(txn: WriteTxn, command: LeaveTask) -> None:
    """Removes the address of a holder that has stopped. Its epoch stays."""
    key = (command.task,)
    stored = txn.get(TASK_HOLDERS, key, EXCLUSIVE)
    if stored is not None and stored.epoch == command.epoch:
        txn.put(TASK_HOLDERS, key, TaskHolder(stored.epoch, stored.node))


def get_task_holder(txn: ReadTxn, task: str) -> TaskHolder | None:
    """Returns the last holder of a task."""
    return txn.get(TASK_HOLDERS, (task,))


def require_epoch(txn: WriteTxn, task: str, epoch: int) -> None:
    """Refuses the operation of a holder that is not the last one."""
    stored = txn.get(TASK_HOLDERS, (task,), SHARED)
    if stored is None or stored.epoch != epoch:
        raise Refused(Refusal("ServerBusy"))
