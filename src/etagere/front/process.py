"""A front end: one process that serves requests.

Front ends differ in the services that they serve; `Assemble` puts these together. What all of them
have in common is here.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
import sys
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import uvloop

from etagere import allocation
from etagere.config import Config
from etagere.coordination.interface import Coordinator
from etagere.front.storage import MaintainedBodyStore, MeasuredEngine, ProcessStorage, Storage
from etagere.gc_tuning import tune_gc
from etagere.jobs.health import ChildHealth, answering, reach_writer
from etagere.jobs.supervision import Job, JobSupervisor
from etagere.metrics.snapshots import MetricSource, Snapshot
from etagere.operations.blob import containers
from etagere.operations.blob.staging import PurgeStagings, discard_stale
from etagere.operations.file import shares
from etagere.operations.queue import queues
from etagere.operations.table import tables
from etagere.processes import GRACE_SECONDS, ChildMain, end_without_supervisor
from etagere.protocol.access_log import AccessLog
from etagere.protocol.connections.memory import MemoryBudget
from etagere.protocol.connections.pool import ConnectionPool
from etagere.protocol.connections.sharing import ConnectionCounts, FrontEndShare, FrontEndTable
from etagere.protocol.http.server import HttpServer
from etagere.protocol.rest.authentication import Authenticator
from etagere.protocol.rest.service import Service
from etagere.protocol.smb.server import SmbServer
from etagere.protocol.smb.services import SmbServices
from etagere.settings import Settings
from etagere.telemetry.logs import handle_loop_error
from etagere.tls.contexts import ServerTls
from etagere.tls.reloading import reload_on_signal

if TYPE_CHECKING:
    from etagere.front.forwarding import ForwardedConnections
    from etagere.protocol.rest.cells import Cells
    from etagere.protocol.rest.user_authentication import UserAuthenticator

logger = logging.getLogger(__name__)

_DRAIN_SECONDS = GRACE_SECONDS - 2.0
"""How long the requests under way may take when the server stops. Leaves time to abort the others
and to close everything."""
JOB_PAUSE_SECONDS = 5.0
"""The pause between two runs of a job."""
_TRIM_SECONDS = 2.0
# How long a busy thread, such as one with a long read, may keep the event loop waiting each time.
_THREAD_TURN_SECONDS = 0.0005
_NOT_THE_LAST, _THE_LAST = b"-", b"!"


@dataclass(frozen=True)
class FrontEndContext:
    """What the services of every front end are built on."""

    directory: Path
    config: Config
    settings: Settings
    ports: Mapping[str, int]
    """The ports of all REST services, by name."""
    storage: ProcessStorage
    authenticator: Authenticator
    access_log: AccessLog
    share: FrontEndShare
    memory: MemoryBudget

    @property
    def engine(self) -> MeasuredEngine:
        return self.storage.engine

    @property
    def coordinator(self) -> Coordinator:
        return self.storage.coordinator

    @property
    def store(self) -> MaintainedBodyStore:
        return self.storage.store


StopStep = tuple[str, Callable[[], Awaitable[object]]]
"""A step of an orderly stop, and its description."""


@dataclass(frozen=True)
class Assembly:
    """The services of a front end, and the jobs that they need."""

    services: Sequence[Service]
    jobs: Sequence[Job]
    closing: Sequence[StopStep] = ()
    """Steps that end the work of the services, after the connections have been drained."""
    smb: SmbServices | None = None
    """None: SMB is not served."""
    counted: Sequence[MetricSource] = ()
    """What else has metrics."""


Assemble = Callable[[FrontEndContext], Assembly]


@dataclass(frozen=True)
class FrontEnd:
    """The configuration of the front ends that serve the same services."""

    assemble: Assemble
    directory: Path
    config: Config
    settings: Settings
    storage: Storage
    sockets: Mapping[str, socket.socket]
    """By the names of the services that these front ends serve, of which SMB is one."""
    ports: Mapping[str, int]
    """The ports of all REST services, by name."""
    tls: ServerTls | None
    announce: Callable[[], None]
    """Called when a front end answers requests."""
    table: FrontEndTable
    """The counters of all front ends of the server."""
    numbers: range
    """The rows of these front ends in the table."""
    users: UserAuthenticator | None = None
    """Verifies bearer tokens; None: they are not accepted."""
    forwarded: ForwardedConnections | None = None
    """What other nodes of a cluster forward to this one."""

    def main(self, name: str, number: int) -> ChildMain:
        """Returns the main function of a child process, which is the front end with this row in the
        table."""
        return lambda lifeline: uvloop.run(self._run(name, number, lifeline))

    async def _run(self, name: str, number: int, lifeline: int) -> None:
        await self.serve(name, number, begin_process(lifeline))

    async def serve(self, name: str, number: int, stopped: asyncio.Event) -> None:
        """Serves requests until `stopped` is set."""
        context = await self._context(name, number)
        assembly = self.assemble(context)
        servers = self._start_servers(assembly, context)
        rest = [server for server in servers if isinstance(server, HttpServer)]
        reload_on_signal(self.tls, name, rest)
        user_jobs = self.users.jobs() if self.users else ()
        cell_jobs = () if number else context.storage.cell_jobs
        jobs = _start_jobs(context, [*assembly.jobs, *user_jobs, *cell_jobs])
        tune_gc()
        sys.setswitchinterval(_THREAD_TURN_SECONDS)
        # Also shows that the writer answers.
        await context.engine.write(discard_stale, PurgeStagings())
        sources = _metric_sources(context, assembly, servers, jobs)
        # The process that serves files gets relayed requests from the others.
        from_nodes = self.forwarded if "file" in self.sockets else context.storage.relayed
        if from_nodes is not None:
            names = [service.name for service in assembly.services]
            from_nodes.start(dict(zip([*names, "smb"], servers, strict=False)))
        with answering(
            self.directory, name, lambda: self._health(jobs), lambda: _take_snapshot(sources)
        ):
            self.announce()
            await stopped.wait()
        await run_all_steps(
            *(() if from_nodes is None else (("refuse other nodes", from_nodes.stop),)),
            ("drain connections", lambda: _drain(servers)),
            ("stop jobs", jobs.stop),
            *assembly.closing,
            *_closing_cells(context),
            ("close the store", context.store.close),
            ("close the engine", context.engine.close),
        )
        context.access_log.flush()

    def _health(self, jobs: JobSupervisor) -> ChildHealth:
        expires = None if self.tls is None else self.tls.expires
        return ChildHealth(os.getpid(), time.time(), jobs.health(), expires)

    async def _context(self, name: str, number: int) -> FrontEndContext:
        share = FrontEndShare(self.table, number, self.numbers)
        memory = MemoryBudget(self.config.memory_budget_bytes, share)
        storage = await self.storage.open(self.config, name, memory)
        policies = {
            "blob": containers.policies_of,
            "queue": queues.policies_of,
            "table": tables.policies_of,
            "file": shares.policies_of,
        }
        cells = _cells(storage, self.settings, memory, self.table.front_ends)
        return FrontEndContext(
            self.directory,
            self.config,
            self.settings,
            self.ports,
            storage,
            Authenticator(storage.engine, self.settings, policies, self.users, cells),
            AccessLog(
                self.settings.log_format if self.settings.access_log else None,
                name,
                self.config.slow_seconds,
            ),
            share,
            memory,
        )

    def _start_servers(
        self, assembly: Assembly, context: FrontEndContext
    ) -> Sequence[HttpServer | SmbServer]:
        coordinator = context.coordinator
        pool = ConnectionPool(self.config.connections_max, lambda: coordinator.is_draining)
        services, share, memory = assembly.services, context.share, context.memory
        servers: list[HttpServer | SmbServer] = [
            HttpServer(
                service,
                self.sockets[service.name],
                tls=None if self.tls is None else self.tls.context,
                pool=pool,
                share=share,
                listener_number=listener_number,
                memory=memory,
            )
            for listener_number, service in enumerate(services)
        ]
        if assembly.smb is not None:
            servers.append(
                SmbServer(
                    assembly.smb,
                    self.sockets["smb"],
                    pool=pool,
                    share=share,
                    listener_number=len(services),
                    memory=memory,
                )
            )
        for server in servers:
            server.start()
        return servers


def _start_jobs(context: FrontEndContext, jobs: Sequence[Job]) -> JobSupervisor:
    supervisor = JobSupervisor()
    for job in jobs:
        supervisor.start(job)
    supervisor.start(
        Job("reaching the writer", lambda: reach_writer(context.engine), JOB_PAUSE_SECONDS)
    )
    supervisor.start(Job("returning memory", allocation.MemoryTrimmer().run, _TRIM_SECONDS))
    return supervisor


def _cells(
    storage: ProcessStorage, settings: Settings, memory: MemoryBudget, front_ends: int
) -> Cells | None:
    if storage.account_map is None:
        return None
    from etagere.front.cells import cells_of  # noqa: PLC0415

    return cells_of(storage.engine, storage.account_map, settings, memory, front_ends)


def _closing_cells(context: FrontEndContext) -> Sequence[StopStep]:
    cells, account_map = context.authenticator.cells, context.storage.account_map
    if cells is None or account_map is None:
        return ()
    return ("close relays", cells.relay.close), ("close the account map", account_map.close)


def _metric_sources(
    context: FrontEndContext,
    assembly: Assembly,
    servers: Sequence[HttpServer | SmbServer],
    jobs: JobSupervisor,
) -> Sequence[MetricSource]:
    smb = [server for server in servers if isinstance(server, SmbServer)]
    services = [service.counters for service in assembly.services]
    names = [service.name for service in assembly.services] + ["smb" for _ in smb]
    connections = ConnectionCounts(context.share.own_row, names)
    return (*services, *smb, connections, context.memory, context.engine, jobs, *assembly.counted)


def _take_snapshot(sources: Sequence[MetricSource]) -> Snapshot:
    snapshot = Snapshot()
    for source in sources:
        source.report(snapshot)
    return snapshot


async def run_all_steps(*steps: StopStep) -> None:
    """Runs all steps of an orderly stop in turn, even if some of them fail."""
    for what, step in steps:
        try:
            await step()
        except Exception:
            logger.exception("could not %s while stopping", what)


async def _drain(servers: Sequence[HttpServer | SmbServer]) -> None:
    drains = (server.drain(_DRAIN_SECONDS) for server in servers)
    for error in await asyncio.gather(*drains, return_exceptions=True):
        if isinstance(error, Exception):
            logger.error("could not drain a port while stopping", exc_info=error)


def begin_process(lifeline: int) -> asyncio.Event:
    """Prepares a child process; returns an event as `stop_signal`."""
    allocation.keep_memory()  # before there are threads
    asyncio.get_running_loop().set_exception_handler(handle_loop_error)
    return stop_signal(lifeline)


def stop_signal(lifeline: int) -> asyncio.Event:
    """Returns an event that is set when the supervisor stops this process, or is gone."""
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()

    def supervisor_is_gone() -> None:
        loop.remove_reader(lifeline)
        end_without_supervisor()
        stopped.set()

    loop.add_signal_handler(signal.SIGTERM, stopped.set)
    loop.add_reader(lifeline, supervisor_is_gone)
    return stopped


class ReadyBarrier:
    """Runs a callback in the last of several processes to become ready, once. A process may call it
    more than once."""

    def __init__(self, processes: int, do: Callable[[], None]) -> None:
        self._do = do
        self._is_ready = False
        self._tokens, given = os.pipe2(os.O_NONBLOCK)
        os.write(given, _NOT_THE_LAST * (processes - 1) + _THE_LAST)
        os.close(given)

    def __call__(self) -> None:
        if self._is_ready:
            return
        self._is_ready = True
        # There is no token left for a process that was restarted.
        with contextlib.suppress(BlockingIOError):
            if os.read(self._tokens, 1) == _THE_LAST:
                self._do()
