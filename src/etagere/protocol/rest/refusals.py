"""From refusals to error responses: the one place where any refusal becomes an answer.

Requests, the parts of batches and the changes of an entity group are refused here, whether a rule,
a permission or the source of a copy was the reason.
"""

from __future__ import annotations

import time
from typing import Final, NamedTuple

from msgspec.structs import replace

from etagere.auth.bearer import BearerChallenge
from etagere.auth.principal import Anonymous, KeyOwner, TokenHolder
from etagere.auth.request import octets
from etagere.engine.interface import Refused
from etagere.errors import Refusal, http_status
from etagere.protocol.codecs.errors import BY_SERVICE, Encoder, ErrorContext, encode_odata
from etagere.protocol.http.messages import Response
from etagere.protocol.rest.exchange import Exchange
from etagere.protocol.rest.responses import Headers
from etagere.rules import tags
from etagere.rules.conditions import NotModified


class ErrorForm(NamedTuple):
    """The form of an error response."""

    headers: Headers
    """Beside those of every response."""
    encode: Encoder


def error_form_of(service: str, refusal: Refusal) -> ErrorForm:
    """The form that a service has for most of its errors."""
    content_type, encode = BY_SERVICE[service]
    headers = [
        (b"x-ms-error-code", refusal.code.encode()),
        (b"Content-Type", content_type.encode()),
    ]
    return ErrorForm(headers, encode)


def error_response(
    exchange: Exchange, refusal: Refusal, form: ErrorForm, *, operation_index: int | None = None
) -> Response:
    """The answer to a request that was refused. `operation_index`: which change of a group was."""
    if isinstance(refusal, UnreadSource):
        return _unread_source_response(exchange, refusal, form)
    if isinstance(refusal, NotModified):
        headers = [(b"x-ms-error-code", refusal.code.encode())]
        return Response(304, headers, reason=refusal.message)
    request = exchange.request
    status = http_status(refusal.code, request.service)
    headers = list(form.headers)
    if isinstance(refusal, BearerChallenge) or status == 401:
        status = 401
        headers.append((b"WWW-Authenticate", _challenge(exchange)))
    elif refusal.code == "InvalidRange" and request.method == "GET":
        length = int(refusal.facts["ContentLength"])
        headers.append((b"Content-Range", b"bytes */%d" % length))
    context = _error_context(exchange, refusal, operation_index)
    body = form.encode(_visible(refusal, exchange), context)
    # OData errors have the standard reason phrase, all others repeat the message.
    reason = "" if form.encode is encode_odata else refusal.message
    return Response(status, headers, body, reason=reason)


def _error_context(
    exchange: Exchange, refusal: Refusal, operation_index: int | None = None
) -> ErrorContext:
    return ErrorContext(
        exchange.request_id,
        now(),
        shows_details=_is_trusted(exchange, refusal),
        operation_index=operation_index,
    )


def now() -> int:
    """The time of an error response, in ticks since 1970."""
    return time.time_ns() // 100


def _is_trusted(exchange: Exchange, refusal: Refusal) -> bool:
    """Whether the caller may see the facts of a refusal: those who may read the object may, or its
    tags if the facts are about them.

    Until the caller is known, facts are about the request alone. An anonymous caller who was let
    in reads a public container; in a private one they are refused without facts.
    """
    principal = getattr(exchange, "principal", None)
    if principal is None or isinstance(principal, KeyOwner):
        return True
    if isinstance(principal, Anonymous):
        return getattr(exchange, "permit", None) is not None
    is_about_tags = refusal.facts.get("Condition") == tags.CONDITION_HEADER
    return ("t" if is_about_tags else "r") in principal.permissions


def _visible(refusal: Refusal, exchange: Exchange) -> Refusal:
    """The refusal with the facts that this caller may see: tags have a permission of their own.
    With conditions on the tags of a source, nobody can tell whose tags the facts are about."""
    facts = refusal.facts
    if facts.get("Condition") != tags.CONDITION_HEADER or tags.CURRENT not in facts:
        return refusal
    principal = getattr(exchange, "principal", None)
    sees_tags = isinstance(principal, KeyOwner) or (
        isinstance(principal, TokenHolder) and "t" in principal.permissions
    )
    if sees_tags and exchange.header("x-ms-source-if-tags") is None:
        return refusal
    kept = {name: fact for name, fact in facts.items() if name != tags.CURRENT}
    return replace(refusal, facts=kept)


def _challenge(exchange: Exchange) -> bytes:
    scheme = exchange.request.scheme
    host = exchange.header("host") or "localhost"
    return octets(
        f"Bearer authorization_uri={scheme}://{host}/common/oauth2/authorize "
        "resource_id=https://storage.azure.com"
    )


# Sources

_CANNOT_VERIFY: Final = "CannotVerifyCopySource"
SOURCE_STATUS: Final = "CopySourceStatusCode"
SOURCE_CODE: Final = "CopySourceErrorCode"
_SOURCE_MESSAGE: Final = "CopySourceErrorMessage"
_SOURCE_HEADERS_SINCE: Final = "2024-02-04"
"""The version from which headers repeat what the source answered; recordings up to 2023-08-03 have
none."""
_REPEATED_STATUSES: Final = frozenset({304, 400, 401, 403, 404, 409, 412, 416})


class UnreadSource(Refusal, frozen=True):
    """What a source answered in place of bytes.

    A request that reads a source fails as its source does: with the same status, and with its
    error beside our own. So a client can tell a source that does not exist from one that it may
    not read.
    """

    @property
    def status(self) -> int:
        """That of the source, as far as it blames the request."""
        status = int(self.facts.get(SOURCE_STATUS, 0))
        if status in _REPEATED_STATUSES:
            return status
        return 400 if 300 <= status < 500 else self.error.status


def unread(status: int, code: str, message: str) -> Refused:
    """A source that answered so, or would have."""
    facts: dict[str, str | int] = {
        SOURCE_STATUS: status,
        SOURCE_CODE: code,
        _SOURCE_MESSAGE: message,
    }
    return Refused(UnreadSource(_CANNOT_VERIFY, facts, message_override=message))


def unread_as(refusal: Refusal) -> Refused:
    """A source in this store, which would have refused a request for it like this."""
    status = 304 if isinstance(refusal, NotModified) else http_status(refusal.code, "blob")
    return unread(status, refusal.code, refusal.message)


def without_source_message(refused: Refused) -> Refused:
    """The refusal of a request that adds the bytes of its source to a blob: the service answers
    those with its general message."""
    if not isinstance(refused.refusal, UnreadSource):
        return refused
    return Refused(replace(refused.refusal, message_override=""))


def _unread_source_response(exchange: Exchange, refusal: UnreadSource, form: ErrorForm) -> Response:
    code, *rest = form.headers
    headers = [code]
    if exchange.version >= _SOURCE_HEADERS_SINCE:
        headers += [
            (b"x-ms-copy-source-status-code", b"%d" % int(refusal.facts[SOURCE_STATUS])),
            (b"x-ms-copy-source-error-code", octets(str(refusal.facts[SOURCE_CODE]))),
        ]
    # The status line repeats the source's message, even where the body has the general one.
    reason = str(refusal.facts[_SOURCE_MESSAGE])
    if refusal.status == 304:
        return Response(304, headers, reason=reason)
    body = form.encode(refusal, _error_context(exchange, refusal))
    return Response(refusal.status, headers + rest, body, reason=reason)
