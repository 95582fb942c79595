"""The operations of the table service: one row each.

A row names its routes (method, kind of address, `comp`, and whether there is an If-Match), the row
of `auth.permissions` that it needs, and its handler.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final

from etagere.model.tables import Change
from etagere.protocol.rest import service_operations
from etagere.protocol.rest.operations import Handler, Operation, Route, index_routes
from etagere.protocol.table import handlers
from etagere.protocol.table.addresses import Address, Kind


class Condition(enum.Enum):
    """Whether a request has an If-Match."""

    IF_MATCH = enum.auto()


@dataclass(frozen=True, kw_only=True, eq=False)
class TableOperation(Operation):
    """One row: an operation of the table service."""

    change: Change | None = None
    """What it does to an entity."""


SERVICE, TABLES, TABLE, ENTITIES, ENTITY, GROUP = Kind
IF_MATCH: Final = Condition.IF_MATCH
MERGE_METHODS: Final = ("MERGE", "PATCH")


def _of_service(handler: Handler) -> Handler:
    """Adapts the handler of an operation on the service as a whole, which has no address."""
    return lambda exchange, _, deps: handler(exchange, deps)


# A row reads as a few lines, which the formatter would spread over many.
# fmt: off
OPERATIONS: Final = (
    # The service
    TableOperation(
        name="get_table_service_properties",
        handler=_of_service(service_operations.get_service_properties),
        routes=(Route("GET", SERVICE, "properties"),)),
    TableOperation(
        name="set_table_service_properties",
        handler=_of_service(service_operations.set_service_properties),
        routes=(Route("PUT", SERVICE, "properties"),)),
    TableOperation(
        name="get_table_service_stats", handler=_of_service(service_operations.get_service_stats),
        routes=(Route("GET", SERVICE, "stats"),)),
    # Tables
    TableOperation(
        name="query_tables", handler=handlers.query_tables,
        routes=(Route("GET", TABLES), Route("GET", TABLE))),
    TableOperation(
        name="create_table", handler=handlers.create_table, routes=(Route("POST", TABLES),)),
    TableOperation(
        name="delete_table", handler=handlers.delete_table, routes=(Route("DELETE", TABLE),)),
    TableOperation(
        name="get_table_acl", handler=handlers.get_table_acl,
        routes=(Route("GET", ENTITIES, "acl"),)),
    TableOperation(
        name="set_table_acl", handler=handlers.set_table_acl,
        routes=(Route("PUT", ENTITIES, "acl"),)),
    # Entities
    TableOperation(
        name="query_entities", handler=handlers.query_entities,
        routes=(Route("GET", ENTITIES), Route("GET", ENTITY))),
    TableOperation(
        name="insert_entity", change=Change.INSERT,
        handler=partial(handlers.change_entity, kind=Change.INSERT),
        routes=(Route("POST", ENTITIES),)),
    TableOperation(
        name="update_entity", change=Change.REPLACE,
        handler=partial(handlers.change_entity, kind=Change.REPLACE),
        routes=(Route("PUT", ENTITY, variant=IF_MATCH),)),
    TableOperation(
        name="insert_or_replace_entity", change=Change.INSERT_OR_REPLACE,
        handler=partial(handlers.change_entity, kind=Change.INSERT_OR_REPLACE),
        routes=(Route("PUT", ENTITY),)),
    TableOperation(
        name="merge_entity", change=Change.MERGE,
        handler=partial(handlers.change_entity, kind=Change.MERGE),
        routes=tuple(Route(method, ENTITY, variant=IF_MATCH) for method in MERGE_METHODS)),
    TableOperation(
        name="insert_or_merge_entity", change=Change.INSERT_OR_MERGE,
        handler=partial(handlers.change_entity, kind=Change.INSERT_OR_MERGE),
        routes=tuple(Route(method, ENTITY) for method in MERGE_METHODS)),
    TableOperation(
        name="delete_entity", change=Change.DELETE,
        handler=partial(handlers.change_entity, kind=Change.DELETE),
        routes=(Route("DELETE", ENTITY),)),
    TableOperation(
        name="entity_group_transaction", handler=handlers.entity_group_transaction,
        routes=(Route("POST", GROUP),)),
)

# Requests to a path below a table mostly come from a client that was given the address of a table
# for that of the service. They are refused.
_BELOW_TABLE: Final = TableOperation(
    name="below_table", permission="query_entities", handler=handlers.refuse_below, routes=())
_POST_BELOW_TABLE: Final = TableOperation(
    name="post_below_table", permission="insert_entity", handler=handlers.refuse_below, routes=())
# fmt: on

_INDEX: Final = index_routes(OPERATIONS, Condition)
PERMISSIONS: Final = {
    operation.change: operation.permission or operation.name
    for operation in OPERATIONS
    if operation.change is not None
}
"""The rows of `auth.permissions` for the changes of entities."""


def find_operation(
    method: str, address: Address, comp: str, fields: Mapping[str, str]
) -> TableOperation | None:
    """Returns the operation that a request asks for, or None if there is no such operation."""
    condition = IF_MATCH if "if-match" in fields else None
    return _INDEX.get((method, address.kind, comp, "", condition))


def find_operation_below_table(method: str) -> TableOperation:
    return _POST_BELOW_TABLE if method == "POST" else _BELOW_TABLE


def change_of(method: str, address: Address, fields: Mapping[str, str]) -> Change | None:
    """Returns what a request does to an entity, or None if it does not change one."""
    operation = find_operation(method, address, "", fields)
    return None if operation is None else operation.change
