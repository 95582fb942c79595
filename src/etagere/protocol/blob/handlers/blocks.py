"""Operations on blocks and lists of them."""

from __future__ import annotations

import asyncio

from msgspec.structs import replace

from etagere.engine.interface import unwrap
from etagere.model.blobs import BlockListResult, GetBlockList, PutBlock, PutBlockList
from etagere.model.ids import new_id
from etagere.operations.blob import block_lists, staging
from etagere.protocol.blob import decode, decode_tags, decode_tiers, encode, limits
from etagere.protocol.blob.block_listing import list_blocks
from etagere.protocol.blob.dependencies import BlobDependencies
from etagere.protocol.blob.drafting import put_list
from etagere.protocol.blob.encode import ENCRYPTED
from etagere.protocol.blob.permitted import read_as_caller
from etagere.protocol.codecs import block_lists as codec
from etagere.protocol.http.messages import Response
from etagere.protocol.rest import checksums, leases, requests, uploads
from etagere.protocol.rest.conditions import write_conditions
from etagere.protocol.rest.exchange import Exchange
from etagere.protocol.rest.metadata import read_metadata
from etagere.protocol.rest.responses import XML, stamp_headers
from etagere.protocol.time_slices import run_in_slices

_LONG_DOCUMENT_BYTES = 1 << 20


async def put_block(exchange: Exchange, deps: BlobDependencies) -> Response:
    length = uploads.announced_length(exchange, limits.BLOCK_BYTES_MAX)
    if not length:
        raise requests.invalid_header("Content-Length", "0")
    command = PutBlock(
        decode.blob_name(exchange),
        decode.block_name(exchange),
        uploads.NO_BODY,
        new_id(),
        leases.lease_id(exchange),
        exchange.permit.only_if_absent,
    )
    if length > uploads.PRECHECK_BYTES_MIN:
        await deps.engine.read(staging.precheck_block, command)
    sent_md5 = checksums.announced_md5(exchange)
    wants_md5 = sent_md5 is not None
    async with deps.store.writer(length, inline=False, md5=wants_md5) as writer:
        body = await uploads.receive(exchange, writer)
        checksums.require_intact(exchange, body, writer.md5 if wants_md5 else None)
        await deps.engine.write(staging.put_block, replace(command, body=body))
    headers = checksums.upload_checksum_headers(exchange, body.crc, sent_md5)
    return Response(201, [*headers, *uploads.structured_headers(exchange), ENCRYPTED])


async def put_block_list(exchange: Exchange, deps: BlobDependencies) -> Response:
    document = await exchange.http.body.read(codec.BYTES_MAX)
    checksum = await _checked(exchange, document)
    blocks = unwrap(await run_in_slices(codec.decode(document)))
    command = PutBlockList(
        decode.blob_name(exchange),
        new_id(),
        blocks,
        decode.blob_headers(exchange, default_type=decode.DEFAULT_TYPE),
        read_metadata(exchange),
        write_conditions(exchange),
        leases.lease_id(exchange),
        exchange.permit.only_if_absent,
        decode_tiers.tier(exchange),
        decode_tags.tags(exchange),
    )
    blob = await put_list(deps.engine, command)
    return Response(201, [*stamp_headers(blob.stamp), checksum, ENCRYPTED])


async def get_block_list(exchange: Exchange, deps: BlobDependencies) -> Response:
    command = decode.get_block_list(exchange)
    shown = await _listed_blocks(exchange, deps, command)
    headers = [XML]
    if shown.blob is not None:
        headers += stamp_headers(shown.blob.stamp)
        headers.append(encode.length_header(shown.blob))
    return Response(200, headers, await run_in_slices(codec.encode(shown, command)))


async def _listed_blocks(
    exchange: Exchange, deps: BlobDependencies, command: GetBlockList
) -> BlockListResult:
    """Returns the blocks in steps or, if they change meanwhile, from one snapshot."""
    container = command.blob.container
    opened = await read_as_caller(
        exchange, deps.engine, block_lists.open_block_list, command, container
    )
    shown = await list_blocks(deps.engine, opened)
    if shown is not None:
        return shown
    return await read_as_caller(
        exchange, deps.engine, block_lists.get_block_list, command, container, in_thread=True
    )


async def _checked(exchange: Exchange, document: bytes) -> tuple[bytes, bytes]:
    """Computes checksums in a thread, since they do not need the interpreter."""
    if len(document) > _LONG_DOCUMENT_BYTES:
        return await asyncio.to_thread(checksums.checked_document, exchange, document)
    return checksums.checked_document(exchange, document)
