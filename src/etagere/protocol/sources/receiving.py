"""Receiving the bytes of a source: shared with a source in this store, or copied."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import NamedTuple

from etagere.bodies.store import BodyStore
from etagere.engine.interface import Engine
from etagere.model.bodies import Body, Piece
from etagere.model.sources import FindPieces
from etagere.operations.sources import find_pieces
from etagere.protocol.rest import checksums, requests, uploads
from etagere.protocol.rest.exchange import Exchange
from etagere.protocol.rest.responses import Headers
from etagere.protocol.sources.local import LocalSource
from etagere.protocol.sources.opening import Source


class ReceivedSource(NamedTuple):
    """Bytes from a source, durable and verified."""

    body: Body
    md5: bytes | None
    borrowed: bool = False
    """Whether the source holds the pieces too."""

    def headers(self, exchange: Exchange) -> Headers:
        """Returns the headers that confirm it."""
        return checksums.upload_checksum_headers(exchange, self.body.crc, self.md5)


async def shared_source(
    engine: Engine,
    source: Source,
    expected: checksums.SourceChecksums,
    is_shareable: Callable[[tuple[Piece, ...]], bool] | None = None,
) -> ReceivedSource | None:
    """Returns the shared pieces; None if nothing can be shared. `is_shareable` refuses pieces that
    the destination cannot have."""
    if not isinstance(source, LocalSource):
        return None
    pieces = await engine.read(find_pieces, FindPieces(source.found, source.start, source.length))
    if not pieces or (is_shareable is not None and not is_shareable(pieces)):
        return None
    md5 = None
    if expected.md5 is None:
        crc = await checksums.crc64_of(source.chunks())
    else:
        crc, md5 = await checksums.checksums_of(source.chunks())
    expected.require(crc, md5)
    return ReceivedSource(Body(b"", source.length, crc, pieces=pieces), md5, borrowed=True)


@asynccontextmanager
async def copied_source(
    exchange: Exchange, store: BodyStore, source: Source, expected: checksums.SourceChecksums
) -> AsyncIterator[ReceivedSource]:
    """Copies the bytes of the source to new pieces, at least one."""
    wants_md5 = expected.md5 is not None
    async with store.writer(source.length, inline=False, md5=wants_md5) as writer:
        body = await uploads.receive_source(source.chunks(), writer)
        if not body.length:
            written = exchange.header("x-ms-source-range") or ""
            raise requests.invalid_header("x-ms-source-range", written)
        md5 = writer.md5 if wants_md5 else None
        expected.require(body.crc, md5)
        yield ReceivedSource(body, md5)
