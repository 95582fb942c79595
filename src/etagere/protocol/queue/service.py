"""The queue service: each request to its operation."""

from __future__ import annotations

from etagere.engine.interface import Engine
from etagere.protocol.access_log import AccessLog
from etagere.protocol.exchange import Exchange
from etagere.protocol.gate import Gate
from etagere.protocol.queue.handlers import Handlers
from etagere.protocol.queue.routes import find_route
from etagere.protocol.service import Routed, Service, no_route


class QueueService(Service):
    """Queues and messages."""

    name = "queue"

    def __init__(self, engine: Engine, gate: Gate, access_log: AccessLog) -> None:
        super().__init__(engine, gate, access_log)
        self._handlers = Handlers(engine)
        self._of_service = {
            "get_queue_service_properties": self._properties.get,
            "set_queue_service_properties": self._properties.set,
            "get_queue_service_stats": self._properties.stats,
        }

    def route(self, exchange: Exchange) -> Routed:
        method = exchange.signed.method
        queue, below = exchange.signed.resource
        comp = exchange.parameter("comp") or ""
        peek = (exchange.parameter("peekonly") or "").lower() == "true"
        name = find_route(method, queue, below, comp, peek=peek)
        if name is None:
            raise no_route(method, comp)
        call = self._of_service.get(name) or getattr(self._handlers, name)
        return Routed(name, queue, call, changes=name == "get_messages")
