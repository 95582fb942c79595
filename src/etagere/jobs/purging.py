"""Removes what was deleted by name: the blobs of deleted containers."""

from __future__ import annotations

import asyncio
import logging

from etagere.engine.interface import Engine, Fault, Unknown
from etagere.operations.blob.blobs import PurgeContainers, purge_containers

logger = logging.getLogger(__name__)


async def keep_purging(engine: Engine, interval_seconds: float) -> None:
    """Steps of a few milliseconds, so that nobody waits for a container of a million blobs."""
    while True:
        try:
            while await engine.write(purge_containers, PurgeContainers()):
                pass  # each step waits for its commit, and so lets others run
        except (Fault, Unknown) as error:
            logger.warning("purging was cut short and will go on later: %s", error)
        await asyncio.sleep(interval_seconds)
