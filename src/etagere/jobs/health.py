"""Health reports of the processes of a server.

Each process answers on a datagram socket in the data directory: a health query by one JSON
document, a query for metrics by one snapshot in MessagePack. This needs no disk space and no
additional descriptor, so it works when these have run out. A process whose event loop is stuck does
not answer, which `etagere status` reports as a problem.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import select
import socket
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from etagere import directories
from etagere.engine.interface import Engine, WriteTxn, operation
from etagere.engine.writer import unix_address
from etagere.jobs.supervision import JobHealth
from etagere.metrics.snapshots import (
    SNAPSHOT_BYTES_MAX,
    Snapshot,
    decode_snapshot,
    encode_snapshot,
)
from etagere.model.base import Command
from etagere.processes import SupervisorStatus

logger = logging.getLogger(__name__)

DIRECTORY_NAME: Final = "health"
SUPERVISOR_NAME: Final = "supervisor"
WRITER_NAME: Final = "writer"
WRITER_SECONDS_MAX: Final = 15.0
_HEALTH_QUERY: Final = b"?"
_METRICS_QUERY: Final = b"m"
_ANSWER_BYTES_MAX: Final = SNAPSHOT_BYTES_MAX
_RETRY_SECONDS: Final = 0.1
"""The interval of the check whether a process that has not answered is still running."""

D = TypeVar("D")


class ChildHealth(msgspec.Struct, frozen=True):
    """The health of one child of the supervisor. Times are in seconds since 1970."""

    pid: int
    now: float
    jobs: tuple[JobHealth, ...] = ()
    """Of a front end."""
    certificate_expires: float | None = None
    """None: it does not use TLS."""


class HealthSocket:
    """The socket on which one process reports its health."""

    def __init__(self, directory: Path, name: str) -> None:
        """May raise OSError."""
        self._path = socket_path(directory, name)
        directories.make(self._path.parent, durable=False)  # sockets end with their processes
        self._path.unlink(missing_ok=True)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        try:
            # Before it has a name, so that other users can never access it.
            os.fchmod(self._socket.fileno(), 0o600)
            with unix_address(self._path) as address:
                self._socket.bind(address)
        except OSError:
            self._socket.close()
            raise

    def fileno(self) -> int:
        return self._socket.fileno()

    def answer(
        self,
        report: Callable[[], object],
        metrics: Callable[[], Snapshot] | None = None,
    ) -> None:
        """Answers all queries that have arrived. A client that does not wait gets no answer."""
        while True:
            try:
                query, asker = self._socket.recvfrom(1)
            except OSError:
                return
            if not asker:
                continue
            if query == _METRICS_QUERY:
                data = encode_snapshot(Snapshot() if metrics is None else metrics())
            else:
                data = msgspec.json.encode(report())
            with contextlib.suppress(OSError):
                self._socket.sendto(data, asker)

    def close(self) -> None:
        self._socket.close()
        with contextlib.suppress(OSError):
            self._path.unlink(missing_ok=True)


def open_health_socket(directory: Path, name: str) -> HealthSocket | None:
    """Opens the socket; returns None if that fails, since the server runs without it too."""
    try:
        return HealthSocket(directory, name)
    except OSError as error:
        logger.warning("%s cannot answer health queries: %s", name, error)
        return None


def socket_path(directory: Path, name: str) -> Path:
    return directory / DIRECTORY_NAME / f"{name.replace(' ', '-')}.sock"


@contextlib.contextmanager
def answering(
    directory: Path,
    name: str,
    report: Callable[[], object],
    metrics: Callable[[], Snapshot] | None = None,
) -> Iterator[None]:
    """Answers health queries from the running event loop while the context is open."""
    health = open_health_socket(directory, name)
    if health is None:
        yield
        return
    loop = asyncio.get_running_loop()
    loop.add_reader(health, health.answer, report, metrics)
    try:
        yield
    finally:
        loop.remove_reader(health)
        health.close()


def ask(directory: Path, names: Mapping[str, type[D]], seconds_max: float) -> dict[str, D]:
    """Queries the health of the processes of these names concurrently; those that do not answer in
    time are missing from the result."""
    answers: dict[str, D] = {}
    for name, data in _query(directory, names, _HEALTH_QUERY, seconds_max).items():
        with contextlib.suppress(msgspec.DecodeError):
            answers[name] = msgspec.json.decode(data, type=names[name])
    return answers


def ask_metrics(directory: Path, names: Iterable[str], seconds_max: float) -> dict[str, Snapshot]:
    """Queries what these processes have counted; as `ask`."""
    answers: dict[str, Snapshot] = {}
    for name, data in _query(directory, names, _METRICS_QUERY, seconds_max).items():
        with contextlib.suppress(msgspec.DecodeError):
            answers[name] = decode_snapshot(data)
    return answers


def _query(
    directory: Path, names: Iterable[str], query: bytes, seconds_max: float
) -> dict[str, bytes]:
    """Returns the answers of these processes by their names. A process that ends meanwhile is not
    waited for, unless another one has taken its place."""
    answers: dict[str, bytes] = {}
    with contextlib.ExitStack() as opened:
        waiting: dict[socket.socket, _QueriedProcess] = {}
        for name in names:
            asker = opened.enter_context(
                socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
            )
            asker.bind("")  # to an address of the kernel's choice, which is no file
            asked = _QueriedProcess(name, socket_path(directory, name))
            if asked.query(asker, query):
                waiting[asker] = asked
        deadline = time.monotonic() + seconds_max
        while waiting and (left := deadline - time.monotonic()) > 0:
            answering = select.select(list(waiting), [], [], min(left, _RETRY_SECONDS))[0]
            for asker in answering:
                name = waiting.pop(asker).name
                with contextlib.suppress(OSError):
                    answers[name] = asker.recv(_ANSWER_BYTES_MAX)
            if not answering:
                waiting = {
                    asker: asked for asker, asked in waiting.items() if asked.query(asker, query)
                }
    return answers


class _QueriedProcess:
    """A process that was queried, by the file of its socket."""

    def __init__(self, name: str, path: Path) -> None:
        self.name = name
        self._path = path
        self._file = (0, 0)

    def query(self, asker: socket.socket, query: bytes) -> bool:
        """Sends a query, unless this process has got it already; returns whether it is running."""
        try:
            status = self._path.stat()
            file = status.st_ino, status.st_ctime_ns  # inode numbers are used again
            # The kernel does not report that a process with an unanswered query has ended.
            with unix_address(self._path) as address:
                asker.connect(address)
            if file != self._file:
                asker.send(query)
        except OSError:
            return False
        self._file = file
        return True


def server_status(directory: Path, seconds_max: float) -> SupervisorStatus | None:
    """Returns the status of the server in a directory; None if there is none, or it is stuck."""
    answers = ask(directory, {SUPERVISOR_NAME: SupervisorStatus}, seconds_max)
    return answers.get(SUPERVISOR_NAME)


# Probing the writer


class Probe(Command, frozen=True):
    """A command without an effect."""


@operation(reclaims=True)
def probe(_txn: WriteTxn, _command: Probe) -> None:
    """Changes nothing, and so needs no fsync."""


async def reach_writer(engine: Engine) -> None:
    """Raises an error if the writer does not answer in time."""
    async with asyncio.timeout(WRITER_SECONDS_MAX):
        await engine.write(probe, Probe())
