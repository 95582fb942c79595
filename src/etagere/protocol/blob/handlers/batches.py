"""Handlers of blob batches."""

from __future__ import annotations

import asyncio
from typing import Final

from etagere.engine.interface import Refused
from etagere.protocol.blob import batches, decode
from etagere.protocol.blob.dependencies import BlobDependencies
from etagere.protocol.http.messages import Response
from etagere.protocol.rest.exchange import Exchange

# Enough to share a commit, without delaying other requests.
_TOGETHER_MAX: Final = 64


async def blob_batch(exchange: Exchange, deps: BlobDependencies) -> Response:
    return await _batch(exchange, deps, "")


async def blob_batch_in_container(exchange: Exchange, deps: BlobDependencies) -> Response:
    return await _batch(exchange, deps, decode.container_name(exchange).name)


async def _batch(exchange: Exchange, deps: BlobDependencies, container: str) -> Response:
    try:
        requests = await batches.read_requests(exchange)
        parts = batches.parts_of(exchange, requests, container, deps.operation_of)
    except Refused as refused:
        if refused.refusal.code not in batches.ANSWERED_INSIDE:
            raise
        return batches.answer_refused(exchange, refused.refusal)
    turns = asyncio.Semaphore(_TOGETHER_MAX)

    async def answered(part: Exchange) -> Response:
        async with turns:
            return await deps.answer_nested(exchange, part)

    responses = await asyncio.gather(*map(answered, parts))
    return batches.answer(requests, responses)
