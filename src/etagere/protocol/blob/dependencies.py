"""The dependencies of the handlers of the blob service."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from etagere.bodies.store import BodyStore
from etagere.jobs.copying import Copying
from etagere.jobs.folding import Folding
from etagere.jobs.read_recording import ReadRecording
from etagere.model.copies import CopyRef
from etagere.protocol.http.messages import Response
from etagere.protocol.rest.dependencies import Dependencies
from etagere.protocol.rest.exchange import Exchange
from etagere.protocol.sources.opening import Sources
from etagere.settings import Settings

_LAST_ACCESS_SHOWN_SINCE: Final = "2020-02-10"


@dataclass(frozen=True, slots=True)
class BlobDependencies(Dependencies):
    """The dependencies of the handlers of the blob service."""

    store: BodyStore
    sources: Sources
    copying: Copying[CopyRef]
    folding: Folding
    settings: Settings
    read_recording: ReadRecording | None
    """None: last access times are not tracked."""
    operation_of: Callable[[Exchange], str | None]
    """Returns the name of the operation of a request, or None."""
    answer_nested: Callable[[Exchange, Exchange], Awaitable[Response]]
    """Answers a nested request; the first argument is the outer one."""

    def shows_last_access(self, exchange: Exchange) -> bool:
        """Returns whether the response to a request has last access times."""
        return self.read_recording is not None and exchange.version >= _LAST_ACCESS_SHOWN_SINCE
