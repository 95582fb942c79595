"""Requests to the queue service for its decoders, without a connection."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

from etagere.engine.interface import Refused
from etagere.errors import Refusal
from etagere.protocol.http.messages import Request, RequestBody
from etagere.protocol.rest.exchange import Exchange
from tests.protocol.flows import CompleteBodyFlow

T = TypeVar("T")

VERSION = "2021-12-02"


def exchange(
    query: str = "",
    body: bytes = b"",
    *,
    below: str | None = "",
    version: str = VERSION,
    method: str = "POST",
) -> Exchange:
    """Returns a request for a resource below the queue `tray`, or for the service if None."""
    arrived = RequestBody(CompleteBodyFlow(), len(body))
    if body:
        arrived.feed(body)
    arrived.feed_end()
    fields = {b"host": b"localhost", b"x-ms-version": version.encode()}
    path = "/shelf" if below is None else f"/shelf/tray{below}"
    target = path + (f"?{query}" if query else "")
    return Exchange("queue", Request(method, target.encode(), [], fields, arrived))


def decoded(call: Awaitable[T]) -> T | Refusal:
    """Returns the result of a decoder that reads the body."""

    async def run() -> T | Refusal:
        try:
            return await call
        except Refused as refused:
            return refused.refusal

    return asyncio.run(run())
