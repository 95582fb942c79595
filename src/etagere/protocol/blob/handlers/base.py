"""What all operations of the blob service need."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from etagere.auth.permissions import Public, check_public
from etagere.bodies.files import FileBodyStore
from etagere.engine.interface import C, Engine, ReadTxn, T, abort_if
from etagere.model.containers import ContainerName, PublicAccess
from etagere.operations.blob.collections import CONTAINERS
from etagere.protocol.exchange import Exchange

ENCRYPTED: Final = (b"x-ms-request-server-encrypted", b"true")

_PUBLIC = {
    PublicAccess.NOTHING: Public.NOTHING,
    PublicAccess.BLOBS: Public.BLOB,
    PublicAccess.EVERYTHING: Public.CONTAINER,
}


class Handling:
    """One method per operation, under the name that it has in the table of routes."""

    def __init__(self, engine: Engine, store: FileBodyStore) -> None:
        self._engine = engine
        self._store = store

    async def _read(
        self,
        exchange: Exchange,
        operation: Callable[[ReadTxn, C], T],
        command: C,
        container: ContainerName,
        *,
        aside: bool = False,
    ) -> T:
        """A read, with what a caller without a name may see decided in the same snapshot."""
        read = self._engine.read_aside if aside else self._engine.read
        if exchange.permit.public is Public.NOTHING:
            return await read(operation, command)

        def as_anybody(txn: ReadTxn, command: C) -> T:
            found = txn.get(CONTAINERS, container.key)
            allowed = Public.NOTHING if found is None else _PUBLIC[found.public_access]
            abort_if(check_public(exchange.permit, allowed, version=exchange.version))
            return operation(txn, command)

        return await read(as_anybody, command)
