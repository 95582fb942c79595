"""The writer process of a node whose ledger is in PostgreSQL."""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable, Sequence
from typing import Final

from etagere.clock import Clock
from etagere.config import Config
from etagere.engine import wire
from etagere.engine.group_writer import Answer
from etagere.engine.interface import Fault, SchemaTooNew
from etagere.engine.postgres.connecting import Database
from etagere.engine.postgres.groups import PostgresWriter, answer_with_fault
from etagere.engine.wire import Outcome
from etagere.engine.writer import WriterService
from etagere.gc_tuning import tune_gc
from etagere.metrics.counters import ClusterWriterCounters
from etagere.processes import EXIT_FINAL, StatusSocket

logger = logging.getLogger(__name__)

_IDLE_SECONDS: Final = 1.0


class LazyPostgresWriter:
    """A `GroupWriter` that opens the ledger as soon as the database can be reached. Until then it
    answers with a fault."""

    def __init__(self, database: Database, config: Config, clock: Clock) -> None:
        """Raises `SchemaTooNew`."""
        self._arguments = database, config, clock
        self.counters = ClusterWriterCounters(Outcome)
        self._writer: PostgresWriter | None = None
        try:
            self._open()
        except Fault as fault:
            logger.error("cannot open the ledger in PostgreSQL: %s", fault)

    def _open(self) -> PostgresWriter:
        if self._writer is None:
            self._writer = PostgresWriter(*self._arguments, self.counters)
        return self._writer

    def run_group(self, group: Sequence[wire.Request]) -> list[Answer]:
        try:
            writer = self._open()
        except Fault as fault:
            return answer_with_fault(group, fault)
        return writer.run_group(group)

    def maintain(self) -> None:
        if self._writer is not None:
            self._writer.maintain()

    def idle(self) -> None:
        if self._writer is not None:
            self._writer.idle()

    @property
    def idle_seconds(self) -> float:
        return _IDLE_SECONDS

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()


def writer_main(
    database: Database,
    listener: socket.socket,
    config: Config,
    clock: Clock,
    open_health_socket: Callable[[], StatusSocket | None] = lambda: None,
) -> Callable[[int], None]:
    """Returns the main function of the writer process."""

    def main(lifeline: int) -> None:
        try:
            writer = LazyPostgresWriter(database, config, clock)
            tune_gc()
            WriterService(writer, listener, lifeline, config, open_health_socket()).run()
        except SchemaTooNew as error:
            logger.error("%s", error)
            raise SystemExit(EXIT_FINAL) from None

    return main
