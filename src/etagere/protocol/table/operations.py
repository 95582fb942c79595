"""The operations of the table service: one row each.

A row names its routes (method, kind of address, `comp`, and whether there is an If-Match), the
permission that the caller needs, and its handler.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final

from etagere.auth.permissions import (
    READ_ENTITIES,
    on_batch,
    on_container,
    on_entity,
    on_service_properties,
    on_table_policies,
    on_tables,
)
from etagere.model.tables import ChangeKind
from etagere.protocol.rest import service_operations
from etagere.protocol.rest.operations import Handler, Operation, Route, index_routes
from etagere.protocol.table import handlers
from etagere.protocol.table.addresses import Address, AddressKind


class Condition(enum.Enum):
    """Whether a request has an If-Match."""

    IF_MATCH = enum.auto()


@dataclass(frozen=True, kw_only=True, eq=False)
class TableOperation(Operation):
    """One row: an operation of the table service."""

    change: ChangeKind | None = None
    """The kind of its change of an entity."""


SERVICE, TABLES, TABLE, ENTITIES, ENTITY, GROUP = AddressKind
IF_MATCH: Final = Condition.IF_MATCH
MERGE_METHODS: Final = ("MERGE", "PATCH")


def _of_service(handler: Handler) -> Handler:
    """Adapts the handler of an operation on the service as a whole, which has no address."""
    return lambda exchange, _, deps: handler(exchange, deps)


# The formatter would spread each row over many lines.
# fmt: off
OPERATIONS: Final = (
    # The service
    TableOperation(
        name="get_table_service_properties",
        permission=on_service_properties("r"),
        handler=_of_service(service_operations.get_service_properties),
        routes=(Route("GET", SERVICE, "properties"),)),
    TableOperation(
        name="set_table_service_properties",
        permission=on_service_properties("w"),
        handler=_of_service(service_operations.set_service_properties),
        routes=(Route("PUT", SERVICE, "properties"),)),
    TableOperation(
        name="get_table_service_stats", handler=_of_service(service_operations.get_service_stats),
        permission=on_service_properties("r"),
        routes=(Route("GET", SERVICE, "stats"),)),
    # Tables
    TableOperation(
        name="query_tables", handler=handlers.query_tables,
        permission=on_tables("l"),
        routes=(Route("GET", TABLES), Route("GET", TABLE))),
    TableOperation(
        name="create_table", handler=handlers.create_table, routes=(Route("POST", TABLES),),
        permission=on_container("c|w")),
    TableOperation(
        name="delete_table", handler=handlers.delete_table, routes=(Route("DELETE", TABLE),),
        permission=on_container("d")),
    TableOperation(
        name="get_table_acl", handler=handlers.get_table_acl,
        permission=on_table_policies(),
        routes=(Route("GET", ENTITIES, "acl"),)),
    TableOperation(
        name="set_table_acl", handler=handlers.set_table_acl,
        permission=on_table_policies(),
        routes=(Route("PUT", ENTITIES, "acl"),)),
    # Entities
    TableOperation(
        name="query_entities", handler=handlers.query_entities,
        permission=READ_ENTITIES,
        routes=(Route("GET", ENTITIES), Route("GET", ENTITY))),
    TableOperation(
        name="insert_entity", change=ChangeKind.INSERT,
        permission=on_entity("a"),
        handler=partial(handlers.change_entity, kind=ChangeKind.INSERT),
        routes=(Route("POST", ENTITIES),)),
    TableOperation(
        name="update_entity", change=ChangeKind.REPLACE,
        permission=on_entity("u"),
        handler=partial(handlers.change_entity, kind=ChangeKind.REPLACE),
        routes=(Route("PUT", ENTITY, variant=IF_MATCH),)),
    TableOperation(
        name="insert_or_replace_entity", change=ChangeKind.INSERT_OR_REPLACE,
        permission=on_entity("au"),
        handler=partial(handlers.change_entity, kind=ChangeKind.INSERT_OR_REPLACE),
        routes=(Route("PUT", ENTITY),)),
    TableOperation(
        name="merge_entity", change=ChangeKind.MERGE,
        permission=on_entity("u"),
        handler=partial(handlers.change_entity, kind=ChangeKind.MERGE),
        routes=tuple(Route(method, ENTITY, variant=IF_MATCH) for method in MERGE_METHODS)),
    TableOperation(
        name="insert_or_merge_entity", change=ChangeKind.INSERT_OR_MERGE,
        permission=on_entity("au"),
        handler=partial(handlers.change_entity, kind=ChangeKind.INSERT_OR_MERGE),
        routes=tuple(Route(method, ENTITY) for method in MERGE_METHODS)),
    TableOperation(
        name="delete_entity", change=ChangeKind.DELETE,
        permission=on_entity("d"),
        handler=partial(handlers.change_entity, kind=ChangeKind.DELETE),
        routes=(Route("DELETE", ENTITY),)),
    TableOperation(
        name="entity_group_transaction", handler=handlers.entity_group_transaction,
        permission=on_batch(""),
        routes=(Route("POST", GROUP),)),
)

# Requests to a path below a table are refused. They mostly come from clients that use the URL of a
# table as that of the service.
_BELOW_TABLE: Final = TableOperation(
    name="below_table", permission=READ_ENTITIES, handler=handlers.refuse_below, routes=())
_POST_BELOW_TABLE: Final = TableOperation(
    name="post_below_table", permission=on_entity("a"), handler=handlers.refuse_below, routes=())
# fmt: on

_INDEX: Final = index_routes(OPERATIONS, Condition)
PERMISSIONS: Final = {
    operation.change: operation.permission
    for operation in OPERATIONS
    if operation.change is not None
}
"""The permissions for the changes of entities."""


def find_operation(
    method: str, address: Address, comp: str, fields: Mapping[str, str]
) -> TableOperation | None:
    """Returns the operation of a request, or None if there is no such operation."""
    condition = IF_MATCH if "if-match" in fields else None
    return _INDEX.get((method, address.kind, comp, "", condition))


def find_operation_below_table(method: str) -> TableOperation:
    return _POST_BELOW_TABLE if method == "POST" else _BELOW_TABLE


def change_of(method: str, address: Address, fields: Mapping[str, str]) -> ChangeKind | None:
    """Returns the kind of change of a request, or None if it does not change an entity."""
    operation = find_operation(method, address, "", fields)
    return None if operation is None else operation.change
