"""The HTTP side of the admin process: `/healthz`, `/readyz` and `/metrics`."""

from __future__ import annotations

import asyncio
import hmac
import logging
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor
from typing import Final, Generic, TypeVar

import msgspec

from etagere.admin.child import AdminAccess
from etagere.admin.cluster import SERVICES
from etagere.admin.collecting import Health, ServerObserver
from etagere.admin.rendering import OPENMETRICS, Exposition
from etagere.protocol.http.messages import Request, Response
from etagere.rules.accounts import is_loopback_host

logger = logging.getLogger(__name__)

T = TypeVar("T")

_FRESH_SECONDS: Final = 0.2
"""An answer that is not older is given again, so that frequent requests cost other processes
little."""
_BEARER: Final = b"bearer "
_JSON: Final = b"application/json"
_TEXT: Final = "text/plain; charset=utf-8"
_METHODS: Final = ("GET", "HEAD")


class AdminApplication:
    """Answers the requests to the admin port."""

    def __init__(self, observer: ServerObserver, threads: Executor, access: AdminAccess) -> None:
        self._access = access
        supervised = CachedResult(observer.is_supervised, threads)
        health = CachedResult(observer.health, threads)
        plain = CachedResult(lambda: observer.metrics(False), threads)
        openmetrics = CachedResult(lambda: observer.metrics(True), threads)

        async def healthz(_request: Request) -> Response:
            return _liveness_response(await supervised.get())

        async def readyz(request: Request) -> Response:
            return _readiness_response(request, await health.get())

        async def metrics(request: Request) -> Response:
            accepted = request.fields.get(b"accept", b"").lower()
            recent = openmetrics if OPENMETRICS.encode() in accepted else plain
            return _exposition(await recent.get())

        self._pages: dict[bytes, Callable[[Request], Awaitable[Response]]] = {
            b"/healthz": healthz,
            b"/readyz": readyz,
            **{f"/readyz/{service}".encode(): readyz for service in SERVICES},
            b"/metrics": metrics,
        }

    async def handle(self, request: Request) -> Response:
        access = self._access
        # With DNS rebinding, a web page could read what is meant for this machine.
        if access.is_local and not _names_this_machine(request):
            return _text(403, "The host name of the request does not belong to this machine.")
        if access.token is not None and not _has_token(request, access.token):
            return _text(401, "A token is required.", (b"WWW-Authenticate", b"Bearer"))
        page = self._pages.get(request.target.partition(b"?")[0])
        if page is None:
            return _text(404, "There is /healthz, /readyz, /readyz/SERVICE and /metrics.")
        if request.method not in _METHODS:
            return _text(405, "Use GET.", (b"Allow", ", ".join(_METHODS).encode()))
        return await page(request)

    def malformed(self, status: int, detail: str, _method: str) -> Response:
        return _text(status, detail)

    def failed(self, _request: Request, error: Exception) -> Response:
        logger.error("a request to the admin port failed", exc_info=error)
        return _text(500, "The request could not be processed.")

    def busy(self, _request: Request) -> Response:
        return _text(503, "Too many responses are waiting to be read.")

    def cut_off(self, _request: Request, error: Exception) -> None:
        logger.error("could not send all of a response of the admin port", exc_info=error)

    def sent(self, _request: Request, _response: Response, _seconds: float) -> None:
        """Records nothing: requests are frequent, and all alike."""


class CachedResult(Generic[T]):
    """The result of a function that runs on a thread. Requests that arrive meanwhile, or shortly
    after, get the same result."""

    def __init__(self, function: Callable[[], T], threads: Executor) -> None:
        self._function = function
        self._threads = threads
        self._began = 0.0
        self._result: asyncio.Future[T] | None = None

    async def get(self) -> T:
        now = time.monotonic()
        known = self._result
        if known is None or (known.done() and now - self._began > _FRESH_SECONDS):
            loop = asyncio.get_running_loop()
            known = self._result = loop.run_in_executor(self._threads, self._function)
            self._began = now
        # A client that disconnects must not take the result from the others.
        return await asyncio.shield(known)


def _liveness_response(is_supervised: bool) -> Response:
    if is_supervised:
        return _text(200, "ok")
    return _text(503, "the supervisor does not respond")


def _readiness_response(request: Request, health: Health) -> Response:
    """Tells whether a load balancer may send requests to the service that the path names, or to all
    if it names none."""
    service = _service_of(request)
    problems = health.problems_of(service)
    status = 503 if problems else 200
    if _JSON in request.fields.get(b"accept", b"").lower():
        return _response(status, _JSON.decode(), _readiness_as_json(service, health, problems))
    return _text(status, "\n".join(problems) if problems else "ready")


def _service_of(request: Request) -> str | None:
    return request.target.partition(b"?")[0].decode().removeprefix("/readyz")[1:] or None


def _readiness_as_json(service: str | None, health: Health, problems: list[str]) -> bytes:
    document: dict[str, object] = {"ready": not problems, "problems": problems}
    if service is not None:
        document["service"] = service
    if health.node is not None:
        document["checks"] = {
            what: health.node.problems.get(what, "ok") for what in ("database", "ledger", "bodies")
        }
        if (status := health.node.status) is not None:
            document["node"] = status.name
            document["state"] = "draining" if status.is_draining else "serving"
            document["serves_files"] = status.serves_files
    return msgspec.json.format(msgspec.json.encode(document), indent=1) + b"\n"


def _exposition(exposition: Exposition) -> Response:
    return _response(200, exposition.content_type, exposition.text)


def _names_this_machine(request: Request) -> bool:
    """Returns whether the request names no other machine. Browsers always send the header."""
    host = request.fields.get(b"host")
    return host is None or is_loopback_host(host.decode("latin-1"))


def _has_token(request: Request, token: bytes) -> bool:
    """Compares the token in constant time."""
    given = request.fields.get(b"authorization", b"")
    is_bearer = given[: len(_BEARER)].lower() == _BEARER
    return hmac.compare_digest(given[len(_BEARER) :].strip(), token) and is_bearer


def _text(status: int, text: str, *headers: tuple[bytes, bytes]) -> Response:
    return _response(status, _TEXT, f"{text}\n".encode(), *headers)


def _response(
    status: int, content_type: str, body: bytes, *headers: tuple[bytes, bytes]
) -> Response:
    common = (
        (b"Content-Type", content_type.encode()),
        (b"Cache-Control", b"no-store"),
        (b"X-Content-Type-Options", b"nosniff"),
    )
    return Response(status, [*common, *headers], body)
