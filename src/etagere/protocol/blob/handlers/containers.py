"""Operations on containers."""

from __future__ import annotations

from functools import partial

from etagere.model.containers import (
    ContainerResult,
    CreateContainer,
    DeleteContainer,
    GetContainer,
    LeaseContainer,
    SetContainerAccess,
    SetContainerMetadata,
)
from etagere.model.ids import new_id
from etagere.operations.blob import containers, listing
from etagere.protocol.blob import decode, decode_listing, encode, pages
from etagere.protocol.blob.dependencies import BlobDependencies
from etagere.protocol.blob.permitted import permitted, read_as_caller
from etagere.protocol.http.messages import Response
from etagere.protocol.rest import leases
from etagere.protocol.rest.access_policies import policies_response, read_policies
from etagere.protocol.rest.conditions import write_conditions
from etagere.protocol.rest.exchange import Exchange
from etagere.protocol.rest.listings import listed
from etagere.protocol.rest.metadata import metadata_headers, read_metadata
from etagere.protocol.rest.responses import stamp_headers


async def create_container(exchange: Exchange, deps: BlobDependencies) -> Response:
    command = CreateContainer(
        decode.container_name(exchange),
        new_id(),
        read_metadata(exchange),
        decode.public_access(exchange),
    )
    made = await deps.engine.write(containers.create_container, command)
    return Response(201, stamp_headers(made.stamp))


async def get_container_properties(exchange: Exchange, deps: BlobDependencies) -> Response:
    shown = await _shown_container(exchange, deps)
    return Response(200, encode.container_headers(shown, exchange.version))


async def get_container_metadata(exchange: Exchange, deps: BlobDependencies) -> Response:
    container = (await _shown_container(exchange, deps)).container
    described = metadata_headers(container.metadata)
    return Response(200, stamp_headers(container.stamp) + described)


async def get_container_acl(exchange: Exchange, deps: BlobDependencies) -> Response:
    container = (await _shown_container(exchange, deps)).container
    headers = stamp_headers(container.stamp) + encode.access_headers(container)
    return policies_response(container.policies, headers)


async def _shown_container(exchange: Exchange, deps: BlobDependencies) -> ContainerResult:
    name = decode.container_name(exchange)
    command = GetContainer(name, leases.lease_id(exchange))
    return await read_as_caller(exchange, deps.engine, containers.get_container, command, name)


async def set_container_metadata(exchange: Exchange, deps: BlobDependencies) -> Response:
    command = SetContainerMetadata(
        decode.container_name(exchange),
        read_metadata(exchange),
        write_conditions(exchange),
        leases.lease_id(exchange),
    )
    changed = await deps.engine.write(containers.set_container_metadata, command)
    return Response(200, stamp_headers(changed.stamp))


async def set_container_acl(exchange: Exchange, deps: BlobDependencies) -> Response:
    policies = await read_policies(exchange)
    command = SetContainerAccess(
        decode.container_name(exchange),
        decode.public_access(exchange),
        policies,
        write_conditions(exchange),
        leases.lease_id(exchange),
    )
    changed = await deps.engine.write(containers.set_container_access, command)
    return Response(200, stamp_headers(changed.stamp))


async def delete_container(exchange: Exchange, deps: BlobDependencies) -> Response:
    command = DeleteContainer(
        decode.container_name(exchange),
        write_conditions(exchange),
        leases.lease_id(exchange),
    )
    await deps.engine.write(containers.delete_container, command)
    return Response(202)


async def lease_container(exchange: Exchange, deps: BlobDependencies) -> Response:
    action = leases.lease_action(exchange)
    conditions = write_conditions(exchange)
    command = LeaseContainer(decode.container_name(exchange), action, conditions)
    shown = await deps.engine.write(containers.lease_container, command)
    headers = stamp_headers(shown.container.stamp)
    headers += leases.lease_action_headers(shown.container.lease, shown.now)
    return Response(leases.LEASE_STATUS.get(action.verb, 200), headers)


async def list_blobs(exchange: Exchange, deps: BlobDependencies) -> Response:
    asked, include = decode_listing.list_blobs(exchange)
    return await listed(
        deps.engine,
        exchange.read_class("listing"),
        permitted(exchange.permit, exchange.challenge_version, listing.list_blobs, asked.container),
        asked,
        partial(
            pages.blob_rows,
            include=include,
            version=exchange.version,
            with_last_access=deps.shows_last_access(exchange),
        ),
        pages.blobs_start(asked, exchange),
        pages.blobs_end,
    )
