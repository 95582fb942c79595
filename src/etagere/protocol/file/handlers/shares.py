"""Operations on shares."""

from __future__ import annotations

from etagere.protocol.file.dependencies import FileDependencies
from etagere.protocol.http.messages import Response
from etagere.protocol.rest.exchange import Exchange


async def create_share(_exchange: Exchange, _deps: FileDependencies) -> Response:
    raise NotImplementedError


async def get_share_properties(_exchange: Exchange, _deps: FileDependencies) -> Response:
    raise NotImplementedError


async def delete_share(_exchange: Exchange, _deps: FileDependencies) -> Response:
    raise NotImplementedError


async def set_share_properties(_exchange: Exchange, _deps: FileDependencies) -> Response:
    raise NotImplementedError


async def get_share_metadata(_exchange: Exchange, _deps: FileDependencies) -> Response:
    raise NotImplementedError


async def set_share_metadata(_exchange: Exchange, _deps: FileDependencies) -> Response:
    raise NotImplementedError


async def get_share_acl(_exchange: Exchange, _deps: FileDependencies) -> Response:
    raise NotImplementedError


async def set_share_acl(_exchange: Exchange, _deps: FileDependencies) -> Response:
    raise NotImplementedError


async def get_share_stats(_exchange: Exchange, _deps: FileDependencies) -> Response:
    raise NotImplementedError


async def lease_share(_exchange: Exchange, _deps: FileDependencies) -> Response:
    raise NotImplementedError


async def snapshot_share(_exchange: Exchange, _deps: FileDependencies) -> Response:
    raise NotImplementedError


async def restore_share(_exchange: Exchange, _deps: FileDependencies) -> Response:
    raise NotImplementedError
