"""What all operations of the blob service need."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple

from etagere.bodies.store import BodyStore
from etagere.engine.interface import C, Engine, ReadTxn, T
from etagere.jobs.copying import Copying
from etagere.jobs.folding import Folding
from etagere.model.containers import ContainerName
from etagere.protocol.blob.permitted import read_permitted
from etagere.protocol.blob.sources import Sources
from etagere.protocol.exchange import Exchange
from etagere.protocol.http.messages import Response
from etagere.settings import Settings

ENCRYPTED: Final = (b"x-ms-request-server-encrypted", b"true")
NOT_ENCRYPTED: Final = (b"x-ms-request-server-encrypted", b"false")
"""Of what brings no bytes that could be encrypted, but is answered like what does."""

AnswerPart = Callable[[Exchange, Exchange], Awaitable[Response]]
"""What carries out a request inside of another as if it had come alone."""


class Means(NamedTuple):
    """What operations are carried out with."""

    engine: Engine
    store: BodyStore
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
        permit, version = exchange.permit, exchange.challenge_version
        lane = exchange.lane(operation.__name__) if aside else None
        return await read_permitted(
            self._engine, permit, version, operation, command, container, lane=lane
        )
