"""The front end of the file service in a cluster, where one node at a time serves files.

The process waits until its node may serve files, and forwards connections to the node that does.
Then it serves them as on a single machine, until it is stopped, until its node is drained, or until
it is declared dead, which ends it at once. A process that gives the task up ends, and is started
again, so that it keeps no state of open files.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import Final, Protocol

import uvloop

from etagere.coordination.interface import Coordinator, CoordinatorUnavailable
from etagere.engine.interface import Conflict, Engine, Fault, Refused, Unknown
from etagere.engine.tasks import leave_task, take_task
from etagere.front.forwarding import ForwardedConnections, Forwarder, HolderFinder, NodeListener
from etagere.front.process import FrontEnd, begin_process
from etagere.front.storage import Storage
from etagere.jobs.health import ChildHealth, answering
from etagere.model.cluster import FILE_TASK, LeaveTask, TakeTask, TaskHolder
from etagere.processes import EXIT_START_AGAIN, ChildMain

logger = logging.getLogger(__name__)

_CANDIDATE_SECONDS: Final = 1.0
"""How often a node asks for the task."""
_UNAVAILABLE: Final = (CoordinatorUnavailable, Fault, Unknown, Conflict)


@dataclass(frozen=True)
class Membership:
    """What a process needs of the cluster before it serves files."""

    engine: Engine
    """Its writes carry no epoch."""
    coordinator: Coordinator
    secret: bytes = field(repr=False)
    ending: asyncio.Event
    """Set when the node is drained."""

    async def close(self) -> None:
        self.coordinator.close()
        await self.engine.close()


class ClusterStorage(Storage, Protocol):
    """The storage of a cluster."""

    async def join(self, name: str) -> Membership: ...

    def for_epoch(self, epoch: int) -> Storage:
        """Returns the same storage, for a process whose writes carry this epoch."""
        ...


@dataclass(frozen=True)
class ClusterFileFrontEnd:
    """The process that serves files on one node."""

    front_end: FrontEnd
    storage: ClusterStorage
    node: str
    listener: NodeListener
    name: str
    number: int

    def main(self) -> ChildMain:
        return lambda lifeline: uvloop.run(self._run(lifeline))

    async def _run(self, lifeline: int) -> None:
        stopped = begin_process(lifeline)
        membership = await self.storage.join(self.name)
        try:
            while not stopped.is_set():
                if await self._wait_for_task(membership, stopped):
                    # A new process begins without the open files of this epoch.
                    raise SystemExit(EXIT_START_AGAIN)
        finally:
            await membership.close()

    async def _wait_for_task(self, membership: Membership, stopped: asyncio.Event) -> bool:
        """Forwards connections until this node has the task, and serves files then. Returns whether
        it has served."""
        finder = HolderFinder(membership.engine, self.listener.address)
        async with contextlib.AsyncExitStack() as waiting:
            forwarder = _Forwarding(self, finder, membership.secret)
            waiting.push_async_callback(forwarder.stop)
            while not stopped.is_set():
                try:
                    async with membership.coordinator.sole_worker(FILE_TASK) as lock:
                        if lock is not None and await self._take(membership, lock.epoch):
                            await forwarder.stop()
                            await self._serve_or_end(membership, lock.epoch, stopped)
                            return not stopped.is_set()
                except _UNAVAILABLE as error:
                    logger.warning("cannot ask for the task to serve files: %s", error)
                forwarder.start()
                await _wait_for_first(stopped.wait, lambda: asyncio.sleep(_CANDIDATE_SECONDS))
        return False

    async def _take(self, membership: Membership, epoch: int) -> bool:
        holder = TaskHolder(epoch, self.node, *self.listener.address)
        try:
            await membership.engine.write(take_task, TakeTask(FILE_TASK, holder))
        except Refused:
            return False
        return True

    async def _serve_or_end(
        self, membership: Membership, epoch: int, stopped: asyncio.Event
    ) -> None:
        """Serves files. If that fails, parts of it may be running: the process must not go on."""
        try:
            await self._serve(membership, epoch, stopped)
        except _UNAVAILABLE as error:
            logger.warning("cannot serve files: %s", error)
            raise SystemExit(EXIT_START_AGAIN) from None

    async def _serve(self, membership: Membership, epoch: int, stopped: asyncio.Event) -> None:
        logger.info("this node serves files now (epoch %d)", epoch)
        directory = self.front_end.directory
        forwarded = ForwardedConnections(self.listener, membership.secret, epoch, directory)
        storage = self.storage.for_epoch(epoch)
        front_end = replace(self.front_end, storage=storage, forwarded=forwarded)
        ended = asyncio.Event()
        ending = asyncio.create_task(_wait_for_first(stopped.wait, membership.ending.wait))
        ending.add_done_callback(lambda _: ended.set())
        try:
            await front_end.serve(self.name, self.number, ended)
        finally:
            ending.cancel()
        try:
            await membership.engine.write(leave_task, LeaveTask(FILE_TASK, epoch))
        except (*_UNAVAILABLE, Refused) as error:
            logger.warning("could not tell the other nodes that files are not served: %s", error)


class _Forwarding:
    """The forwarding of connections, while the process waits for the task."""

    def __init__(self, process: ClusterFileFrontEnd, finder: HolderFinder, secret: bytes) -> None:
        self._process = process
        self._finder = finder
        self._secret = secret
        self._forwarder: Forwarder | None = None
        self._health = contextlib.ExitStack()

    def start(self) -> None:
        """Starts to forward, unless it does already."""
        if self._forwarder is not None:
            return
        front_end = self._process.front_end
        sockets = {
            name: socket.socket(fileno=os.dup(listening.fileno()))
            for name, listening in front_end.sockets.items()
        }
        for each in sockets.values():
            self._health.callback(each.close)
        self._forwarder = Forwarder(sockets, self._finder, self._secret)
        self._forwarder.start()
        self._health.enter_context(
            answering(
                front_end.directory,
                self._process.name,
                lambda: ChildHealth(os.getpid(), time.time()),
            )
        )
        front_end.announce()

    async def stop(self) -> None:
        forwarder, self._forwarder = self._forwarder, None
        if forwarder is not None:
            await forwarder.stop()
        self._health.close()


async def _wait_for_first(*waits: Callable[[], Awaitable[object]]) -> None:
    """Waits until the first of these ends, and cancels the others."""
    tasks = [asyncio.ensure_future(wait()) for wait in waits]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
