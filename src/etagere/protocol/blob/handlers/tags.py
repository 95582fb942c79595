"""Operations on tags."""

from __future__ import annotations

from functools import partial

from etagere.engine.interface import unwrap
from etagere.model.containers import ContainerName
from etagere.model.tags import SetBlobTags
from etagere.operations.blob import tags
from etagere.operations.blob.tags import FindBlobs
from etagere.protocol.blob import decode, decode_tags
from etagere.protocol.blob.dependencies import BlobDependencies
from etagere.protocol.codecs import tags as codec
from etagere.protocol.http.messages import Response
from etagere.protocol.rest import checksums, leases, requests
from etagere.protocol.rest.exchange import Exchange
from etagere.protocol.rest.listings import listed
from etagere.protocol.rest.responses import XML


async def set_blob_tags(exchange: Exchange, deps: BlobDependencies) -> Response:
    document = await exchange.http.body.read(codec.BYTES_MAX)
    checksums.checked_document(exchange, document)
    new_tags = unwrap(codec.decode(document))
    command = SetBlobTags(
        decode.blob_name(exchange),
        new_tags,
        decode_tags.tag_conditions(exchange),
        leases.lease_id(exchange),
        decode.snapshot(exchange),
    )
    await deps.engine.write(tags.set_blob_tags, command)
    return Response(204)


async def get_blob_tags(exchange: Exchange, deps: BlobDependencies) -> Response:
    command = decode_tags.get_blob_tags(exchange)
    shown = await deps.engine.read(tags.get_blob_tags, command)
    return Response(200, [XML], codec.encode(shown.blob.tags))


async def find_blobs_by_tags(exchange: Exchange, deps: BlobDependencies) -> Response:
    return await _found(exchange, deps, None)


async def find_blobs_by_tags_in_container(exchange: Exchange, deps: BlobDependencies) -> Response:
    return await _found(exchange, deps, decode.container_name(exchange))


async def _found(
    exchange: Exchange, deps: BlobDependencies, container: ContainerName | None
) -> Response:
    search = decode_tags.tag_search(exchange)
    requests.included(exchange, decode_tags.FOUND_DETAILS)
    asked = FindBlobs(
        exchange.request.account,
        search,
        requests.page_limit(exchange),
        container,
        decode_tags.found_marker(exchange),
    )
    return await listed(
        deps.engine,
        exchange.read_class("search by tags"),
        tags.find_blobs,
        asked,
        partial(codec.found_rows, version=exchange.version),
        codec.found_start(
            search.written,
            requests.endpoint(exchange),
            exchange.parameter("marker"),
            exchange.parameter("maxresults"),
        ),
        codec.found_end,
        in_thread=True,
    )
