"""Writing a response: its head, and its body in the form that costs least."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import cast

from etagere.protocol.http.messages import Request, Response
from etagere.protocol.http.output import Output, read_files
from etagere.protocol.http.response_heads import head

_NO_BODY = frozenset({204, 304})
# Files up to this length are read and sent together with the head, which costs half of what
# sendfile does.
_READ_BYTES_MAX = 64 * 1024
# A body up to this length is copied behind its head: cheaper than a second system call.
_JOINED_BYTES_MAX = 64 * 1024


def read_short_files(response: Response) -> None:
    """Reads the files of a short response. Raises `OSError` if that fails, before anything has been
    sent."""
    body = response.body
    if not isinstance(body, bytes | AsyncIterator):
        length = sum([part.length for part in body]) if isinstance(body, list) else response.length
        if cast("int", length) <= _READ_BYTES_MAX:
            response.body = read_files(body)


async def send_response(
    output: Output, request: Request, response: Response, *, is_last: bool
) -> bool:
    """Sends a response. `is_last` announces that the connection ends with it; returns whether it
    has to, which is also how a client of HTTP/1.0 learns where a stream ends."""
    body = response.body
    if isinstance(body, bytes):
        length: int | None = len(body)
    elif isinstance(body, list):
        length = sum([part.length for part in body])
    else:
        length = response.length
    if request.method == "HEAD" or response.status in _NO_BODY:
        if request.method == "HEAD" and response.length is not None:
            length = response.length
        is_error = response.status >= 400
        chunked = is_error and request.minor_version > 0
        if response.status in _NO_BODY or is_error:
            # Some clients would take the length of an error for that of the resource.
            length = None
        framing = _framing(request, length, chunked=chunked, is_last=is_last)
        output.write(head(response, framing))
        await output.drained()
        return is_last
    chunked = length is None and request.minor_version > 0
    is_last = is_last or (length is None and not chunked)
    start = head(response, _framing(request, length, chunked=chunked, is_last=is_last))
    if isinstance(body, bytes):
        if len(body) <= _JOINED_BYTES_MAX:
            output.write(start + body)
        else:
            output.write(start)
            output.write(body)
        await output.drained()
        return is_last
    output.write(start)
    if not isinstance(body, AsyncIterator):
        await output.send_files(body)
    elif chunked:
        await output.send_chunked(body)
    else:
        await output.send_stream(body, length)
    return is_last


def _framing(request: Request, length: int | None, *, chunked: bool, is_last: bool) -> bytes:
    """Returns the header lines that say where the body ends, and whether the connection does."""
    lines = b""
    if chunked:
        lines = b"Transfer-Encoding: chunked\r\n"
    elif length is not None:
        lines = b"Content-Length: %d\r\n" % length
    if is_last:
        return lines + b"Connection: close\r\n"
    if request.minor_version == 0:
        return lines + b"Connection: keep-alive\r\n"
    return lines
