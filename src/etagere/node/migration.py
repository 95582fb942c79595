"""Copying a store between a data directory and a cluster.

The source is not changed. The target is no store before the last step, which is atomic: in
PostgreSQL a schema gets its name, in a data directory a file does. A migration that was interrupted
starts over.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol

from etagere import data_directory, directories
from etagere.bodies import transfer
from etagere.bodies.audit.snapshot import CannotCheck, require_ledger
from etagere.bodies.objects.interface import ObjectStore
from etagere.bodies.segment_files import DIRECTORY_NAME as SEGMENTS_NAME
from etagere.bodies.transfer import Load, Transfer, Transferred
from etagere.bodies.transfer_endpoints import FileSource, FileTarget, ObjectSource, ObjectTarget
from etagere.clock import SystemClock
from etagere.config import Config
from etagere.coordination.interface import CoordinatorUnavailable
from etagere.coordination.postgres import NodeRegistry, PostgresCoordinator
from etagere.data_directory import NODE_ID_NAME, CannotUse, raising_cannot_use
from etagere.engine import ledger
from etagere.engine.interface import Fault, FaultReason, Unknown
from etagere.engine.loading import PARTIAL_NAME, LedgerLoad, Rows, StoppedLedger, UnknownTable
from etagere.engine.postgres.connecting import Database
from etagere.engine.postgres.copying import open_current_snapshot
from etagere.engine.postgres.loading import LedgerExists, LoadUnderWay, PostgresLoad
from etagere.engine.records import COLLECTIONS, ENCODE, Collection
from etagere.engine.snapshots import Progress
from etagere.model.accounts import ListAccounts
from etagere.model.cluster import SECRET_BYTES, StoreIdentity
from etagere.model.ids import ID_BYTES
from etagere.node.children import ChildFailed, in_child
from etagere.node.cluster_ledger import ClusterLedger
from etagere.node.shared_bodies import SharedBodies, open_objects, require_bodies, shared_bodies
from etagere.operations.account_moves import list_account_moves
from etagere.operations.all_collections import CLUSTER_COLLECTIONS
from etagere.operations.identity import IDENTITY_KEY, STORE_IDENTITIES
from etagere.settings.addresses import BodiesAddress, DatabaseAddress

_SECONDS_MAX: Final = 60.0
"""How long an object store may take to say whether it is empty."""
_WORK_NAME: Final = "work"
_MOVES_PAGE: Final = 1_000
_EMPTY_NAMES: Final = frozenset({directories.LOCK_NAME, "lost+found", PARTIAL_NAME})


class Migrated(NamedTuple):
    """The result of a migration."""

    records: int
    bodies: Transferred


class _RecordLoader(Protocol):
    """A ledger that is being loaded."""

    def load(self, collection: Collection[Any, Any], rows: Rows) -> None: ...


class _CountingLoader:
    """Loads records, and counts them."""

    def __init__(self, target: _RecordLoader, progress: Progress) -> None:
        self._target = target
        self._progress = progress
        self.records = 0

    def load(self, collection: Collection[Any, Any], rows: Rows) -> None:
        self._target.load(collection, self._counted(rows))

    def _counted(self, rows: Rows) -> Iterator[tuple[bytes, bytes]]:
        for row in rows:
            self.records += 1
            self._progress("ledger", 0, 0)
            yield row


def to_cluster(
    directory: Path, address: DatabaseAddress, bodies: BodiesAddress, progress: Progress
) -> Migrated:
    """Copies the store in a data directory to a cluster. Raises `CannotUse`, or `ExtentsDamaged`
    if bytes in the data directory are."""
    _require_source(directory)
    with _raising_cannot_use(address, directory), data_directory.claimed(directory):
        shared = shared_bodies(directory, bodies)
        with StoppedLedger(directory, Config()) as source:
            load = PostgresLoad(Database(address.conninfo))
            try:
                identity = _begin(load, address, shared, bodies)
                return _load_and_copy(load, source, directory, bodies, identity, progress)
            finally:
                load.close()


def _require_source(directory: Path) -> None:
    try:
        require_ledger(directory)
    except CannotCheck as error:
        raise CannotUse(str(error)) from error
    if (directory / NODE_ID_NAME).exists():
        raise CannotUse(f"{directory} is that of a node of a cluster")


def _begin(
    load: PostgresLoad, address: DatabaseAddress, shared: SharedBodies, bodies: BodiesAddress
) -> StoreIdentity:
    """Begins to load a ledger, and reserves the bodies for it. Returns its identity."""
    marker = shared.marker()
    try:
        incoming = load.begin(os.urandom(ID_BYTES), str(bodies))
    except LedgerExists:
        raise CannotUse(f"there is a ledger in {address}; choose an empty database") from None
    except LoadUnderWay:
        raise CannotUse(f"another migration to {address} is running") from None
    if incoming.bodies != str(bodies):
        raise CannotUse(
            f"a migration to {address} with bodies in {incoming.bodies} was interrupted; run it "
            "again with the same --bodies, or remove the schema etagere_incoming and those bodies"
        )
    if marker is None:
        if not _is_empty(bodies):
            if incoming.is_new:
                load.abandon()
            raise CannotUse(f"{bodies} contains segments; choose an empty place for the bodies")
        shared.mark(incoming.store_id)
    elif marker != incoming.store_id:
        if incoming.is_new:
            load.abandon()
        raise CannotUse(f"the bodies in {bodies} belong to another ledger")
    return StoreIdentity(incoming.store_id, os.urandom(SECRET_BYTES), is_marked=True)


def _load_and_copy(
    load: PostgresLoad,
    source: StoppedLedger,
    directory: Path,
    bodies: BodiesAddress,
    identity: StoreIdentity,
    progress: Progress,
) -> Migrated:
    time = source.timeline()
    load.prepare(time.last_stamp)
    loader = _CountingLoader(load, progress)
    for collection in COLLECTIONS.values():
        if collection not in transfer.COLLECTIONS and collection not in CLUSTER_COLLECTIONS:
            loader.load(collection, source.rows(collection))
    load.load(STORE_IDENTITIES, [(STORE_IDENTITIES.pack(IDENTITY_KEY), ENCODE(identity))])
    copied = asyncio.run(_copy_to(bodies, source, directory, loader.load, identity.id, progress))
    try:
        load.finish(time)
    except LedgerExists:
        raise CannotUse("a node has created a ledger in the database meanwhile") from None
    return Migrated(loader.records, copied)


def _is_empty(bodies: BodiesAddress) -> bool:
    """Returns whether a place has no segments."""
    if bodies.path is not None:
        return FileTarget(bodies.path, Config()).is_empty()

    async def find() -> bytes:
        async with _use_objects(bodies) as objects:
            return b"empty" if await ObjectTarget(objects, Config()).is_empty() else b""

    try:
        # As with the marker: no other process can be started after the client has threads.
        return bool(in_child(lambda: asyncio.run(find()), _SECONDS_MAX))
    except ChildFailed as error:
        raise CannotUse(f"{bodies} cannot be used: {error}") from None


async def _copy_to(
    bodies: BodiesAddress,
    source: StoppedLedger,
    directory: Path,
    load: Load,
    owner: bytes,
    progress: Progress,
) -> Transferred:
    files, show = FileSource(directory), _body_progress(progress)
    if bodies.path is not None:
        target = FileTarget(bodies.path, Config())
        target.clear()
        copied = await Transfer(source, target, load, owner).run(files, show)
        target.sync()
        return copied
    async with _use_objects(bodies) as objects:
        stored = ObjectTarget(objects, Config())
        await stored.clear()
        return await Transfer(source, stored, load, owner).run(files, show)


def _body_progress(progress: Progress) -> Callable[[int, int], None]:
    return lambda done, total: progress("bodies", done, total)


@contextlib.asynccontextmanager
async def _use_objects(bodies: BodiesAddress) -> AsyncIterator[ObjectStore]:
    """Opens an object store, and closes it at the end. Raises `CannotUse`."""
    objects = open_objects(bodies)
    try:
        yield objects
    finally:
        await objects.close()


def to_directory(
    address: DatabaseAddress, bodies: BodiesAddress, directory: Path, progress: Progress
) -> Migrated:
    """Copies the store of a cluster to a data directory. Raises `CannotUse`, or `ExtentsDamaged`
    if bytes of the cluster are."""
    with _raising_cannot_use(address, directory), ClusterLedger(address) as source:
        _require_no_nodes(source)
        _require_no_moves(source)
        require_bodies(source, shared_bodies(directory, bodies))
        _require_empty(directory)
        claimed = data_directory.claim(directory, may_be_incomplete=True)
        try:
            _require_empty(directory)
            return _build(source, bodies, directory, progress)
        finally:
            os.close(claimed)


def _require_no_moves(source: ClusterLedger) -> None:
    """Raises `CannotUse` if an account is being moved to or from another cell."""
    after = ""
    while moves := source.read(list_account_moves, ListAccounts(_MOVES_PAGE, after)):
        for name, move in moves.items():
            if not move.is_purged:
                raise CannotUse(
                    f"account {name} is being moved to another cell; complete the move with "
                    "`etagere account move`, or cancel it"
                )
        after = max(moves)


def _require_no_nodes(source: ClusterLedger) -> None:
    database = source.database
    try:
        names = NodeRegistry(database.connection_string, schema=database.schema).running()
    except CoordinatorUnavailable as error:
        raise CannotUse(f"{source.address} cannot be used: {error}") from error
    if names:
        raise CannotUse(
            f"node {names[0]} is running; stop all nodes first (one that was killed is gone after "
            "ten seconds)"
        )


def _require_empty(directory: Path) -> None:
    try:
        names = {path.name for path in directory.iterdir()}
    except FileNotFoundError:
        return
    except NotADirectoryError:
        raise CannotUse(f"{directory} is not a directory") from None
    if names - _EMPTY_NAMES:
        raise CannotUse(f"{directory} is not empty; choose another directory")


def _build(
    source: ClusterLedger, bodies: BodiesAddress, directory: Path, progress: Progress
) -> Migrated:
    """Builds the store in a subdirectory, and moves it to its place."""
    partial, database = directory / PARTIAL_NAME, source.database
    with contextlib.suppress(FileNotFoundError):
        shutil.rmtree(partial)
    directories.make(partial)
    # Like every reader, it pins before its snapshot.
    with _pinned(database):
        target = LedgerLoad(partial, SystemClock())
        work = LedgerLoad(partial / _WORK_NAME, SystemClock())
        try:
            loader = _CountingLoader(target, progress)
            with open_current_snapshot(database) as snapshot:
                snapshot.require_known()
                time = snapshot.timeline(SystemClock())
                for collection in COLLECTIONS.values():
                    if collection in transfer.COLLECTIONS:
                        work.load(collection, snapshot.rows(collection))
                    elif collection not in CLUSTER_COLLECTIONS:
                        loader.load(collection, snapshot.rows(collection))
            work.finish(time)
            with StoppedLedger(partial / _WORK_NAME, Config()) as listed:
                copied = asyncio.run(_copy_from(bodies, listed, partial, loader.load, progress))
            target.finish(time)
        finally:
            work.close()
            target.close()
    _require_no_nodes(source)
    _install(partial, directory)
    return Migrated(loader.records, copied)


@contextlib.contextmanager
def _pinned(database: Database) -> Iterator[None]:
    """Keeps all segments of a cluster."""
    coordinator = PostgresCoordinator(
        database.connection_string, name="migrate", schema=database.schema
    )
    try:
        with coordinator.pin():
            yield
    finally:
        coordinator.close()


async def _copy_from(
    bodies: BodiesAddress, listed: StoppedLedger, directory: Path, load: Load, progress: Progress
) -> Transferred:
    target = FileTarget(directory, Config())
    target.clear()
    work = Transfer(listed, target, load, os.urandom(ID_BYTES))
    if bodies.path is not None:
        copied = await work.run(FileSource(bodies.path), _body_progress(progress))
    else:
        async with _use_objects(bodies) as objects:
            copied = await work.run(ObjectSource(objects), _body_progress(progress))
    target.sync()
    return copied


def _install(partial: Path, directory: Path) -> None:
    """Moves a complete store to its place, the ledger last."""
    shutil.rmtree(partial / _WORK_NAME)
    (partial / SEGMENTS_NAME).rename(directory / SEGMENTS_NAME)
    directories.sync(directory)
    ledger.database_path(partial).rename(ledger.database_path(directory))
    directories.sync(directory)
    with contextlib.suppress(OSError):
        shutil.rmtree(partial)


@contextlib.contextmanager
def _raising_cannot_use(address: DatabaseAddress, directory: Path) -> Iterator[None]:
    """Turns the errors of a migration into `CannotUse`."""
    try:
        with raising_cannot_use(directory):
            yield
    except (UnknownTable, Fault, Unknown, CoordinatorUnavailable) as error:
        raise CannotUse(_message(error, address)) from error


def _message(error: Exception, address: DatabaseAddress) -> str:
    if isinstance(error, Unknown):
        return f"the outcome is unknown; check {address} with `etagere check`: {error}"
    if isinstance(error, Fault):
        full = "; free some space" if error.reason is FaultReason.DISK_FULL else ""
        return f"the migration failed: {error.detail}{full}; run it again"
    return str(error)
