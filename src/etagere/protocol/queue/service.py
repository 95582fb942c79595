"""The queue service: each request to its operation."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from etagere.engine.interface import Engine
from etagere.protocol.access_log import AccessLog
from etagere.protocol.answers import NO_CACHE
from etagere.protocol.exchange import Exchange
from etagere.protocol.gate import Gate
from etagere.protocol.http.messages import Response
from etagere.protocol.http.sharing import FrontEndShare
from etagere.protocol.queue.handlers import Handlers
from etagere.protocol.queue.routes import PEEK, READS, ROUTES, find_route
from etagere.protocol.service import Routed, Service, no_route

Handler = Callable[[Exchange], Awaitable[Response]]


class QueueService(Service):
    """Queues and messages."""

    name = "queue"

    def __init__(
        self, engine: Engine, gate: Gate, access_log: AccessLog, share: FrontEndShare | None = None
    ) -> None:
        super().__init__(engine, gate, access_log, share)
        handlers = Handlers(engine)
        of_service: dict[str, Handler] = {
            "get_queue_service_properties": self._properties.get,
            "set_queue_service_properties": self._properties.set,
            "get_queue_service_stats": self._properties.stats,
        }
        self._calls: dict[str, Handler] = {
            name: of_service.get(name) or getattr(handlers, name)
            for name in (*ROUTES.values(), PEEK)
        }
        for name in (*READS, PEEK):
            self._calls[name] = _uncached(self._calls[name])

    def route(self, exchange: Exchange) -> Routed:
        method = exchange.signed.method
        queue, below = exchange.signed.resource
        comp = exchange.parameter("comp") or ""
        peek = (exchange.parameter("peekonly") or "").lower() == "true"
        name = find_route(method, queue, below, comp, peek=peek)
        if name is None:
            raise no_route(method, comp)
        return Routed(name, queue, self._calls[name], changes=name == "get_messages")


def _uncached(call: Handler) -> Handler:
    """Tells caches not to keep the answers of an operation."""

    async def answer(exchange: Exchange) -> Response:
        response = await call(exchange)
        response.headers = [*response.headers, NO_CACHE]
        return response

    return answer
