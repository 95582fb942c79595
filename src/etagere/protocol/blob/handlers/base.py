"""What all operations of the blob service need."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple

from etagere.auth.permissions import Public, check_public
from etagere.bodies.files import FileBodyStore
from etagere.engine.interface import C, Engine, ReadTxn, T, abort_if
from etagere.jobs.copying import Copying
from etagere.jobs.folding import Folding
from etagere.model.containers import ContainerName, PublicAccess
from etagere.operations.blob.collections import CONTAINERS
from etagere.protocol.blob.sources import Sources
from etagere.protocol.exchange import Exchange
from etagere.protocol.http.messages import Response
from etagere.settings import Settings

ENCRYPTED: Final = (b"x-ms-request-server-encrypted", b"true")

_PUBLIC = {
    PublicAccess.NOTHING: Public.NOTHING,
    PublicAccess.BLOBS: Public.BLOB,
    PublicAccess.EVERYTHING: Public.CONTAINER,
}


AnswerPart = Callable[[Exchange, Exchange], Awaitable[Response]]
"""What carries out a request inside of another as if it had come alone."""


class Means(NamedTuple):
    """What operations are carried out with."""

    engine: Engine
    store: FileBodyStore
    sources: Sources
    copying: Copying
    folding: Folding
    settings: Settings


class Handling:
    """One method per operation, under the name that it has in the table of routes."""

    def __init__(self, means: Means, answer_part: AnswerPart) -> None:
        self._engine = means.engine
        self._store = means.store
        self._sources = means.sources
        self._copying = means.copying
        self._folding = means.folding
        self._settings = means.settings
        self._answer_part = answer_part

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
