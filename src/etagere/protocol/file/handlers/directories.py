"""Operations on directories."""

from __future__ import annotations

from etagere.protocol.file.dependencies import FileDependencies
from etagere.protocol.http.messages import Response
from etagere.protocol.rest.exchange import Exchange


async def create_directory(_exchange: Exchange, _deps: FileDependencies) -> Response:
    raise NotImplementedError


async def get_directory_properties(_exchange: Exchange, _deps: FileDependencies) -> Response:
    raise NotImplementedError


async def delete_directory(_exchange: Exchange, _deps: FileDependencies) -> Response:
    raise NotImplementedError


async def set_directory_properties(_exchange: Exchange, _deps: FileDependencies) -> Response:
    raise NotImplementedError


async def get_directory_metadata(_exchange: Exchange, _deps: FileDependencies) -> Response:
    raise NotImplementedError


async def set_directory_metadata(_exchange: Exchange, _deps: FileDependencies) -> Response:
    raise NotImplementedError


async def list_directories_and_files(_exchange: Exchange, _deps: FileDependencies) -> Response:
    raise NotImplementedError


async def rename_directory(_exchange: Exchange, _deps: FileDependencies) -> Response:
    raise NotImplementedError
