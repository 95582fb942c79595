"""Operations on page blobs."""

from __future__ import annotations

import asyncio

from msgspec.structs import replace

from etagere.engine.interface import Refused
from etagere.errors import Refusal
from etagere.model.bodies import Body
from etagere.model.ids import new_id
from etagere.operations.blob import page_blobs
from etagere.protocol.blob import decode_pages, encode, limits
from etagere.protocol.blob.dependencies import BlobDependencies
from etagere.protocol.blob.encode import ENCRYPTED
from etagere.protocol.blob.permitted import read_as_caller
from etagere.protocol.codecs import page_lists
from etagere.protocol.http.messages import Response
from etagere.protocol.rest import checksums, requests, uploads
from etagere.protocol.rest.exchange import Exchange
from etagere.protocol.rest.responses import XML, stamp_headers

# A longer list is encoded in a thread, so that other requests can run.
_LONG_LIST = 1_000


async def put_page(exchange: Exchange, deps: BlobDependencies) -> Response:
    if decode_pages.is_clear(exchange):
        return await _clear_pages(exchange, deps)
    length = uploads.announced_length(exchange, limits.PAGES_BYTES_MAX)
    start, end = decode_pages.pages(exchange)
    if length != end - start:
        raise requests.invalid_header("Content-Length", str(length))
    command = decode_pages.put_page(exchange, start, Body(b"", length, 0), new_id())
    if length > uploads.PRECHECK_BYTES_MIN:
        # A wrong checksum takes precedence over conditions that are not met.
        announces_checksum = checksums.announces_checksum(exchange)
        checked = command.unconditional() if announces_checksum else command
        await deps.engine.read(page_blobs.precheck_page, checked)
    sent_md5 = checksums.announced_md5(exchange)
    wants_md5 = sent_md5 is not None
    async with deps.store.writer(length, inline=False, md5=wants_md5) as writer:
        body = await uploads.receive(exchange, writer)
        checksums.require_intact(exchange, body, writer.md5 if wants_md5 else None)
        blob = await deps.engine.write(page_blobs.put_page, replace(command, body=body))
    headers = encode.page_headers(blob)
    headers += checksums.upload_checksum_headers(exchange, body.crc, sent_md5)
    return Response(201, [*headers, *uploads.structured_headers(exchange), ENCRYPTED])


async def _clear_pages(exchange: Exchange, deps: BlobDependencies) -> Response:
    if exchange.http.body.length:
        raise requests.invalid_header("Content-Length", str(exchange.http.body.length))
    if exchange.header("content-md5") is not None:
        # There are no bytes for the checksum.
        raise Refused(Refusal("UnsupportedHeader", {"HeaderName": "Content-MD5"}))
    command = decode_pages.clear_pages(exchange, new_id())
    blob = await deps.engine.write(page_blobs.clear_pages, command)
    return Response(201, encode.page_headers(blob))


async def get_page_ranges(exchange: Exchange, deps: BlobDependencies) -> Response:
    command = decode_pages.get_page_ranges(exchange)
    shown = await read_as_caller(
        exchange,
        deps.engine,
        page_blobs.get_page_ranges,
        command,
        command.ask.blob.container,
        in_thread=True,
    )
    in_parts = exchange.version >= decode_pages.PAGE_RANGES_IN_PARTS_SINCE
    if shown.following is not None and not in_parts:
        # Clients that do not support markers would take these for all ranges.
        raise Refused(Refusal("OutOfRangeInput", {"Maximum": command.limit}))
    headers = [XML, *stamp_headers(shown.blob.stamp), encode.length_header(shown.blob)]
    in_parts = in_parts and decode_pages.asks_for_part(exchange)
    if len(shown.ranges) > _LONG_LIST:
        body = await asyncio.to_thread(page_lists.encode, shown, in_parts=in_parts)
    else:
        body = page_lists.encode(shown, in_parts=in_parts)
    return Response(200, headers, body)
