"""The connections of one process: how many there may be, and which one gives way to a new one."""

from __future__ import annotations

from collections.abc import Callable

from etagere.config import Config


class ConnectionPool:
    """Counts connections from accept to close, on all listeners of a process.

    When there are as many as there may be, one without a request gives way to a new one: first
    those that have never sent a request, then those that wait for their next one; of each, the
    one that has been silent longest.
    """

    def __init__(self, connections_max: int = Config.connections_max) -> None:
        self._connections_max = connections_max
        self._count = 0
        # Dictionaries keep their order, which is that of the beginning of each silence.
        self.silent: dict[Place, None] = {}
        self.idle: dict[Place, None] = {}
        self.freed: list[Callable[[], None]] = []
        """Called when a place has become free, or could be made free."""
        self.is_exhausted = False
        """Whether somebody found no place, and waits for one."""

    def has_place(self) -> bool:
        """Whether there is a place for a new connection, or one that could be made free. If not,
        those in `freed` are called when there is."""
        self.is_exhausted = not (self._count < self._connections_max or self.silent or self.idle)
        return not self.is_exhausted

    def take(self) -> Place:
        """A place for a new connection."""
        if self._count >= self._connections_max:
            self.evict()
        self._count += 1
        return Place(self)

    def evict(self) -> None:
        """Closes the connection that is missed least, if there is one without a request."""
        for place in self.silent or self.idle:
            close = place.evict
            place.leave()
            close()
            return

    def release(self) -> None:
        self._count -= 1
        self.announce()

    def announce(self) -> None:
        """Tells those who found no place that there may be one."""
        if self.is_exhausted:
            self.is_exhausted = False
            for callback in self.freed:
                callback()


def _nothing() -> None:
    pass


class Place:
    """The place of one connection in a pool."""

    __slots__ = ("_left", "_pool", "evict", "left")

    def __init__(self, pool: ConnectionPool) -> None:
        self._pool = pool
        self._left = False
        self.evict: Callable[[], None] = _nothing
        """Closes the connection."""
        self.left: Callable[[], None] = _nothing
        """Called once, when the place is free."""
        pool.silent[self] = None

    def set_busy(self) -> None:
        """The connection has a request under way."""
        self._pool.silent.pop(self, None)
        self._pool.idle.pop(self, None)

    def set_idle(self) -> None:
        """It waits for its next request."""
        if not self._left:
            self._pool.idle[self] = None
            if self._pool.is_exhausted:
                self._pool.announce()

    def leave(self) -> None:
        """The connection is closed, or about to be."""
        if not self._left:
            self._left = True
            self.set_busy()
            self.evict = _nothing  # which refers to the connection
            self._pool.release()
            self.left()
