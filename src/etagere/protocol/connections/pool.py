"""The connections of one process: their maximum number, and which to close for a new one."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from etagere.config import Config


class ForwardedClient(NamedTuple):
    """The client of a connection that another node has accepted."""

    host: str
    port: int
    is_relayed: bool = False
    """Whether a node of another cell relays its requests, which are not encrypted."""
    is_secure: bool = False
    """Whether the client sent the relayed requests over TLS."""


class ConnectionPool:
    """Counts connections from accept to close, on all listeners of a process.

    At the maximum, a new connection replaces one that has no request under way: first one that has
    never sent a request, then one that is idle between requests; of each, the one that has been
    silent longest.
    """

    def __init__(
        self,
        connections_max: int = Config.connections_max,
        is_draining: Callable[[], bool] = lambda: False,
    ) -> None:
        self._connections_max = connections_max
        self.is_draining = is_draining
        """Returns whether connections are to end with their next response."""
        self._count = 0
        # Dictionaries keep the order of insertion: the order in which the silences began.
        self.silent: dict[ConnectionPlace, None] = {}
        self.idle: dict[ConnectionPlace, None] = {}
        self.freed: list[Callable[[], None]] = []
        """Called when a place has become free, or can be freed by an eviction."""
        self.is_exhausted = False
        """Whether a caller found no place, and waits for one."""

    def has_place(self) -> bool:
        """Returns whether there is a place for a new connection, possibly by an eviction. If not,
        the callbacks in `freed` are called once there is."""
        self.is_exhausted = not (self._count < self._connections_max or self.silent or self.idle)
        return not self.is_exhausted

    def take(self) -> ConnectionPlace:
        """Takes a place for a new connection; evicts another one if necessary."""
        if self._count >= self._connections_max:
            self.evict()
        self._count += 1
        return ConnectionPlace(self)

    def evict(self) -> None:
        """Closes the connection that has been silent longest, if any has no request under way."""
        for place in self.silent or self.idle:
            close = place.evict
            place.leave()
            close()
            return

    def release(self) -> None:
        self._count -= 1
        self.announce()

    def announce(self) -> None:
        """Calls the callbacks of callers that found no place."""
        if self.is_exhausted:
            self.is_exhausted = False
            for callback in self.freed:
                callback()


def _nothing() -> None:
    pass


class ConnectionPlace:
    """The place of one connection in a pool."""

    __slots__ = ("_left", "_pool", "client", "evict", "left")

    def __init__(self, pool: ConnectionPool) -> None:
        self._pool = pool
        self._left = False
        self.evict: Callable[[], None] = _nothing
        """Closes the connection."""
        self.left: Callable[[], None] = _nothing
        """Called once, when the place is free."""
        self.client: ForwardedClient | None = None
        """The client, if another node has accepted the connection."""
        pool.silent[self] = None

    def is_draining(self) -> bool:
        """Returns whether the connection is to end with its next response."""
        return self._pool.is_draining()

    def set_busy(self) -> None:
        """The connection has a request under way."""
        self._pool.silent.pop(self, None)
        self._pool.idle.pop(self, None)

    def set_idle(self) -> None:
        """The connection waits for its next request."""
        if not self._left:
            self._pool.idle[self] = None
            if self._pool.is_exhausted:
                self._pool.announce()

    def leave(self) -> None:
        """The connection is closed, or about to be."""
        if not self._left:
            self._left = True
            self.set_busy()
            self.evict = _nothing  # the callback refers to the connection
            self._pool.release()
            self.left()
