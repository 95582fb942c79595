"""Removes what nothing shows any more: the contents of deleted containers, queues and tables,
blocks that were never used, drafts that were never finished, messages whose time is over."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any, Final

from etagere.coordination.interface import Coordinator
from etagere.engine.interface import Engine, ReadTxn, WriteTxn
from etagere.operations.blob import purging
from etagere.operations.blob.block_lists import PurgeDrafts, purge_drafts
from etagere.operations.blob.staging import PurgeStagings, discard_stale, purge_discarded
from etagere.operations.queue import messages
from etagere.operations.table import tables

TASK: Final = "purging"

Steps = tuple[tuple[Callable[[WriteTxn, Any], int], Any], ...]
"""Operations that return how much they removed, for as long as there is something."""

_WORK: Final[dict[Callable[[ReadTxn, None], bool], Steps]] = {
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
}
"""What to do, by what says whether there may be something to do."""


async def purge(engine: Engine, coordinator: Coordinator) -> None:
    """One round, in steps of a few milliseconds, so that nobody waits for a container of a million
    blobs. One process at a time: the others would take up what it leaves to requests."""
    async with coordinator.sole_worker(TASK) as is_sole:
        if is_sole:
            await _purge_all(engine)


async def _purge_all(engine: Engine) -> None:
    """What cannot be removed in one service does not keep the others from it."""
    errors: list[Exception] = []
    for may_purge, steps in _WORK.items():
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
            # As long as it took: half of the time is for others, and more when they are many.
            await asyncio.sleep(time.monotonic() - began)
            began = time.monotonic()
