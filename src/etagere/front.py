"""A front end: one process that serves requests. Puts the parts of the server together."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
import ssl
import sys
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import uvloop

from etagere import allocation
from etagere.bodies.collector import Collector
from etagere.bodies.files import FileBodyStore
from etagere.config import Config
from etagere.coordination.local import LocalCoordinator
from etagere.engine.sqlite import SqliteEngine
from etagere.gc_tuning import tune_gc
from etagere.jobs.copying import Copying
from etagere.jobs.folding import JOBS as FOLDING_JOBS
from etagere.jobs.folding import Folding
from etagere.jobs.health import FrontEndHealth, answering, reach_writer
from etagere.jobs.indexing import DROP_UNUSED_SECONDS, STORE_USES_SECONDS, Indexing
from etagere.jobs.purging import purge
from etagere.jobs.read_recording import PAUSE_SECONDS, ReadRecording
from etagere.jobs.supervision import Job, JobSupervisor
from etagere.operations.blob import containers
from etagere.operations.blob.staging import PurgeStagings, discard_stale
from etagere.operations.queue import queues
from etagere.operations.table import tables
from etagere.processes import GRACE_SECONDS, ChildMain, end_without_supervisor
from etagere.protocol.access_log import AccessLog
from etagere.protocol.blob.service import BlobService
from etagere.protocol.blob.sources import Sources
from etagere.protocol.http.memory import MemoryBudget
from etagere.protocol.http.pool import ConnectionPool
from etagere.protocol.http.server import HttpServer
from etagere.protocol.http.sharing import FrontEndShare, FrontEndTable
from etagere.protocol.queue.service import QueueService
from etagere.protocol.rest.authentication import Authenticator
from etagere.protocol.table.service import TableService
from etagere.settings import Settings

logger = logging.getLogger(__name__)

_DRAIN_SECONDS = GRACE_SECONDS - 2.0
"""How long the requests under way may take when the server stops. Leaves time to abort the others
and to close everything."""
_JOB_SECONDS = 5.0
_TRIM_SECONDS = 2.0
# How long a busy thread, such as one with a long read, may keep the event loop waiting each time.
_THREAD_TURN_SECONDS = 0.0005
_NOT_THE_LAST, _THE_LAST = b"-", b"!"


@dataclass(frozen=True)
class FrontEnd:
    """The configuration of the front ends of a server."""

    directory: Path
    config: Config
    settings: Settings
    sockets: Mapping[str, socket.socket]
    """By the names of the services."""
    tls: ssl.SSLContext | None
    announce: Callable[[], None]
    """Called when this front end answers requests."""
    table: FrontEndTable
    """The counters that the front ends share."""

    def main(self, name: str, number: int) -> ChildMain:
        """Returns the main function of a child process, which is the front end with this number,
        counted from 0."""
        return lambda lifeline: uvloop.run(self._run(name, number, lifeline))

    async def _run(self, name: str, number: int, lifeline: int) -> None:
        allocation.keep_memory()  # before there are threads
        stopped = _stop_signal(lifeline)
        engine = SqliteEngine(self.directory, self.config)
        coordinator = LocalCoordinator(self.directory)
        store = FileBodyStore(self.directory, engine, self.config, coordinator=coordinator)
        collector = Collector(self.directory, engine, store, self.config)
        access_log = AccessLog()
        policies = {
            "blob": containers.policies_of,
            "queue": queues.policies_of,
            "table": tables.policies_of,
        }
        authenticator = Authenticator(engine, self.settings, policies)
        blob_port = self.sockets["blob"].getsockname()[1]
        sources = Sources(engine, store, authenticator, self.settings.copy_sources, blob_port)
        copying = Copying(engine, store, coordinator)
        folding = Folding(engine, store)
        indexing = Indexing(engine)
        tracking = self.settings.last_access_time_tracking
        read_recording = ReadRecording(engine) if tracking else None
        share = FrontEndShare(self.table, number)
        services = (
            BlobService(
                engine,
                authenticator,
                access_log,
                share,
                store=store,
                sources=sources,
                copying=copying,
                folding=folding,
                settings=self.settings,
                read_recording=read_recording,
            ),
            QueueService(engine, authenticator, access_log, share),
            TableService(engine, authenticator, access_log, indexing, share),
        )
        pool = ConnectionPool(self.config.connections_max)
        memory = MemoryBudget(self.config.memory_budget_bytes, share)
        servers = [
            HttpServer(
                service,
                self.sockets[service.name],
                tls=self.tls,
                pool=pool,
                share=share,
                listener_number=listener_number,
                memory=memory,
            )
            for listener_number, service in enumerate(services)
        ]
        for server in servers:
            server.start()
        jobs = JobSupervisor()
        jobs.start(Job("collecting", collector.run, _JOB_SECONDS))
        jobs.start(Job("purging", lambda: purge(engine, coordinator), _JOB_SECONDS))
        jobs.start(Job("ending copies", copying.fail_abandoned, _JOB_SECONDS))
        for folder in range(1, FOLDING_JOBS + 1):
            jobs.start(Job(f"folding {folder}", folding.fold_next, 0))
        jobs.start(Job("indexing", indexing.build_next, 0))
        jobs.start(Job("storing uses of indexes", indexing.store_uses, STORE_USES_SECONDS))
        jobs.start(Job("dropping unused indexes", indexing.drop_unused, DROP_UNUSED_SECONDS))
        if read_recording is not None:
            record = read_recording.record_noted
            jobs.start(Job("recording reads", record, PAUSE_SECONDS))
        jobs.start(Job("reaching the writer", lambda: reach_writer(engine), _JOB_SECONDS))
        jobs.start(Job("returning memory", allocation.MemoryTrimmer().run, _TRIM_SECONDS))
        tune_gc()
        sys.setswitchinterval(_THREAD_TURN_SECONDS)
        # Also shows that the writer answers.
        await engine.write(discard_stale, PurgeStagings())
        with answering(self.directory, name, lambda: _health(jobs)):
            self.announce()
            await stopped.wait()
        await _do_all(
            ("drain connections", lambda: _drain(servers)),
            ("stop jobs", jobs.stop),
            ("end copies", copying.close),
            *([("record reads", read_recording.close)] if read_recording is not None else []),
            ("close sources", sources.close),
            ("close the store", store.close),
            ("close the engine", engine.close),
        )
        access_log.flush()


def _health(jobs: JobSupervisor) -> FrontEndHealth:
    return FrontEndHealth(os.getpid(), time.time(), jobs.health())


async def _do_all(*steps: tuple[str, Callable[[], Awaitable[object]]]) -> None:
    """Runs all steps of an orderly stop in turn, even if some of them fail."""
    for what, step in steps:
        try:
            await step()
        except Exception:
            logger.exception("could not %s while stopping", what)


async def _drain(servers: Sequence[HttpServer]) -> None:
    drains = (server.drain(_DRAIN_SECONDS) for server in servers)
    for error in await asyncio.gather(*drains, return_exceptions=True):
        if isinstance(error, Exception):
            logger.error("could not drain a port while stopping", exc_info=error)


def _stop_signal(lifeline: int) -> asyncio.Event:
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
    """Runs a callback in the last of several processes to become ready, once."""

    def __init__(self, processes: int, do: Callable[[], None]) -> None:
        self._do = do
        self._tokens, given = os.pipe2(os.O_NONBLOCK)
        os.write(given, _NOT_THE_LAST * (processes - 1) + _THE_LAST)
        os.close(given)

    def __call__(self) -> None:
        # There is no token left for a process that was restarted.
        with contextlib.suppress(BlockingIOError):
            if os.read(self._tokens, 1) == _THE_LAST:
                self._do()
