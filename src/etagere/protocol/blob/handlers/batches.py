"""Several requests in one."""

from __future__ import annotations

import asyncio
from typing import Final

from etagere.engine.interface import Refused
from etagere.protocol.blob import batches, decode
from etagere.protocol.blob.handlers.base import Handling
from etagere.protocol.exchange import Exchange
from etagere.protocol.http.messages import Response

# As many as share a commit well, and leave room for those who come alone.
_TOGETHER_MAX: Final = 64


class BatchHandlers(Handling):
    """Batches, whose parts are answered each by itself."""

    async def blob_batch(self, exchange: Exchange) -> Response:
        return await self._batch(exchange, "")

    async def blob_batch_in_container(self, exchange: Exchange) -> Response:
        return await self._batch(exchange, decode.container_name(exchange).name)

    async def _batch(self, exchange: Exchange, container: str) -> Response:
        try:
            requests = await batches.read_requests(exchange)
            parts = batches.parts_of(exchange, requests, container)
        except Refused as refused:
            if refused.refusal.code not in batches.ANSWERED_INSIDE:
                raise
            return batches.answer_refused(exchange, refused.refusal)
        turns = asyncio.Semaphore(_TOGETHER_MAX)

        async def answered(part: Exchange) -> Response:
            async with turns:
                return await self._answer_part(exchange, part)

        responses = await asyncio.gather(*map(answered, parts))
        return batches.answer(requests, responses)
