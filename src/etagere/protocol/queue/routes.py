"""Which operation a request to the queue service asks for.

One row per form of request: the method, what the address names, and `comp`. Operations are named
as in the table of permissions.
"""

from __future__ import annotations

import enum
from typing import Final, NamedTuple


class Level(enum.Enum):
    """What the address of a request names."""

    SERVICE = enum.auto()
    QUEUE = enum.auto()
    MESSAGES = enum.auto()
    MESSAGE = enum.auto()


class Route(NamedTuple):
    """A form of request."""

    method: str
    level: Level
    comp: str = ""


SERVICE, QUEUE, MESSAGES, MESSAGE = Level

ROUTES: Final[dict[Route, str]] = {
    Route("GET", SERVICE, "list"): "list_queues",
    Route("GET", SERVICE, "properties"): "get_queue_service_properties",
    Route("PUT", SERVICE, "properties"): "set_queue_service_properties",
    Route("GET", SERVICE, "stats"): "get_queue_service_stats",
    Route("PUT", QUEUE): "create_queue",
    Route("DELETE", QUEUE): "delete_queue",
    Route("GET", QUEUE, "metadata"): "get_queue_metadata",
    Route("PUT", QUEUE, "metadata"): "set_queue_metadata",
    Route("GET", QUEUE, "acl"): "get_queue_acl",
    Route("PUT", QUEUE, "acl"): "set_queue_acl",
    Route("POST", MESSAGES): "put_message",
    Route("GET", MESSAGES): "get_messages",
    Route("DELETE", MESSAGES): "clear_messages",
    Route("PUT", MESSAGE): "update_message",
    Route("DELETE", MESSAGE): "delete_message",
}

PEEK: Final = "peek_messages"
"""What getting messages is if the request says so."""

READS: Final = frozenset(name for route, name in ROUTES.items() if route.method == "GET")
"""Operations of GET, whose answers are not to be kept by caches."""


def find_route(method: str, queue: str, below: str, comp: str, *, peek: bool) -> str | None:
    """What is asked for; None if there is no such operation. A HEAD is a GET whose answer has no
    body, but nobody takes messages without wanting to see them."""
    level = _level(queue, below)
    if level is None:
        return None
    if method == "HEAD" and level is not MESSAGES:
        method = "GET"
    name = ROUTES.get(Route(method, level, comp.lower()))
    return PEEK if name == "get_messages" and peek else name


def _level(queue: str, below: str) -> Level | None:
    if not queue:
        return SERVICE
    if not below:
        return QUEUE
    if below == "messages":
        return MESSAGES
    collection, _, message = below.partition("/")
    return MESSAGE if collection == "messages" and message and "/" not in message else None
