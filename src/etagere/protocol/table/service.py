"""The table service: routing of requests to operations."""

from __future__ import annotations

from etagere.engine.interface import Engine, Refused
from etagere.errors import Refusal
from etagere.jobs.indexing import Indexing
from etagere.protocol.access_log import AccessLog
from etagere.protocol.connections.sharing import FrontEndShare
from etagere.protocol.rest.authentication import Authenticator
from etagere.protocol.rest.exchange import Exchange
from etagere.protocol.rest.operations import no_route
from etagere.protocol.rest.refusals import ErrorForm
from etagere.protocol.rest.service import Routed, Service
from etagere.protocol.table import refusals
from etagere.protocol.table.addresses import AddressKind, parse_address
from etagere.protocol.table.changes import method_of
from etagere.protocol.table.dependencies import TableDependencies
from etagere.protocol.table.operations import (
    PERMISSIONS,
    change_of,
    find_operation,
    find_operation_below_table,
)


class TableService(Service):
    """The table service."""

    name = "table"

    def __init__(
        self,
        engine: Engine,
        authenticator: Authenticator,
        access_log: AccessLog,
        indexing: Indexing,
        share: FrontEndShare | None = None,
    ) -> None:
        super().__init__(engine, authenticator, access_log, share)
        self._dependencies = TableDependencies(
            engine, self._properties, indexing, change_of, PERMISSIONS
        )

    def route(self, exchange: Exchange) -> Routed:
        path, below = exchange.request.resource
        address = parse_address(path)
        if address is None or (below and address.kind is not AddressKind.ENTITIES):
            raise Refused(Refusal("InvalidUri"))
        if below:
            operation = find_operation_below_table(exchange.request.method)
        else:
            fields = exchange.request.fields
            method = method_of(exchange.request.method, fields)
            comp = (exchange.parameter("comp") or "").lower()
            found = find_operation(method, address, comp, fields)
            if found is None:
                raise no_route("GET" if method == "HEAD" else method, comp, service=False)
            operation = found
        return Routed(
            operation,
            operation.permission,
            address.table,
            lambda exchange: operation.handler(exchange, address, self._dependencies),
        )

    def error_form(self, exchange: Exchange, refusal: Refusal) -> ErrorForm:
        return refusals.error_form(exchange, refusal)
