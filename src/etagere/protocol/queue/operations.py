"""The operations of the queue service: one row each.

A row names its routes (method, level, `comp`, and `peekonly`), the permission that the caller
needs, and its handler.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Final

from etagere.auth.permissions import (
    on_delegation_key,
    on_messages,
    on_queue,
    on_service,
    on_service_properties,
)
from etagere.model.base import KeyEnum
from etagere.protocol.queue import handlers
from etagere.protocol.rest import delegation, service_operations
from etagere.protocol.rest.exchange import Exchange
from etagere.protocol.rest.operations import Operation, Route, index_routes


class Level(KeyEnum):
    """The kind of resource in the address of a request."""

    SERVICE = enum.auto()
    QUEUE = enum.auto()
    MESSAGES = enum.auto()
    MESSAGE = enum.auto()


class Peek(enum.Enum):
    """Whether a request has `peekonly`."""

    PEEK_ONLY = enum.auto()


SERVICE, QUEUE, MESSAGES, MESSAGE = Level


@dataclass(frozen=True, kw_only=True, eq=False)
class QueueOperation(Operation):
    """One row: an operation of the queue service."""

    @property
    def is_cacheable(self) -> bool:
        """Whether the response has no header against caching: the service forbids caching of
        GET."""
        return all(route.method != "GET" for route in self.routes)


# The formatter would spread each row over many lines.
# fmt: off
OPERATIONS: Final = (
    # The service
    QueueOperation(
        name="list_queues", handler=handlers.list_queues,
        permission=on_service("l"),
        routes=(Route("GET", SERVICE, "list"),)),
    QueueOperation(
        name="get_queue_service_properties", handler=service_operations.get_service_properties,
        permission=on_service_properties("r"),
        routes=(Route("GET", SERVICE, "properties"),)),
    QueueOperation(
        name="set_queue_service_properties", handler=service_operations.set_service_properties,
        permission=on_service_properties("w"),
        routes=(Route("PUT", SERVICE, "properties"),)),
    QueueOperation(
        name="get_queue_service_stats", handler=service_operations.get_service_stats,
        permission=on_service_properties("r"),
        routes=(Route("GET", SERVICE, "stats"),)),
    QueueOperation(
        name="get_user_delegation_key", handler=delegation.get_user_delegation_key,
        permission=on_delegation_key(),
        routes=(Route("POST", SERVICE, "userdelegationkey"),)),
    # Queues
    QueueOperation(
        name="create_queue", handler=handlers.create_queue, routes=(Route("PUT", QUEUE),),
        permission=on_queue("c|w")),
    QueueOperation(
        name="delete_queue", handler=handlers.delete_queue, routes=(Route("DELETE", QUEUE),),
        permission=on_queue("d")),
    QueueOperation(
        name="get_queue_metadata", handler=handlers.get_queue_metadata,
        permission=on_queue("r", "r"),
        routes=(Route("GET", QUEUE, "metadata"),)),
    QueueOperation(
        name="set_queue_metadata", handler=handlers.set_queue_metadata,
        permission=on_queue("w"),
        routes=(Route("PUT", QUEUE, "metadata"),)),
    QueueOperation(
        name="get_queue_acl", handler=handlers.get_queue_acl,
        permission=on_queue(None),
        routes=(Route("GET", QUEUE, "acl"),)),
    QueueOperation(
        name="set_queue_acl", handler=handlers.set_queue_acl,
        permission=on_queue(None),
        routes=(Route("PUT", QUEUE, "acl"),)),
    # Messages
    QueueOperation(
        name="put_message", handler=handlers.put_message, routes=(Route("POST", MESSAGES),),
        permission=on_messages("a", "a")),
    QueueOperation(
        name="get_messages", handler=handlers.get_messages, routes=(Route("GET", MESSAGES),),
        permission=on_messages("p", "p"),
        # It hides messages, so HEAD is not accepted.
        changes=True, answers_head=False),
    QueueOperation(
        name="peek_messages", handler=handlers.peek_messages, answers_head=False,
        permission=on_messages("r", "r"),
        routes=(Route("GET", MESSAGES, variant=Peek.PEEK_ONLY),)),
    QueueOperation(
        name="clear_messages", handler=handlers.clear_messages,
        permission=on_messages("d", None),
        routes=(Route("DELETE", MESSAGES),)),
    QueueOperation(
        name="update_message", handler=handlers.update_message, routes=(Route("PUT", MESSAGE),),
        permission=on_messages("u", "u")),
    QueueOperation(
        name="delete_message", handler=handlers.delete_message,
        permission=on_messages("p", "p"),
        routes=(Route("DELETE", MESSAGE),)),
)
# fmt: on

_INDEX: Final = index_routes(OPERATIONS, Peek)


def find_operation(exchange: Exchange) -> QueueOperation | None:
    """Returns the operation of a request, or None if there is no such operation."""
    request = exchange.request
    level, parameters = _level(*request.resource), request.parameters
    peek = Peek.PEEK_ONLY if parameters.get("peekonly", "").lower() == "true" else None
    return _INDEX.get((request.method, level, parameters.get("comp", "").lower(), "", peek))


def _level(queue: str, below: str) -> Level | None:
    if not queue:
        return SERVICE
    if not below:
        return QUEUE
    if below == "messages":
        return MESSAGES
    collection, _, message = below.partition("/")
    return MESSAGE if collection == "messages" and message and "/" not in message else None
