"""Conversion of refusals to error responses, in one place for all services.

Requests, the parts of batches and the changes of an entity group are refused here, whether a rule,
a permission or the source of a copy was the reason.
"""

from __future__ import annotations

import time
from typing import Final, NamedTuple

from msgspec.structs import replace

from etagere.auth.challenges import BearerChallenge
from etagere.auth.principal import Anonymous, KeyOwner, Principal, TokenHolder, User
from etagere.auth.request import octets
from etagere.auth.roles import Right
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
    """The headers besides those of every response."""
    encode: Encoder


def error_form_of(service: str, refusal: Refusal) -> ErrorForm:
    """Returns the usual form of the errors of a service."""
    content_type, encode = BY_SERVICE[service]
    headers = [
        (b"x-ms-error-code", refusal.code.encode()),
        (b"Content-Type", content_type.encode()),
    ]
    return ErrorForm(headers, encode)


def error_response(
    exchange: Exchange, refusal: Refusal, form: ErrorForm, *, operation_index: int | None = None
) -> Response:
    """Returns the response to a refused request. `operation_index` is the index of the refused
    change in a group."""
    if isinstance(refusal, UnreadSource):
        return _unread_source_response(exchange, refusal, form)
    if isinstance(refusal, NotModified):
        headers = [(b"x-ms-error-code", refusal.code.encode())]
        return Response(304, headers, reason=refusal.message)
    request = exchange.request
    status = http_status(refusal.code, request.service)
    headers = list(form.headers)
    if isinstance(refusal, BearerChallenge):
        status = 401
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
    """Returns the time for an error response, in ticks since 1970."""
    return time.time_ns() // 100


def _is_trusted(exchange: Exchange, refusal: Refusal) -> bool:
    """Returns whether the caller may see the details of a refusal: those who may read the object
    may, or its tags if the details are about them.

    Before authentication, details are only about the request. An authorized anonymous caller reads
    a public container; in a private one they are refused without details.
    """
    principal: Principal | None = getattr(exchange, "principal", None)
    if principal is None or isinstance(principal, KeyOwner):
        return True
    if isinstance(principal, Anonymous):
        return getattr(exchange, "permit", None) is not None
    is_about_tags = refusal.facts.get("Condition") == tags.CONDITION_HEADER
    if isinstance(principal, User):
        right = Right.TAGS if is_about_tags else Right.READ
        return principal.may(right, exchange.request.service)
    if is_about_tags:
        return principal.may("t", Right.TAGS)
    return principal.may("r", Right.READ)


def _visible(refusal: Refusal, exchange: Exchange) -> Refusal:
    """Returns the refusal with the details that this caller may see: tags need a separate
    permission. If the source has conditions on tags, too, it is not known whose tags the details
    contain."""
    facts = refusal.facts
    if facts.get("Condition") != tags.CONDITION_HEADER or tags.CURRENT not in facts:
        return refusal
    principal = getattr(exchange, "principal", None)
    if _sees_tags(principal) and exchange.header("x-ms-source-if-tags") is None:
        return refusal
    kept = {name: fact for name, fact in facts.items() if name != tags.CURRENT}
    return replace(refusal, facts=kept)


def _sees_tags(principal: Principal | None) -> bool:
    if isinstance(principal, TokenHolder):
        return principal.may("t", Right.TAGS)
    if isinstance(principal, User):
        return principal.may(Right.TAGS, "blob")
    return isinstance(principal, KeyOwner)


# Sources

_CANNOT_VERIFY: Final = "CannotVerifyCopySource"
SOURCE_STATUS: Final = "CopySourceStatusCode"
SOURCE_CODE: Final = "CopySourceErrorCode"
_SOURCE_MESSAGE: Final = "CopySourceErrorMessage"
_SOURCE_HEADERS_SINCE: Final = "2024-02-04"
"""The first version whose headers repeat the error of the source; recordings up to 2023-08-03 have
none."""
_REPEATED_STATUSES: Final = frozenset({304, 400, 401, 403, 404, 409, 412, 416})


class UnreadSource(Refusal, frozen=True):
    """The refusal of a request because its source could not be read.

    Such a request fails with the status of the source, and with its error code in addition to its
    own. So a client can distinguish a source that does not exist from one that it may not read.
    """

    @property
    def status(self) -> int:
        """The status of the source, if it is a client error."""
        status = int(self.facts.get(SOURCE_STATUS, 0))
        if status in _REPEATED_STATUSES:
            return status
        return 400 if 300 <= status < 500 else self.error.status


def unread_source(status: int, code: str, message: str) -> Refused:
    """Returns the refusal for a source that sent, or would have sent, this error."""
    facts: dict[str, str | int] = {
        SOURCE_STATUS: status,
        SOURCE_CODE: code,
        _SOURCE_MESSAGE: message,
    }
    return Refused(UnreadSource(_CANNOT_VERIFY, facts, message_override=message))


def unread_source_for(refusal: Refusal, service: str) -> Refused:
    """Returns the refusal for a source in this store whose service would refuse a read like
    this."""
    status = http_status(refusal.code, service)
    if isinstance(refusal, NotModified):
        status = 304
    elif isinstance(refusal, BearerChallenge):
        status = 401
    return unread_source(status, refusal.code, refusal.message)


def without_source_message(refused: Refused) -> Refused:
    """Returns the refusal of a request that adds the bytes of its source to a blob, for which the
    blob service uses its general message."""
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
    # The status line repeats the message of the source, even if the body has the general one.
    reason = str(refusal.facts[_SOURCE_MESSAGE])
    if refusal.status == 304:
        return Response(304, headers, reason=reason)
    body = form.encode(refusal, _error_context(exchange, refusal))
    return Response(refusal.status, headers + rest, body, reason=reason)
