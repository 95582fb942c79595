"""The ledger as commands use it: of a running server, of a stopped one, or of a cluster."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

import msgspec

from etagere import data_directory
from etagere.bodies.audit.snapshot import CannotCheck, require_ledger
from etagere.cli import CommandError
from etagere.clock import SystemClock
from etagere.config import Config
from etagere.engine import ledger, reserve
from etagere.engine.direct import write_directly
from etagere.engine.groups import Writer
from etagere.engine.interface import C, Conflict, Fault, ReadTxn, SchemaTooNew, T, Unknown, WriteTxn
from etagere.engine.sqlite import SqliteEngine
from etagere.engine.writer import is_served
from etagere.node.opening import cluster_ledger
from etagere.settings import Settings


class Store(Protocol):
    """A ledger. Its methods raise the outcomes of an engine."""

    def read(self, operation: Callable[[ReadTxn, C], T], command: C) -> T: ...

    def write(self, operation: Callable[[WriteTxn, C], T], command: C) -> T: ...


class _ServedStore:
    """A data directory that a server is using; the server does the writes."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def read(self, operation: Callable[[ReadTxn, C], T], command: C) -> T:
        return asyncio.run(self._with_engine(lambda engine: engine.read(operation, command)))

    def write(self, operation: Callable[[WriteTxn, C], T], command: C) -> T:
        return asyncio.run(self._with_engine(lambda engine: engine.write(operation, command)))

    async def _with_engine(self, call: Callable[[SqliteEngine], Awaitable[T]]) -> T:
        engine = SqliteEngine(self.directory)
        try:
            return await call(engine)
        finally:
            await engine.close()


class _StoppedStore(_ServedStore):
    """A data directory that this process has locked; the writer runs in this process."""

    def write(self, operation: Callable[[WriteTxn, C], T], command: C) -> T:
        writer = Writer(self.directory, Config(), SystemClock())
        try:
            return write_directly(writer, operation, command)
        finally:
            writer.close()


@contextmanager
def open_store(settings: Settings, *, create: bool = False) -> Iterator[Store]:
    """Opens the store of a cluster, or the one in the data directory, which is locked if no server
    uses it. Creates a missing store only if `create` is set."""
    place = f"the ledger in {settings.engine or settings.data}"
    with raising_command_error(place, settings.data):
        if settings.engine is not None:
            with cluster_ledger(settings.engine, create=create) as opened:
                yield opened
        else:
            with _embedded(settings.data, create=create) as store:
                yield store


@contextmanager
def _embedded(directory: Path, *, create: bool) -> Iterator[Store]:
    if not create:
        require_ledger(directory)
    claimed = _claim(directory)
    if claimed is None:
        yield _ServedStore(directory)
        return
    try:
        # A ledger of an older version may lack the table of accounts.
        reserve.release_if_full(directory)
        ledger.create(directory, Config(), SystemClock())
        yield _StoppedStore(directory)
    finally:
        os.close(claimed)


def _claim(directory: Path) -> int | None:
    """Locks a directory; returns None if a server uses it. That is checked first, because locking
    waits for a server that is stopping."""
    if is_served(directory):
        return None
    try:
        return data_directory.claim(directory)
    except data_directory.DirectoryInUse as error:
        if is_served(directory):  # a server has started meanwhile
            return None
        raise CommandError(str(error)) from None


@contextmanager
def raising_command_error(place: str, directory: Path) -> Iterator[None]:
    """Raises `CommandError` if a ledger cannot be used. `place` says which one."""
    try:
        yield
    except (CannotCheck, data_directory.CannotUse, ledger.NotALedger, SchemaTooNew) as error:
        raise CommandError(str(error)) from error
    except Unknown as error:
        words = f"the outcome is unknown; list again to see whether it took effect: {error}"
        raise CommandError(words) from error
    except (Conflict, Fault, ledger.DatabaseError, msgspec.DecodeError) as error:
        raise CommandError(f"{place} cannot be used: {error}") from error
    except OSError as error:
        raise CommandError(
            f"{error.filename or directory} cannot be used: {error.strerror}"
        ) from error
