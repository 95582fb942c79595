"""Operations on containers."""

from __future__ import annotations

from functools import partial

from etagere.engine.interface import Refused
from etagere.errors import Refusal
from etagere.model.containers import (
    CreateContainer,
    DeleteContainer,
    GetContainer,
    LeaseContainer,
    SetContainerAccess,
    SetContainerMetadata,
    ShownContainer,
)
from etagere.model.ids import new_id
from etagere.operations.blob import containers
from etagere.operations.blob.listing import list_blobs
from etagere.protocol import requests
from etagere.protocol.answers import XML, metadata_headers
from etagere.protocol.blob import decode, decode_listing, encode, pages
from etagere.protocol.blob.handlers.base import Handling
from etagere.protocol.blob.permitted import permitted
from etagere.protocol.codecs import access_policies
from etagere.protocol.exchange import Exchange
from etagere.protocol.http.messages import Response
from etagere.protocol.listings import listed


class ContainerHandlers(Handling):
    """Containers: made, shown, changed, leased, listed and deleted."""

    async def create_container(self, exchange: Exchange) -> Response:
        command = CreateContainer(
            decode.container_name(exchange),
            new_id(),
            requests.metadata(exchange),
            decode.public_access(exchange),
        )
        made = await self._engine.write(containers.create_container, command)
        return Response(201, encode.stamp_headers(made.stamp))

    async def get_container_properties(self, exchange: Exchange) -> Response:
        shown = await self._shown_container(exchange)
        return Response(200, encode.container_headers(shown, exchange.version))

    async def get_container_metadata(self, exchange: Exchange) -> Response:
        container = (await self._shown_container(exchange)).container
        described = metadata_headers(container.metadata)
        return Response(200, encode.stamp_headers(container.stamp) + described)

    async def get_container_acl(self, exchange: Exchange) -> Response:
        container = (await self._shown_container(exchange)).container
        headers = [*encode.stamp_headers(container.stamp), *encode.access_headers(container), XML]
        return Response(200, headers, access_policies.encode(container.policies))

    async def _shown_container(self, exchange: Exchange) -> ShownContainer:
        name = decode.container_name(exchange)
        command = GetContainer(name, decode.lease_id(exchange))
        return await self._read(exchange, containers.get_container, command, name)

    async def set_container_metadata(self, exchange: Exchange) -> Response:
        command = SetContainerMetadata(
            decode.container_name(exchange),
            requests.metadata(exchange),
            decode.write_conditions(exchange),
            decode.lease_id(exchange),
        )
        changed = await self._engine.write(containers.set_container_metadata, command)
        return Response(200, encode.stamp_headers(changed.stamp))

    async def set_container_acl(self, exchange: Exchange) -> Response:
        document = await exchange.http.body.read(access_policies.BYTES_MAX)
        policies = access_policies.decode(document, "blob")
        if isinstance(policies, Refusal):
            raise Refused(policies)
        command = SetContainerAccess(
            decode.container_name(exchange),
            decode.public_access(exchange),
            policies,
            decode.write_conditions(exchange),
            decode.lease_id(exchange),
        )
        changed = await self._engine.write(containers.set_container_access, command)
        return Response(200, encode.stamp_headers(changed.stamp))

    async def delete_container(self, exchange: Exchange) -> Response:
        command = DeleteContainer(
            decode.container_name(exchange),
            decode.write_conditions(exchange),
            decode.lease_id(exchange),
        )
        await self._engine.write(containers.delete_container, command)
        return Response(202)

    async def lease_container(self, exchange: Exchange) -> Response:
        action = decode.lease_action(exchange)
        conditions = decode.write_conditions(exchange)
        command = LeaseContainer(decode.container_name(exchange), action, conditions)
        shown = await self._engine.write(containers.lease_container, command)
        headers = encode.stamp_headers(shown.container.stamp)
        headers += encode.lease_action_headers(shown.container.lease, shown.now)
        return Response(encode.LEASE_STATUS.get(action.verb, 200), headers)

    async def list_blobs(self, exchange: Exchange) -> Response:
        asked, include = decode_listing.list_blobs(exchange)
        return await listed(
            self._engine,
            exchange.lane("listing"),
            permitted(exchange.permit, exchange.challenge_version, list_blobs, asked.container),
            asked,
            partial(pages.blob_rows, include=include, version=exchange.version),
            pages.blobs_start(asked, exchange),
            pages.blobs_end,
        )
