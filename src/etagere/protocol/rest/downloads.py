"""Downloads: whole objects and ranges of them, their checksums, and how their bytes are sent."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from typing import Final

import msgspec

from etagere.bodies.store import BodyReader, BodyStore, Plan
from etagere.config import KIB
from etagere.protocol.codecs import structured_messages
from etagere.protocol.http.messages import Response
from etagere.protocol.http.ranges import Range
from etagere.protocol.rest import checksums, uploads
from etagere.protocol.rest.exchange import Exchange
from etagere.protocol.rest.ranges import byte_range
from etagere.protocol.rest.responses import Headers
from etagere.protocol.time_slices import TimeSlice

_READ_BYTES_MAX: Final = 64 * KIB
"""Shorter bodies are read completely, verified, and sent together with the head."""


class FoundBytes(msgspec.Struct, frozen=True):
    """The bytes that a download sends."""

    plan: Plan
    start: int
    length: int
    total: int
    """The length of the whole object."""
    is_range: bool


class StoredMd5(msgspec.Struct, frozen=True, gc=False):
    """The MD5 of a whole object, which is a property that clients may have set."""

    value: bytes | None
    name_in_ranges: bytes
    """The header that contains it where `Content-MD5` is that of a range."""


def requested_range(exchange: Exchange) -> Range | None:
    """Returns the range that a download asks for; None for everything. Refuses a request for
    checksums of a range that is missing, or for an unknown encoding of the body."""
    asked = byte_range(exchange)
    uploads.is_structured(exchange)
    if asked is None:
        checksums.refuse_range_checksums(exchange)
    return asked


async def with_reader(
    store: BodyStore, respond: Callable[[BodyReader], Awaitable[Response]]
) -> Response:
    """Returns a response whose body is read while it is sent."""
    reader = store.open_reader()
    try:
        response = await respond(reader)
    except BaseException:
        reader.close()
        raise
    # The plan stays readable until the last byte was sent.
    response.finished = reader.close
    return response


async def respond(
    exchange: Exchange, reader: BodyReader, found: FoundBytes, headers: Headers, md5: StoredMd5
) -> Response:
    """Returns the response with the found bytes. Headers about them are added to those of the
    object."""
    plan, start, length, is_range = found.plan, found.start, found.length, found.is_range
    reader.limit_to(plan)
    if length <= _READ_BYTES_MAX:
        plan = await reader.read(plan)
    if md5.value is not None:
        name = md5.name_in_ranges if is_range else b"Content-MD5"
        headers.append((name, checksums.digest_text(md5.value)))
    if is_range:
        last = start + length - 1
        headers.append((b"Content-Range", b"bytes %d-%d/%d" % (start, last, found.total)))
        wanted = checksums.wanted_checksums(exchange, length)
        if wanted:
            plan = await _joined(reader.chunks(plan))
            headers += checksums.checksum_headers(plan, wanted)
    status = 206 if is_range else 200
    if uploads.is_structured(exchange):
        headers += uploads.structured_response_headers(length)
        return await _structured(status, headers, plan, length, reader)
    if isinstance(plan, bytes):
        return Response(status, headers, plan, length)
    # Over TLS, or with bytes from the ledger, the body passes through this process and is verified.
    # Otherwise the kernel sends it from the page cache.
    parts = None if exchange.http.secure else reader.file_parts(plan)
    if parts is not None:
        return Response(status, headers, parts, length)
    chunks = await _begun(reader.chunks(plan, final=True))
    return Response(status, headers, chunks, length, buffer_bytes=reader.buffer_bytes)


async def _structured(
    status: int, headers: Headers, plan: Plan, length: int, reader: BodyReader
) -> Response:
    if isinstance(plan, bytes):
        return Response(status, headers, structured_messages.encoded(plan))
    encoder = structured_messages.Encoder(length)
    body = structured_messages.stream(encoder, await _begun(reader.chunks(plan, final=True)))
    return Response(status, headers, body, encoder.length, buffer_bytes=reader.buffer_bytes)


async def _begun(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Returns chunks of which the first one has been read: its failure can still be answered."""
    return _chained(await anext(chunks, b""), chunks)


async def _chained(first: bytes, rest: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    try:
        yield first
        del first  # it need not stay in memory while the others are sent
        async for chunk in rest:
            yield chunk
    finally:
        if isinstance(rest, AsyncGenerator):
            await rest.aclose()


async def _joined(chunks: AsyncIterator[bytes]) -> bytes:
    """Joins chunks in time slices, since an object may have very many small pieces."""
    time_slice, joined = TimeSlice(), []
    async for chunk in chunks:
        joined.append(chunk)
        await time_slice.yield_if_over()
    return b"".join(joined)
