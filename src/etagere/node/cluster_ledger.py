"""The ledger of a cluster, as a command uses it, or a server before it starts processes.

A command needs no server: every process that can reach PostgreSQL may write.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Self

from etagere.bodies.segment_files import DIRECTORY_NAME as SEGMENTS_NAME
from etagere.clock import SystemClock
from etagere.config import Config
from etagere.coordination.interface import CoordinatorUnavailable
from etagere.coordination.postgres import PostgresCoordinator
from etagere.data_directory import CannotUse
from etagere.engine.direct import write_directly
from etagere.engine.interface import (
    C,
    Conflict,
    Fault,
    FaultReason,
    ReadTxn,
    SchemaTooNew,
    T,
    WriteTxn,
)
from etagere.engine.postgres.connecting import Database
from etagere.engine.postgres.copying import copy_ledger
from etagere.engine.postgres.engine import PostgresEngine
from etagere.engine.postgres.groups import PostgresWriter
from etagere.engine.postgres.opening import LedgerIncomplete, NoLedger, prepare_ledger
from etagere.operations import all_collections
from etagere.settings.addresses import DatabaseAddress

COLLECTIONS_FROM: Final = all_collections.DECLARED_IN
"""The modules that declare the collections of a ledger. They must be imported to copy one."""
NO_DIRECTORY: Final = Path("/nonexistent")
"""The directory of an engine that has no writer process."""

_OPEN_SECONDS_MAX: Final = 5.0
"""How long to wait for a database that does not answer."""
_WRITE_SECONDS_MAX: Final = 15.0
"""How long to retry a write, for instance until there is a new primary."""
_PAUSE_SECONDS: Final = 0.3


class LedgerUnavailable(CannotUse):
    """The database does not answer."""


class ClusterLedger:
    """The ledger in a database. Operations raise the outcomes of the engine, and `CannotUse` if
    there is no such ledger."""

    def __init__(self, address: DatabaseAddress, *, create: bool = False) -> None:
        """Creates the tables only if `create` is set."""
        self.address = address
        self.database = Database(address.conninfo)
        self._create = create
        self._writer: PostgresWriter | None = None
        self.local_address = "127.0.0.1"
        """The address that this machine reaches PostgreSQL from."""

    def __enter__(self) -> Self:
        try:
            self.local_address = _retry(
                lambda: prepare_ledger(self.database, create=self._create), _OPEN_SECONDS_MAX
            )
        except NoLedger:
            raise CannotUse(f"there is no ledger in {self.address}") from None
        except LedgerIncomplete:
            raise CannotUse(
                f"the ledger in {self.address} is incomplete: a migration is running or was "
                "interrupted. Run `etagere migrate` again."
            ) from None
        except SchemaTooNew as error:
            raise CannotUse(str(error)) from error
        except Fault as fault:
            text = f"{self.address} cannot be used: {fault.detail}"
            if fault.reason is FaultReason.UNAVAILABLE:
                raise LedgerUnavailable(text) from None
            raise CannotUse(text) from None
        return self

    def __exit__(self, *_: object) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def read(self, operation: Callable[[ReadTxn, C], T], command: C) -> T:
        return asyncio.run(self._with_engine(lambda engine: engine.read(operation, command)))

    async def _with_engine(self, call: Callable[[PostgresEngine], Awaitable[T]]) -> T:
        engine = PostgresEngine(NO_DIRECTORY, self.database)
        try:
            return await call(engine)
        finally:
            await engine.close()

    def write(self, operation: Callable[[WriteTxn, C], T], command: C) -> T:
        def write() -> T:
            return write_directly(self._opened_writer(), operation, command)

        return _retry(write, _WRITE_SECONDS_MAX)

    def _opened_writer(self) -> PostgresWriter:
        if self._writer is None:
            self._writer = PostgresWriter(self.database, Config(), SystemClock())
        return self._writer

    @contextmanager
    def pinned_copy(self, bodies: Path | None) -> Iterator[Path]:
        """Yields a temporary directory with a copy of the ledger in SQLite and, if the bodies are
        in a directory, with their segments. No segment is removed meanwhile."""
        database = self.database
        with tempfile.TemporaryDirectory(prefix="etagere-check-") as name:
            directory = Path(name)
            try:
                coordinator = PostgresCoordinator(
                    database.connection_string, name="check", schema=database.schema
                )
            except CoordinatorUnavailable as error:
                raise CannotUse(f"{self.address} cannot be used: {error}") from error
            try:
                with coordinator.pin():
                    if bodies is not None:
                        link = directory / SEGMENTS_NAME
                        link.symlink_to((bodies / SEGMENTS_NAME).absolute())
                    copy_ledger(database, directory, Config(durable=False), SystemClock())
                    yield directory
            finally:
                coordinator.close()


def _retry(call: Callable[[], T], seconds_max: float) -> T:
    """Repeats a call that fails because of a conflict or because the database is unavailable."""
    deadline = time.monotonic() + seconds_max
    while True:
        try:
            return call()
        except (Conflict, Fault) as error:
            is_over = time.monotonic() >= deadline
            if is_over or (
                isinstance(error, Fault) and error.reason is not FaultReason.UNAVAILABLE
            ):
                raise
        time.sleep(_PAUSE_SECONDS)
