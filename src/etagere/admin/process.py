"""The admin process: answers requests about the server, whatever its other processes do.

It has its own event loop and reads the ledger itself, so that it answers while front ends are
saturated or stuck.
"""

from __future__ import annotations

import asyncio
import os
import socket
import time
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import uvloop

from etagere.admin.application import AdminApplication
from etagere.admin.child import ADMIN_NAME, AdminAccess
from etagere.admin.cluster import NodeObserver
from etagere.admin.collecting import ServerObserver
from etagere.admin.counting import COUNT_PAUSE_SECONDS, SEGMENTS_PAUSE_SECONDS, StoreCounter
from etagere.bodies.contents import COUNTERS
from etagere.bodies.segments import SEGMENT_NUMBERS
from etagere.config import MIB, Config
from etagere.engine.interface import Engine, ReadTxn
from etagere.front.process import run_all_steps, stop_signal
from etagere.front.storage import Storage
from etagere.gc_tuning import tune_gc
from etagere.jobs.health import ChildHealth, answering
from etagere.jobs.supervision import Job, JobSupervisor
from etagere.protocol.connections.memory import MemoryBudget
from etagere.protocol.connections.pool import ConnectionPool
from etagere.protocol.http.limits import Limits
from etagere.protocol.http.server import HttpServer
from etagere.telemetry.logs import handle_loop_error
from etagere.tls.contexts import ServerTls
from etagere.tls.reloading import reload_on_signal

_LIMITS: Final = Limits(
    target_bytes_max=2 * 1024,
    head_bytes_max=16 * 1024,
    headers_max=64,
    idle_seconds=60.0,
    head_seconds=10.0,
    behind_seconds_max=10.0,
    discard_seconds_max=10.0,
    discard_bytes_max=64 * 1024,
)
_CONNECTIONS_MAX: Final = 64
_MEMORY_BYTES: Final = 32 * MIB
_THREADS: Final = 4
"""One per kind of question: an answer that waits for a stuck process must not delay others."""
_PROBE_THREADS: Final = 3
"""One for each thing that a node of a cluster depends on."""
READ_SECONDS_MAX: Final = 10.0
_DRAIN_SECONDS: Final = 2.0


@dataclass(frozen=True)
class AdminProcess:
    """The configuration of the admin process."""

    directory: Path
    config: Config
    storage: Storage
    listening: socket.socket
    access: AdminAccess
    others: tuple[str, ...]
    """The names of the other children of the supervisor."""
    tls: ServerTls | None

    def run(self, lifeline: int) -> None:
        """Runs until it is stopped."""
        uvloop.run(self._run(lifeline))

    async def _run(self, lifeline: int) -> None:
        stopped = stop_signal(lifeline)
        asyncio.get_running_loop().set_exception_handler(handle_loop_error)
        # Pages are read once per count.
        small_cache = replace(self.config, page_cache_bytes=self.config.stepping_cache_bytes)
        engine = await self.storage.open_engine(small_cache)
        counter = StoreCounter(engine)
        jobs = JobSupervisor()
        jobs.start(Job("counting objects", counter.count_objects, COUNT_PAUSE_SECONDS))
        jobs.start(Job("examining segments", counter.examine_segments, SEGMENTS_PAUSE_SECONDS))
        probe_threads = ThreadPoolExecutor(_PROBE_THREADS, "probe")
        with ThreadPoolExecutor(_THREADS, "observer") as threads:
            observer = ServerObserver(
                self.directory,
                self.others,
                own=jobs,
                store=counter,
                node=self._node_observer(engine, probe_threads),
            )
            server = HttpServer(
                AdminApplication(observer, threads, self.access),
                self.listening,
                limits=_LIMITS,
                tls=None if self.tls is None else self.tls.context,
                pool=ConnectionPool(_CONNECTIONS_MAX),
                memory=MemoryBudget(_MEMORY_BYTES),
            )
            server.start()
            reload_on_signal(self.tls, ADMIN_NAME, [server])
            tune_gc()
            with answering(self.directory, ADMIN_NAME, lambda: _health(jobs)):
                await stopped.wait()
            await run_all_steps(
                ("drain connections", lambda: server.drain(_DRAIN_SECONDS)),
                ("stop jobs", jobs.stop),
                ("close the engine", engine.close),
            )
        # Shutdown does not wait for a store that hangs.
        probe_threads.shutdown(wait=False)

    def _node_observer(self, engine: Engine, threads: Executor) -> NodeObserver | None:
        probe = self.storage.probe()
        if probe is None:
            return None
        loop = asyncio.get_running_loop()

        def check_ledger() -> None:
            """Reads through the engine as requests do, so that it fails if they fail."""
            reading = asyncio.run_coroutine_threadsafe(engine.read(_read_a_record, None), loop)
            reading.result(READ_SECONDS_MAX)

        return NodeObserver(probe, check_ledger, threads)


def _read_a_record(txn: ReadTxn, _: None) -> None:
    txn.get(COUNTERS, (SEGMENT_NUMBERS,))


def _health(jobs: JobSupervisor) -> ChildHealth:
    return ChildHealth(os.getpid(), time.time(), jobs.health())
