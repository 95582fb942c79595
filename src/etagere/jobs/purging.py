"""Removes deleted data: the contents of deleted containers, queues, tables and shares, old
uncommitted blocks, abandoned drafts, expired messages, what only deleted snapshots of shares
showed, and users whose delegation keys have expired."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from etagere.coordination.interface import Coordinator
from etagere.engine.interface import Engine, ReadTxn, WriteTxn
from etagere.operations import delegation
from etagere.operations.blob import purging
from etagere.operations.blob.block_lists import PurgeDrafts, purge_drafts
from etagere.operations.blob.staging import PurgeStagings, discard_stale, purge_discarded
from etagere.operations.file import purging as file_purging
from etagere.operations.queue import messages
from etagere.operations.table import tables

TASK: Final = "purging"

Steps = tuple[tuple[Callable[[WriteTxn, Any], int], Any], ...]
"""Operations that return how much they removed, and 0 when nothing is left."""
Work = Mapping[Callable[[ReadTxn, None], bool], Steps]
"""The operations to run, by a read that tells whether there may be something to do."""

_WORK: Final[Work] = {
    purging.may_purge: (
        (purging.purge_containers, purging.PurgeContainers()),
        (discard_stale, PurgeStagings()),
        (purge_discarded, PurgeStagings()),
        (purge_drafts, PurgeDrafts()),
    ),
    messages.may_purge: (
        (messages.expire_messages, messages.PurgeMessages()),
        (messages.purge_contents, messages.PurgeMessages()),
    ),
    tables.may_purge: ((tables.purge_tables, tables.PurgeTables()),),
    file_purging.may_purge: (
        (file_purging.expire_shares, file_purging.PurgeShares()),
        (file_purging.forget_deleted_names, file_purging.PurgeShares()),
        (file_purging.purge_shares, file_purging.PurgeShares()),
        (file_purging.purge_histories, file_purging.PurgeShares()),
    ),
    delegation.may_purge: ((delegation.purge_delegating_users, delegation.PurgeDelegatingUsers()),),
}


async def purge(
    engine: Engine, coordinator: Coordinator, work: Work = _WORK, task: str = TASK
) -> None:
    """Runs one round, in steps of a few milliseconds, so that requests do not wait for a container
    with a million blobs. Only one process purges at a time, because others would use the time that
    it leaves to requests."""
    async with coordinator.sole_worker(task) as lock:
        if lock is not None:
            await _purge_all(engine, work)


async def _purge_all(engine: Engine, work: Work) -> None:
    """Purges all services. An error in one does not prevent the others."""
    errors: list[Exception] = []
    for may_purge, steps in work.items():
        try:
            if await engine.read(may_purge, None):
                await _purge(engine, steps)
        except Exception as error:
            errors.append(error)
    if errors:
        raise errors[0]


async def _purge(engine: Engine, steps: Steps) -> None:
    for step, command in steps:
        began = time.monotonic()
        while await engine.write(step, command):
            # Sleeps for as long as the step took, so that at least half of the time is left to
            # other work.
            await asyncio.sleep(time.monotonic() - began)
            began = time.monotonic()
