"""The quota of a share, with what was written to its files and is not in the ledger yet."""

from __future__ import annotations

import asyncio

from etagere.engine.interface import Engine, Refused
from etagere.errors import Refusal
from etagere.opens.share import ShareOpens
from etagere.operations.file.writes import quota_left


async def require_room(engine: Engine, share: ShareOpens, growth: int) -> int:
    """Returns how many bytes the quota leaves; refuses if they are fewer than a file is to grow."""
    gathered = share.gathered
    while True:
        left = await engine.read(quota_left, (share.name, share.id)) - gathered.growth
        if growth <= left:
            return left
        storing = gathered.being_stored
        if not storing:
            raise Refused(Refusal("ShareSizeLimitReached"))
        # What has just been stored may have been counted twice.
        await asyncio.wait([file.store_soon() for file in storing])
