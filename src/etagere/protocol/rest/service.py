"""A REST service: routing, authentication, authorization and handling of requests, with a response
for any outcome."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from typing import Final

import msgspec

from etagere.auth.permissions import Permission, authorize
from etagere.auth.principal import Anonymous, TokenHolder
from etagere.auth.request import octets
from etagere.bodies.store import BodyCorrupt
from etagere.engine.interface import Engine, Fault, Refused, Unknown, abort_if, unwrap
from etagere.errors import Refusal
from etagere.metrics.counters import UNKNOWN, ServiceCounters
from etagere.protocol.access_log import AccessLog
from etagere.protocol.codecs.errors import ErrorContext
from etagere.protocol.connections.memory import MemoryExhausted
from etagere.protocol.connections.sharing import FrontEndShare
from etagere.protocol.http.messages import BodyTooLarge, ClientGone, Request, Response
from etagere.protocol.rest.authentication import Authenticator
from etagere.protocol.rest.exchange import VERSION_NEWEST, Exchange, new_request_id
from etagere.protocol.rest.operations import Operation, is_change
from etagere.protocol.rest.properties import PropertiesStore
from etagere.protocol.rest.refusals import (
    ErrorForm,
    UnreadSource,
    error_form_of,
    error_response,
    now,
)
from etagere.protocol.rest.requests import check_timeout
from etagere.protocol.rest.responses import Headers
from etagere.telemetry.context import ACCOUNT, CLIENT, REQUEST_ID
from etagere.telemetry.formats import describe_exception, fields

logger = logging.getLogger(__name__)

# The error codes for input that is not a request, by status.
_MALFORMED: Final = {
    413: "RequestBodyTooLarge",
    414: "RequestUrlFailedToParse",
    431: "InvalidHeaderValue",
    500: "InternalError",
    503: "ServerBusy",
}
_ERROR_STATUS_MIN: Final = 400
_PREFLIGHT: Final = "preflight_request"
_RELAYED: Final = "relayed_request"


Call = Callable[[Exchange], Awaitable[Response]]
"""Handles a request that has been authorized."""


class Routed(msgspec.Struct, frozen=True):
    """The operation that a request is routed to."""

    operation: Operation
    permission: Permission
    """The permission of the operation that this request needs."""
    target: str
    """The resource of the request, as in `authorize`."""
    call: Call
    extra_letters: str = ""
    """Letters that a token needs in addition to those of the permission."""


class Service(ABC):
    """Answers the requests to one service in one front end. Subclasses route them."""

    name: str

    def __init__(
        self,
        engine: Engine,
        authenticator: Authenticator,
        access_log: AccessLog,
        share: FrontEndShare | None = None,
    ) -> None:
        """`share` is the state that front ends share; None: there is only one front end."""
        self._authenticator = authenticator
        self._cells = authenticator.cells
        self._access_log = access_log
        self._properties = PropertiesStore(engine, self.name, share)
        self.counters = ServiceCounters(self.name)

    @abstractmethod
    def route(self, exchange: Exchange) -> Routed:
        """Routes a request; raises `Refused` if there is no such operation."""

    async def handle(self, request: Request) -> Response:
        exchange = Exchange(self.name, request)
        REQUEST_ID.set(exchange.request_id)
        CLIENT.set(request.client)
        response = await self._outcome(exchange)
        if response.is_relayed:
            response.notes = exchange
            return response
        if response.status >= _ERROR_STATUS_MIN:
            response = _as_error_to(request.method, response)
        response.headers = [*exchange.common_headers(), *response.headers]
        if self._properties.may_have_cors_headers(exchange, response):
            response.headers += await self._cors_headers(exchange, response)
        response.notes = exchange
        return response

    async def answer_nested(self, outer: Exchange, nested: Exchange) -> Response:
        """Answers a nested request as if it had been sent alone, except that a token of the outer
        request is valid for it, too."""
        holder = outer.principal if isinstance(outer.principal, TokenHolder) else None
        response = await self._outcome(nested, holder)
        response.headers = [*nested.common_headers(), *response.headers]
        return response

    async def _outcome(self, exchange: Exchange, holder: TokenHolder | None = None) -> Response:
        """Returns the response for any outcome."""
        try:
            return await self._carry_out(exchange, holder)
        except Refused as refused:
            return self._refused(exchange, refused.refusal)
        except BodyTooLarge:
            return self._refused(exchange, Refusal("RequestBodyTooLarge"))
        except MemoryExhausted:
            return self._refused(exchange, Refusal("ServerBusy"))
        except Fault as fault:
            # Nothing was changed, which clients infer from 503; 500 means that the outcome is
            # unknown.
            logger.error("a request failed: %s", fault, extra=_log_fields(exchange))
            return self._refused(exchange, Refusal("ServerBusy"))
        except BodyCorrupt as damage:
            logger.error("a request failed: %s", damage, extra=_log_fields(exchange))
            return self._refused(exchange, Refusal("InternalError"))
        except Unknown as unknown:
            extra = _log_fields(exchange)
            logger.error("the outcome of a request is unknown: %s", unknown, extra=extra)
            return self._refused(exchange, Refusal("InternalError"))
        except ClientGone:
            self.counters.aborted += 1
            raise
        except Exception:
            logger.exception("a request failed", extra=_log_fields(exchange))
            return self._refused(exchange, Refusal("InternalError"))

    async def _carry_out(self, exchange: Exchange, holder: TokenHolder | None) -> Response:
        ACCOUNT.set(exchange.request.account)
        if self._cells is not None:
            cell = await self._cells.look_up(exchange)
            if cell:
                exchange.operation = _RELAYED
                return await self._cells.relayed(exchange, cell)
        abort_if(exchange.check_version())
        if not exchange.names_version:
            default = await self._properties.default_version(exchange)
            if default is not None:
                exchange.version, exchange.names_version = default, True
        request = exchange.request
        if request.method == "OPTIONS":
            exchange.operation = _PREFLIGHT
            return await self._properties.preflight(exchange)
        routed = self.route(exchange)
        exchange.operation = routed.operation.name
        exchange.principal = await self._authenticator.authenticate(exchange)
        if holder is not None and isinstance(exchange.principal, Anonymous):
            exchange.principal = holder
        if request.secondary and is_change(routed.operation, request.method):
            # The secondary endpoint is for reads while the primary is unavailable.
            message = "Write operations are not allowed."
            raise Refused(Refusal("InsufficientAccountPermissions", message_override=message))
        exchange.permit = unwrap(
            authorize(
                exchange.principal,
                self.name,
                routed.permission,
                routed.target,
                extra_letters=routed.extra_letters,
                version=exchange.challenge_version,
            )
        )
        check_timeout(exchange)
        return await routed.call(exchange)

    async def _cors_headers(self, exchange: Exchange, response: Response) -> Headers:
        try:
            return await self._properties.cors_headers(exchange, response)
        except (Fault, Unknown):
            return []

    def _refused(self, exchange: Exchange, refusal: Refusal) -> Response:
        self.counters.count_refusal(refusal.code)
        response = error_response(exchange, refusal, self.error_form(exchange, refusal))
        if response.status == 401 and not isinstance(refusal, UnreadSource):
            challenge = octets(self._authenticator.challenge(exchange))
            response.headers = [*response.headers, (b"WWW-Authenticate", challenge)]
        return response

    def error_form(self, _exchange: Exchange, refusal: Refusal) -> ErrorForm:
        """Returns the form of an error response: that of the service, unless it depends on the
        request."""
        return error_form_of(self.name, refusal)

    # Called by the connection

    def malformed(self, status: int, detail: str, method: str) -> Response:
        """Returns the response to bytes that are not a valid request."""
        request_id = new_request_id()
        extra = fields(request_id=request_id, status=status)
        logger.info("refused a malformed request: %s", detail, extra=extra)
        return self._plain_error(status, detail, method, request_id)

    def _plain_error(self, status: int, detail: str, method: str, request_id: str) -> Response:
        """Returns an error response that does not depend on the headers of its request."""
        refusal = Refusal(_MALFORMED.get(status, "InvalidInput"), {"Reason": detail})
        self.counters.count_refusal(refusal.code)
        form = error_form_of(self.name, refusal)
        headers = [
            (b"x-ms-request-id", request_id.encode()),
            (b"x-ms-version", VERSION_NEWEST.encode()),
            *form.headers,
        ]
        context = ErrorContext(request_id, now(), shows_details=True)
        response = Response(status, headers, form.encode(refusal, context))
        return _as_error_to(method, response)

    def failed(self, request: Request, error: Exception) -> Response:
        logger.error("a %s request failed", request.method, exc_info=error)
        detail = "The request could not be processed."
        return self._plain_error(500, detail, request.method, REQUEST_ID.get() or new_request_id())

    def busy(self, request: Request) -> Response:
        exchange = Exchange(self.name, request)
        exchange.request_id = REQUEST_ID.get() or exchange.request_id
        response = _as_error_to(request.method, self._refused(exchange, Refusal("ServerBusy")))
        response.headers = [*exchange.common_headers(), *response.headers]
        response.notes = exchange
        return response

    def cut_off(self, _request: Request, error: Exception) -> None:
        is_known = isinstance(error, OSError | Fault | BodyCorrupt)
        logger.error(
            "could not send all of a response; closing the connection: %s",
            describe_exception(error),
            exc_info=None if is_known else error,
        )

    def sent(self, request: Request, response: Response, seconds: float) -> None:
        notes = response.notes
        exchange = notes if isinstance(notes, Exchange) else None
        self._access_log.add(request, response, seconds, exchange)
        counters = self.counters
        operation = UNKNOWN if exchange is None else exchange.operation
        counters.count(operation, response.status, seconds)
        counters.received_bytes += request.body.received
        if request.method != "HEAD":
            body = response.body
            counters.sent_bytes += len(body) if isinstance(body, bytes) else response.length or 0


def _log_fields(exchange: Exchange) -> dict[str, object]:
    """Returns the fields of log lines about a request. A nested request has its own ID besides that
    of the outer one."""
    outer_id = REQUEST_ID.get()
    nested_id = exchange.request_id if exchange.request_id != outer_id else ""
    return fields(operation=exchange.operation, nested_request_id=nested_id)


def _as_error_to(method: str, response: Response) -> Response:
    """Returns an error response; to HEAD without the headers of a body: some clients would wait for
    the body, or parse it."""
    if method != "HEAD":
        return response
    response.headers = [header for header in response.headers if header[0] != b"Content-Type"]
    response.body = b""
    return response
