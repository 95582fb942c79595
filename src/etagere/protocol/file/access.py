"""Access of REST operations to directories and files, while SMB clients may have them open.

Every operation on a directory or file goes through here, or through `FileDependencies.opens`
directly.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, Protocol, TypeVar, cast

from msgspec import Struct
from msgspec.structs import replace

from etagere.engine.interface import ReadTxn, WriteTxn
from etagere.model.files import EntryPath
from etagere.opens.table import REST_WAIT_SECONDS_MAX
from etagere.protocol.file.dependencies import FileDependencies
from etagere.protocol.rest.exchange import Exchange
from etagere.rules.opens import RestAccess

_TIMEOUT_DIGITS_MAX: Final = 9


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
    engine = deps.engine

    def run(path: EntryPath) -> Awaitable[T]:
        return engine.write(operation, _with_path(command, path))

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


def wait_seconds(exchange: Exchange) -> float:
    """Returns how long a request waits for SMB clients to give up their caches."""
    written = exchange.parameter("timeout")
    if not written or not written.isascii() or not written.isdigit():
        return REST_WAIT_SECONDS_MAX
    if len(written) > _TIMEOUT_DIGITS_MAX:
        return REST_WAIT_SECONDS_MAX
    return min(float(written), REST_WAIT_SECONDS_MAX)
