"""Operations on the permissions of a share."""

from __future__ import annotations

from etagere.protocol.file.dependencies import FileDependencies
from etagere.protocol.http.messages import Response
from etagere.protocol.rest.exchange import Exchange


async def create_permission(_exchange: Exchange, _deps: FileDependencies) -> Response:
    raise NotImplementedError


async def get_permission(_exchange: Exchange, _deps: FileDependencies) -> Response:
    raise NotImplementedError
