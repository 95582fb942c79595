"""Writes that may create entries, which inherit their permissions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

from etagere.engine.interface import Refused, WriteTxn
from etagere.model.shares import ShareName
from etagere.operations.file import permissions
from etagere.protocol.file.dependencies import FileDependencies
from etagere.protocol.rest.exchange import Exchange

C = TypeVar("C")
T = TypeVar("T")

_ATTEMPTS_MAX: Final = 5
"""Somebody may change the permission of the directory at the same time."""


async def write(
    exchange: Exchange,
    deps: FileDependencies,
    share: ShareName,
    operation: Callable[[WriteTxn, C], T],
    command: C,
) -> T:
    """Runs an operation in a share. If it would take long to determine what a new entry inherits,
    that is determined in a thread before."""
    engine = deps.engine
    for _ in range(_ATTEMPTS_MAX - 1):
        try:
            return await engine.write(operation, command)
        except Refused as refused:
            unknown = permissions.unknown_inheritance(refused, share)
            if unknown is None:
                raise
        read_class = exchange.read_class("inheritance")
        inherited = await engine.read_in_thread(permissions.find_inherited, unknown, read_class)
        await engine.write(permissions.keep_inherited, inherited)
    return await engine.write(operation, command)
