"""Caches of SMB clients: what a client may cache, and the breaks that it has to acknowledge."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from etagere.rules.caching import CacheBreak, Caching


class CacheGrant:
    """What one client may cache of one file: an oplock, or an SMB lease.

    Several handles of a client may have the same grant.
    """

    __slots__ = ("_notify", "_pending", "state")

    def __init__(self, state: Caching, notify: Callable[[Caching], None]) -> None:
        """`notify` tells the client to which state its cache is broken. It must not wait."""
        self.state = state
        self._notify = notify
        self._pending: tuple[Caching, asyncio.Future[None]] | None = None

    @property
    def is_breaking(self) -> bool:
        """Whether the client has been told of a break that it has not acknowledged."""
        return self._pending is not None

    def demand(self, wanted: CacheBreak) -> asyncio.Future[None] | None:
        """Breaks the cache. Returns what ends when the client has acknowledged, if the caller has
        to wait for it.

        A client gets one break at a time. The caller examines the state again after each of them.
        """
        if self._pending is not None and not self._pending[1].done():
            return self._pending[1]
        end = asyncio.get_running_loop().create_future()
        self._pending = wanted.left, end
        self._notify(wanted.left)
        if wanted.waits:
            return end
        # The cache has nothing that the server needs, so nobody waits for the client.
        self.state = wanted.left
        end.set_result(None)
        return None

    def acknowledge(self, state: Caching) -> bool:
        """Takes the acknowledgement of a break; returns whether there was such a break. A client
        may keep less than it could."""
        if self._pending is None or state & ~self._pending[0]:
            return False
        self.state = state
        self._end_break()
        return True

    def end(self) -> None:
        """Ends the grant: the last handle with it was closed."""
        self.state = Caching.NONE
        self._end_break()

    def _end_break(self) -> None:
        if self._pending is not None:
            if not self._pending[1].done():
                self._pending[1].set_result(None)
            self._pending = None
