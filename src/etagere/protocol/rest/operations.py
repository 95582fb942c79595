"""Operations of a REST service: one row per operation, and an index from routes to rows.

A service lists its operations in `protocol/<service>/operations.py`. A row defines the routes of
the operation, the permission that the caller needs, what it accepts, and its handler. Everything
about an operation is in its row and its handler.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Container, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, NamedTuple, TypeVar

from etagere.auth.permissions import Permission
from etagere.engine.interface import Refused
from etagere.errors import Refusal
from etagere.protocol.http.messages import Response
from etagere.protocol.rest.exchange import Exchange

Handler = Callable[..., Awaitable[Response]]
"""Called with the exchange, the parsed address and the dependencies."""

_READING_METHODS: Final = frozenset({"GET", "HEAD", "OPTIONS"})


class Route(NamedTuple):
    """A route: the properties of a request that select an operation."""

    method: str
    level: Enum
    """The kind of resource in the address: the service, a container, a blob…"""
    comp: str = ""
    restype: str = ""
    variant: Enum | None = None
    """Another distinction, such as a header. None: any, unless another row has that variant."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Operation:
    """One row: an operation of a service."""

    name: str
    """The name of the REST reference in snake case, as in the catalogue of operations."""
    routes: tuple[Route, ...]
    handler: Handler
    permission: Permission
    changes: bool | None = None
    """Whether it changes something. None: determined by the method."""
    answers_head: bool = True
    """Whether HEAD is accepted as well as GET, with the same response without its body."""

    @property
    def permissions(self) -> Mapping[str, Permission]:
        """The permissions that requests for it need, by operation of the catalogue."""
        return {self.name: self.permission}


Row = TypeVar("Row", bound=Operation)
RouteIndex = dict[tuple[str, Any, str, str, Any], Row]
"""The operation for the fields of a `Route`."""


def index_routes(operations: Iterable[Row], variants: Iterable[Enum] = ()) -> RouteIndex[Row]:
    """Returns an index with an entry for every possible request, so that one lookup finds the row.

    `variants` are all variants of the service.
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
    """Returns whether a request for the operation changes something."""
    return method not in _READING_METHODS if operation.changes is None else operation.changes


def no_route(
    method: str, comp: str, restype: str = "", *, restypes: Container[str] = (), service: bool
) -> Refused:
    """Returns the refusal of a request for an unknown operation.

    `restypes` are those of other requests for a resource of this kind; `service`: the resource is
    the service itself, all of whose operations have a `comp`.
    """
    if restype and restype not in restypes:
        return _bad_parameter("restype", restype)
    if comp or service:
        return _bad_parameter("comp", comp)
    return Refused(Refusal("UnsupportedHttpVerb", {"Method": method}))


def refuse_unrouted(exchange: Exchange, restypes: Container[str], *, service: bool) -> Refused:
    """Returns the refusal of a request for which there is no operation; as `no_route`."""
    request = exchange.request
    return no_route(
        request.method,
        request.parameters.get("comp", ""),
        request.parameters.get("restype", "").lower(),
        restypes=restypes,
        service=service,
    )


def _bad_parameter(name: str, value: str) -> Refused:
    facts: dict[str, str | int] = {"QueryParameterName": name, "QueryParameterValue": value}
    return Refused(Refusal("InvalidQueryParameterValue", facts))


def restypes_of(index: RouteIndex[Row], level: Enum) -> frozenset[str]:
    """Returns the values of `restype` in requests for a kind of resource."""
    return frozenset(restype for _, other, _, restype, _ in index if other is level)
