"""Writes that may create entries, which inherit their permissions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

from etagere.engine.interface import Engine, ReadClass, Refused, WriteTxn
from etagere.model.shares import ShareName
from etagere.operations.file import permissions

C = TypeVar("C")
T = TypeVar("T")

_ATTEMPTS_MAX: Final = 5
"""Somebody may change the permission of the directory at the same time."""


async def write(
    engine: Engine,
    share: ShareName,
    operation: Callable[[WriteTxn, C], T],
    command: C,
    client: str,
) -> T:
    """Runs an operation in a share. If it would take long to determine what a new entry inherits,
    that is determined in a thread before, where clients take turns."""
    for _ in range(_ATTEMPTS_MAX - 1):
        try:
            return await engine.write(operation, command)
        except Refused as refused:
            unknown = permissions.unknown_inheritance(refused, share)
            if unknown is None:
                raise
        read_class = ReadClass("inheritance", client)
        inherited = await engine.read_in_thread(permissions.find_inherited, unknown, read_class)
        await engine.write(permissions.keep_inherited, inherited)
    return await engine.write(operation, command)
