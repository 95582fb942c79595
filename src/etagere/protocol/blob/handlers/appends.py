"""Operations on append blobs."""

from __future__ import annotations

from msgspec.structs import replace

from etagere.engine.interface import abort_if
from etagere.model.appends import AppendBlock, Appended
from etagere.model.bodies import Body
from etagere.model.ids import new_id
from etagere.operations.blob import appends
from etagere.protocol import requests
from etagere.protocol.blob import decode, decode_pages, encode, uploads
from etagere.protocol.blob.handlers.base import ENCRYPTED, Handling
from etagere.protocol.exchange import Exchange
from etagere.protocol.http.messages import Response
from etagere.rules.appends import check_etag


class AppendHandlers(Handling):
    """Blocks that are added at once, until no more may be."""

    async def append_block(self, exchange: Exchange) -> Response:
        length = uploads.announced_length(exchange, uploads.APPENDED_BYTES_MAX)
        if not length:
            raise requests.invalid_header("Content-Length", "0")
        announced = Body(b"", length, 0)
        command = decode_pages.append_block(exchange, announced, new_id())
        abort_if(check_etag(command.conditions.if_match))
        if length > uploads.FORESEEN_BYTES_MIN:
            await self._engine.read(appends.foresee_append, command)
        sent_md5 = decode.sent_md5(exchange)
        wants_md5 = sent_md5 is not None
        async with self._store.writer(length, md5=wants_md5) as writer:
            body = await uploads.receive(exchange, writer)
            uploads.require_intact(exchange, body, writer.md5 if wants_md5 else None)
            done = await self._append(replace(command, body=body))
        headers = encode.appended_headers(done)
        headers.append(uploads.checksum_header(body.crc, sent_md5))
        return Response(201, [*headers, *uploads.structured_headers(exchange), ENCRYPTED])

    async def _append(self, command: AppendBlock) -> Appended:
        if command.body.pieces:
            return await self._engine.write(appends.append_block, command)
        done = await self._engine.write(appends.append_small_block, command)
        if done is None or done.is_loose:
            self._folding.note(command.blob)
        if done is not None:
            return done
        async with self._store.writer(command.body.length, inline=False) as writer:
            await writer.append(command.body.data)
            in_pieces = replace(command, body=await writer.seal())
            return await self._engine.write(appends.append_block, in_pieces)

    async def append_blob_seal(self, exchange: Exchange) -> Response:
        blob = await self._engine.write(appends.seal_blob, decode_pages.seal_blob(exchange))
        return Response(200, encode.stamp_headers(blob.stamp) + encode.sealed_headers(blob))
