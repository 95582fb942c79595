"""Uploads whose bytes are read from elsewhere."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import NamedTuple, TypeVar

from msgspec.structs import replace

from etagere.engine.interface import Refused, abort_if
from etagere.errors import Refusal
from etagere.model.appends import Appended
from etagere.model.blobs import Blob, BlobHeaders, BlobKind, PutBlob, PutBlock
from etagere.model.bodies import Body, Mapped
from etagere.model.conditions import NO_CONDITIONS
from etagere.model.ids import new_id
from etagere.model.page_blobs import SequenceConditions
from etagere.model.sources import FindPieces, PutBlobFromBlob
from etagere.operations.blob import appends, blobs, page_blobs, sharing, staging
from etagere.protocol import requests
from etagere.protocol.blob import (
    decode,
    decode_pages,
    decode_sources,
    decode_tags,
    decode_tiers,
    encode,
    uploads,
)
from etagere.protocol.blob.handlers.base import ENCRYPTED, Handling
from etagere.protocol.blob.sources import Here, Source
from etagere.protocol.exchange import Exchange
from etagere.protocol.http.messages import Response
from etagere.protocol.sources.refusals import reads_source, reads_source_into_blob
from etagere.rules.page_blobs import LENGTH_HEADER, check_resizable

# To share the bytes of a larger source takes no time, so they are read only if it is to be checked.
_READ_BYTES_MAX = 4 << 20

T = TypeVar("T")

_Foresee = tuple[Callable[[], Awaitable[None]], Callable[[], Awaitable[None]]]
"""Refuse what the destination would refuse: whatever its conditions say, and for all it says."""


class _Received(NamedTuple):
    """What came from a source, durable and as it should be."""

    body: Body
    md5: bytes | None
    borrowed: bool = False
    """Its source holds the pieces too."""

    def checksum(self) -> tuple[bytes, bytes]:
        return uploads.checksum_header(self.body.crc, self.md5)


class FromUrlHandlers(Handling):
    """Uploads whose bytes are read from elsewhere."""

    @reads_source
    async def put_block_from_url(self, exchange: Exchange) -> Response:
        uploads.require_no_body(exchange)
        command = PutBlock(
            decode.blob_name(exchange),
            decode.block_name(exchange),
            uploads.NO_BODY,
            new_id(),
            decode.lease_id(exchange),
            exchange.permit.only_if_absent,
        )
        foresee = partial(self._engine.read, staging.foresee_block, command)
        told = uploads.told_of_source(exchange)
        bytes_max = uploads.bytes_max(exchange, uploads.BLOCK_BYTES_MAX)
        async with (
            await self._sources.open(exchange, bytes_max=bytes_max, foresee=foresee) as source,
            self._copied(exchange, source, told) as received,
        ):
            await self._engine.write(staging.put_block, replace(command, body=received.body))
        return Response(201, [received.checksum(), ENCRYPTED])

    @reads_source_into_blob
    async def append_block_from_url(self, exchange: Exchange) -> Response:
        uploads.require_no_body(exchange)
        command = decode_pages.append_block(exchange, uploads.NO_BODY, new_id())
        unconditional = replace(command, conditions=NO_CONDITIONS, position=None, length_max=None)
        foresee = (
            partial(self._engine.read, appends.foresee_append, unconditional),
            partial(self._engine.read, appends.foresee_append, command),
        )

        async def append(received: _Received) -> Appended:
            whole = replace(command, body=received.body, borrowed=received.borrowed)
            shares = sharing.append_shared_block
            return await self._engine.write(
                shares if received.borrowed else appends.append_block, whole
            )

        received, done = await self._laid(exchange, uploads.APPENDED_BYTES_MAX, foresee, append)
        headers = encode.appended_headers(done)
        return Response(201, [*headers, received.checksum(), ENCRYPTED])

    @reads_source_into_blob
    async def put_page_from_url(self, exchange: Exchange) -> Response:
        uploads.require_no_body(exchange)
        if decode_pages.is_clear(exchange):
            # There is nothing to read for it.
            raise requests.invalid_header("x-ms-page-write", "clear")
        start, end = decode_pages.pages(exchange)
        written = requests.required_header(exchange, "x-ms-source-range")
        asked = decode_sources.source_range(exchange)
        length = end - start
        if asked is None or asked.end is None or asked.end + 1 - asked.start != length:
            raise requests.invalid_header("x-ms-source-range", written)
        command = decode_pages.put_page(exchange, start, Body(b"", length, 0), new_id())
        unconditional = replace(command, conditions=NO_CONDITIONS, sequence=SequenceConditions())
        foresee = (
            partial(self._engine.read, page_blobs.foresee_page, unconditional),
            partial(self._engine.read, page_blobs.foresee_page, command),
        )

        async def put(received: _Received) -> Blob:
            if received.body.length != length:
                raise Refused(Refusal("InvalidRange", {"ContentLength": received.body.length}))
            whole = replace(command, body=received.body, borrowed=received.borrowed)
            shares = sharing.put_shared_page
            return await self._engine.write(
                shares if received.borrowed else page_blobs.put_page, whole
            )

        received, blob = await self._laid(
            exchange, uploads.PAGES_BYTES_MAX, foresee, put, on_pages=True
        )
        return Response(201, [*encode.page_headers(blob), received.checksum(), ENCRYPTED])

    async def _laid(
        self,
        exchange: Exchange,
        limits: uploads.Limits,
        foresee: _Foresee,
        lay: Callable[[_Received], Awaitable[T]],
        *,
        on_pages: bool = False,
    ) -> tuple[_Received, T]:
        """The bytes of the source, shared with it if they are still there by then, else copied."""
        told = uploads.told_of_source(exchange)
        bytes_max = uploads.bytes_max(exchange, limits)
        async with await self._open_source(exchange, bytes_max, foresee, told) as source:
            shared = await self._shared(source, told, on_pages)
            if shared is not None:
                try:
                    return shared, await lay(shared)
                except Refused as refused:
                    if refused.refusal.code != sharing.GONE:
                        raise
            async with self._copied(exchange, source, told) as received:
                return received, await lay(received)

    async def _open_source(
        self,
        exchange: Exchange,
        bytes_max: int,
        foresee: _Foresee,
        told: uploads.ToldChecksums,
        *,
        tags_too: bool = False,
    ) -> Source:
        """A source that is as the request wants it, which the service looks at before the
        destination's conditions. Those are looked at before any byte is read, unless the bytes
        are to be compared with a checksum: that comes first too."""
        unconditionally, fully = foresee
        source = await self._sources.open(
            exchange, bytes_max=bytes_max, tags_too=tags_too, foresee=unconditionally
        )
        if told != uploads.NOTHING_TOLD:
            return source
        try:
            await fully()
        except BaseException:
            await source.close()
            raise
        return source

    async def _shared(
        self, source: Source, told: uploads.ToldChecksums, on_pages: bool
    ) -> _Received | None:
        """None if there is nothing to be shared."""
        if not isinstance(source, Here):
            return None
        ask = FindPieces(source.found, source.start, source.length)
        pieces = await self._engine.read(sharing.find_pieces, ask)
        if not pieces or (on_pages and not sharing.lie_on_pages(pieces)):
            return None
        md5 = None
        if told.md5 is None:
            crc = await uploads.crc64_of(source.chunks())
        else:
            crc, md5 = await uploads.checksums_of(source.chunks())
        told.require(crc, md5)
        return _Received(Body(b"", source.length, crc, pieces=pieces), md5, borrowed=True)

    @asynccontextmanager
    async def _copied(
        self, exchange: Exchange, source: Source, told: uploads.ToldChecksums
    ) -> AsyncIterator[_Received]:
        """The bytes of the source in pieces of their own; at least one."""
        wants_md5 = told.md5 is not None
        async with self._store.writer(source.length, inline=False, md5=wants_md5) as writer:
            body = await uploads.receive_source(source.chunks(), writer)
            if not body.length:
                written = exchange.header("x-ms-source-range") or ""
                raise requests.invalid_header("x-ms-source-range", written)
            md5 = writer.md5 if wants_md5 else None
            told.require(body.crc, md5)
            yield _Received(body, md5)

    # Whole blobs

    @reads_source
    async def put_blob_from_url(self, exchange: Exchange) -> Response:
        uploads.require_no_body(exchange)
        if decode.blob_kind(exchange) is not BlobKind.BLOCK:
            written = requests.required_header(exchange, "x-ms-blob-type")
            raise requests.invalid_header("x-ms-blob-type", written)
        if exchange.header(LENGTH_HEADER) is not None:
            abort_if(check_resizable(BlobKind.BLOCK))
        command = PutBlob(
            decode.blob_name(exchange),
            uploads.NO_BODY,
            decode.blob_headers(exchange),
            requests.metadata(exchange),
            decode.write_conditions(exchange),
            decode.lease_id(exchange),
            exchange.permit.only_if_absent,
            decode_tiers.tier(exchange),
            decode_tags.tags(exchange),
        )
        copies_tags = decode_sources.copies_tags(exchange)
        copies_properties = decode_sources.copies_properties(exchange)
        told = uploads.told_of_source(exchange)
        foresee = (
            partial(
                self._engine.read, blobs.foresee_put, replace(command, conditions=NO_CONDITIONS)
            ),
            partial(self._engine.read, blobs.foresee_put, command),
        )
        bytes_max = uploads.bytes_max(exchange, uploads.BLOB_BYTES_MAX)
        async with await self._open_source(
            exchange, bytes_max, foresee, told, tags_too=copies_tags
        ) as source:
            if copies_tags and isinstance(source, Here):
                command = replace(command, tags=source.blob.tags)
            described = source.headers if copies_properties else BlobHeaders()
            command = replace(command, headers=_described(command.headers, described))
            blob, crc = await self._put(source, command, told)
        headers = encode.stamp_headers(blob.stamp)
        if crc is not None:
            headers.append(uploads.checksum_header(crc, told.md5))
        return Response(201, [*headers, ENCRYPTED])

    async def _put(
        self, source: Source, command: PutBlob, told: uploads.ToldChecksums
    ) -> tuple[Blob, int | None]:
        """The blob, and the CRC64 of its bytes; None if they were shared without being read, and
        nobody knows it."""
        if isinstance(source, Here) and source.is_whole and _is_shareable(source):
            if told != uploads.NOTHING_TOLD or source.length <= _READ_BYTES_MAX:
                known, md5 = await uploads.checksums_of(source.chunks())
                told.require(known, md5)
                command = _with_md5(command, md5)
                crc: int | None = known
            else:
                crc = uploads.known_crc(source.blob.content)
            shared = PutBlobFromBlob(command, source.found)
            blob = await self._engine.write(sharing.put_blob_from_blob, shared)
            if blob is not None:
                return blob, crc
        # What is elsewhere, or was replaced meanwhile, is copied: the version that was opened.
        async with self._store.writer(source.length, md5=True) as writer:
            body = await uploads.receive_source(source.chunks(), writer)
            md5 = writer.md5
            told.require(body.crc, md5)
            whole = replace(_with_md5(command, md5), body=body)
            blob = await self._engine.write(blobs.put_blob, whole)
        return blob, body.crc


def _is_shareable(source: Here) -> bool:
    """Not the bytes of pages and appended blocks: a block blob has none in a map."""
    return not isinstance(source.blob.content, Mapped)


def _described(asked: BlobHeaders, source: BlobHeaders) -> BlobHeaders:
    """What the request says counts before what the source says."""
    return BlobHeaders(
        asked.content_type or source.content_type,
        asked.content_encoding or source.content_encoding,
        asked.content_language or source.content_language,
        asked.content_disposition or source.content_disposition,
        asked.cache_control or source.cache_control,
        asked.content_md5 or source.content_md5,
    )


def _with_md5(command: PutBlob, md5: bytes) -> PutBlob:
    return replace(command, headers=replace(command.headers, content_md5=md5))
