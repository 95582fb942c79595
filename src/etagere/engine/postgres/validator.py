"""Validates the records that concurrent reads depend on, with one statement for all of them.

Reads that begin while a statement is under way share the next one. So each is validated by a
statement that was sent after it began, and the more reads there are, the less each costs.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import psycopg

from etagere.engine.interface import Fault, FaultReason
from etagere.engine.postgres import connecting
from etagere.engine.postgres.connecting import NO_HEARTBEAT, Database
from etagere.engine.postgres.fence_renewal import OnDemandFenceRenewer
from etagere.engine.postgres.optimistic import RecordingTxn, Validation
from etagere.engine.postgres.record_cache import UNKNOWN, RecordCache
from etagere.engine.postgres.validation_connection import Batch, ValidationConnection
from etagere.engine.timeline import Instant
from etagere.telemetry.context import no_request

logger = logging.getLogger(__name__)

SLOW_SECONDS: Final = 0.002
"""Reads wait this long for the statement under way, which may be waiting for the server's disk.
Then they are sent on another connection."""
BATCH_RECORDS_MAX: Final = 512
READ_SECONDS_MAX: Final = 10.0
"""How long a read is repeated while the database cannot be reached."""
ANSWER_SECONDS_MAX: Final = 3.0
"""A server that has not answered by then is considered to hang."""
RENEW_SECONDS_MAX: Final = 1.0
"""How long reads wait for the renewal of the fence. Then they try other connections."""
IDLE_SECONDS_MAX: Final = 30.0
"""Connections but one are closed when they have not been used for this long."""
_WATCH_SECONDS: Final = 0.5
_RECONNECT_SECONDS: Final = 0.1


class Validator:
    """Collects records to validate, and sends them in batches; belongs to one event loop."""

    def __init__(
        self,
        database: Database,
        cache: RecordCache,
        renewer: OnDemandFenceRenewer,
        connections_max: int,
        may_connect: Callable[[], bool],
    ) -> None:
        """`connections_max` is also the number of statements under way at once."""
        self._database = database
        self._connections_max = connections_max
        self._may_connect = may_connect
        self._renewer = renewer
        self._cache = cache
        self.instant = Instant(0, 0)
        """The time of the last validation."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._gathering: Batch | None = None
        """The last of the waiting ones, if more records may be added to it."""
        self._waiting: deque[Batch] = deque()
        self._idle: list[ValidationConnection] = []
        self._busy: set[ValidationConnection] = set()
        self._connecting: set[asyncio.Task[None]] = set()
        self._renewing: asyncio.Task[None] | None = None
        """What reads wait for."""
        self._renewal_thread = ThreadPoolExecutor(1, "fence renewal")
        """Not one of the event loop's own threads: a renewal may take much longer than reads wait
        for it, and others need those."""
        self._renewal: asyncio.Future[str] | None = None
        """The renewal in this thread."""
        self._is_suspended = False
        """Whether nothing is sent until the fence was renewed."""
        self._sent_at = 0.0
        """When the last batch was sent."""
        self._last_error = "not connected"
        """The error that kept reads from being answered most recently."""
        self._is_failing = False
        self._dispatch_due = False
        """Whether a call of `_dispatch` is scheduled."""
        self._delayed_due = False
        """Whether one is scheduled in case the statement under way is slow."""
        self.sent = 0
        """The number of batches that were sent."""
        self.misses = 0
        """The number of records that were not as cached."""
        self.connections_lost = 0
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False

    def validate(self, txn: RecordingTxn) -> asyncio.Future[Validation]:
        """Returns what is current of the records that a read has used or lacks."""
        loop = self._loop or self._start()
        batch = self._gathering
        if batch is None:
            batch = self._gathering = Batch(loop.time() + READ_SECONDS_MAX)
            self._waiting.append(batch)
            if not self._dispatch_due:
                self._dispatch_soon(loop)
        waiter: asyncio.Future[Validation] = loop.create_future()
        batch.waiters.append(waiter)
        entries = batch.entries
        entries.update(txn.seen)
        for record_key in txn.unknown:
            entries.setdefault(record_key, UNKNOWN)
        if len(entries) >= BATCH_RECORDS_MAX:
            self._gathering = None
        return waiter

    def _start(self) -> asyncio.AbstractEventLoop:
        if self._closed:
            raise Fault(FaultReason.UNAVAILABLE, "the engine is closed")
        self._loop = asyncio.get_running_loop()
        self._watch()
        return self._loop

    def _dispatch_soon(self, loop: asyncio.AbstractEventLoop) -> None:
        """Sends what is gathered after the tasks that are about to run have added theirs."""
        self._dispatch_due = True
        loop.call_soon(self._dispatch, context=no_request())

    def _dispatch(self) -> None:
        self._dispatch_due = False
        if self._loop is None or self._is_suspended:
            return
        while self._waiting:
            if self._busy and self._waiting[0] is self._gathering:
                remaining = self._sent_at + SLOW_SECONDS - self._loop.time()
                if remaining > 0:
                    self._dispatch_in(self._loop, remaining)
                    return
            if not self._idle:
                self._connect_if_needed(self._loop)
                return
            connection = self._idle.pop()
            batch = self._waiting.popleft()
            if batch is self._gathering:
                self._gathering = None
            self._busy.add(connection)
            self.sent += 1
            self._sent_at = self._loop.time()
            connection.send(batch)

    def _dispatch_in(self, loop: asyncio.AbstractEventLoop, seconds: float) -> None:
        if not self._delayed_due:
            self._delayed_due = True
            loop.call_later(seconds, self._dispatch_delayed, context=no_request())

    def _dispatch_delayed(self) -> None:
        self._delayed_due = False
        self._dispatch()

    # Connections

    def _connect_if_needed(self, loop: asyncio.AbstractEventLoop) -> None:
        if not self._connecting and len(self._busy) < self._connections_max:
            task = loop.create_task(self._connect(), context=no_request())
            self._connecting.add(task)
            task.add_done_callback(self._connecting.discard)

    async def _connect(self) -> None:
        """Connects, and repeats this while reads wait."""
        while self._waiting and not self._closed:
            if not self._may_connect():
                self._note_failure(NO_HEARTBEAT)
                await asyncio.sleep(_RECONNECT_SECONDS)
                continue
            try:
                connection = await ValidationConnection.connect(self._database, self._cache, self)
            except (psycopg.Error, TimeoutError) as error:
                self._note_failure(
                    connecting.describe(error)
                    if isinstance(error, psycopg.Error)
                    else "it does not answer"
                )
                await asyncio.sleep(_RECONNECT_SECONDS)
                continue
            if self._loop is None:  # closed meanwhile
                connection.close()
                return
            self._idle.append(connection)
            self._dispatch()
            return

    def on_done(self, connection: ValidationConnection) -> None:
        self.instant = connection.instant
        self.misses += connection.misses
        self._renewer.note_time(connection.instant.now)
        if connection.is_fence_old:
            self._renew()
        if self._is_failing:
            self._is_failing = False
            logger.warning("PostgreSQL serves reads again")
        self._busy.discard(connection)
        self._idle.append(connection)
        # The reads that were answered run next, and some need more records: these join the batch.
        if self._loop is not None and not self._dispatch_due:
            self._dispatch_soon(self._loop)

    def on_stale(self, connection: ValidationConnection) -> None:
        self._busy.discard(connection)
        self._idle.append(connection)
        self._requeue(connection)
        self._is_suspended = True
        self._renew()

    def on_lost(self, connection: ValidationConnection, reason: str) -> None:
        self._busy.discard(connection)
        if connection in self._idle:
            self._idle.remove(connection)  # the server has closed a connection that was not in use
            return
        self.connections_lost += 1
        self._note_failure(reason)
        self._requeue(connection)
        if self._loop is not None:
            # Not at once: a server that is shutting down may still accept connections.
            self._loop.call_later(_RECONNECT_SECONDS, self._dispatch, context=no_request())

    def _requeue(self, connection: ValidationConnection) -> None:
        batch, connection.batch = connection.batch, None
        if batch is None or self._loop is None:
            return
        if batch.deadline < self._loop.time():
            batch.fail(self._unavailable())
        else:
            self._waiting.appendleft(batch)

    def _renew(self) -> None:
        """Starts a renewal of the fence unless one is under way."""
        if self._renewing is None and self._loop is not None:
            self._renewing = self._loop.create_task(self._renew_fence(), context=no_request())

    async def _renew_fence(self) -> None:
        renewal = self._renewal or self._start_renewal()
        done, _ = await asyncio.wait({renewal}, timeout=RENEW_SECONDS_MAX)
        reason = renewal.result() if done else "the fence could not be renewed in time"
        self._renewing = None
        self._is_suspended = False
        if reason:
            self._note_failure(reason)
        self._dispatch()

    def _start_renewal(self) -> asyncio.Future[str]:
        loop = asyncio.get_running_loop()
        self._renewal = loop.run_in_executor(self._renewal_thread, self._renewer.renew)
        self._renewal.add_done_callback(self._end_renewal, context=no_request())
        return self._renewal

    def _end_renewal(self, _: asyncio.Future[str]) -> None:
        self._renewal = None

    def _unavailable(self) -> Fault:
        return Fault(FaultReason.UNAVAILABLE, f"PostgreSQL: {self._last_error}")

    def _note_failure(self, reason: str) -> None:
        if not self._is_failing:
            self._is_failing = True
            logger.warning("reads wait for PostgreSQL: %s", reason)
        self._last_error = reason

    def _watch(self) -> None:
        """Gives up servers that hang, and reads that have waited for too long. Closes connections
        that are not needed."""
        if self._loop is None or self._closed:
            return
        now = self._loop.time()
        for connection in tuple(self._busy):
            if now - connection.sent_at > ANSWER_SECONDS_MAX:
                connection.give_up(f"no response for {ANSWER_SECONDS_MAX:g} s")
        while self._waiting and self._waiting[0].deadline < now:
            batch = self._waiting.popleft()
            if batch is self._gathering:
                self._gathering = None
            batch.fail(self._unavailable())
        self._close_unused(now)
        self._timer = self._loop.call_later(_WATCH_SECONDS, self._watch, context=no_request())

    def _close_unused(self, now: float) -> None:
        kept = 1 if self._may_connect() else 0
        # The last one is used next, so those that are not needed are at the front.
        while len(self._idle) > kept and (
            not kept or now - self._idle[0].sent_at > IDLE_SECONDS_MAX
        ):
            self._idle.pop(0).close()

    async def close(self) -> None:
        self._closed = True
        self._loop = None
        if self._timer is not None:
            self._timer.cancel()
        tasks = [*self._connecting, *([] if self._renewing is None else [self._renewing])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._renewal_thread.shutdown(wait=False)
        closed = Fault(FaultReason.UNAVAILABLE, "the engine is closed")
        for connection in (*self._busy, *self._idle):
            if connection.batch is not None:
                connection.batch.fail(closed)
            connection.close()
        for batch in self._waiting:
            batch.fail(closed)
        self._waiting.clear()
        self._busy.clear()
        self._idle.clear()
