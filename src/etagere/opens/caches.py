"""Caches of SMB clients: what a client may cache, and the breaks that it has to acknowledge."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from etagere.engine.interface import Refused
from etagere.errors import Refusal
from etagere.nt_status import NtStatus
from etagere.rules.caching import (
    CacheBreak,
    Caching,
    OtherOpens,
    check_acknowledgement,
    granted,
    needs_acknowledgement,
    next_break,
    oplock_after,
    upgraded,
)

if TYPE_CHECKING:
    from etagere.opens.requests import CacheNotifier, CachingRequest

logger = logging.getLogger(__name__)

BREAK_SECONDS_MAX: Final = 35.0
"""How long a client has to acknowledge a break; then its cache is taken away."""
_EPOCH_MASK: Final = 0xFFFF


@dataclass(slots=True)
class _Break:
    """A break that the client has been told of, but has not acknowledged."""

    left: Caching
    """What the client may still cache."""
    required: Caching
    """What it may still cache in the end, because others have demanded more meanwhile."""
    end: asyncio.Future[None]
    timer: asyncio.TimerHandle | None = None


class CacheGrant:
    """What one client may cache of one file: an oplock, or an SMB lease.

    Several handles of a client may have the same lease.
    """

    __slots__ = (
        "_active",
        "_break",
        "_holders",
        "_seconds_max",
        "data_handles",
        "epoch",
        "is_v2",
        "lease",
        "state",
    )

    def __init__(
        self,
        state: Caching,
        active: dict[CacheGrant, None],
        lease: tuple[bytes, bytes] | None = None,
        *,
        epoch: int = 0,
        is_v2: bool = False,
        seconds_max: float = BREAK_SECONDS_MAX,
    ) -> None:
        """`active` are the grants of the file that are worth breaking."""
        self.state = state
        """What the client may cache, as far as it has acknowledged."""
        self.lease = lease
        """The client and the key; None: an oplock."""
        self.epoch = epoch
        self.is_v2 = is_v2
        self.data_handles = 0
        """The number of handles with more than access to attributes."""
        self._active = active
        self._holders: dict[int, CacheNotifier] = {}
        self._break: _Break | None = None
        self._seconds_max = seconds_max
        if state:
            active[self] = None

    @property
    def effective(self) -> Caching:
        """What others have to reckon with: less than the state if the client has been told, and
        nobody waits for its acknowledgement."""
        known = self._break
        return self.state if known is None or not known.end.done() else known.left

    @property
    def lease_key(self) -> bytes | None:
        return None if self.lease is None else self.lease[1]

    @property
    def is_breaking(self) -> bool:
        """Whether the client has been told of a break that it has not acknowledged."""
        return self._break is not None

    def add_handle(self, handle_id: int, notify: CacheNotifier, *, has_data: bool) -> None:
        self._holders[handle_id] = notify
        self.data_handles += has_data

    def remove_handle(self, handle_id: int, *, has_data: bool) -> bool:
        """Removes a handle that was closed. Returns whether that was the last one, which ends the
        grant."""
        del self._holders[handle_id]
        self.data_handles -= has_data
        if self._holders:
            return False
        self._end_break(Caching.NONE)
        return True

    def upgrade(self, wanted: Caching, others: OtherOpens) -> None:
        """Takes what another open with the same lease asks for."""
        state = upgraded(self.state, wanted, others, is_breaking=self.is_breaking)
        if state != self.state:
            self._set_state(state)
            self.epoch = self.epoch + 1 & _EPOCH_MASK

    def demand(self, wanted: CacheBreak, *, in_steps: bool = False) -> asyncio.Future[None] | None:
        """Breaks the cache. Returns what ends when the client has acknowledged, if the caller has
        to wait for it. It must not be cancelled.

        A client gets one break at a time. The caller examines the state again after each of them,
        or, `in_steps`, the next one follows as soon as the client has acknowledged.
        """
        left = oplock_after(wanted.left) if self.lease is None else wanted.left
        known = self._break
        if known is not None:
            if in_steps:
                known.required &= left
            return None if known.end.done() else known.end
        self.epoch = self.epoch + 1 & _EPOCH_MASK
        if not needs_acknowledgement(self.state):
            self._tell(left, False)
            self._set_state(left)
            return None
        end = asyncio.get_running_loop().create_future()
        self._begin_break(left, left, end)
        self._tell(left, True)
        if wanted.waits:
            return end
        # The cache has nothing that the server needs, so nobody waits for the client.
        end.set_result(None)
        if not left:
            self._active.pop(self, None)
        return None

    def acknowledge(self, state: Caching) -> NtStatus | None:
        """Takes the acknowledgement of a break. A client may keep less than it could. Returns the
        error if it does not fit."""
        known = self._break
        left = None if known is None else known.left
        error = check_acknowledgement(state, left, is_lease=self.lease is not None)
        if error is not None or known is None:
            return error
        following = next_break(state, known.required)
        if following is None or known.end.done():
            self._end_break(state)
        elif needs_acknowledgement(state):
            self._discard_break()
            self.state = state
            self._begin_break(following, known.required, known.end)
            self._tell(following, True)
        else:
            self._set_state(state)
            self._tell(following, False)
            self._end_break(following)
        return None

    def _begin_break(self, left: Caching, required: Caching, end: asyncio.Future[None]) -> None:
        loop = asyncio.get_running_loop()
        timer = loop.call_later(self._seconds_max, self._end_break, Caching.NONE)
        self._break = _Break(left, required, end, timer)

    def _tell(self, left: Caching, is_acknowledged: bool) -> None:
        """Notifies the client. Breaks that follow each other have the same epoch."""
        for notify in self._holders.values():
            try:
                notify(self, left, is_acknowledged)
            except Exception:
                logger.exception("could not tell a client to cache less")
            return

    def _set_state(self, state: Caching) -> None:
        self.state = state
        if state:
            self._active[self] = None
        else:
            self._active.pop(self, None)

    def _end_break(self, state: Caching) -> None:
        """Ends the break, if there is one, with this state."""
        known = self._break
        self._discard_break()
        self._set_state(state)
        if known is not None and not known.end.done():
            known.end.set_result(None)

    def _discard_break(self) -> None:
        if self._break is not None and self._break.timer is not None:
            self._break.timer.cancel()
        self._break = None


class LeaseTable:
    """The SMB leases of a process. A client has a key for one file only."""

    def __init__(self, seconds_max: float = BREAK_SECONDS_MAX) -> None:
        self._grants: dict[tuple[bytes, bytes], tuple[object, CacheGrant]] = {}
        self._seconds_max = seconds_max

    def find(self, client: bytes, key: bytes) -> CacheGrant | None:
        """Returns the lease with a key."""
        known = self._grants.get((client, key))
        return None if known is None else known[1]

    def find_for(self, asked: CachingRequest | None, entry: object | None) -> CacheGrant | None:
        """Returns the lease that an open of an entry asks for, if the client has it already;
        refuses if it has it for another file. `entry` is None if it is not open."""
        if asked is None or asked.lease_key is None:
            return None
        known = self._grants.get((asked.client, asked.lease_key))
        if known is None:
            return None
        if known[0] is not entry:
            raise Refused(Refusal("InvalidInput"))
        return known[1]

    def grant(
        self,
        asked: CachingRequest,
        entry: object,
        active: dict[CacheGrant, None],
        others: OtherOpens,
    ) -> CacheGrant | None:
        """Returns the lease or the oplock that a client gets; None: it gets no oplock."""
        known = self.find_for(asked, entry)
        if known is not None:
            known.upgrade(asked.wanted, others)
            return known
        is_lease = asked.lease_key is not None
        state = granted(asked.wanted, others, is_lease=is_lease)
        if asked.lease_key is None:
            if not state:
                return None
            return CacheGrant(state, active, seconds_max=self._seconds_max)
        lease = asked.client, asked.lease_key
        grant = CacheGrant(
            state,
            active,
            lease,
            epoch=asked.epoch + 1 & _EPOCH_MASK,
            is_v2=asked.is_v2,
            seconds_max=self._seconds_max,
        )
        self._grants[lease] = entry, grant
        return grant

    def remove(self, grant: CacheGrant) -> None:
        """Forgets a grant whose last handle was closed."""
        if grant.lease is not None:
            del self._grants[grant.lease]
