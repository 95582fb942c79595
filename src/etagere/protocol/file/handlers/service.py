"""List Shares."""

from __future__ import annotations

from etagere.protocol.file.dependencies import FileDependencies
from etagere.protocol.http.messages import Response
from etagere.protocol.rest.exchange import Exchange


async def list_shares(_exchange: Exchange, _deps: FileDependencies) -> Response:
    raise NotImplementedError
