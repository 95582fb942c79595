"""What the handlers of the blob service are given beside the request."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from etagere.bodies.store import BodyStore
from etagere.jobs.copying import Copying
from etagere.jobs.folding import Folding
from etagere.protocol.blob.sources import Sources
from etagere.protocol.http.messages import Response
from etagere.protocol.rest.dependencies import Dependencies
from etagere.protocol.rest.exchange import Exchange
from etagere.settings import Settings


@dataclass(frozen=True, slots=True)
class BlobDependencies(Dependencies):
    """The dependencies of the handlers of the blob service."""

    store: BodyStore
    sources: Sources
    copying: Copying
    folding: Folding
    settings: Settings
    operation_of: Callable[[Exchange], str | None]
    """Returns the name of the operation that a request asks for, or None."""
    answer_nested: Callable[[Exchange, Exchange], Awaitable[Response]]
    """Answers a request that came inside of another one, which is the first argument."""
