"""The writer: the one process that changes the ledger.

It takes every command that has arrived from any front end, has them run and committed as a
group, and answers them all.
"""

from __future__ import annotations

import logging
import os
import select
import signal
import socket
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path

from etagere.clock import Clock
from etagere.config import Config
from etagere.engine import ledger, reserve, wire
from etagere.engine.groups import Writer
from etagere.gc_tuning import tune_gc
from etagere.processes import EXIT_FINAL, end_without_supervisor

logger = logging.getLogger(__name__)

SOCKET_NAME = "writer.sock"
_RESERVE_SECONDS = 1.0
_LISTEN_AGAIN_SECONDS = 1.0
_RECEIVE_BYTES = 1 << 20
_SOCKET_BUFFER_BYTES = 4 << 20
_BACKLOG = 128


def listen(directory: Path) -> socket.socket:
    """The writer's socket. Made once, before the first writer: connections made while a
    writer is being started again wait in its backlog."""
    path = directory / SOCKET_NAME
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX)
    with reachable(path) as address:
        listener.bind(address)
    path.chmod(0o600)
    listener.listen(_BACKLOG)
    listener.setblocking(False)
    return listener


class reachable:
    """An address for a socket path of any length: the kernel takes only 107 bytes."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> str:
        self._directory = os.open(self._path.parent, os.O_PATH | os.O_DIRECTORY)
        return f"/proc/self/fd/{self._directory}/{self._path.name}"

    def __exit__(self, *_: object) -> None:
        os.close(self._directory)


def is_served(directory: Path) -> bool:
    """Whether somebody listens on the writer's socket; one that was left behind refuses."""
    try:
        with (
            socket.socket(socket.AF_UNIX) as probe,
            reachable(directory / SOCKET_NAME) as address,
        ):
            probe.connect(address)
    except OSError:
        return False
    return True


def writer_main(
    directory: Path, listener: socket.socket, config: Config, clock: Clock
) -> Callable[[int], None]:
    """What the supervisor runs as the writer process."""

    def main(lifeline: int) -> None:
        try:
            # Also when the supervisor starts it again, on a disk that has become full since.
            reserve.give_way(directory)
            writer = Writer(directory, config, clock)
        except (ledger.SchemaTooNew, ledger.NotALedger) as error:
            logger.error("%s", error)
            raise SystemExit(EXIT_FINAL) from None
        tune_gc()
        Service(writer, listener, lifeline, config).run()

    return main


class _Peer:
    """One front end's connection."""

    def __init__(self, peer: socket.socket, frame_bytes_max: int) -> None:
        self.socket = peer
        self.frames = wire.FrameReader(frame_bytes_max)
        self.requests: deque[wire.Request] = deque()
        self.unsent = b""


class Service:
    """Takes requests from the sockets of all front ends, and answers them."""

    def __init__(
        self, writer: Writer, listener: socket.socket, lifeline: int, config: Config
    ) -> None:
        self._writer = writer
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
        """The supervisor is gone: the front ends end by themselves, and need the writer for it."""
        self._listen_at: float | None = None
        self._wakeup, self._waker = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._poll.register(self._wakeup, select.EPOLLIN)

    def run(self) -> None:
        """Serves until told to stop, or until the supervisor and all front ends are gone."""
        signal.signal(signal.SIGTERM, self._stop)
        signal.set_wakeup_fd(self._waker)
        reserve_due = 0.0
        while not self._stopping and (self._peers or not self._orphaned):
            waiting = any(peer.requests for peer in self._peers.values())
            if not self._receive(0 if waiting else self._writer.idle_seconds):
                if not waiting:
                    self._writer.idle()
            else:
                if time.monotonic() >= reserve_due:
                    self._writer.restore_reserve()
                    reserve_due = time.monotonic() + _RESERVE_SECONDS
                if not waiting and len(self._peers) > 1:
                    self._let_others_ask()
            group = self._next_group()
            if group:
                self._settle(group)
                self._writer.maintain()
        while group := self._next_group():
            self._settle(group)
        self._writer.close()

    def _stop(self, _signal: int, _frame: object) -> None:
        self._stopping = True

    def _receive(self, timeout_seconds: float) -> bool:
        """Takes in what has arrived; says whether anything has."""
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
            elif descriptor in self._peers:
                self._serve(self._peers[descriptor], event)
        return bool(events)

    def _let_others_ask(self) -> None:
        """Front ends that are about to ask are let come first: one commit for all of them, rather
        than one for each, where there are not as many cores as processes."""
        os.sched_yield()
        self._receive(0)

    def _accept(self) -> None:
        try:
            accepted, _ = self._listener.accept()
        except BlockingIOError:
            return
        except OSError as error:
            # Without descriptors it would be tried again in a busy loop; others are served.
            logger.error("cannot accept a connection from a front end: %s", error)
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
            # A front end that has much waiting here waits there for more.
            if event & ~select.EPOLLOUT and len(peer.requests) < self._config.group_operations_max:
                self._take(peer)
        except BlockingIOError:
            pass
        except OSError:
            self._forget(peer)
        except wire.BadFrame as error:
            logger.error("closing the connection of a front end that sent %s", error)
            self._forget(peer)

    def _take(self, peer: _Peer) -> None:
        # Into room that is there: `recv` would ask the kernel for as much memory, every time.
        count = peer.socket.recv_into(self._received)
        if not count:
            self._forget(peer)
            return
        data = bytes(self._received[:count])
        peer.requests.extend(map(wire.decode_request, peer.frames.feed(data)))

    def _forget(self, peer: _Peer) -> None:
        """A front end is gone: nobody is left to be told of its requests."""
        self._poll.unregister(peer.socket)
        del self._peers[peer.socket.fileno()]
        peer.socket.close()
        peer.requests.clear()

    def _next_group(self) -> list[tuple[_Peer, wire.Request]]:
        """As much as one commit should hold, one request of each front end in turn."""
        group: list[tuple[_Peer, wire.Request]] = []
        peers = self._in_turn()
        while peers and len(group) < self._config.group_operations_max:
            group += [(peer, peer.requests.popleft()) for peer in peers]
            peers = [peer for peer in peers if peer.requests]
        return group

    def _in_turn(self) -> list[_Peer]:
        """Those with requests, beginning behind the one that was served last: a group may be
        cut off before everybody in it had a turn."""
        waiting = [peer for peer in self._peers.values() if peer.requests]
        if self._served_last in waiting:
            first = waiting.index(self._served_last) + 1
            waiting = waiting[first:] + waiting[:first]
        return waiting

    def _settle(self, group: list[tuple[_Peer, wire.Request]]) -> None:
        answers = self._writer.settle([request for _, request in group])
        outgoing: dict[_Peer, list[bytes]] = {}
        for peer, request in reversed(group[len(answers) :]):
            peer.requests.appendleft(request)
        self._served_last = group[len(answers) - 1][0]
        for (peer, request), answer in zip(group, answers, strict=False):
            frame = wire.encode_answer(request.id, answer.outcome, answer.payload)
            outgoing.setdefault(peer, []).append(frame)
        for peer, frames in outgoing.items():
            if peer.socket.fileno() >= 0:
                self._answer(peer, b"".join(frames))

    def _answer(self, peer: _Peer, data: bytes) -> None:
        try:
            self._send(peer, data)
        except OSError:
            self._forget(peer)

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
