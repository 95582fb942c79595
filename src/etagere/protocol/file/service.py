"""The file service: routing of requests to operations."""

from __future__ import annotations

from collections.abc import Awaitable

from etagere.bodies.store import BodyStore
from etagere.engine.interface import Engine
from etagere.jobs.copying import Copying
from etagere.model.file_copies import FileCopyRef
from etagere.opens.table import OpenTable
from etagere.protocol.access_log import AccessLog
from etagere.protocol.connections.sharing import FrontEndShare
from etagere.protocol.file import decode
from etagere.protocol.file.dependencies import FileDependencies
from etagere.protocol.file.operations import (
    OPERATIONS,
    FileOperation,
    find_operation,
    refuse_unrouted,
)
from etagere.protocol.http.messages import Response
from etagere.protocol.rest.authentication import Authenticator
from etagere.protocol.rest.conditions import refuse_conditions
from etagere.protocol.rest.exchange import Exchange
from etagere.protocol.rest.operations import is_change
from etagere.protocol.rest.service import Call, Routed, Service
from etagere.protocol.sources.opening import Sources
from etagere.settings import Settings


class FileService(Service):
    """The file service."""

    name = "file"

    def __init__(
        self,
        engine: Engine,
        authenticator: Authenticator,
        access_log: AccessLog,
        share: FrontEndShare | None = None,
        *,
        store: BodyStore,
        settings: Settings,
        opens: OpenTable,
        sources: Sources,
        copying: Copying[FileCopyRef],
    ) -> None:
        super().__init__(engine, authenticator, access_log, share)
        dependencies = FileDependencies(
            engine, self._properties, store, settings, authenticator, opens, sources, copying
        )
        self._calls = {operation: _bind(operation, dependencies) for operation in OPERATIONS}

    def route(self, exchange: Exchange) -> Routed:
        operation = find_operation(exchange)
        if operation is None:
            raise refuse_unrouted(exchange)
        target = decode.target(exchange)
        return Routed(operation, operation.permission, target, self._calls[operation])


def _bind(operation: FileOperation, dependencies: FileDependencies) -> Call:
    handler = operation.handler

    def call(exchange: Exchange) -> Awaitable[Response]:
        if is_change(operation, exchange.request.method):
            # The file service has no conditional writes: the last one wins. To ignore a condition
            # would be to lose the update that it protects.
            refuse_conditions(exchange)
        return handler(exchange, dependencies)

    return call
