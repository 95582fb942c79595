"""The engine for tests: in memory, with guarantees as weak as those of the weakest real engine.

Reads have a snapshot. Each call of a write transaction sees the newest committed state, as in
PostgreSQL's READ COMMITTED; only guarded records stay the same, so tests notice a missing guard.
Two things differ from a real engine, to make tests deterministic: a lock that another transaction
holds is a conflict at once instead of a wait, and transactions can be stepped by hand (`begin`,
`begin_read`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any, cast

import msgspec

from etagere.clock import Clock, SystemClock
from etagere.engine.interface import (
    C,
    Conflict,
    Fault,
    FaultReason,
    Operation,
    ReadClass,
    ReadTxn,
    Refused,
    Steps,
    T,
    WriteTxn,
    registered,
)
from etagere.engine.memory_store import MemoryCore, Store
from etagere.engine.memory_transactions import MemoryReadTxn, MemoryWriteTxn
from etagere.engine.records import ENCODE
from etagere.engine.retry import RetryCounters, RetryPolicy, retry_on_conflict
from etagere.engine.timeline import Timeline
from etagere.errors import Refusal
from etagere.telemetry.formats import describe_exception

logger = logging.getLogger(__name__)

_decode_refusal = msgspec.msgpack.Decoder(Refusal).decode


class MemoryEngine:
    """A ledger in memory."""

    def __init__(
        self,
        clock: Clock | None = None,
        timeline: Timeline | None = None,
        *,
        policy: RetryPolicy | None = None,
    ) -> None:
        self.retries = RetryCounters()
        self._policy = policy or RetryPolicy()
        self._core = MemoryCore(Store(), clock or SystemClock(), timeline)

    @property
    def timeline(self) -> Timeline:
        """The timeline that the last commit stored."""
        return self._core.timeline

    @property
    def versions_held(self) -> int:
        """The number of record versions in memory."""
        return self._core.store.versions_held()

    def begin(self, interrupt: Callable[[], None] | None = None) -> MemoryWriteTxn:
        """Begins a write transaction to be stepped by hand.

        `interrupt` is called before each of its steps, including the commit, so that a test can
        let others commit at any point within an operation.
        """
        self._core.require_open()
        return MemoryWriteTxn(self._core, interrupt)

    def begin_read(self) -> MemoryReadTxn:
        """Begins a read transaction to be stepped by hand."""
        self._core.require_open()
        return MemoryReadTxn(self._core)

    async def read(self, operation: Callable[[ReadTxn, C], T], command: C) -> T:
        transaction = self.begin_read()
        try:
            return _run(operation, transaction, command)
        finally:
            transaction.close()

    async def read_in_thread(
        self, operation: Callable[[ReadTxn, C], T], command: C, read_class: ReadClass | None = None
    ) -> T:
        return await self.read(operation, command)

    async def read_in_steps(
        self,
        operation: Callable[[ReadTxn, C], Steps[T]],
        command: C,
        read_class: ReadClass | None = None,
    ) -> T:
        transaction = self.begin_read()
        try:
            steps = _run(operation, transaction, command)
            while True:
                ended, result = _run(_step, steps, None)
                if ended:
                    return cast("T", result)
                await asyncio.sleep(0)
        finally:
            transaction.close()

    async def write(self, operation: Callable[[WriteTxn, C], T], command: C) -> T:
        known = registered(operation)
        sent = ENCODE(command)
        return await retry_on_conflict(
            lambda: self._attempt(known, sent), self._policy, self.retries
        )

    async def close(self) -> None:
        self._core.closed = True

    def restarted(self) -> MemoryEngine:
        """Closes this engine; returns a new one with its committed records."""
        self._core.closed = True
        engine = MemoryEngine(policy=self._policy)
        engine._core = MemoryCore(self._core.store.newest(), self._core.clock, self._core.timeline)
        return engine

    async def _attempt(self, known: Operation[C, T], sent: bytes) -> T:
        transaction = self.begin()
        try:
            result = _run(_with_encoding(known), transaction, sent)
            # Other tasks run between an operation and its commit, as with a real engine. Without
            # this, no two writes would ever overlap.
            await asyncio.sleep(0)
            transaction.commit()
        finally:
            transaction.rollback()
        return result


def _with_encoding(known: Operation[C, T]) -> Callable[[WriteTxn, bytes], T]:
    """Returns the operation with its command and result encoded, as if it ran in another
    process."""

    def run(transaction: WriteTxn, sent: bytes) -> T:
        try:
            result = known.run(transaction, known.decode_command(sent))
        except Refused as refused:
            raise Refused(_decode_refusal(ENCODE(refused.refusal))) from refused
        return known.decode_result(ENCODE(result))

    return run


def _step(steps: Steps[T], _: None) -> tuple[bool, T | None]:
    """Runs one step; returns whether it was the last one, and the result."""
    try:
        next(steps)
    except StopIteration as ended:
        return True, ended.value
    return False, None


def _run(operation: Callable[[Any, C], T], transaction: object, command: C) -> T:
    """Runs an operation; an unexpected exception is a bug in it and becomes a fault."""
    try:
        return operation(transaction, command)
    except (Refused, Conflict):
        raise
    except Exception as error:
        logger.exception("an operation failed")
        raise Fault(FaultReason.FAILED, describe_exception(error)) from error
