"""The table service: each request to its operation."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from etagere.engine.interface import Engine, Refused
from etagere.errors import Refusal
from etagere.jobs.indexing import Indexing
from etagere.protocol.access_log import AccessLog
from etagere.protocol.answers import Headers
from etagere.protocol.codecs.errors import Encoder
from etagere.protocol.exchange import Exchange
from etagere.protocol.gate import Gate
from etagere.protocol.http.messages import Response
from etagere.protocol.http.sharing import FrontEndShare
from etagere.protocol.service import Routed, Service, no_route
from etagere.protocol.table import refusals
from etagere.protocol.table.addresses import Address, Kind, parse_address
from etagere.protocol.table.changes import PERMISSIONS, kind_of_change, method_of
from etagere.protocol.table.handlers import Handlers

Handler = Callable[[Exchange, Address], Awaitable[Response]]

ROUTES: Final[dict[tuple[str, Kind, str], str]] = {
    ("GET", Kind.SERVICE, "properties"): "get_table_service_properties",
    ("PUT", Kind.SERVICE, "properties"): "set_table_service_properties",
    ("GET", Kind.SERVICE, "stats"): "get_table_service_stats",
    ("GET", Kind.TABLES, ""): "query_tables",
    ("POST", Kind.TABLES, ""): "create_table",
    ("GET", Kind.TABLE, ""): "query_tables",
    ("DELETE", Kind.TABLE, ""): "delete_table",
    ("GET", Kind.ENTITIES, "acl"): "get_table_acl",
    ("PUT", Kind.ENTITIES, "acl"): "set_table_acl",
    ("GET", Kind.ENTITIES, ""): "query_entities",
    ("GET", Kind.ENTITY, ""): "query_entities",
    ("POST", Kind.GROUP, ""): "entity_group_transaction",
}
"""Besides the changes of entities, which depend on more than these."""


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
        self._handlers = Handlers(engine, indexing)
        self._of_service = {
            "get_table_service_properties": self._properties.get,
            "set_table_service_properties": self._properties.set,
            "get_table_service_stats": self._properties.stats,
        }

    def route(self, exchange: Exchange) -> Routed:
        path, below = exchange.signed.resource
        address = parse_address(path)
        if address is None or (below and address.kind is not Kind.ENTITIES):
            raise Refused(Refusal("InvalidUri"))
        if below:
            return self._below(exchange, address)
        fields = exchange.signed.fields
        method = method_of(exchange.signed.method, fields)
        method = "GET" if method == "HEAD" else method
        comp = (exchange.parameter("comp") or "").lower()
        change = None if comp else kind_of_change(method, address, fields)
        if change is not None:
            return Routed(PERMISSIONS[change], address.table, self._bound("change_entity", address))
        name = ROUTES.get((method, address.kind, comp))
        if name is None:
            raise no_route(method, comp)
        of_service = self._of_service.get(name)
        if of_service is not None:
            return Routed(name, "", of_service)
        return Routed(name, address.table, self._bound(name, address))

    def error_form(self, exchange: Exchange, refusal: Refusal) -> tuple[Headers, Encoder]:
        return refusals.error_form(exchange, refusal)

    def _below(self, exchange: Exchange, address: Address) -> Routed:
        """Mostly from a client that was given the address of a table for that of the service."""
        row = "insert_entity" if exchange.signed.method == "POST" else "query_entities"
        return Routed(row, address.table, self._bound("refuse_below", address))

    def _bound(self, name: str, address: Address) -> Callable[[Exchange], Awaitable[Response]]:
        handler: Handler = getattr(self._handlers, name)
        return lambda exchange: handler(exchange, address)
