"""Accepting connections, in turn with the other front ends that share the socket.

Each front end watches the same listening sockets. One that has more connections than another
leaves the next to it, for a moment: the other was woken up too. See decision 19.
"""

from __future__ import annotations

import asyncio
import logging
import select
import socket
from collections.abc import Callable

from etagere.protocol.http.pool import ConnectionPool, Place
from etagere.protocol.http.sharing import FrontEndRow, FrontEndShare

logger = logging.getLogger(__name__)

# Timers have a resolution of a millisecond.
_LOOK_AGAIN_SECONDS = 0.001
# A front end that takes longer to look at its sockets is busy with something else, or gone.
_DEFER_SECONDS_MAX = 0.02
# Connections of one turn: requests wait no longer than for these.
_TURN_CONNECTIONS_MAX = 64
# While there are no descriptors left, or no connection that could be closed for another.
_EXHAUSTED_SECONDS = 0.1
# With many connections, a difference of this share is as good as none: to take turns for each of
# a thousand new ones would take half a second.
_SLACK_DIVISOR = 8

Accept = Callable[[socket.socket, Place], None]


def may_accept(mine: int, least: int) -> bool:
    """Whether a front end with so many connections takes another one, if the front end with the
    fewest has `least`."""
    return mine <= least + least // _SLACK_DIVISOR


class Listener:
    """Accepts the connections of one listening socket, as far as they are this front end's."""

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
        # Since when, and at which turns of the others, a connection has been left to them.
        self._deferred_at: float | None = None
        self._turns_then: list[int] = []
        # Others that did not look although there was a connection for them, by their turns then.
        self._unresponsive: dict[int, int] = {}
        self._stopped = False

    def start(self) -> None:
        self._socket.setblocking(False)
        self._pool.freed.append(self._resume_soon)
        self._share.mine.accepts = True
        self._resume()

    def stop(self) -> None:
        if self._stopped:
            return
        self._stopped = True
        self._share.mine.accepts = False
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
        """Watches the socket again, and looks at once whether there still is a connection."""
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
        """Accepts connections for as long as it is this front end's turn. If it was not even when
        the socket became readable, the others have a moment to take what is there."""
        self._share.mine.count_turn()
        if not self._is_my_turn() and not self._has_deferred_enough():
            self._pause_for(_LOOK_AGAIN_SECONDS)
            return
        self._deferred_at = None
        for _ in range(_TURN_CONNECTIONS_MAX):
            if not self._accept_one() or not self._is_my_turn():
                return

    def _is_my_turn(self) -> bool:
        mine = self._share.mine.connections(self._number)
        others = range(len(self._share.others))
        return may_accept(mine, min(map(self._connections_of, others), default=mine))

    def _has_deferred_enough(self) -> bool:
        now = self._loop.time()
        if self._deferred_at is None:
            self._deferred_at = now
            self._turns_then = [other.turns for other in self._share.others]
        if now - self._deferred_at < _DEFER_SECONDS_MAX:
            return False
        self._note_unresponsive()
        return True

    def _connections_of(self, index: int) -> int:
        """As many as all, if it accepts none: there is no point in waiting for it."""
        other: FrontEndRow = self._share.others[index]
        if not other.accepts or self._unresponsive.get(index) == other.turns:
            return self._share.mine.connections(self._number)
        return other.connections(self._number)

    def _note_unresponsive(self) -> None:
        for index, turns in enumerate(self._turns_then):
            if self._share.others[index].turns == turns:
                self._unresponsive[index] = turns

    def _accept_one(self) -> bool:
        if not self._pool.has_place():
            self._wait_for_place()
            return False
        self._share.mine.accepts = True
        try:
            connected, _ = self._socket.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return False
        except OSError as error:
            logger.error("cannot accept connections: %s", error)
            self._pool.evict()
            self._wait_for_place()
            return False
        connected.setblocking(False)
        place = self._pool.take()
        self._share.mine.add_connections(self._number, 1)
        place.left = self._forget_one
        self._accept(connected, place)
        return True

    def _forget_one(self) -> None:
        self._share.mine.add_connections(self._number, -1)

    def _wait_for_place(self) -> None:
        """New connections wait in the backlog of the socket, or are taken by others."""
        self._share.mine.accepts = False
        self._pause_for(_EXHAUSTED_SECONDS)
