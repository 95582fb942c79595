"""The connections of a process to the nodes of other cells."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import socket
from collections import OrderedDict
from collections.abc import Sequence
from typing import Final, NamedTuple
from weakref import WeakValueDictionary

from etagere.model.cells import NamedCellNode
from etagere.protocol.connections.introductions import (
    HANDSHAKES_PER_ADDRESS_MAX,
    Introduction,
    NotIntroduced,
    connect_to_node,
)
from etagere.protocol.relay.node_connection import NodeConnection, NodeGone
from etagere.protocol.relay.suspects import Address, Suspects, Target
from etagere.telemetry.formats import describe_exception

logger = logging.getLogger(__name__)

_FILE: Final = "file"
_IDLE_MAX: Final = 512
_IDLE_SECONDS_MAX: Final = 15.0
"""Less than the time after which the node closes an idle connection."""
_EXPIRE_SECONDS: Final = 5.0
_CONNECT_SECONDS_MAX: Final = 12.0
"""How long a request waits for its turn with some node."""
_NODE_SECONDS_MAX: Final = 3.0
"""How long it waits for its turn with one node, and then for the node, while there are others."""
_NODES_TRIED_MAX: Final = 8
"""The most nodes of a cell that are tried for one request."""
_HANDSHAKES_MAX: Final = 8
"""The most handshakes of a front end with one node at the same time."""
_KEEPALIVE_IDLE_SECONDS: Final = 15
_KEEPALIVE_INTERVAL_SECONDS: Final = 5
_KEEPALIVE_PROBES: Final = 3
_UNACKNOWLEDGED_MILLISECONDS_MAX: Final = 60_000


class Sender(NamedTuple):
    """Who sent a request, and to which service."""

    service: str
    host: str
    """The address of the client."""
    is_secure: bool
    """Whether the client uses TLS."""


class CellConnection(NamedTuple):
    """A connection to a node of a cell, for the requests of one sender."""

    cell: str
    sender: Sender
    node: str
    target: Target
    connection: NodeConnection


_Key = tuple[str, Sender]


class _Attempt(NamedTuple):
    """An attempt to connect to a node, for a request that needs any node of a cell."""

    cell: str
    sender: Sender
    node: str
    target: Target
    deadline: float
    """When no further handshake is begun for the request."""
    is_last: bool
    """Whether there is no other node to try."""

    def turn_ends_at(self, began: float) -> float:
        """Returns how long to wait for a handshake to begin."""
        return self.deadline if self.is_last else min(self.deadline, began + _NODE_SECONDS_MAX)

    def handshake_ends_at(self, began: float) -> float:
        """Returns how long to wait for a handshake. It always gets its time: a node must not seem
        to be unreachable because the request has waited elsewhere before."""
        ends_at = began + _NODE_SECONDS_MAX
        return max(self.deadline, ends_at) if self.is_last else ends_at


class CellConnections:
    """Connections to the nodes of other cells. Each is used for the requests of one sender, one at
    a time, and is kept open for the next one for a while."""

    def __init__(self, secret: bytes, front_ends: int = 1) -> None:
        """`front_ends` is the number of front ends of this node, which have the same address."""
        self._secret = secret
        self._handshakes_max = handshakes_max(front_ends)
        self._idle: OrderedDict[CellConnection, float] = OrderedDict()
        """Idle connections and the times when they became idle, the oldest first."""
        self._idle_of: dict[_Key, list[CellConnection]] = {}
        self._suspects = Suspects()
        self._handshakes: WeakValueDictionary[Address, asyncio.Semaphore] = WeakValueDictionary()
        """Limit the handshakes with each node."""
        self._expiring: asyncio.TimerHandle | None = None

    def take_idle(self, cell: str, sender: Sender) -> CellConnection | None:
        """Returns a connection to any node of a cell that was kept for this sender, if any."""
        while (kept := self._idle_of.get((cell, sender))) is not None:
            taken = kept[-1]
            self._remove(taken)
            if taken.connection.is_usable:
                return taken
        return None

    async def connect(
        self, cell: str, sender: Sender, nodes: Sequence[NamedCellNode]
    ) -> CellConnection:
        """Connects to one of these nodes. Raises `NodeGone` if none can be reached in time."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + _CONNECT_SECONDS_MAX
        self._suspects.forget_old()
        untried = random.sample(list(nodes), len(nodes))
        for left in reversed(range(min(len(untried), _NODES_TRIED_MAX))):
            if loop.time() >= deadline:
                break
            named = self._take_next(untried, sender)
            target = _target_of(named, sender)
            attempt = _Attempt(cell, sender, named.name, target, deadline, is_last=not left)
            async with contextlib.AsyncExitStack() as turn:
                if await self._take_turn(turn, attempt):
                    connection = await self._try(attempt)
                    if connection is not None:
                        return CellConnection(*attempt[:4], connection)
        raise NodeGone(f"no node of cell {cell} can be reached")

    async def _take_turn(self, turn: contextlib.AsyncExitStack, attempt: _Attempt) -> bool:
        """Waits until a handshake with a node may begin, and holds `turn` for it. Returns whether
        it is worthwhile: not if others have found meanwhile that the node is unreachable."""
        began = asyncio.get_running_loop().time()
        suspect = self._suspects.get(attempt.target)
        handshakes = self._handshakes.setdefault(
            attempt.target.address, asyncio.Semaphore(self._handshakes_max)
        )
        try:
            async with asyncio.timeout_at(attempt.turn_ends_at(began)):
                if suspect is not None:
                    await turn.enter_async_context(suspect.probing)
                await turn.enter_async_context(handshakes)
        except TimeoutError:
            return False
        return not self._suspects.has_become_unreachable(attempt.target, began)

    async def _try(self, attempt: _Attempt) -> NodeConnection | None:
        """Connects to a node. Returns None if that fails, and avoids the node for a while."""
        began = asyncio.get_running_loop().time()
        target = attempt.target
        try:
            async with asyncio.timeout_at(attempt.handshake_ends_at(began)):
                connection = await self._connect(target.address, attempt.sender)
        except (OSError, NotIntroduced) as error:
            if self._suspects.get(target) is None:
                reason = describe_exception(error)
                logger.warning(
                    "cannot reach node %s of cell %s: %s", attempt.node, attempt.cell, reason
                )
            if isinstance(error, OSError):
                self._suspects.note_unreachable(target, began)
            else:
                self._suspects.note_failure(target)
            return None
        self._suspects.clear(target)
        return connection

    async def _connect(self, address: Address, sender: Sender) -> NodeConnection:
        introduction = Introduction(
            sender.service, sender.host, 0, 0, is_relayed=True, is_secure=sender.is_secure
        )
        connected = await connect_to_node(address, self._secret, introduction)
        try:
            _set_options(connected)
            loop = asyncio.get_running_loop()
            _, connection = await loop.create_connection(NodeConnection, sock=connected)
        except BaseException:
            connected.close()
            raise
        return connection

    def _take_next(self, untried: list[NamedCellNode], sender: Sender) -> NamedCellNode:
        """Removes the node to try next: the first that is not to be avoided now, if any."""
        untried.sort(key=lambda named: self._suspects.is_avoided(_target_of(named, sender)))
        return untried.pop(0)

    def discard(self, used: CellConnection) -> None:
        """Closes a connection whose node is gone, and the idle ones that are gone with it, and
        tries the node last for a while."""
        self._suspects.note_failure(used.target)
        used.connection.abort()
        for kept in [kept for kept in self._idle if kept.target == used.target]:
            self._remove(kept)
            kept.connection.abort()

    def keep(self, used: CellConnection) -> None:
        """Keeps a connection whose request has ended for the next one, or closes it."""
        used.connection.end_request()
        if not used.connection.is_usable:
            return
        loop = asyncio.get_running_loop()
        self._idle[used] = loop.time()
        self._idle_of.setdefault((used.cell, used.sender), []).append(used)
        if len(self._idle) > _IDLE_MAX:
            self._close_oldest()
        if self._expiring is None:
            self._expiring = loop.call_later(_EXPIRE_SECONDS, self._expire)

    def _expire(self) -> None:
        loop = asyncio.get_running_loop()
        while self._idle and next(iter(self._idle.values())) < loop.time() - _IDLE_SECONDS_MAX:
            self._close_oldest()
        again = bool(self._idle)
        self._expiring = loop.call_later(_EXPIRE_SECONDS, self._expire) if again else None

    def _close_oldest(self) -> None:
        oldest = next(iter(self._idle))
        self._remove(oldest)
        oldest.connection.abort()

    def _remove(self, kept: CellConnection) -> None:
        del self._idle[kept]
        key = kept.cell, kept.sender
        same = self._idle_of[key]
        same.remove(kept)
        if not same:
            del self._idle_of[key]

    async def close(self) -> None:
        """Closes the connections that are not in use."""
        if self._expiring is not None:
            self._expiring.cancel()
        while self._idle:
            self._close_oldest()


def handshakes_max(front_ends: int) -> int:
    """Returns how many handshakes with one node a front end may have at the same time. One process
    of that node may get those of all front ends, and gives up the oldest ones if they are too
    many."""
    share = HANDSHAKES_PER_ADDRESS_MAX // front_ends
    return max(1, min(share, _HANDSHAKES_MAX))


def _target_of(named: NamedCellNode, sender: Sender) -> Target:
    return Target((named.node.host, named.node.port), sender.service == _FILE)


def _set_options(connected: socket.socket) -> None:
    """Makes the kernel notice within a minute that the machine of a node is gone."""
    for option, value in (
        (socket.TCP_KEEPIDLE, _KEEPALIVE_IDLE_SECONDS),
        (socket.TCP_KEEPINTVL, _KEEPALIVE_INTERVAL_SECONDS),
        (socket.TCP_KEEPCNT, _KEEPALIVE_PROBES),
        (socket.TCP_USER_TIMEOUT, _UNACKNOWLEDGED_MILLISECONDS_MAX),
    ):
        connected.setsockopt(socket.IPPROTO_TCP, option, value)
