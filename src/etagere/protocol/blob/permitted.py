"""Reads that check public access in the same snapshot."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from etagere.auth.permissions import Permit, Public, check_public
from etagere.engine.interface import C, Engine, ReadClass, ReadTxn, T, abort_if
from etagere.model.containers import ContainerName, PublicAccess
from etagere.operations.blob.collections import CONTAINERS
from etagere.protocol.rest.exchange import Exchange

_PUBLIC: Final = {
    PublicAccess.NOTHING: Public.NOTHING,
    PublicAccess.BLOBS: Public.BLOB,
    PublicAccess.EVERYTHING: Public.CONTAINER,
}


def permitted(
    permit: Permit,
    version: str,
    operation: Callable[[ReadTxn, C], T],
    container: ContainerName,
) -> Callable[[ReadTxn, C], T]:
    """Returns the operation with a check of public access, for anonymous callers."""
    if permit.public is Public.NOTHING:
        return operation

    def as_anybody(txn: ReadTxn, command: C) -> T:
        found = txn.get(CONTAINERS, container.key)
        allowed = Public.NOTHING if found is None else _PUBLIC[found.public_access]
        abort_if(check_public(permit, allowed, version=version))
        return operation(txn, command)

    # Engines schedule reads by the names of their operations. functools.wraps would cost more.
    as_anybody.__qualname__ = operation.__qualname__
    return as_anybody


async def read_as_caller(
    exchange: Exchange,
    engine: Engine,
    operation: Callable[[ReadTxn, C], T],
    command: C,
    container: ContainerName,
    *,
    in_thread: bool = False,
) -> T:
    """Runs a read with the permit of a request. `in_thread`: the read may take long."""
    read_class = exchange.read_class(operation.__name__) if in_thread else None
    return await read_permitted(
        engine,
        exchange.permit,
        exchange.challenge_version,
        operation,
        command,
        container,
        read_class=read_class,
    )


async def read_permitted(
    engine: Engine,
    permit: Permit,
    version: str,
    operation: Callable[[ReadTxn, C], T],
    command: C,
    container: ContainerName,
    *,
    read_class: ReadClass | None = None,
) -> T:
    """Runs a read with a permit. With a read class, it runs in a thread."""
    read = (
        engine.read if read_class is None else partial(engine.read_in_thread, read_class=read_class)
    )
    return await read(permitted(permit, version, operation, container), command)
