"""Operations on files."""

from __future__ import annotations

from etagere.protocol.file.dependencies import FileDependencies
from etagere.protocol.http.messages import Response
from etagere.protocol.rest.exchange import Exchange


async def create_file(_exchange: Exchange, _deps: FileDependencies) -> Response:
    raise NotImplementedError


async def get_file_properties(_exchange: Exchange, _deps: FileDependencies) -> Response:
    raise NotImplementedError


async def delete_file(_exchange: Exchange, _deps: FileDependencies) -> Response:
    raise NotImplementedError


async def set_file_properties(_exchange: Exchange, _deps: FileDependencies) -> Response:
    raise NotImplementedError


async def get_file_metadata(_exchange: Exchange, _deps: FileDependencies) -> Response:
    raise NotImplementedError


async def set_file_metadata(_exchange: Exchange, _deps: FileDependencies) -> Response:
    raise NotImplementedError


async def lease_file(_exchange: Exchange, _deps: FileDependencies) -> Response:
    raise NotImplementedError


async def rename_file(_exchange: Exchange, _deps: FileDependencies) -> Response:
    raise NotImplementedError
