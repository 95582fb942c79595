"""Accepting connections, balanced between the front ends that share a listening socket.

All front ends watch the same listening sockets. One that has more connections than another leaves
a new connection to that one for a moment: it was woken up too. See decision 19.
"""

from __future__ import annotations

import asyncio
import logging
import select
import socket
from collections.abc import Callable

from etagere.protocol.connections.pool import ConnectionPlace, ConnectionPool, ForwardedClient
from etagere.protocol.connections.sharing import FrontEndRow, FrontEndShare

logger = logging.getLogger(__name__)

# Timers have a resolution of a millisecond.
_LOOK_AGAIN_SECONDS = 0.001
# A front end that takes longer to check its sockets is busy or dead.
_DEFER_SECONDS_MAX = 0.02
# The most connections accepted in a row, while requests wait.
_TURN_CONNECTIONS_MAX = 64
# The pause while there are no descriptors left, or no connection can be evicted.
_EXHAUSTED_SECONDS = 0.1
# A front end may have more connections than another by this fraction: taking turns strictly for a
# thousand new connections would take half a second.
_SLACK_DIVISOR = 8

Accept = Callable[[socket.socket, ConnectionPlace], None]


def may_accept(mine: int, least: int) -> bool:
    """Returns whether a front end with `mine` connections may accept another one, if the front end
    with the fewest has `least`."""
    return mine <= least + least // _SLACK_DIVISOR


class Listener:
    """Accepts this front end's share of the connections of one listening socket."""

    def __init__(
        self,
        listening: socket.socket,
        number: int,
        accept: Accept,
        pool: ConnectionPool,
        share: FrontEndShare,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._socket = listening
        self._number = number
        self._accept = accept
        self._pool = pool
        self._share = share
        self._readable = select.poll()
        self._readable.register(listening, select.POLLIN)
        self._timer: asyncio.TimerHandle | None = None
        # When a connection was first left to the others, and their turns at that time.
        self._deferred_at: float | None = None
        self._turns_then: list[int] = []
        # Others that did not react although a connection was left to them, with their turns then.
        self._unresponsive: dict[int, int] = {}
        self._stopped = False

    def start(self) -> None:
        self._socket.setblocking(False)
        self._pool.freed.append(self._resume_soon)
        self._share.own_row.accepts = True
        self._resume()

    def stop(self) -> None:
        if self._stopped:
            return
        self._stopped = True
        self._share.own_row.accepts = False
        self._pause()
        self._pool.freed.remove(self._resume_soon)
        self._socket.close()

    def _pause(self) -> None:
        self._loop.remove_reader(self._socket)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _pause_for(self, seconds: float) -> None:
        self._pause()
        self._timer = self._loop.call_later(seconds, self._resume)

    def _resume_soon(self) -> None:
        self._loop.call_soon(self._resume)

    def _resume(self) -> None:
        """Watches the socket again, and checks at once whether a connection is still waiting."""
        if self._stopped:
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._loop.add_reader(self._socket, self._look)
        if self._readable.poll(0):
            self._look()
        else:
            self._deferred_at = None

    def _look(self) -> None:
        """Accepts connections while it is this front end's turn. If it is not when the socket
        becomes readable, the others get a moment to accept."""
        self._share.own_row.count_turn()
        if not self._is_my_turn() and not self._has_deferred_enough():
            self._pause_for(_LOOK_AGAIN_SECONDS)
            return
        self._deferred_at = None
        for _ in range(_TURN_CONNECTIONS_MAX):
            if not self._accept_one() or not self._is_my_turn():
                return

    def _is_my_turn(self) -> bool:
        mine = self._share.own_row.connections(self._number)
        others = range(len(self._share.peers))
        return may_accept(mine, min(map(self._connections_of, others), default=mine))

    def _has_deferred_enough(self) -> bool:
        now = self._loop.time()
        if self._deferred_at is None:
            self._deferred_at = now
            self._turns_then = [other.turns for other in self._share.peers]
        if now - self._deferred_at < _DEFER_SECONDS_MAX:
            return False
        self._note_unresponsive()
        return True

    def _connections_of(self, index: int) -> int:
        """Returns the number of connections of another front end; this front end's own number if
        the other accepts none, since waiting for it is pointless."""
        other: FrontEndRow = self._share.peers[index]
        if not other.accepts or self._unresponsive.get(index) == other.turns:
            return self._share.own_row.connections(self._number)
        return other.connections(self._number)

    def _note_unresponsive(self) -> None:
        for index, turns in enumerate(self._turns_then):
            if self._share.peers[index].turns == turns:
                self._unresponsive[index] = turns

    def _accept_one(self) -> bool:
        if not self._pool.has_place():
            self._wait_for_place()
            return False
        self._share.own_row.accepts = True
        try:
            connected, _ = self._socket.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return False
        except OSError as error:
            logger.error("cannot accept connections: %s", error)
            self._pool.evict()
            self._wait_for_place()
            return False
        self._admit(connected)
        return True

    def has_place(self) -> bool:
        """Returns whether another connection can be adopted."""
        return not self._stopped and self._pool.has_place()

    def adopt(self, connected: socket.socket, client: ForwardedClient) -> None:
        """Takes a connection of this client that another node has accepted."""
        if self.has_place():
            self._admit(connected, client)
        else:
            connected.close()

    def _admit(self, connected: socket.socket, client: ForwardedClient | None = None) -> None:
        connected.setblocking(False)
        place = self._pool.take()
        place.client = client
        self._share.own_row.add_connections(self._number, 1)
        place.left = self._forget_one
        self._accept(connected, place)

    def _forget_one(self) -> None:
        self._share.own_row.add_connections(self._number, -1)

    def _wait_for_place(self) -> None:
        """Stops accepting for a while. New connections wait in the backlog of the socket, or other
        front ends accept them."""
        self._share.own_row.accepts = False
        self._pause_for(_EXHAUSTED_SECONDS)
