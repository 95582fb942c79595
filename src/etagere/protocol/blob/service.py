"""The blob service: each request to its operation, each outcome to its answer."""

from __future__ import annotations

import logging
import time
from typing import Final

from etagere.auth.permissions import authorize
from etagere.auth.principal import KeyOwner, TokenHolder
from etagere.auth.request import octets
from etagere.bodies.files import FileBodyStore
from etagere.engine.interface import Engine, Fault, Refused, Unknown, abort_if
from etagere.errors import Refusal, http_status
from etagere.protocol.access_log import AccessLog
from etagere.protocol.blob import decode
from etagere.protocol.blob.encode import Headers
from etagere.protocol.blob.handlers import Handlers
from etagere.protocol.blob.routes import Level, find_route
from etagere.protocol.codecs.errors import Occasion, encode_xml
from etagere.protocol.exchange import VERSION_NEWEST, Exchange, new_request_id
from etagere.protocol.gate import Gate
from etagere.protocol.http.messages import BodyTooLarge, ClientGone, Request, Response
from etagere.rules.conditions import NotModified
from etagere.settings import Settings

logger = logging.getLogger(__name__)

# What a status means where there was no request to refuse.
_MALFORMED: Final = {
    500: "InternalError",
    413: "RequestBodyTooLarge",
    414: "RequestUrlFailedToParse",
    431: "InvalidHeaderValue",
}


_READING: Final = frozenset({"GET", "HEAD"})

LEASED: Final = {"lease_container": "container", "lease_blob": "blob"}

_OF_SNAPSHOTS_TOO: Final = frozenset(
    {"get_blob", "get_blob_properties", "get_blob_metadata", "get_block_list", "delete_blob"}
)
"""What can be done to a snapshot as to a blob."""

# What would change the meaning of a request, and is not carried out yet: better refused than
# done to something else.
_NOT_YET_PARAMETERS: Final = ("versionid", "deletetype")
_NOT_YET_HEADERS: Final = (
    "x-ms-copy-source",
    "x-ms-encryption-key",
    "x-ms-encryption-scope",
    "x-ms-if-tags",
    "x-ms-tags",
)


class BlobService:
    """Answers the requests of one front end."""

    def __init__(self, engine: Engine, store: FileBodyStore, settings: Settings) -> None:
        self._gate = Gate(engine, settings)
        self._handlers = Handlers(engine, store)
        self._access_log = AccessLog()

    async def handle(self, request: Request) -> Response:
        exchange = Exchange("blob", request)
        try:
            response = await self._carry_out(exchange)
        except Refused as refused:
            response = self._refused(exchange, refused.refusal)
        except BodyTooLarge:
            response = self._refused(exchange, Refusal("RequestBodyTooLarge"))
        except Fault as fault:
            # Nothing happened, and clients know 503 to mean that; 500 is for what nobody knows.
            logger.error("request %s: %s", exchange.request_id, fault)
            response = self._refused(exchange, Refusal("ServerBusy"))
        except Unknown as unknown:
            logger.error("request %s: unknown: %s", exchange.request_id, unknown)
            response = self._refused(exchange, Refusal("InternalError"))
        except ClientGone:
            raise
        except Exception:
            logger.exception("request %s failed", exchange.request_id)
            response = self._refused(exchange, Refusal("InternalError"))
        allowed = await self._cors_headers(exchange, response)
        response.headers = [*exchange.common_headers(), *response.headers, *allowed]
        response.notes["request"] = exchange.request_id
        return response

    async def _cors_headers(self, exchange: Exchange, response: Response) -> Headers:
        try:
            return await self._handlers.cors_headers(exchange, response)
        except (Fault, Unknown):
            return []

    async def _carry_out(self, exchange: Exchange) -> Response:
        abort_if(exchange.check_version())
        signed = exchange.signed
        container, blob = signed.resource
        restype, comp = exchange.parameter("restype") or "", exchange.parameter("comp") or ""
        level, name = find_route(signed.method, container, blob, restype, comp)
        if name is None:
            raise Refused(_no_route(signed.method, comp))
        if name == "preflight_blob_request":
            # A browser asks before it has anything to show for itself.
            return await self._handlers.preflight_blob_request(exchange)
        exchange.principal = await self._gate.admit(exchange)
        if signed.secondary and signed.method not in _READING:
            # It is there to be read when the primary cannot be.
            raise Refused(Refusal("InsufficientAccountPermissions"))
        target = "" if level is Level.SERVICE else container + (f"/{blob}" if blob else "")
        needed = _permission(exchange, name)
        permit = authorize(exchange.principal, f"blob.{needed}", target, version=exchange.version)
        if isinstance(permit, Refusal):
            raise Refused(permit)
        exchange.permit = permit
        _refuse_what_is_not_there_yet(exchange)
        if name not in _OF_SNAPSHOTS_TOO:
            decode.refuse_snapshot(exchange)
        response: Response = await getattr(self._handlers, name)(exchange)
        return response

    def _refused(self, exchange: Exchange, refusal: Refusal) -> Response:
        if isinstance(refusal, NotModified):
            return Response(304, [(b"x-ms-error-code", refusal.code.encode())])
        status = http_status(refusal.code, "blob")
        occasion = Occasion(exchange.request_id, _now(), shows_details=_trusted(exchange))
        body = encode_xml(refusal, occasion)
        headers = [
            (b"x-ms-error-code", refusal.code.encode()),
            (b"Content-Type", b"application/xml"),
        ]
        if status == 401:
            headers.append((b"WWW-Authenticate", _challenge(exchange)))
        return Response(status, headers, body)

    # What the connection asks for

    def malformed(self, status: int, detail: str) -> Response:
        """The answer to what no exchange could be made of."""
        refusal = Refusal(_MALFORMED.get(status, "InvalidInput"), {"Reason": detail})
        request_id = new_request_id()
        body = encode_xml(refusal, Occasion(request_id, _now(), shows_details=True))
        headers = [
            (b"x-ms-request-id", request_id.encode()),
            (b"x-ms-version", VERSION_NEWEST.encode()),
            (b"x-ms-error-code", refusal.code.encode()),
            (b"Content-Type", b"application/xml"),
        ]
        return Response(status, headers, body)

    def failed(self, request: Request, error: Exception) -> Response:
        logger.error("a request failed: %s", request.method, exc_info=error)
        return self.malformed(500, "The request could not be taken apart.")

    def sent(self, request: Request, response: Response, seconds: float) -> None:
        self._access_log.add(request, response, seconds)

    def close(self) -> None:
        self._access_log.flush()


def _now() -> int:
    return time.time_ns() // 100


def _permission(exchange: Exchange, operation: str) -> str:
    """The row of the table of permissions; of a lease, that of its action."""
    leased = LEASED.get(operation)
    return operation if leased is None else f"{decode.lease_verb(exchange).value}_{leased}_lease"


def _refuse_what_is_not_there_yet(exchange: Exchange) -> None:
    for name in _NOT_YET_PARAMETERS:
        if exchange.parameter(name) is not None:
            raise Refused(Refusal("UnsupportedQueryParameter", {"QueryParameterName": name}))
    for name in _NOT_YET_HEADERS:
        if exchange.header(name) is not None:
            raise Refused(Refusal("UnsupportedHeader", {"HeaderName": name}))


def _no_route(method: str, comp: str) -> Refusal:
    if comp:
        facts: dict[str, str | int] = {"QueryParameterName": "comp", "QueryParameterValue": comp}
        return Refusal("InvalidQueryParameterValue", facts)
    return Refusal("UnsupportedHttpVerb", {"Method": method})


def _trusted(exchange: Exchange) -> bool:
    """Facts are for those who may read what they are about. Before anybody was let in, they are
    about the request alone."""
    principal = getattr(exchange, "principal", None)
    if principal is None or isinstance(principal, KeyOwner):
        return True
    return isinstance(principal, TokenHolder) and "r" in principal.permissions


def _challenge(exchange: Exchange) -> bytes:
    scheme = exchange.signed.scheme
    host = exchange.header("host") or "localhost"
    return octets(
        f"Bearer authorization_uri={scheme}://{host}/common/oauth2/authorize "
        "resource_id=https://storage.azure.com"
    )
