"""Sources that could not be read: the answer repeats what they answered.

A request that reads a source fails as its source does: with the same status, and with its error
beside our own. So a client can tell a source that is not there from one it may not read.
"""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable
from typing import Any, Final

import msgspec

from etagere.auth.request import octets
from etagere.engine.interface import Refused
from etagere.errors import Refusal, http_status
from etagere.protocol.codecs.errors import BY_SERVICE
from etagere.protocol.exchange import Exchange
from etagere.protocol.http.messages import Response
from etagere.protocol.service import occasion
from etagere.rules.conditions import NotModified

CODE: Final = "CannotVerifyCopySource"
_STATUS, _CODE, _MESSAGE = "CopySourceStatusCode", "CopySourceErrorCode", "CopySourceErrorMessage"
_SOURCE_TOLD_SINCE: Final = "2024-02-04"
"""The version from which on headers tell what the source answered; recordings up to 2023-08-03 have
none."""
_REPEATED: Final = frozenset({304, 400, 401, 403, 404, 409, 412, 416})


class UnreadSource(Refusal, frozen=True):
    """What a source answered in place of bytes."""

    @property
    def status(self) -> int:
        """The source's own, as far as that blames the request."""
        told = int(self.facts.get(_STATUS, 0))
        if told in _REPEATED:
            return told
        return 400 if 300 <= told < 500 else self.error.status


def unread(status: int, code: str, message: str) -> Refused:
    """The source answered so, or would have."""
    facts: dict[str, str | int] = {_STATUS: status, _CODE: code, _MESSAGE: message}
    return Refused(UnreadSource(CODE, facts, said=message))


def unread_as(refusal: Refusal) -> Refused:
    """A source of this store, which would have refused a request for it like this."""
    status = 304 if isinstance(refusal, NotModified) else http_status(refusal.code, "blob")
    return unread(status, refusal.code, refusal.message)


Handler = Callable[[Any, Exchange], Awaitable[Response]]


def reads_source(handler: Handler) -> Handler:
    """For the handlers of requests that read one; the message is the source's."""
    return _answering(handler, general=False)


def reads_source_into_blob(handler: Handler) -> Handler:
    """For the handlers of requests that add what they read to a blob, as pages or as an appended
    block: the service answers those with its general message."""
    return _answering(handler, general=True)


def _answering(handler: Handler, *, general: bool) -> Handler:
    @functools.wraps(handler)
    async def call(self: Any, exchange: Exchange) -> Response:
        try:
            return await handler(self, exchange)
        except Refused as refused:
            refusal = refused.refusal
            if not isinstance(refusal, UnreadSource):
                raise
            if general:
                refusal = msgspec.structs.replace(refusal, said="")
            return _answer(exchange, refusal)

    return call


def _answer(exchange: Exchange, refusal: UnreadSource) -> Response:
    content_type, encode = BY_SERVICE[exchange.signed.service]
    headers = [(b"x-ms-error-code", refusal.code.encode())]
    if exchange.version >= _SOURCE_TOLD_SINCE:
        headers += [
            (b"x-ms-copy-source-status-code", b"%d" % int(refusal.facts[_STATUS])),
            (b"x-ms-copy-source-error-code", octets(str(refusal.facts[_CODE]))),
        ]
    # The status line repeats the source's message, even where the body has the general one.
    reason = str(refusal.facts[_MESSAGE])
    if refusal.status == 304:
        return Response(304, headers, reason=reason)
    headers.append((b"Content-Type", content_type.encode()))
    body = encode(refusal, occasion(exchange))
    return Response(refusal.status, headers, body, reason=reason)
