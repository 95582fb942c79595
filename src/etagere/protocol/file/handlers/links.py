"""Symbolic and hard links."""

from __future__ import annotations

from etagere.protocol.file.dependencies import FileDependencies
from etagere.protocol.http.messages import Response
from etagere.protocol.rest.exchange import Exchange


async def create_symbolic_link(_exchange: Exchange, _deps: FileDependencies) -> Response:
    raise NotImplementedError


async def get_symbolic_link(_exchange: Exchange, _deps: FileDependencies) -> Response:
    raise NotImplementedError


async def create_hard_link(_exchange: Exchange, _deps: FileDependencies) -> Response:
    raise NotImplementedError
