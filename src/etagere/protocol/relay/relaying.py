"""Relaying a request to a node of another cell, and its response back.

If a node fails before it can have changed anything, the request is sent to another one. Otherwise
the client gets the response that it would get if this server had failed: 503 if nothing was
changed, 500 if that is unknown.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Sequence
from typing import Final, Protocol

from etagere.engine.interface import Fault, FaultReason, Unknown
from etagere.model.cells import NamedCellNode
from etagere.protocol.connections.memory import SMALL_BYTES_MAX, MemoryBudget, MemoryExhausted
from etagere.protocol.http.messages import Request, RequestBody, Response
from etagere.protocol.relay.connections import CellConnection, CellConnections, Sender
from etagere.protocol.relay.effects import Effect, effect_of
from etagere.protocol.relay.heads import ResponseHead, request_head
from etagere.protocol.relay.node_connection import RESPONSE_BYTES_MAX, NodeConnection, NodeGone

logger = logging.getLogger(__name__)

_ATTEMPTS_MAX: Final = 4
_RESPONSE_SECONDS_MAX: Final = 120.0
"""How long a node may take to respond."""
_COPY_SECONDS_MAX: Final = 660.0
"""How long a node may take to respond if it has to read the source of a copy first."""


class CellNodes(Protocol):
    """Knows the nodes of the cells."""

    async def nodes_of(self, cell: str) -> Sequence[NamedCellNode]:
        """Returns the nodes of a cell. Raises `Fault` if they are not known."""
        ...


class FetchedResponse:
    """The response of a node, while its body is read."""

    def __init__(
        self, connections: CellConnections, used: CellConnection, head: ResponseHead
    ) -> None:
        self._connections = connections
        self._used: CellConnection | None = used
        self.head = head

    def chunks(self) -> AsyncIterator[bytes]:
        """Yields the body, until the response is closed. Raises `OSError`."""
        assert self._used is not None
        return _chunks(self._used)

    def close(self) -> None:
        """Stops reading, and releases the connection."""
        used, self._used = self._used, None
        if used is not None:
            self._connections.keep(used)


class Relay:
    """Relays requests to the nodes of other cells."""

    def __init__(
        self, cell_nodes: CellNodes, secret: bytes, memory: MemoryBudget, front_ends: int = 1
    ) -> None:
        """`secret` is that of the account map, and `front_ends` the number of front ends of this
        node."""
        self._cell_nodes = cell_nodes
        self._connections = CellConnections(secret, front_ends)
        self._memory = memory

    async def relay(self, cell: str, service: str, request: Request) -> Response:
        """Returns the response of a cell to a request. Raises `Fault` if the request was not
        carried out, `Unknown` if that is not known, and what reading its body raises."""
        sender = Sender(service, request.client, request.secure)
        effect = effect_of(service, request)
        reads_source = b"x-ms-copy-source" in request.fields
        used, received = await self._send(
            cell,
            sender,
            request.method,
            request_head(request),
            request.body,
            effect=effect,
            response_seconds_max=_COPY_SECONDS_MAX if reads_source else _RESPONSE_SECONDS_MAX,
        )
        return self._response(used, request, received, is_safe=effect is Effect.NONE)

    async def fetch(self, cell: str, sender: Sender, head: bytes) -> FetchedResponse:
        """Returns the response of a cell to a GET request with this head. Raises `Fault`."""
        used, received = await self._send(
            cell,
            sender,
            "GET",
            head,
            None,
            effect=Effect.NONE,
            response_seconds_max=_RESPONSE_SECONDS_MAX,
        )
        return FetchedResponse(self._connections, used, received)

    async def _send(
        self,
        cell: str,
        sender: Sender,
        method: str,
        head: bytes,
        body: RequestBody | None,
        *,
        effect: Effect,
        response_seconds_max: float,
    ) -> tuple[CellConnection, ResponseHead]:
        for _ in range(_ATTEMPTS_MAX):
            used = await self._connect(cell, sender)
            connection = used.connection
            try:
                received = await connection.request(method, head, body, response_seconds_max)
                return used, received
            except NodeGone as gone:
                self._connections.discard(used)
                logger.warning("node %s of cell %s is gone: %s", used.node, cell, gone)
                if _may_have_changed(effect, connection):
                    raise Unknown(f"cell {cell}: {gone}") from None
                if connection.body_bytes_sent:
                    raise Fault(FaultReason.UNAVAILABLE, f"cell {cell}: {gone}") from None
        raise Fault(FaultReason.UNAVAILABLE, f"cell {cell}: {_ATTEMPTS_MAX} nodes are gone")

    async def _connect(self, cell: str, sender: Sender) -> CellConnection:
        kept = self._connections.take_idle(cell, sender)
        if kept is not None:
            return kept
        nodes = await self._cell_nodes.nodes_of(cell)
        try:
            return await self._connections.connect(cell, sender, nodes)
        except NodeGone as gone:
            raise Fault(FaultReason.UNAVAILABLE, str(gone)) from None

    def _response(
        self, used: CellConnection, request: Request, received: ResponseHead, *, is_safe: bool
    ) -> Response:
        response = Response(
            received.status,
            received.headers,
            length=received.length,
            reason=received.reason,
            has_effect=not is_safe,
            is_relayed=True,
        )
        connection = used.connection
        if connection.has_ended:
            response.body = connection.take_received()
            self._connections.keep(used)
            return response
        length = RESPONSE_BYTES_MAX if received.length is None else received.length
        if length > SMALL_BYTES_MAX:
            if is_safe and not self._memory.has_room():
                connection.abort()
                raise MemoryExhausted
            request.body.keep(min(length, RESPONSE_BYTES_MAX))
        response.body = _chunks(used)
        response.finished = lambda: self._connections.keep(used)
        return response

    async def close(self) -> None:
        await self._connections.close()


async def _chunks(used: CellConnection) -> AsyncIterator[bytes]:
    """Yields the body of a response. Raises `OSError`."""
    try:
        async for chunk in used.connection.chunks():
            yield chunk
    except NodeGone as gone:
        raise OSError(f"node {used.node} of cell {used.cell} is gone: {gone}") from None


def _may_have_changed(effect: Effect, connection: NodeConnection) -> bool:
    """Returns whether a node may have carried out the request that was sent to it."""
    needs_body = effect is Effect.AFTER_BODY
    return effect is Effect.AT_ONCE or (needs_body and connection.has_sent_all)
