"""Uploads from URLs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeVar

from msgspec.structs import replace

from etagere.engine.interface import Refused, abort_if
from etagere.errors import Refusal
from etagere.model.appends import Appended
from etagere.model.blobs import Blob, BlobKind, PutBlob, PutBlock
from etagere.model.bodies import Body, Mapped
from etagere.model.common import ContentHeaders
from etagere.model.conditions import NO_CONDITIONS
from etagere.model.ids import new_id
from etagere.model.sources import PutBlobFromBlob, SourceBlob, SourceFile
from etagere.operations.blob import appends, blobs, page_blobs, sharing, staging
from etagere.operations.sources import PIECES_GONE
from etagere.protocol.blob import (
    decode,
    decode_pages,
    decode_sources,
    decode_tags,
    decode_tiers,
    encode,
    limits,
)
from etagere.protocol.blob.dependencies import BlobDependencies
from etagere.protocol.blob.encode import ENCRYPTED
from etagere.protocol.http.messages import Response
from etagere.protocol.rest import checksums, leases, requests, uploads
from etagere.protocol.rest.conditions import write_conditions
from etagere.protocol.rest.exchange import Exchange
from etagere.protocol.rest.metadata import read_metadata
from etagere.protocol.rest.ranges import source_range
from etagere.protocol.rest.refusals import without_source_message
from etagere.protocol.rest.responses import stamp_headers
from etagere.protocol.sources.opening import UPLOAD, LocalSource, Source
from etagere.protocol.sources.receiving import ReceivedSource, copied_source, shared_source
from etagere.rules.page_blobs import LENGTH_HEADER, check_resizable

# Sharing the bytes of a larger source takes no time, so they are read only to verify checksums.
_READ_BYTES_MAX = 4 << 20

T = TypeVar("T")

_Prechecks = tuple[Callable[[], Awaitable[None]], Callable[[], Awaitable[None]]]
"""Check the destination: without its conditions, and with them."""


async def put_block_from_url(exchange: Exchange, deps: BlobDependencies) -> Response:
    uploads.require_no_body(exchange)
    command = PutBlock(
        decode.blob_name(exchange),
        decode.block_name(exchange),
        uploads.NO_BODY,
        new_id(),
        leases.lease_id(exchange),
        exchange.permit.only_if_absent,
    )
    precheck = partial(deps.engine.read, staging.precheck_block, command)
    expected = checksums.source_checksums(exchange)
    bytes_max = uploads.bytes_max(exchange, limits.BLOCK_BYTES_MAX)
    async with (
        await deps.sources.open(exchange, UPLOAD, bytes_max=bytes_max, precheck=precheck) as source,
        copied_source(exchange, deps.store, source, expected) as received,
    ):
        await deps.engine.write(staging.put_block, replace(command, body=received.body))
    return Response(201, [*received.headers(exchange), ENCRYPTED])


async def append_block_from_url(exchange: Exchange, deps: BlobDependencies) -> Response:
    uploads.require_no_body(exchange)
    command = decode_pages.append_block(exchange, uploads.NO_BODY, new_id())
    prechecks = (
        partial(deps.engine.read, appends.precheck_append, command.unconditional()),
        partial(deps.engine.read, appends.precheck_append, command),
    )

    async def append(received: ReceivedSource) -> Appended:
        whole = replace(command, body=received.body, borrowed=received.borrowed)
        shares = sharing.append_shared_block
        return await deps.engine.write(shares if received.borrowed else appends.append_block, whole)

    received, done = await _add_from_source(
        exchange, deps, limits.APPENDED_BYTES_MAX, prechecks, append
    )
    headers = encode.appended_headers(done)
    return Response(201, [*headers, *received.headers(exchange), ENCRYPTED])


async def put_page_from_url(exchange: Exchange, deps: BlobDependencies) -> Response:
    uploads.require_no_body(exchange)
    if decode_pages.is_clear(exchange):
        # No bytes have to be read for it.
        raise requests.invalid_header("x-ms-page-write", "clear")
    start, end = decode_pages.pages(exchange)
    written = requests.required_header(exchange, "x-ms-source-range")
    asked = source_range(exchange)
    length = end - start
    if asked is None or asked.end is None or asked.end + 1 - asked.start != length:
        raise requests.invalid_header("x-ms-source-range", written)
    command = decode_pages.put_page(exchange, start, Body(b"", length, 0), new_id())
    prechecks = (
        partial(deps.engine.read, page_blobs.precheck_page, command.unconditional()),
        partial(deps.engine.read, page_blobs.precheck_page, command),
    )

    async def put(received: ReceivedSource) -> Blob:
        if received.body.length != length:
            raise Refused(Refusal("InvalidRange", {"ContentLength": received.body.length}))
        whole = replace(command, body=received.body, borrowed=received.borrowed)
        shares = sharing.put_shared_page
        return await deps.engine.write(shares if received.borrowed else page_blobs.put_page, whole)

    received, blob = await _add_from_source(
        exchange, deps, limits.PAGES_BYTES_MAX, prechecks, put, on_pages=True
    )
    return Response(201, [*encode.page_headers(blob), *received.headers(exchange), ENCRYPTED])


async def _add_from_source(
    exchange: Exchange,
    deps: BlobDependencies,
    limits: uploads.Limits,
    prechecks: _Prechecks,
    add: Callable[[ReceivedSource], Awaitable[T]],
    *,
    on_pages: bool = False,
) -> tuple[ReceivedSource, T]:
    """Adds the bytes of the source to a blob: shared if the source still has them, otherwise
    copied."""
    try:
        return await _add_source(exchange, deps, limits, prechecks, add, on_pages=on_pages)
    except Refused as refused:
        raise without_source_message(refused) from None


async def _add_source(
    exchange: Exchange,
    deps: BlobDependencies,
    limits: uploads.Limits,
    prechecks: _Prechecks,
    add: Callable[[ReceivedSource], Awaitable[T]],
    *,
    on_pages: bool,
) -> tuple[ReceivedSource, T]:
    expected = checksums.source_checksums(exchange)
    bytes_max = uploads.bytes_max(exchange, limits)
    async with await _open_source(exchange, deps, bytes_max, prechecks, expected) as source:
        is_shareable = sharing.are_page_aligned if on_pages else None
        shared = await shared_source(deps.engine, source, expected, is_shareable)
        if shared is not None:
            try:
                return shared, await add(shared)
            except Refused as refused:
                if refused.refusal.code != PIECES_GONE:
                    raise
        async with copied_source(exchange, deps.store, source, expected) as received:
            return received, await add(received)


async def _open_source(
    exchange: Exchange,
    deps: BlobDependencies,
    bytes_max: int,
    prechecks: _Prechecks,
    expected: checksums.SourceChecksums,
    *,
    reads_tags: bool = False,
) -> Source:
    """Opens a source and checks its conditions, before those of the destination, as the service
    does. The conditions of the destination are checked before any byte is read, unless there is a
    checksum, which takes precedence too."""
    unconditionally, fully = prechecks
    source = await deps.sources.open(
        exchange, UPLOAD, bytes_max=bytes_max, reads_tags=reads_tags, precheck=unconditionally
    )
    if expected != checksums.NO_CHECKSUMS:
        return source
    try:
        await fully()
    except BaseException:
        await source.close()
        raise
    return source


# Whole blobs


async def put_blob_from_url(exchange: Exchange, deps: BlobDependencies) -> Response:
    uploads.require_no_body(exchange)
    if decode.blob_kind(exchange) is not BlobKind.BLOCK:
        written = requests.required_header(exchange, "x-ms-blob-type")
        raise requests.invalid_header("x-ms-blob-type", written)
    if exchange.header(LENGTH_HEADER) is not None:
        abort_if(check_resizable(BlobKind.BLOCK))
    command = PutBlob(
        blob=decode.blob_name(exchange),
        body=uploads.NO_BODY,
        headers=decode.blob_headers(exchange),
        metadata=read_metadata(exchange),
        conditions=write_conditions(exchange),
        lease_id=leases.lease_id(exchange),
        only_if_absent=exchange.permit.only_if_absent,
        tier=decode_tiers.tier(exchange),
        tags=decode_tags.tags(exchange),
    )
    copies_tags = decode_sources.copies_tags(exchange)
    copies_properties = decode_sources.copies_properties(exchange)
    expected = checksums.source_checksums(exchange)
    prechecks = (
        partial(deps.engine.read, blobs.precheck_put, replace(command, conditions=NO_CONDITIONS)),
        partial(deps.engine.read, blobs.precheck_put, command),
    )
    bytes_max = uploads.bytes_max(exchange, limits.BLOB_BYTES_MAX)
    async with await _open_source(
        exchange, deps, bytes_max, prechecks, expected, reads_tags=copies_tags
    ) as source:
        if copies_tags and isinstance(source, LocalSource):
            command = replace(command, tags=source.tags)
        described = source.headers if copies_properties else ContentHeaders()
        command = replace(command, headers=_described(command.headers, described))
        blob, crc = await _put(deps, source, command, expected)
    headers = stamp_headers(blob.stamp)
    headers += checksums.upload_checksum_headers(exchange, crc, expected.md5)
    return Response(201, [*headers, ENCRYPTED])


async def _put(
    deps: BlobDependencies, source: Source, command: PutBlob, expected: checksums.SourceChecksums
) -> tuple[Blob, int]:
    """Puts the blob; returns it with the CRC64 of its bytes."""
    if isinstance(source, LocalSource) and source.is_whole and (found := _shareable(source)):
        if expected != checksums.NO_CHECKSUMS or source.length <= _READ_BYTES_MAX:
            crc, md5 = await checksums.checksums_of(source.chunks())
            expected.require(crc, md5)
            command = _with_md5(command, md5)
        else:
            crc = await source.crc64()
        shared = PutBlobFromBlob(command, found)
        blob = await deps.engine.write(sharing.put_blob_from_blob, shared)
        if blob is not None:
            return blob, crc
    # Sources on other servers, and replaced ones, are copied: the version that was opened.
    async with deps.store.writer(source.length, md5=True) as writer:
        body = await uploads.receive_source(source.chunks(), writer)
        md5 = writer.md5
        expected.require(body.crc, md5)
        whole = replace(_with_md5(command, md5), body=body)
        blob = await deps.engine.write(blobs.put_blob, whole)
    return blob, body.crc


def _shareable(source: LocalSource) -> SourceBlob | None:
    """Returns the source if its content can be shared. Files, page blobs and append blobs have
    interval maps, which block blobs cannot have."""
    found = source.found
    if isinstance(found, SourceFile) or isinstance(source.content, Mapped):
        return None
    return found


def _described(asked: ContentHeaders, source: ContentHeaders) -> ContentHeaders:
    """Merges headers: those of the request take precedence over those of the source."""
    return ContentHeaders(
        asked.content_type or source.content_type,
        asked.content_encoding or source.content_encoding,
        asked.content_language or source.content_language,
        asked.content_disposition or source.content_disposition,
        asked.cache_control or source.cache_control,
        asked.content_md5 or source.content_md5,
    )


def _with_md5(command: PutBlob, md5: bytes) -> PutBlob:
    return replace(command, headers=replace(command.headers, content_md5=md5))
