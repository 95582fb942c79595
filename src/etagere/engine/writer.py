"""The writer: the only process that changes the ledger.

It takes all commands that have arrived from front ends, runs and commits them as a group, and
answers them.
"""

from __future__ import annotations

import itertools
import logging
import os
import select
import signal
import socket
import time
from collections import deque
from collections.abc import Callable, Iterable
from pathlib import Path

from etagere.clock import Clock
from etagere.config import Config
from etagere.engine import deadlines, ledger, reserve, wire
from etagere.engine.group_writer import Answer, GroupWriter, answer_expired
from etagere.engine.groups import Writer
from etagere.gc_tuning import tune_gc
from etagere.metrics.snapshots import Snapshot
from etagere.processes import EXIT_FINAL, ProcessHealth, StatusSocket, end_without_supervisor

logger = logging.getLogger(__name__)

SOCKET_NAME = "writer.sock"
_LISTEN_AGAIN_SECONDS = 1.0
_RECEIVE_BYTES = 1 << 20
_SOCKET_BUFFER_BYTES = 4 << 20
_BACKLOG = 128


def listen(directory: Path) -> socket.socket:
    """Returns the writer's listening socket. It is created once, before the first writer, so that
    connections wait in its backlog while a writer is restarted."""
    path = directory / SOCKET_NAME
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX)
    with unix_address(path) as address:
        listener.bind(address)
    path.chmod(0o600)
    listener.listen(_BACKLOG)
    listener.setblocking(False)
    return listener


class unix_address:
    """An address for a socket path of any length; the kernel allows only 107 bytes."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> str:
        self._directory = os.open(self._path.parent, os.O_PATH | os.O_DIRECTORY)
        return f"/proc/self/fd/{self._directory}/{self._path.name}"

    def __exit__(self, *_: object) -> None:
        os.close(self._directory)


def is_served(directory: Path) -> bool:
    """Returns whether a process listens on the writer's socket; a stale one refuses connections."""
    try:
        with (
            socket.socket(socket.AF_UNIX) as probe,
            unix_address(directory / SOCKET_NAME) as address,
        ):
            probe.connect(address)
    except OSError:
        return False
    return True


def writer_main(
    directory: Path,
    listener: socket.socket,
    config: Config,
    clock: Clock,
    open_health_socket: Callable[[], StatusSocket | None] = lambda: None,
) -> Callable[[int], None]:
    """Returns the main function of the writer process."""

    def main(lifeline: int) -> None:
        try:
            # Also on a restart, because the disk may have become full since.
            reserve.release_if_full(directory)
            writer = Writer(directory, config, clock)
        except (ledger.SchemaTooNew, ledger.NotALedger) as error:
            logger.error("%s", error)
            raise SystemExit(EXIT_FINAL) from None
        tune_gc()
        WriterService(writer, listener, lifeline, config, open_health_socket()).run()

    return main


class _Peer:
    """The connection of one front end."""

    def __init__(self, peer: socket.socket, frame_bytes_max: int) -> None:
        self.socket = peer
        self.frames = wire.FrameReader(frame_bytes_max)
        self.requests: deque[wire.Request] = deque()
        self.unsent = b""
        self.received_at = 0.0
        self.waiting_since = 0.0
        """When the oldest of the requests arrived. If a group has left some of them, the
        time at which the latest arrived counts."""


class WriterService:
    """Receives requests from all front ends, and answers them."""

    def __init__(
        self,
        writer: GroupWriter,
        listener: socket.socket,
        lifeline: int,
        config: Config,
        health: StatusSocket | None = None,
    ) -> None:
        """`health`: None if it does not answer health queries."""
        self._writer = writer
        self._counters = writer.counters
        self._oldest = 0.0
        """When the oldest request of the current group arrived."""
        self._listener = listener
        self._lifeline = lifeline
        self._config = config
        self._peers: dict[int, _Peer] = {}
        self._received = memoryview(bytearray(_RECEIVE_BYTES))
        self._poll = select.epoll()
        self._poll.register(listener, select.EPOLLIN)
        self._poll.register(lifeline, select.EPOLLIN)
        self._served_last: _Peer | None = None
        self._stopping = False
        self._orphaned = False
        """Whether the supervisor is gone. The front ends then stop by themselves, and need the
        writer until they have."""
        self._listen_at: float | None = None
        self._wakeup, self._waker = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._poll.register(self._wakeup, select.EPOLLIN)
        self._health = health
        self._health_descriptor = -1 if health is None else health.fileno()
        if health is not None:
            self._poll.register(health, select.EPOLLIN)

    def run(self) -> None:
        """Serves until it is stopped, or until the supervisor and all front ends are gone."""
        signal.signal(signal.SIGTERM, self._stop)
        signal.set_wakeup_fd(self._waker)
        while not self._stopping and (self._peers or not self._orphaned):
            waiting = any(peer.requests for peer in self._peers.values())
            if not self._receive(0 if waiting else self._writer.idle_seconds):
                if not waiting:
                    self._writer.idle()
            elif not waiting and len(self._peers) > 1:
                self._yield_to_front_ends()
            group = self._next_group()
            if group:
                self._run_group(group)
                self._writer.maintain()
        while group := self._next_group():
            self._run_group(group)
        if self._health is not None:
            self._health.close()
        self._writer.close()

    def _stop(self, _signal: int, _frame: object) -> None:
        self._stopping = True

    def _receive(self, timeout_seconds: float) -> bool:
        """Receives requests that have arrived; returns whether there were any events."""
        if self._listen_at is not None and time.monotonic() >= self._listen_at:
            self._listen_at = None
            self._poll.register(self._listener, select.EPOLLIN)
        events = self._poll.poll(timeout_seconds)
        for descriptor, event in events:
            if descriptor == self._wakeup:
                self._stopping = True
            elif descriptor == self._lifeline:
                self._poll.unregister(self._lifeline)
                self._orphaned = True
                end_without_supervisor()
            elif descriptor == self._listener.fileno():
                self._accept()
            elif self._health is not None and descriptor == self._health_descriptor:
                self._health.answer(_health, self._report)
            elif descriptor in self._peers:
                self._serve(self._peers[descriptor], event)
        return bool(events)

    def _yield_to_front_ends(self) -> None:
        """Lets front ends that are about to send requests run first, for one commit of all of them
        instead of one each, on machines with fewer cores than processes."""
        os.sched_yield()
        self._receive(0)

    def _accept(self) -> None:
        try:
            accepted, _ = self._listener.accept()
        except BlockingIOError:
            return
        except OSError as error:
            # Without descriptors, this would become a busy loop; other front ends are still served.
            logger.error("cannot accept a front end: %s", error)
            self._poll.unregister(self._listener)
            self._listen_at = time.monotonic() + _LISTEN_AGAIN_SECONDS
            return
        accepted.setblocking(False)
        accepted.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SOCKET_BUFFER_BYTES)
        self._peers[accepted.fileno()] = _Peer(accepted, self._config.frame_bytes_max)
        self._poll.register(accepted, select.EPOLLIN)

    def _serve(self, peer: _Peer, event: int) -> None:
        try:
            if event & select.EPOLLOUT:
                self._send(peer, b"")
            # Backpressure: the rest stays in the socket.
            if event & ~select.EPOLLOUT and len(peer.requests) < self._config.group_operations_max:
                self._take(peer)
        except BlockingIOError:
            pass
        except OSError:
            self._disconnect(peer)
        except wire.BadFrame as error:
            logger.error("closing the connection of a front end that sent %s", error)
            self._disconnect(peer)

    def _take(self, peer: _Peer) -> None:
        # Into a buffer that exists: `recv` would allocate as much memory on every call.
        count = peer.socket.recv_into(self._received)
        if not count:
            self._disconnect(peer)
            return
        data = bytes(self._received[:count])
        peer.received_at = time.monotonic()
        if not peer.requests:
            peer.waiting_since = peer.received_at
        peer.requests.extend(map(wire.decode_request, peer.frames.feed(data)))

    def _disconnect(self, peer: _Peer) -> None:
        """Drops a front end that is gone, with its requests."""
        self._poll.unregister(peer.socket)
        del self._peers[peer.socket.fileno()]
        peer.socket.close()
        peer.requests.clear()

    def _next_group(self) -> list[tuple[_Peer, wire.Request]]:
        """Takes the requests of one commit, one of each front end in turn."""
        group: list[tuple[_Peer, wire.Request]] = []
        peers = self._answer_expired(self._in_turn())
        if peers:
            self._oldest = min([peer.waiting_since for peer in peers])
            for peer in peers:
                peer.waiting_since = peer.received_at
        while peers and len(group) < self._config.group_operations_max:
            group += [(peer, peer.requests.popleft()) for peer in peers]
            peers = [peer for peer in peers if peer.requests]
        return group

    def _answer_expired(self, peers: list[_Peer]) -> list[_Peer]:
        """Answers the requests whose deadline has passed. Returns the front ends with others."""
        now = deadlines.now()
        late = [peer for peer in peers if peer.requests[0].deadline <= now]
        if not late:
            return peers
        for peer in late:
            expired = list(itertools.takewhile(lambda one: one.deadline <= now, peer.requests))
            for _ in expired:
                peer.requests.popleft()
            self._answer_all([(peer, request) for request in expired], answer_expired(expired))
        return [peer for peer in peers if peer.requests]

    def _in_turn(self) -> list[_Peer]:
        """Returns the front ends with requests, starting after the one that was served last: a
        group may be cut before each of them had a turn."""
        waiting = [peer for peer in self._peers.values() if peer.requests]
        if self._served_last in waiting:
            first = waiting.index(self._served_last) + 1
            waiting = waiting[first:] + waiting[:first]
        return waiting

    def _run_group(self, group: list[tuple[_Peer, wire.Request]]) -> None:
        counters = self._counters
        counters.queue_seconds.observe(time.monotonic() - self._oldest)
        answers = self._writer.run_group([request for _, request in group])
        for peer, request in reversed(group[len(answers) :]):
            peer.requests.appendleft(request)
        if not answers:
            return
        counters.group_operations.observe(len(answers))
        self._served_last = group[len(answers) - 1][0]
        self._answer_all(group, answers)

    def _answer_all(
        self, requests: Iterable[tuple[_Peer, wire.Request]], answers: Iterable[Answer]
    ) -> None:
        outcomes = self._counters.outcomes
        outgoing: dict[_Peer, list[bytes]] = {}
        for (peer, request), answer in zip(requests, answers, strict=False):
            outcomes[answer.outcome] += 1
            frame = wire.encode_answer(request.id, answer.outcome, answer.payload)
            outgoing.setdefault(peer, []).append(frame)
        for peer, frames in outgoing.items():
            if peer.socket.fileno() >= 0:
                self._answer(peer, b"".join(frames))

    def _report(self) -> Snapshot:
        """Returns what was counted, and how many requests wait."""
        snapshot = Snapshot()
        self._counters.report(snapshot)
        waiting = sum(len(peer.requests) for peer in self._peers.values())
        snapshot.add("writer_queue_operations", waiting)
        return snapshot

    def _answer(self, peer: _Peer, data: bytes) -> None:
        try:
            self._send(peer, data)
        except OSError:
            self._disconnect(peer)

    def _send(self, peer: _Peer, data: bytes) -> None:
        data = peer.unsent + data
        try:
            sent = peer.socket.send(data)
        except BlockingIOError:
            sent = 0
        wanted_room = bool(peer.unsent)
        peer.unsent = data[sent:]
        if bool(peer.unsent) != wanted_room:
            events = select.EPOLLIN | (select.EPOLLOUT if peer.unsent else 0)
            self._poll.modify(peer.socket, events)


def _health() -> ProcessHealth:
    return ProcessHealth(os.getpid(), time.time())
