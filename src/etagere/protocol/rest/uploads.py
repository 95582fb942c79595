"""The bodies of uploads: limits and receiving."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final

from etagere.bodies.store import BodyWriter
from etagere.engine.interface import Refused
from etagere.errors import Refusal
from etagere.model.bodies import Body
from etagere.protocol.codecs import structured_messages
from etagere.protocol.rest.exchange import Exchange
from etagere.protocol.rest.requests import NUMBER, invalid_header, required_header
from etagere.protocol.rest.responses import Headers
from etagere.protocol.time_slices import TimeSlice

NO_BODY: Final = Body(b"", 0, 0)
"""The body in a command until the real one has been received."""
PRECHECK_BYTES_MIN: Final = 256 << 10
"""Longer bodies are received only after a check that the write would be accepted now."""
Limits = tuple[tuple[str, int], ...]
"""The maximum length of a body in bytes, by first version, newest first."""


def announced_length(exchange: Exchange, limits: Limits) -> int:
    """Returns the length of the content, which a request must have."""
    length = exchange.http.body.length
    if length is None:
        raise Refused(Refusal("MissingContentLengthHeader"))
    structured_length = structured_content_length(exchange, length)
    if structured_length is not None:
        length = structured_length
    bytes_max = next(most for since, most in limits if exchange.version >= since)
    if length > bytes_max:
        raise Refused(Refusal("RequestBodyTooLarge", {"MaxLimit": bytes_max}))
    return length


def bytes_max(exchange: Exchange, limits: Limits) -> int:
    """Returns the maximum length of a content."""
    return next(most for since, most in limits if exchange.version >= since)


def require_no_body(exchange: Exchange) -> None:
    """Refuses a body: the bytes come from a source."""
    length = exchange.http.body.length
    if length is None:
        raise Refused(Refusal("MissingContentLengthHeader"))
    if length:
        raise invalid_header("Content-Length", str(length))


async def receive(exchange: Exchange, writer: BodyWriter) -> Body:
    """Receives the content of a request: its body, or the content of a structured message."""
    body = exchange.http.body
    content_length = structured_content_length(exchange, body.length or 0)
    if content_length is None:
        await writer.append_body(body)
        return await writer.seal()
    decoder = structured_messages.Decoder(body.length or 0, content_length)
    time_slice = TimeSlice()
    async for chunk in body:
        for content in decoder.feed(chunk):
            if content:
                await writer.append(content)
            # Segments may be tiny, and thousands of them in a chunk.
            await time_slice.yield_if_over()
        time_slice.restart()
    decoder.finish()
    return await writer.seal()


async def receive_source(chunks: AsyncIterator[bytes], writer: BodyWriter) -> Body:
    async for chunk in chunks:
        await writer.append(chunk)
    return await writer.seal()


# Structured messages


STRUCTURED_BODY: Headers = [(b"x-ms-structured-body", structured_messages.KIND.encode())]


def is_structured(exchange: Exchange) -> bool:
    """Returns whether the body of the request, or the requested one, is a structured message."""
    written = exchange.header("x-ms-structured-body")
    if written is None:
        return False
    if not structured_messages.is_known_kind(written):
        raise invalid_header("x-ms-structured-body", written)
    return True


def structured_content_length(exchange: Exchange, body_length: int) -> int | None:
    """Returns the length of the content of a structured message, which has to fit the length of the
    message, or None if the body is the content."""
    name = "x-ms-structured-content-length"
    if not is_structured(exchange):
        if exchange.header(name) is not None:
            # Otherwise the framing of the message would be stored as content.
            required_header(exchange, "x-ms-structured-body")
        return None
    written = required_header(exchange, name)
    fits = NUMBER.fullmatch(written) is not None
    if not fits or structured_messages.segment_count(body_length, int(written)) is None:
        raise invalid_header(name, written)
    return int(written)


def structured_headers(exchange: Exchange) -> Headers:
    """Returns the header that confirms a structured message; clients require it."""
    return STRUCTURED_BODY if is_structured(exchange) else []


def structured_response_headers(content_length: int) -> Headers:
    """Returns the headers of a response whose body is a structured message."""
    return [*STRUCTURED_BODY, (b"x-ms-structured-content-length", b"%d" % content_length)]
