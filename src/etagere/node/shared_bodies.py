"""The bodies of a cluster, which all nodes share."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Final, Protocol

from etagere import directories
from etagere.bodies.collector import Collector
from etagere.bodies.files import FileBodyStore
from etagere.bodies.objects.interface import ObjectExists, ObjectMissing, ObjectStore
from etagere.bodies.objects.opening import open_object_store
from etagere.bodies.objects.store import ObjectBodyStore
from etagere.config import Config
from etagere.coordination.interface import Coordinator
from etagere.data_directory import CannotUse
from etagere.engine.interface import Engine
from etagere.front.storage import Collecting, MaintainedBodyStore
from etagere.model.cluster import StoreIdentity
from etagere.node.children import ChildFailed, in_child
from etagere.node.cluster_ledger import ClusterLedger
from etagere.node.opening import optional_dependencies
from etagere.operations.identity import get_identity
from etagere.protocol.connections.memory import MemoryBudget
from etagere.settings.addresses import BodiesAddress

MARKER_NAME: Final = "store-id"
_MARKER_BYTES_MAX: Final = 64
_SECONDS_MAX: Final = 60.0
"""How long an object store may take to answer before a node starts."""


class SharedBodies(Protocol):
    """Where the bodies are."""

    def marker(self) -> bytes | None:
        """Returns the id of the store that the bodies belong to, None if there is none."""
        ...

    def mark(self, store_id: bytes) -> None:
        """Stores the id of the store, if there is none."""
        ...

    def open_marker_reader(self) -> Callable[[], bytes | None]:
        """Returns a function that reads the marker again and again, for a process that starts no
        other processes."""
        ...

    async def open(
        self,
        engine: Engine,
        config: Config,
        coordinator: Coordinator,
        memory: MemoryBudget | None = None,
    ) -> tuple[MaintainedBodyStore, Callable[[], Collecting]]:
        """Opens the bodies in a process; returns them, and a function that creates a collector.
        `memory` limits what a front end buffers."""
        ...


class DirectoryBodies:
    """Bodies in segment files, in a directory that all nodes share."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def __str__(self) -> str:
        return str(self.directory)

    def marker(self) -> bytes | None:
        try:
            with (self.directory / MARKER_NAME).open("rb") as file:
                return file.read(_MARKER_BYTES_MAX)
        except FileNotFoundError:
            return None

    def open_marker_reader(self) -> Callable[[], bytes | None]:
        return self.marker

    def mark(self, store_id: bytes) -> None:
        directories.make(self.directory)
        path = self.directory / MARKER_NAME
        new = path.with_name(f"{MARKER_NAME}.{os.getpid()}")
        descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            os.write(descriptor, store_id)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        try:
            path.hardlink_to(new)  # fails if another node was faster
        except FileExistsError:
            pass
        finally:
            new.unlink()
        directories.sync(self.directory)

    async def open(
        self,
        engine: Engine,
        config: Config,
        coordinator: Coordinator,
        memory: MemoryBudget | None = None,
    ) -> tuple[MaintainedBodyStore, Callable[[], Collecting]]:
        store = FileBodyStore(self.directory, engine, config, coordinator=coordinator)
        return store, lambda: Collector(engine, store, config)


async def _read_marker(objects: ObjectStore) -> bytes:
    try:
        return await objects.get(MARKER_NAME, 0, _MARKER_BYTES_MAX)
    except ObjectMissing:
        return b""


class ObjectMarkerReader:
    """Reads the marker in an object store, always with the same client."""

    def __init__(self, open_objects: Callable[[], ObjectStore]) -> None:
        self._open_objects = open_objects
        self._objects: ObjectStore | None = None
        self._loop = asyncio.new_event_loop()
        # Ends with the process: a store that hangs must not delay that.
        threading.Thread(target=self._loop.run_forever, name="bodies-probe", daemon=True).start()

    def read(self) -> bytes | None:
        """Returns the marker, None if there is none. Raises `Fault` or `CannotUse`."""
        return asyncio.run_coroutine_threadsafe(self._read(), self._loop).result() or None

    async def _read(self) -> bytes:
        if self._objects is None:
            self._objects = self._open_objects()
        return await _read_marker(self._objects)


def open_objects(address: BodiesAddress) -> ObjectStore:
    """Opens the object store at an address. Raises `CannotUse`."""
    try:
        with optional_dependencies():
            return open_object_store(address.url)
    except ValueError as error:
        raise CannotUse(f"--bodies {error}") from None


class ObjectBodies:
    """Bodies in an object store."""

    def __init__(self, address: BodiesAddress) -> None:
        self._address = address

    def __str__(self) -> str:
        return str(self._address)

    def marker(self) -> bytes | None:
        return self._use(_read_marker) or None

    def open_marker_reader(self) -> Callable[[], bytes | None]:
        return ObjectMarkerReader(partial(open_objects, self._address)).read

    def mark(self, store_id: bytes) -> None:
        async def put(objects: ObjectStore) -> bytes:
            with contextlib.suppress(ObjectExists):
                await objects.put(MARKER_NAME, [store_id])
            return b""

        self._use(put)

    def _use(self, call: Callable[[ObjectStore], Awaitable[bytes]]) -> bytes:
        """Calls a function in a process of its own: clients of object stores have threads, which
        a supervisor that starts other processes must not have."""

        async def run() -> bytes:
            objects = open_objects(self._address)
            try:
                return await call(objects)
            finally:
                await objects.close()

        try:
            return in_child(lambda: asyncio.run(run()), _SECONDS_MAX)
        except ChildFailed as error:
            raise CannotUse(f"{self} cannot be used: {error}") from None

    async def open(
        self,
        engine: Engine,
        config: Config,
        coordinator: Coordinator,
        memory: MemoryBudget | None = None,
    ) -> tuple[MaintainedBodyStore, Callable[[], Collecting]]:
        store = ObjectBodyStore(open_objects(self._address), engine, coordinator, config, memory)
        return store, lambda: Collector(engine, store, config)


def require_bodies(ledger: ClusterLedger, bodies: SharedBodies) -> StoreIdentity:
    """Returns the identity of a store. Raises `CannotUse` if these are not its bodies."""
    identity = ledger.read(get_identity, None)
    if identity is None or bodies.marker() != identity.id:
        raise CannotUse(f"the bodies of the ledger in {ledger.address} are not in {bodies}")
    return identity


def shared_bodies(directory: Path, address: BodiesAddress | None) -> SharedBodies:
    """Returns the bodies at an address, or in the data directory of a node that is alone."""
    if address is None:
        return DirectoryBodies(directory)
    return ObjectBodies(address) if address.path is None else DirectoryBodies(address.path)
