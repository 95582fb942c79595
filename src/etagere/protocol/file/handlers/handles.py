"""Open handles."""

from __future__ import annotations

from etagere.protocol.file.dependencies import FileDependencies
from etagere.protocol.http.messages import Response
from etagere.protocol.rest.exchange import Exchange


async def list_handles(_exchange: Exchange, _deps: FileDependencies) -> Response:
    raise NotImplementedError


async def force_close_handles(_exchange: Exchange, _deps: FileDependencies) -> Response:
    raise NotImplementedError
