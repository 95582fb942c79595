"""Runs read operations in transactions, in threads, and repeats them on other connections."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Final

from etagere.config import Config
from etagere.engine.interface import (
    C,
    Conflict,
    Fault,
    FaultReason,
    ReadClass,
    ReadTxn,
    Refused,
    Steps,
    T,
)
from etagere.engine.postgres.connecting import NO_HEARTBEAT, Database
from etagere.engine.postgres.fence import StaleFence
from etagere.engine.postgres.fence_renewal import OnDemandFenceRenewer
from etagere.engine.postgres.pipeline import PipelineFailed
from etagere.engine.postgres.snapshot_connection import SnapshotConnection
from etagere.engine.postgres.snapshot_txn import NOTHING_EXPECTED, Expected, SnapshotTxn
from etagere.engine.scheduling import FairScheduler, default_class
from etagere.telemetry.context import no_request
from etagere.telemetry.formats import describe_exception

logger = logging.getLogger(__name__)

READ_SECONDS_MAX: Final = 10.0
"""How long a read is repeated while the database cannot be reached."""
_RECONNECT_SECONDS: Final = 0.1
IDLE_SECONDS_MAX: Final = 10.0
"""A connection that was not used for this long is closed."""
# How long a read in steps runs before it lets other threads run; one step may exceed this.
_TURN_SECONDS: Final = 0.001
_PAUSE_SECONDS: Final = 0.0001


class Abandoned(Exception):
    """Nobody waits for the read any longer."""


class SnapshotPool:
    """Threads with connections, for reads of several kinds, which do not wait for each other."""

    def __init__(
        self,
        database: Database,
        config: Config,
        renewer: OnDemandFenceRenewer,
        slots_per_kind: dict[str, int],
        may_connect: Callable[[], bool],
    ) -> None:
        self._database = database
        self._renewer = renewer
        self._config = config
        self._schedulers = {kind: FairScheduler(n) for kind, n in slots_per_kind.items()}
        self._threads = ThreadPoolExecutor(sum(slots_per_kind.values()), "snapshot")
        self._may_connect = may_connect
        self._idle: list[SnapshotConnection] = []
        self._idle_timer: asyncio.TimerHandle | None = None
        self._last_error = ""
        """Why the last read could not reach the database, if it could not."""
        self.reads = 0
        self.connections_lost = 0
        self._closed = threading.Event()

    async def run(
        self,
        kind: str,
        operation: Callable[[ReadTxn, C], T],
        command: C,
        read_class: ReadClass | None = None,
        expected: Expected = NOTHING_EXPECTED,
    ) -> T:
        """Runs an operation in a transaction."""

        def run(connection: SnapshotConnection, _: threading.Event) -> T:
            return operation(self._transaction(connection, expected), command)

        return await self._in_thread(kind, operation, read_class, run)

    async def run_steps(
        self,
        kind: str,
        operation: Callable[[ReadTxn, C], Steps[T]],
        command: C,
        read_class: ReadClass | None = None,
    ) -> T:
        """Runs an operation that yields now and then, in one transaction."""

        def run(connection: SnapshotConnection, abandoned: threading.Event) -> T:
            transaction = self._transaction(connection, NOTHING_EXPECTED)
            return _run_steps(operation(transaction, command), abandoned)

        return await self._in_thread(kind, operation, read_class, run)

    def _transaction(self, connection: SnapshotConnection, expected: Expected) -> SnapshotTxn:
        return SnapshotTxn(connection, self._config.snapshot_seconds_max, expected)

    async def _in_thread(
        self,
        kind: str,
        operation: Callable[..., object],
        read_class: ReadClass | None,
        run: Callable[[SnapshotConnection, threading.Event], T],
    ) -> T:
        read_class = read_class or default_class(operation)
        loop = asyncio.get_running_loop()
        abandoned = threading.Event()
        deadline = time.monotonic() + READ_SECONDS_MAX
        async with self._schedulers[kind].slot(read_class):
            if self._closed.is_set():
                raise Fault(FaultReason.UNAVAILABLE, "the engine is closed")
            self.reads += 1
            try:
                return await loop.run_in_executor(
                    self._threads, self._run_repeatedly, operation, run, abandoned, deadline
                )
            finally:
                abandoned.set()
                if self._idle_timer is None:
                    self._close_idle_later(loop)

    def _run_repeatedly(
        self,
        operation: Callable[..., object],
        run: Callable[[SnapshotConnection, threading.Event], T],
        abandoned: threading.Event,
        deadline: float,
    ) -> T:
        """Runs a read, and repeats it on other connections while the database is not available. A
        read that has spent its time in the queue, behind others that could not reach the database,
        fails without another attempt."""
        if self._last_error and time.monotonic() > deadline:
            raise Fault(FaultReason.UNAVAILABLE, self._last_error)
        while True:
            try:
                result = self._run_once(operation, run, abandoned)
            except Fault as fault:
                if fault.reason is not FaultReason.UNAVAILABLE:
                    raise
                self.connections_lost += 1
                self._last_error = fault.detail
                if self._closed.is_set() or time.monotonic() + _RECONNECT_SECONDS > deadline:
                    raise
            except (Refused, Conflict):
                self._last_error = ""
                raise
            else:
                self._last_error = ""
                return result
            if abandoned.wait(_RECONNECT_SECONDS):
                raise Abandoned

    def _run_once(
        self,
        operation: Callable[..., object],
        run: Callable[[SnapshotConnection, threading.Event], T],
        abandoned: threading.Event,
    ) -> T:
        connection = self._take()
        try:
            result = run(connection, abandoned)
        except (Refused, Conflict, Fault, Abandoned):
            self._put_back(connection)
            raise
        except PipelineFailed as failed:
            connection.close()
            raise failed.outcome from None
        except StaleFence as stale:
            connection.close()
            self._renewer.renew()
            raise Fault(FaultReason.UNAVAILABLE, str(stale)) from None
        except Exception as error:
            self._put_back(connection)
            logger.error("operation %s failed", operation.__qualname__, exc_info=error)
            raise Fault(FaultReason.FAILED, describe_exception(error)) from error
        except BaseException:
            connection.close()
            raise
        self._put_back(connection)
        return result

    def _take(self) -> SnapshotConnection:
        """Returns a connection that is not in use. Raises `Fault`."""
        try:
            return self._idle.pop()
        except IndexError:
            pass
        if not self._may_connect():
            raise Fault(FaultReason.UNAVAILABLE, NO_HEARTBEAT)
        try:
            return SnapshotConnection(self._database)
        except PipelineFailed as failed:
            raise Fault(FaultReason.UNAVAILABLE, str(failed)) from None

    def _put_back(self, connection: SnapshotConnection) -> None:
        try:
            connection.end()
        except PipelineFailed:
            connection.close()
            return
        connection.idle_since = time.monotonic()
        if self._may_connect():
            self._idle.append(connection)
        else:
            connection.close()

    def _close_idle_later(self, loop: asyncio.AbstractEventLoop) -> None:
        self._idle_timer = loop.call_later(
            IDLE_SECONDS_MAX, self._close_idle, loop, context=no_request()
        )

    def _close_idle(self, loop: asyncio.AbstractEventLoop) -> None:
        """Closes the connections that have not been used for long."""
        self._idle_timer = None
        oldest = time.monotonic() - IDLE_SECONDS_MAX
        for connection in [each for each in self._idle if each.idle_since <= oldest]:
            try:
                self._idle.remove(connection)
            except ValueError:
                continue  # another thread has taken it
            connection.close()
        if self._idle:
            self._close_idle_later(loop)

    async def close(self) -> None:
        self._closed.set()
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        await asyncio.to_thread(self._threads.shutdown)
        for connection in self._idle:
            connection.close()
        self._idle.clear()


def _run_steps(steps: Steps[T], abandoned: threading.Event) -> T:
    began = time.perf_counter()
    with closing(steps):
        while True:
            try:
                next(steps)
            except StopIteration as ended:
                result: T = ended.value
                return result
            if abandoned.is_set():
                raise Abandoned
            if time.perf_counter() - began > _TURN_SECONDS:
                # Releases the interpreter lock, for which the event loop may be waiting.
                time.sleep(_PAUSE_SECONDS)
                began = time.perf_counter()
