"""The queue service: routing of requests to operations."""

from __future__ import annotations

from etagere.engine.interface import Engine
from etagere.protocol.access_log import AccessLog
from etagere.protocol.connections.sharing import FrontEndShare
from etagere.protocol.http.messages import Response
from etagere.protocol.queue.operations import OPERATIONS, QueueOperation, find_operation
from etagere.protocol.rest.authentication import Authenticator
from etagere.protocol.rest.dependencies import Dependencies
from etagere.protocol.rest.exchange import Exchange
from etagere.protocol.rest.operations import no_route
from etagere.protocol.rest.responses import NO_CACHE
from etagere.protocol.rest.service import Call, Routed, Service


class QueueService(Service):
    """The queue service."""

    name = "queue"

    def __init__(
        self,
        engine: Engine,
        authenticator: Authenticator,
        access_log: AccessLog,
        share: FrontEndShare | None = None,
    ) -> None:
        super().__init__(engine, authenticator, access_log, share)
        dependencies = Dependencies(engine, self._properties)
        self._calls = {operation: _bind(operation, dependencies) for operation in OPERATIONS}

    def route(self, exchange: Exchange) -> Routed:
        operation = find_operation(exchange)
        if operation is None:
            comp, of_service = exchange.parameter("comp") or "", not exchange.request.resource[0]
            raise no_route(exchange.request.method, comp, service=of_service)
        return Routed(
            operation,
            operation.permission,
            exchange.request.resource[0],
            self._calls[operation],
        )


def _bind(operation: QueueOperation, dependencies: Dependencies) -> Call:
    handler = operation.handler
    if operation.is_cacheable:
        return lambda exchange: handler(exchange, dependencies)

    async def call(exchange: Exchange) -> Response:
        response = await handler(exchange, dependencies)
        response.headers = [*response.headers, NO_CACHE]
        return response

    return call
