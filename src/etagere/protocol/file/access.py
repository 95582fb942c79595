"""Access of REST operations to directories and files, while SMB clients may have them open.

Every operation on a directory or file goes through here, or through `FileDependencies.opens`
directly.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar, cast

from msgspec import Struct
from msgspec.structs import replace

from etagere.engine.interface import ReadTxn, WriteTxn
from etagere.model.files import EntryPath
from etagere.operations.file import inheritance
from etagere.protocol.file.decode import wait_seconds
from etagere.protocol.file.dependencies import FileDependencies
from etagere.protocol.rest.exchange import Exchange
from etagere.rules.opens import RestAccess


class PathCommand(Protocol):
    """A command with the path of a directory or file."""

    @property
    def path(self) -> EntryPath: ...


C = TypeVar("C", bound=PathCommand)
T = TypeVar("T")


async def write(
    exchange: Exchange,
    deps: FileDependencies,
    access: RestAccess,
    operation: Callable[[WriteTxn, C], T],
    command: C,
) -> T:
    """Changes a directory or file when its open handles allow it."""
    engine, share, client = deps.engine, command.path.ref.share, exchange.request.client

    def run(path: EntryPath) -> Awaitable[T]:
        return inheritance.write(engine, share, operation, _with_path(command, path), client)

    return await deps.opens.rest(command.path, access, run, seconds_max=wait_seconds(exchange))


async def read(
    exchange: Exchange,
    deps: FileDependencies,
    access: RestAccess,
    operation: Callable[[ReadTxn, C], T],
    command: C,
) -> T:
    """Reads a directory or file when its open handles allow it."""
    engine = deps.engine

    def run(path: EntryPath) -> Awaitable[T]:
        return engine.read(operation, _with_path(command, path))

    return await deps.opens.rest(command.path, access, run, seconds_max=wait_seconds(exchange))


def _with_path(command: C, path: EntryPath) -> C:
    if path is command.path:
        return command
    return cast("C", replace(cast("Struct", command), path=path))
