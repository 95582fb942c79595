"""Copies."""

from __future__ import annotations

from etagere.protocol.file.dependencies import FileDependencies
from etagere.protocol.http.messages import Response
from etagere.protocol.rest.exchange import Exchange


async def put_range_from_url(_exchange: Exchange, _deps: FileDependencies) -> Response:
    raise NotImplementedError


async def copy_file(_exchange: Exchange, _deps: FileDependencies) -> Response:
    raise NotImplementedError


async def abort_copy_file(_exchange: Exchange, _deps: FileDependencies) -> Response:
    raise NotImplementedError
