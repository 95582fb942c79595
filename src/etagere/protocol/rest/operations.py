"""Operations of a REST service: one row per operation, and an index from routes to rows.

A service lists its operations in `protocol/<service>/operations.py`. A row says which requests ask
for the operation, which permission the caller needs, what it accepts, and which function handles
it. Nothing else is known about an operation outside of its row and its handler.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, NamedTuple, TypeVar

from etagere.auth.permissions import Permission
from etagere.engine.interface import Refused
from etagere.errors import Refusal
from etagere.protocol.http.messages import Response

Handler = Callable[..., Awaitable[Response]]
"""Called with the exchange, what the service has parsed of the address, and the dependencies."""

_READING_METHODS: Final = frozenset({"GET", "HEAD", "OPTIONS"})


class Route(NamedTuple):
    """A form of request: what has to be the same for it to ask for an operation."""

    method: str
    level: Enum
    """What the address names: the service, a container, a blob…"""
    comp: str = ""
    restype: str = ""
    variant: Enum | None = None
    """What else tells two operations apart, such as a header. None: any, unless another row has
    that variant."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Operation:
    """One row: an operation of a service."""

    name: str
    """As in the catalogue of operations: the name of the REST reference in snake case."""
    routes: tuple[Route, ...]
    handler: Handler
    permission: Permission
    changes: bool | None = None
    """Whether it changes something. None: the method says so."""
    answers_head: bool = True
    """Whether HEAD asks for it too, where GET does: the same answer without its body."""

    @property
    def permissions(self) -> Mapping[str, Permission]:
        """The permissions that requests for it need, by operation of the catalogue."""
        return {self.name: self.permission}


Row = TypeVar("Row", bound=Operation)
RouteIndex = dict[tuple[str, Any, str, str, Any], Row]
"""From the fields of a `Route` to the operation that such a request asks for."""


def index_routes(operations: Iterable[Row], variants: Iterable[Enum] = ()) -> RouteIndex[Row]:
    """Returns an index with an entry for every form of request, so that one look finds the row.

    `variants` are all that a request to the service may have.
    """
    index: RouteIndex[Row] = {}
    for operation in operations:
        for route in operation.routes:
            if route in index:
                raise ValueError(f"two operations have the route {route}")
            index[route] = operation
    for (method, *rest), operation in list(index.items()):
        if method == "GET" and operation.answers_head:
            index.setdefault(("HEAD", *rest), operation)
    for (*form, variant), operation in list(index.items()):
        if variant is None:
            for other in variants:
                index.setdefault((*form, other), operation)
    return index


def is_change(operation: Operation, method: str) -> bool:
    """Whether a request for the operation changes something."""
    return method not in _READING_METHODS if operation.changes is None else operation.changes


def no_route(method: str, comp: str) -> Refused:
    """The refusal of a request that asks for no operation."""
    if comp:
        facts: dict[str, str | int] = {"QueryParameterName": "comp", "QueryParameterValue": comp}
        return Refused(Refusal("InvalidQueryParameterValue", facts))
    return Refused(Refusal("UnsupportedHttpVerb", {"Method": method}))
