"""Access of a command to a cell: its ledger and its bodies, as one of the processes of the cell."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any, NamedTuple

from etagere.bodies.segment_backend import SegmentBackend
from etagere.bodies.writing import SegmentAppender
from etagere.config import Config
from etagere.coordination.postgres import NodeRegistry, PostgresCoordinator
from etagere.data_directory import CannotUse
from etagere.engine.interface import C, T, WriteTxn
from etagere.engine.postgres.engine import PostgresEngine
from etagere.model.cluster import StoreIdentity
from etagere.node.cell_membership import require_cell
from etagere.node.cluster_ledger import NO_DIRECTORY, ClusterLedger
from etagere.node.shared_bodies import require_bodies, shared_bodies
from etagere.settings import Settings
from etagere.settings.addresses import BodiesAddress, DatabaseAddress


class CellLocation(NamedTuple):
    """Where the ledger and the bodies of a cell are."""

    name: str
    engine: DatabaseAddress
    bodies: BodiesAddress | None
    directory: Path
    """The data directory of its node, which has the bodies if `bodies` is None."""


def location_of(settings: Settings) -> CellLocation:
    """Returns where the cell of a node with these settings is."""
    assert settings.cell is not None
    assert settings.engine is not None
    return CellLocation(settings.cell, settings.engine, settings.bodies, settings.data)


class CommandEngine(PostgresEngine):
    """An engine without a writer process: the command itself writes to the ledger."""

    def __init__(self, ledger: ClusterLedger) -> None:
        super().__init__(NO_DIRECTORY, ledger.database)
        self._ledger = ledger
        self._write_lock = asyncio.Lock()

    def write(self, operation: Callable[[WriteTxn, C], T], command: C) -> Coroutine[Any, Any, T]:
        return self._write(operation, command)

    async def _write(self, operation: Callable[[WriteTxn, C], T], command: C) -> T:
        async with self._write_lock:
            writing = asyncio.create_task(asyncio.to_thread(self._ledger.write, operation, command))
            try:
                return await asyncio.shield(writing)
            finally:
                # If this is cancelled, the thread still uses the connection.
                await asyncio.wait([writing])


class CellAccess:
    """An open cell."""

    def __init__(
        self, location: CellLocation, ledger: ClusterLedger, coordinator: PostgresCoordinator
    ) -> None:
        self.location = location
        self.ledger = ledger
        self.engine = CommandEngine(ledger)
        self.coordinator = coordinator
        self.storage: SegmentBackend
        """The bytes of its segments."""
        self.store: SegmentAppender[Any]
        """Writes to segments of this process."""

    @property
    def name(self) -> str:
        return self.location.name

    @property
    def nodes(self) -> NodeRegistry:
        database = self.ledger.database
        return NodeRegistry(database.connection_string, schema=database.schema)


def identify(location: CellLocation, ledger: ClusterLedger) -> StoreIdentity:
    """Returns the identity of a cell. Raises `CannotUse` if it has another name or other bodies.
    Must be called before the process has threads, because it may fork."""
    if require_cell(ledger, location.engine, location.name) is None:
        raise CannotUse(
            f"the ledger in {location.engine} is not a cell yet: start a node with --cell first"
        )
    return require_bodies(ledger, shared_bodies(location.directory, location.bodies))


@contextlib.asynccontextmanager
async def open_cell(
    location: CellLocation, ledger: ClusterLedger, name: str
) -> AsyncIterator[CellAccess]:
    """Opens a cell. Raises `CoordinatorUnavailable` or `Fault`."""
    database = ledger.database
    coordinator = await asyncio.to_thread(
        PostgresCoordinator, database.connection_string, name=name, schema=database.schema
    )
    cell = CellAccess(location, ledger, coordinator)
    config = Config()
    try:
        store: Any
        store, _ = await shared_bodies(location.directory, location.bodies).open(
            cell.engine, config, coordinator
        )
    except BaseException:
        coordinator.close()
        await cell.engine.close()
        raise
    cell.storage, cell.store = store.storage, store
    try:
        yield cell
    finally:
        await store.close()
        await cell.engine.close()
