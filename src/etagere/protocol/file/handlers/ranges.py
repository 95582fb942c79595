"""Reads and writes of ranges."""

from __future__ import annotations

from etagere.protocol.file.dependencies import FileDependencies
from etagere.protocol.http.messages import Response
from etagere.protocol.rest.exchange import Exchange


async def put_range(_exchange: Exchange, _deps: FileDependencies) -> Response:
    raise NotImplementedError


async def list_ranges(_exchange: Exchange, _deps: FileDependencies) -> Response:
    raise NotImplementedError
