"""The table service: from each request to its operation."""

from __future__ import annotations

from etagere.engine.interface import Engine, Refused
from etagere.errors import Refusal
from etagere.jobs.indexing import Indexing
from etagere.protocol.access_log import AccessLog
from etagere.protocol.answers import Headers
from etagere.protocol.codecs.errors import Encoder
from etagere.protocol.exchange import Exchange
from etagere.protocol.gate import Gate
from etagere.protocol.http.sharing import FrontEndShare
from etagere.protocol.rest.operations import is_change, no_route
from etagere.protocol.service import Routed, Service
from etagere.protocol.table import refusals
from etagere.protocol.table.addresses import Kind, parse_address
from etagere.protocol.table.changes import method_of
from etagere.protocol.table.dependencies import TableDependencies
from etagere.protocol.table.operations import (
    PERMISSIONS,
    change_of,
    find_operation,
    find_operation_below_table,
)


class TableService(Service):
    """Tables and entities."""

    name = "table"

    def __init__(
        self,
        engine: Engine,
        gate: Gate,
        access_log: AccessLog,
        indexing: Indexing,
        share: FrontEndShare | None = None,
    ) -> None:
        super().__init__(engine, gate, access_log, share)
        self._dependencies = TableDependencies(
            engine, self._properties, indexing, change_of, PERMISSIONS
        )

    def route(self, exchange: Exchange) -> Routed:
        path, below = exchange.signed.resource
        address = parse_address(path)
        if address is None or (below and address.kind is not Kind.ENTITIES):
            raise Refused(Refusal("InvalidUri"))
        if below:
            operation = find_operation_below_table(exchange.signed.method)
        else:
            fields = exchange.signed.fields
            method = method_of(exchange.signed.method, fields)
            comp = (exchange.parameter("comp") or "").lower()
            found = find_operation(method, address, comp, fields)
            if found is None:
                raise no_route("GET" if method == "HEAD" else method, comp)
            operation = found
        return Routed(
            operation.permission or operation.name,
            address.table,
            lambda exchange: operation.handler(exchange, address, self._dependencies),
            is_change(operation, exchange.signed.method),
        )

    def error_form(self, exchange: Exchange, refusal: Refusal) -> tuple[Headers, Encoder]:
        return refusals.error_form(exchange, refusal)
