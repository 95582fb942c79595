"""The storage of a server that is on its own: everything is in its data directory."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from socket import socket
from typing import TYPE_CHECKING

from etagere.bodies.collector import Collector
from etagere.bodies.files import FileBodyStore
from etagere.clock import TICKS_PER_SECOND, Clock
from etagere.config import Config
from etagere.coordination.local import LocalCoordinator
from etagere.data_directory import NODE_ID_NAME, CannotUse, raising_cannot_use
from etagere.engine import ledger, reserve, timeline
from etagere.engine.sqlite import SqliteEngine
from etagere.engine.timeline import Timeline
from etagere.engine.writer import listen, writer_main
from etagere.front.storage import ProcessStorage
from etagere.jobs.health import WRITER_NAME, open_health_socket
from etagere.opens.remote import RemoteOpens
from etagere.processes import ChildMain
from etagere.protocol.connections.memory import MemoryBudget

if TYPE_CHECKING:
    from etagere.front.process import FrontEnd

logger = logging.getLogger(__name__)


class ClockBehind(CannotUse):
    """The wall clock is implausibly far behind the times in the store."""


@dataclass(frozen=True)
class EmbeddedStorage:
    """A ledger in SQLite and bodies in files, in a data directory that this server has locked."""

    directory: Path
    config: Config
    clock: Clock
    listener: socket
    """The socket that the writer accepts connections on."""

    def writer_main(self) -> ChildMain:
        health_socket = partial(open_health_socket, self.directory, WRITER_NAME)
        return writer_main(self.directory, self.listener, self.config, self.clock, health_socket)

    def file_main(self, front_end: FrontEnd, name: str, number: int) -> ChildMain:
        return front_end.main(name, number)

    async def open(self, config: Config, _name: str, _memory: MemoryBudget) -> ProcessStorage:
        return await attach(self.directory, config)

    def probe(self) -> None:
        return None

    def leave(self) -> None:
        pass

    async def open_engine(self, config: Config) -> SqliteEngine:
        return SqliteEngine(self.directory, config)


async def attach(directory: Path, config: Config) -> ProcessStorage:
    """Opens the storage in a directory that a server has prepared."""
    engine = SqliteEngine(directory, config)
    coordinator = LocalCoordinator(directory)
    store = FileBodyStore(directory, engine, config, coordinator=coordinator)
    return ProcessStorage(
        engine,
        coordinator,
        store,
        lambda: Collector(engine, store, config),
        RemoteOpens(directory),
    )


def prepare(
    directory: Path, config: Config, clock: Clock, *, accept_clock: bool = False
) -> EmbeddedStorage:
    """Prepares the ledger of a locked directory."""
    with raising_cannot_use(directory):
        if (directory / NODE_ID_NAME).exists():
            raise CannotUse(f"{directory} is that of a node of a cluster: set --engine")
        reserve.release_if_full(directory)
        stored = ledger.create(directory, config, clock)
        _check_clock(directory, stored, clock, accept_clock)
        return EmbeddedStorage(directory, config, clock, listen(directory))


def _check_clock(directory: Path, stored: Timeline, clock: Clock, accept_clock: bool) -> None:
    """Refuses to start if the stored times are implausibly far ahead of the wall clock: either the
    clock is wrong now, or it was when the store was last used. Only the operator knows which, and
    continuing would make changes with dates in the future."""
    ahead = timeline.ticks_ahead(stored, clock)
    if ahead <= timeline.AHEAD_TICKS_MAX:
        return
    days = ahead / (24 * 3600 * TICKS_PER_SECOND)
    text = f"the times in {directory} are {days:.1f} days ahead of this machine's clock"
    if not accept_clock:
        raise ClockBehind(
            f"{text}. If the clock is wrong, set it. If it was wrong before, correct the times "
            "with `etagere clock --reset`. To start anyway, use --accept-clock."
        )
    logger.warning("%s; starting anyway", text)
