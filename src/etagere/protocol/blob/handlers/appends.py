"""Operations on append blobs."""

from __future__ import annotations

from msgspec.structs import replace

from etagere.bodies.store import BodyStore
from etagere.engine.interface import Engine, abort_if
from etagere.jobs.folding import Folding
from etagere.model.appends import AppendBlock, Appended
from etagere.model.bodies import Body
from etagere.model.ids import new_id
from etagere.operations.blob import appends
from etagere.protocol.blob import decode_pages, encode, limits
from etagere.protocol.blob.dependencies import BlobDependencies
from etagere.protocol.blob.encode import ENCRYPTED
from etagere.protocol.http.messages import Response
from etagere.protocol.rest import checksums, requests, uploads
from etagere.protocol.rest.exchange import Exchange
from etagere.protocol.rest.responses import stamp_headers
from etagere.rules.appends import check_etag


async def append_block(exchange: Exchange, deps: BlobDependencies) -> Response:
    length = uploads.announced_length(exchange, limits.APPENDED_BYTES_MAX)
    if not length:
        raise requests.invalid_header("Content-Length", "0")
    announced = Body(b"", length, 0)
    command = decode_pages.append_block(exchange, announced, new_id())
    abort_if(check_etag(command.conditions.if_match))
    if length > uploads.PRECHECK_BYTES_MIN:
        # A wrong checksum takes precedence over conditions that are not met.
        announces_checksum = checksums.announces_checksum(exchange)
        checked = command.unconditional() if announces_checksum else command
        await deps.engine.read(appends.precheck_append, checked)
    sent_md5 = checksums.announced_md5(exchange)
    wants_md5 = sent_md5 is not None
    async with deps.store.writer(length, md5=wants_md5) as writer:
        body = await uploads.receive(exchange, writer)
        checksums.require_intact(exchange, body, writer.md5 if wants_md5 else None)
        done = await append(deps.engine, deps.store, deps.folding, replace(command, body=body))
    headers = encode.appended_headers(done)
    headers += checksums.upload_checksum_headers(exchange, body.crc, sent_md5)
    return Response(201, [*headers, *uploads.structured_headers(exchange), ENCRYPTED])


async def append(
    engine: Engine, store: BodyStore, folding: Folding, command: AppendBlock
) -> Appended:
    """Appends a block that was received: a small one to the ledger, as long as there is room."""
    if command.body.pieces:
        return await engine.write(appends.append_block, command)
    done = await engine.write(appends.append_small_block, command)
    if done is None or done.fold_due:
        folding.request(command.blob)
    if done is not None:
        return done
    async with store.writer(command.body.length, inline=False) as writer:
        await writer.append(command.body.data)
        in_pieces = replace(command, body=await writer.seal())
        return await engine.write(appends.append_block, in_pieces)


async def append_blob_seal(exchange: Exchange, deps: BlobDependencies) -> Response:
    blob = await deps.engine.write(appends.seal_blob, decode_pages.seal_blob(exchange))
    return Response(200, stamp_headers(blob.stamp) + encode.sealed_headers(blob))
