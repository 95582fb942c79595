"""Removes what nothing shows any more: the contents of deleted containers, blocks that were never
used, drafts that were never finished."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Final

from etagere.engine.interface import Engine, Fault, Unknown, WriteTxn
from etagere.operations.blob.block_lists import PurgeDrafts, purge_drafts
from etagere.operations.blob.purging import PurgeContainers, may_purge, purge_containers
from etagere.operations.blob.staging import PurgeStagings, discard_stale, purge_discarded

logger = logging.getLogger(__name__)

_STEPS: Final[tuple[tuple[Callable[[WriteTxn, Any], int], Any], ...]] = (
    (purge_containers, PurgeContainers()),
    (discard_stale, PurgeStagings()),
    (purge_discarded, PurgeStagings()),
    (purge_drafts, PurgeDrafts()),
)
"""What returns how much it removed, for as long as there is something."""


async def keep_purging(engine: Engine, interval_seconds: float) -> None:
    """Steps of a few milliseconds, so that nobody waits for a container of a million blobs."""
    while True:
        try:
            if await engine.read(may_purge, None):
                await _purge(engine)
        except (Fault, Unknown) as error:
            logger.warning("purging was cut short and will go on later: %s", error)
        await asyncio.sleep(interval_seconds)


async def _purge(engine: Engine) -> None:
    for step, command in _STEPS:
        while await engine.write(step, command):
            pass  # each waits for its commit, and so lets others run
