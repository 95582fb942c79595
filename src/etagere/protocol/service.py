"""What all REST services do with a request: find out what it asks for and whether it may, carry it
out, and make an answer of any outcome."""

from __future__ import annotations

import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple

from msgspec.structs import replace

from etagere.auth.bearer import Challenge
from etagere.auth.permissions import authorize
from etagere.auth.principal import Anonymous, KeyOwner, TokenHolder
from etagere.auth.request import octets
from etagere.engine.interface import Engine, Fault, Refused, Unknown, abort_if
from etagere.errors import Refusal, http_status
from etagere.protocol.access_log import AccessLog
from etagere.protocol.answers import Headers
from etagere.protocol.codecs.errors import BY_SERVICE, Encoder, Occasion, encode_odata
from etagere.protocol.exchange import VERSION_NEWEST, Exchange, new_request_id
from etagere.protocol.gate import Gate
from etagere.protocol.http.memory import MemoryExhausted
from etagere.protocol.http.messages import BodyTooLarge, ClientGone, Request, Response
from etagere.protocol.http.sharing import FrontEndShare
from etagere.protocol.properties import PropertiesHandlers
from etagere.rules import tags
from etagere.rules.conditions import NotModified

logger = logging.getLogger(__name__)

# What a status means where there was no request to refuse.
_MALFORMED: Final = {
    413: "RequestBodyTooLarge",
    414: "RequestUrlFailedToParse",
    431: "InvalidHeaderValue",
    500: "InternalError",
    503: "ServerBusy",
}
_ERROR_STATUS_MIN: Final = 400
_READING: Final = frozenset({"GET", "HEAD", "OPTIONS"})


class Routed(NamedTuple):
    """What a request asks for."""

    permission: str
    """The row of the table of permissions, without its service."""
    target: str
    """What it touches: as in `authorize`."""
    call: Callable[[Exchange], Awaitable[Response]]
    changes: bool = False
    """Something is changed by it, although its method says that it reads."""
    also: str = ""
    """Letters that a token needs besides."""


class Service(ABC):
    """Answers the requests of one front end to one service. Each service says what they ask for."""

    name: str

    def __init__(
        self, engine: Engine, gate: Gate, access_log: AccessLog, share: FrontEndShare | None = None
    ) -> None:
        """`share` is what the front ends of the server know of each other; None: there is one."""
        self._gate = gate
        self._access_log = access_log
        self._properties = PropertiesHandlers(engine, self.name, share)
        self._content_type, self._encode_error = BY_SERVICE[self.name]

    @abstractmethod
    def route(self, exchange: Exchange) -> Routed:
        """What is asked for; raises `Refused` where that is nothing that there is."""

    async def handle(self, request: Request) -> Response:
        exchange = Exchange(self.name, request)
        response = await self._outcome(exchange)
        if request.method == "HEAD" and response.status >= _ERROR_STATUS_MIN:
            response = _without_body(response)
        response.headers = [*exchange.common_headers(), *response.headers]
        if allowed := await self._cors_headers(exchange, response):
            response.headers += allowed
        response.notes["request"] = exchange.request_id
        return response

    async def answer_part(self, whole: Exchange, part: Exchange) -> Response:
        """The answer to a request that came inside of another, as if it had come alone, but that
        a token which the other came with is good for it too."""
        holder = whole.principal if isinstance(whole.principal, TokenHolder) else None
        response = await self._outcome(part, holder)
        response.headers = [*part.common_headers(), *response.headers]
        return response

    async def _outcome(self, exchange: Exchange, holder: TokenHolder | None = None) -> Response:
        """An answer, whatever happens."""
        try:
            return await self._carry_out(exchange, holder)
        except Refused as refused:
            return self._refused(exchange, refused.refusal)
        except BodyTooLarge:
            return self._refused(exchange, Refusal("RequestBodyTooLarge"))
        except MemoryExhausted:
            return self._refused(exchange, Refusal("ServerBusy"))
        except Fault as fault:
            # Nothing happened, and clients know 503 to mean that; 500 is for what nobody knows.
            logger.error("request %s: %s", exchange.request_id, fault)
            return self._refused(exchange, Refusal("ServerBusy"))
        except Unknown as unknown:
            logger.error("request %s: unknown outcome: %s", exchange.request_id, unknown)
            return self._refused(exchange, Refusal("InternalError"))
        except ClientGone:
            raise
        except Exception:
            logger.exception("request %s failed", exchange.request_id)
            return self._refused(exchange, Refusal("InternalError"))

    async def _carry_out(self, exchange: Exchange, holder: TokenHolder | None) -> Response:
        abort_if(exchange.check_version())
        if not exchange.names_version:
            default = await self._properties.default_version(exchange)
            if default is not None:
                exchange.version, exchange.names_version = default, True
        signed = exchange.signed
        if signed.method == "OPTIONS":
            return await self._properties.preflight(exchange)
        routed = self.route(exchange)
        exchange.principal = await self._gate.admit(exchange)
        if holder is not None and isinstance(exchange.principal, Anonymous):
            exchange.principal = holder
        if signed.secondary and (routed.changes or signed.method not in _READING):
            # It is there to be read when the primary cannot be.
            said = "Write operations are not allowed."
            raise Refused(Refusal("InsufficientAccountPermissions", said=said))
        permit = authorize(
            exchange.principal,
            f"{self.name}.{routed.permission}",
            routed.target,
            also=routed.also,
            version=exchange.challenge_version,
        )
        if isinstance(permit, Refusal):
            raise Refused(permit)
        exchange.permit = permit
        return await routed.call(exchange)

    async def _cors_headers(self, exchange: Exchange, response: Response) -> Headers:
        try:
            return await self._properties.cors_headers(exchange, response)
        except (Fault, Unknown):
            return []

    def _refused(self, exchange: Exchange, refusal: Refusal) -> Response:
        if isinstance(refusal, NotModified):
            headers = [(b"x-ms-error-code", refusal.code.encode())]
            return Response(304, headers, reason=refusal.message)
        status = 401 if isinstance(refusal, Challenge) else http_status(refusal.code, self.name)
        headers, encode = self.error_form(exchange, refusal)
        if status == 401:
            headers.append((b"WWW-Authenticate", _challenge(exchange)))
        elif refusal.code == "InvalidRange" and exchange.signed.method == "GET":
            length = int(refusal.facts["ContentLength"])
            headers.append((b"Content-Range", b"bytes */%d" % length))
        body = encode(visible(refusal, exchange), occasion(exchange))
        return Response(status, headers, body, reason=reason_of(refusal, encode))

    def error_form(self, _exchange: Exchange, refusal: Refusal) -> tuple[Headers, Encoder]:
        """The headers of an error answer besides the common ones, and the encoder of its body."""
        headers = [
            (b"x-ms-error-code", refusal.code.encode()),
            (b"Content-Type", self._content_type.encode()),
        ]
        return headers, self._encode_error

    # What the connection asks for

    def malformed(self, status: int, detail: str) -> Response:
        """The answer to what no exchange could be made of."""
        refusal = Refusal(_MALFORMED.get(status, "InvalidInput"), {"Reason": detail})
        request_id = new_request_id()
        occasion = Occasion(request_id, _now(), shows_details=True)
        headers = [
            (b"x-ms-request-id", request_id.encode()),
            (b"x-ms-version", VERSION_NEWEST.encode()),
            (b"x-ms-error-code", refusal.code.encode()),
            (b"Content-Type", self._content_type.encode()),
        ]
        return Response(status, headers, self._encode_error(refusal, occasion))

    def failed(self, request: Request, error: Exception) -> Response:
        logger.error("request failed: %s", request.method, exc_info=error)
        return self.malformed(500, "The request could not be taken apart.")

    def busy(self, request: Request) -> Response:
        exchange = Exchange(self.name, request)
        response = self._refused(exchange, Refusal("ServerBusy"))
        response.headers = [*exchange.common_headers(), *response.headers]
        response.notes["request"] = exchange.request_id
        return response

    def sent(self, request: Request, response: Response, seconds: float) -> None:
        self._access_log.add(request, response, seconds)


def _without_body(response: Response) -> Response:
    """An error as the answer to HEAD, which describes no body: some clients would wait for one, or
    parse it, although it cannot come."""
    response.headers = [header for header in response.headers if header[0] != b"Content-Type"]
    response.body = b""
    return response


def no_route(method: str, comp: str) -> Refused:
    """The refusal of what no operation is asked for with."""
    if comp:
        facts: dict[str, str | int] = {"QueryParameterName": "comp", "QueryParameterValue": comp}
        return Refused(Refusal("InvalidQueryParameterValue", facts))
    return Refused(Refusal("UnsupportedHttpVerb", {"Method": method}))


def _now() -> int:
    return time.time_ns() // 100


def reason_of(refusal: Refusal, encode: Encoder) -> str:
    """The reason phrase of an error answer: its message, or the standard phrase for OData."""
    return "" if encode is encode_odata else refusal.message


def occasion(exchange: Exchange) -> Occasion:
    """Of a refusal that is told now."""
    return Occasion(exchange.request_id, _now(), shows_details=is_trusted(exchange))


def is_trusted(exchange: Exchange) -> bool:
    """Facts are for those who may read what they are about. Before anybody was let in, they are
    about the request alone. Who has no name is let in to read, and is refused without facts where
    the container is private."""
    principal = getattr(exchange, "principal", None)
    if principal is None or isinstance(principal, KeyOwner):
        return True
    if isinstance(principal, Anonymous):
        return getattr(exchange, "permit", None) is not None
    return "r" in principal.permissions


def visible(refusal: Refusal, exchange: Exchange) -> Refusal:
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
    scheme = exchange.signed.scheme
    host = exchange.header("host") or "localhost"
    return octets(
        f"Bearer authorization_uri={scheme}://{host}/common/oauth2/authorize "
        "resource_id=https://storage.azure.com"
    )
