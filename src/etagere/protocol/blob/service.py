"""The blob service: routing of requests to operations."""

from __future__ import annotations

from collections.abc import Awaitable

from etagere.bodies.store import BodyStore
from etagere.engine.interface import Engine
from etagere.jobs.copying import Copying
from etagere.jobs.folding import Folding
from etagere.jobs.read_recording import ReadRecording
from etagere.model.copies import CopyRef
from etagere.protocol.access_log import AccessLog
from etagere.protocol.blob.dependencies import BlobDependencies
from etagere.protocol.blob.operations import (
    GET_ACCESS_CONTROL,
    OPERATIONS,
    BlobOperation,
    extra_letters,
    find_operation,
    permission_of,
    refuse_unaccepted,
    refuse_unrouted,
)
from etagere.protocol.connections.sharing import FrontEndShare
from etagere.protocol.http.messages import Response
from etagere.protocol.rest.authentication import Authenticator
from etagere.protocol.rest.exchange import Exchange
from etagere.protocol.rest.service import Call, Routed, Service
from etagere.protocol.sources.opening import Sources
from etagere.settings import Settings


class BlobService(Service):
    """The blob service."""

    name = "blob"

    def __init__(
        self,
        engine: Engine,
        authenticator: Authenticator,
        access_log: AccessLog,
        share: FrontEndShare | None = None,
        *,
        store: BodyStore,
        sources: Sources,
        copying: Copying[CopyRef],
        folding: Folding,
        settings: Settings,
        read_recording: ReadRecording | None = None,
    ) -> None:
        """`read_recording`: None if last access times are not tracked."""
        super().__init__(engine, authenticator, access_log, share)
        dependencies = BlobDependencies(
            engine,
            self._properties,
            store,
            sources,
            copying,
            folding,
            settings,
            read_recording,
            _operation_name,
            self.answer_nested,
        )
        self._calls = {
            operation: _bind(operation, dependencies)
            for operation in (*OPERATIONS, GET_ACCESS_CONTROL)
        }

    def route(self, exchange: Exchange) -> Routed:
        operation = find_operation(exchange)
        if operation is None:
            raise refuse_unrouted(exchange)
        container, blob = exchange.request.resource
        return Routed(
            operation,
            permission_of(operation, exchange),
            f"{container}/{blob}" if blob else container,
            self._calls[operation],
            extra_letters(operation, exchange),
        )


def _bind(operation: BlobOperation, dependencies: BlobDependencies) -> Call:
    handler = operation.handler

    def call(exchange: Exchange) -> Awaitable[Response]:
        refuse_unaccepted(operation, exchange)
        return handler(exchange, dependencies)

    return call


def _operation_name(exchange: Exchange) -> str | None:
    operation = find_operation(exchange)
    return None if operation is None else operation.name
