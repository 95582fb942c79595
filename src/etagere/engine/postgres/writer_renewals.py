"""Renews the fence and the reservation of stamps periodically, in a thread of the writer process.

The thread has its own connection, because a group may wait for a standby or for locks.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from collections.abc import Callable
from typing import Any, Final, TypeVar

import psycopg

from etagere.clock import Clock
from etagere.engine.interface import Fault, FaultReason
from etagere.engine.postgres import fence, lock_requests, stamps
from etagere.engine.postgres.connecting import Database, outcome_of_error
from etagere.engine.postgres.fence import Reading
from etagere.engine.postgres.fence_renewal import FenceConnection, FenceRenewal
from etagere.engine.postgres.stamps import StampSource

logger = logging.getLogger(__name__)

T = TypeVar("T")

_OWNER_BYTES: Final = 16
_SLOT_ATTEMPTS: Final = 10


class WriterRenewals:
    """Keeps the fence valid, and a slot with reserved stamps for this writer."""

    def __init__(self, database: Database, clock: Clock) -> None:
        """Connects and takes a slot. Raises `Fault`."""
        self._renewal = FenceRenewal(database, clock)
        self._lock = threading.Lock()
        self._connection = FenceConnection(database)
        self._owner = os.urandom(_OWNER_BYTES)
        self._failing = False
        try:
            self.stamps = self._run(self._take_slot)
        except BaseException:
            self._connection.close()
            raise
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run_periodically, name="fence", daemon=True)
        self._thread.start()

    # Called by the writer's thread

    def note_time(self, now: int) -> None:
        """Notes a time that was used: it will not run backwards."""
        self._renewal.floor = max(self._renewal.floor, now)

    def renew(self, age_ticks_min: int = 0) -> Reading:
        """Renews the fence now. Raises `Fault`."""
        with self._lock:
            return self._run(lambda connection: self._renewal.renew(connection, age_ticks_min))

    def reserve(self, until: int) -> None:
        """Reserves stamps up to this one and further. Raises `Fault`."""
        with self._lock:
            self._run(lambda connection: self._reserve(connection, until))

    def close(self) -> None:
        """Ends the thread, and releases the slot for a successor."""
        self._stopping.set()
        self._thread.join()
        with contextlib.suppress(Fault):
            self._run(lambda connection: self._renewal.renew(connection, 0))
            self._run(self._release)
        self._connection.close()

    # On the connection for renewals

    def _run_periodically(self) -> None:
        while not self._stopping.wait(fence.RENEW_SECONDS):
            try:
                with self._lock:
                    self._run(self._renew_all)
            except Fault as fault:
                if not self._failing:
                    logger.warning("cannot renew the fence: %s", fault)
                self._failing = True
            except Exception:
                logger.exception("the renewal of the fence failed")
            else:
                if self._failing:
                    logger.warning("the fence is renewed again")
                self._failing = False

    def _renew_all(self, connection: psycopg.Connection[Any]) -> None:
        # Other nodes renew it too.
        read = self._renewal.renew(connection, fence.RENEW_TICKS // 2)
        self._reserve(connection, self._time(read))

    def _run(self, step: Callable[[psycopg.Connection[Any]], T]) -> T:
        """Runs a step on the connection, connecting first if necessary."""
        try:
            return step(self._connection.open())
        except psycopg.Error as error:
            self._connection.close()
            outcome = outcome_of_error(error)
            if isinstance(outcome, Fault):
                raise outcome from None
            raise Fault(FaultReason.UNAVAILABLE, str(outcome)) from None

    def _time(self, read: Reading) -> int:
        return max(read.clock, self._renewal.floor)

    def _take_slot(self, connection: psycopg.Connection[Any]) -> StampSource:
        for _ in range(_SLOT_ATTEMPTS):
            with connection.transaction():
                cursor = psycopg.RawCursor(connection)
                time = self._time(self._renewal.read(connection))
                free = cursor.execute(stamps.FIND_FREE, (time,)).fetchone()
                if free is not None:
                    slot, last = free
                    until = max(time, last) + stamps.RESERVE_TICKS
                    cursor.execute(stamps.TAKE, (self._owner, until, slot))
                    cursor.execute(lock_requests.DELETE, (slot,))  # of its former owner
                    return StampSource(slot, last, until)
                until = time + stamps.RESERVE_TICKS
                made = cursor.execute(stamps.INSERT_NEXT, (self._owner, until)).fetchone()
                if made is not None:
                    return StampSource(made[0], 0, until)
        raise Fault(FaultReason.UNAVAILABLE, "all slots of writers are taken")

    def _reserve(self, connection: psycopg.Connection[Any], time: int) -> None:
        source = self.stamps
        until = max(time, source.last) + stamps.RESERVE_TICKS
        cursor = psycopg.RawCursor(connection)
        parameters = (until, source.slot, self._owner)
        row = cursor.execute(stamps.RESERVE, parameters).fetchone()
        if row is None:
            logger.warning("another writer has taken slot %d", source.slot)
            self.stamps = self._take_slot(connection)
            self.stamps.last = max(self.stamps.last, source.last)
        else:
            source.reserved_until = row[0]

    def _release(self, connection: psycopg.Connection[Any]) -> None:
        source = self.stamps
        cursor = psycopg.RawCursor(connection)
        cursor.execute(stamps.RELEASE, (source.last, source.slot, self._owner))
