"""The PostgreSQL engine of a front end.

Short reads are optimistic: they run on cached records, and one statement validates those of all
concurrent reads. Other reads run in transactions, in threads. Writes are sent to the node's writer
process, which answers when they are durable.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, Final, NamedTuple

from etagere.clock import Clock, SystemClock
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
    WriteTxn,
)
from etagere.engine.postgres.connecting import Database
from etagere.engine.postgres.fence_renewal import OnDemandFenceRenewer
from etagere.engine.postgres.optimistic import NeedsSnapshot, run_optimistically
from etagere.engine.postgres.record_cache import RecordCache
from etagere.engine.postgres.schema import KEY_HEAD_BYTES
from etagere.engine.postgres.snapshot_pool import SnapshotPool
from etagere.engine.postgres.snapshot_txn import NOTHING_EXPECTED
from etagere.engine.postgres.validator import Validator
from etagere.engine.retry import retry_on_conflict
from etagere.engine.writer_client import WriterClient
from etagere.metrics.snapshots import Snapshot
from etagere.telemetry.formats import describe_exception

logger = logging.getLogger(__name__)

_SHORT, _LONG, _STEPS = "short", "long", "steps"
_SCANNING_MAX: Final = 1_000


class ReadConnections(NamedTuple):
    """How many connections to PostgreSQL a process opens for reads, at most. They are opened when
    they are needed, and closed when they have not been used for a while."""

    validations: int = 3
    short: int = 2
    """For reads of requests that need a transaction."""
    long: int = 2
    """For reads that may take long (`read_in_thread`)."""
    steps: int = 2
    """For reads that run in steps (`read_in_steps`)."""


FEW_CONNECTIONS: Final = ReadConnections(validations=1, short=1, long=1, steps=1)
"""For processes that read little."""


class PostgresEngine:
    """The ledger in a PostgreSQL database, as one front end uses it; belongs to one event loop."""

    def __init__(
        self,
        directory: Path,
        database: Database,
        config: Config | None = None,
        clock: Clock | None = None,
        epoch: int = 0,
        *,
        accounts_may_move: bool = False,
        connections: ReadConnections | None = None,
        may_connect: Callable[[], bool] = lambda: True,
    ) -> None:
        """`directory` is the node's own, with the socket of its writer process. `clock` has the
        clocks of this machine. `epoch`: that of the task of this process (`engine/tasks.py`), 0 if
        it has none. `accounts_may_move`: whether there are other cells that accounts may move to
        (`engine/account_moves.py`). `may_connect`: whether connections for reads may be opened; if
        not, those that are idle are closed."""
        config = config or Config()
        self._writer = WriterClient(directory, config, epoch, accounts_may_move=accounts_may_move)
        self._policy = self._writer.policy
        self.retries = self._writer.retries
        self._cache = RecordCache()
        self._renewer = OnDemandFenceRenewer(database, clock or SystemClock())
        limits = connections or ReadConnections()
        self._validator = Validator(
            database, self._cache, self._renewer, limits.validations, may_connect
        )
        slots = {_SHORT: limits.short, _LONG: limits.long, _STEPS: limits.steps}
        self._snapshots = SnapshotPool(database, config, self._renewer, slots, may_connect)
        self._validated_reads = 0
        self._scanning: set[str] = set()
        """Operations whose last run needed a transaction."""

    async def read(self, operation: Callable[[ReadTxn, C], T], command: C) -> T:
        validator = self._validator
        running = run_optimistically(
            operation, command, self._cache, validator.instant, KEY_HEAD_BYTES
        )
        try:
            txn = next(running)
            if txn.unknown and operation.__qualname__ in self._scanning:
                raise txn.needs_snapshot()
            while True:
                txn = running.send(await validator.validate(txn))
        except StopIteration as ended:
            self._scanning.discard(operation.__qualname__)
            self._validated_reads += 1
            result: T = ended.value
            return result
        except NeedsSnapshot as needs:
            expected = needs.expected
        except Refused:
            self._validated_reads += 1
            raise
        except Fault:
            raise
        except Conflict:
            self.retries.conflicts += 1
            expected = NOTHING_EXPECTED
        except Exception as error:
            logger.error("operation %s failed", operation.__qualname__, exc_info=error)
            raise Fault(FaultReason.FAILED, describe_exception(error)) from error
        if len(self._scanning) < _SCANNING_MAX:
            self._scanning.add(operation.__qualname__)
        return await retry_on_conflict(
            lambda: self._snapshots.run(_SHORT, operation, command, expected=expected),
            self._policy,
            self.retries,
        )

    async def read_in_thread(
        self, operation: Callable[[ReadTxn, C], T], command: C, read_class: ReadClass | None = None
    ) -> T:
        return await retry_on_conflict(
            lambda: self._snapshots.run(_LONG, operation, command, read_class),
            self._policy,
            self.retries,
        )

    async def read_in_steps(
        self,
        operation: Callable[[ReadTxn, C], Steps[T]],
        command: C,
        read_class: ReadClass | None = None,
    ) -> T:
        return await retry_on_conflict(
            lambda: self._snapshots.run_steps(_STEPS, operation, command, read_class),
            self._policy,
            self.retries,
        )

    def write(self, operation: Callable[[WriteTxn, C], T], command: C) -> Coroutine[Any, Any, T]:
        return self._writer.write(operation, command)

    def report(self, snapshot: Snapshot) -> None:
        """Adds what it has counted."""
        self._writer.report(snapshot)
        snapshot.add("database_reads", self._validated_reads, "validated")
        snapshot.add("database_reads", self._snapshots.reads, "transaction")
        snapshot.add("database_validations", self._validator.sent)
        snapshot.add("database_validation_misses", self._validator.misses)
        lost = self._validator.connections_lost + self._snapshots.connections_lost
        snapshot.add("database_connections_lost", lost)

    async def close(self) -> None:
        self._writer.close()
        await self._validator.close()
        await self._snapshots.close()
        await asyncio.to_thread(self._renewer.close)
