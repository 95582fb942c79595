"""Operations on blocks and lists of them."""

from __future__ import annotations

import asyncio

from msgspec.structs import replace

from etagere.engine.interface import Refused
from etagere.errors import Refusal
from etagere.model.blobs import GetBlockList, PutBlock, PutBlockList, ShownBlockList
from etagere.model.ids import new_id
from etagere.operations.blob import block_lists, staging
from etagere.protocol import requests
from etagere.protocol.answers import XML
from etagere.protocol.blob import decode, decode_tags, decode_tiers, encode, uploads
from etagere.protocol.blob.block_listing import list_blocks
from etagere.protocol.blob.drafting import put_drafted
from etagere.protocol.blob.handlers.base import ENCRYPTED, Handling
from etagere.protocol.codecs import block_lists as codec
from etagere.protocol.exchange import Exchange
from etagere.protocol.http.messages import Response
from etagere.protocol.turns import in_turns

# Longer lists are drafted: in one step they would keep others waiting for too long.
_BLOCKS_IN_ONE_STEP = 1_000
_LONG_DOCUMENT_BYTES = 1 << 20


class BlockHandlers(Handling):
    """Blocks: staged, made a blob of, and listed."""

    async def put_block(self, exchange: Exchange) -> Response:
        length = uploads.announced_length(exchange, uploads.BLOCK_BYTES_MAX)
        if not length:
            raise requests.invalid_header("Content-Length", "0")
        command = PutBlock(
            decode.blob_name(exchange),
            decode.block_name(exchange),
            uploads.NO_BODY,
            new_id(),
            decode.lease_id(exchange),
            exchange.permit.only_if_absent,
        )
        if length > uploads.FORESEEN_BYTES_MIN:
            await self._engine.read(staging.foresee_block, command)
        sent_md5 = decode.sent_md5(exchange)
        wants_md5 = sent_md5 is not None
        async with self._store.writer(length, inline=False, md5=wants_md5) as writer:
            body = await uploads.receive(exchange, writer)
            uploads.require_intact(exchange, body, writer.md5 if wants_md5 else None)
            await self._engine.write(staging.put_block, replace(command, body=body))
        checksum = uploads.checksum_header(body.crc, sent_md5)
        return Response(201, [checksum, *uploads.structured_headers(exchange), ENCRYPTED])

    async def put_block_list(self, exchange: Exchange) -> Response:
        document = await exchange.http.body.read(codec.BYTES_MAX)
        checksum = await _checked(exchange, document)
        blocks = await in_turns(codec.decode(document))
        if isinstance(blocks, Refusal):
            raise Refused(blocks)
        command = PutBlockList(
            decode.blob_name(exchange),
            new_id(),
            blocks,
            decode.blob_headers(exchange, default_type=decode.DEFAULT_TYPE),
            requests.metadata(exchange),
            decode.write_conditions(exchange),
            decode.lease_id(exchange),
            exchange.permit.only_if_absent,
            decode_tiers.tier(exchange),
            decode_tags.tags(exchange),
        )
        blob = None
        if len(blocks) > _BLOCKS_IN_ONE_STEP:
            blob = await put_drafted(self._engine, command)
        if blob is None:
            blob = await self._engine.write(block_lists.put_block_list, command)
        return Response(201, [*encode.stamp_headers(blob.stamp), checksum, ENCRYPTED])

    async def get_block_list(self, exchange: Exchange) -> Response:
        command = decode.get_block_list(exchange)
        shown = await self._listed_blocks(exchange, command)
        headers = [XML]
        if shown.blob is not None:
            headers += encode.stamp_headers(shown.blob.stamp)
            headers.append(encode.length_header(shown.blob))
        return Response(200, headers, await in_turns(codec.encode(shown, command)))

    async def _listed_blocks(self, exchange: Exchange, command: GetBlockList) -> ShownBlockList:
        """Bit by bit, unless somebody changes meanwhile what is to be seen."""
        container = command.blob.container
        opened = await self._read(exchange, block_lists.open_block_list, command, container)
        shown = await list_blocks(self._engine, opened)
        if shown is not None:
            return shown
        return await self._read(
            exchange, block_lists.get_block_list, command, container, aside=True
        )


async def _checked(exchange: Exchange, document: bytes) -> tuple[bytes, bytes]:
    """Checksums are what a thread is good for: the interpreter is not needed for them."""
    if len(document) > _LONG_DOCUMENT_BYTES:
        return await asyncio.to_thread(uploads.checked_document, exchange, document)
    return uploads.checked_document(exchange, document)
