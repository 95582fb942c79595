"""The writer: the one process that changes the ledger.

It takes every command that has arrived, runs each in a savepoint, commits them together
with one fsync, and only then answers them all. Refusals wait for the commit too, since
they may rest on a neighbour's write that is not durable before it.
"""

from __future__ import annotations

import fcntl
import logging
import os
import select
import signal
import socket
import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import apsw

from etagere.clock import Clock
from etagere.config import Config
from etagere.engine import ledger, timeline, wire
from etagere.engine.interface import (
    OPERATIONS,
    Conflict,
    FaultReason,
    Guard,
    Operation,
    Refused,
)
from etagere.engine.records import ENCODE, Collection, K, R, Span
from etagere.engine.reserve import Reserve
from etagere.engine.wire import Outcome
from etagere.processes import EXIT_FINAL

logger = logging.getLogger(__name__)

SOCKET_NAME = "writer.sock"
LOCK_NAME = "writer.lock"
_IDLE_SECONDS = 1.0
_RECEIVE_BYTES = 1 << 20
_SOCKET_BUFFER_BYTES = 4 << 20
_BACKLOG = 128
_REOPEN_ATTEMPTS = 3

_OPERATIONS_BY_NAME: dict[bytes, Operation[Any, Any]] = {}


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


def writer_main(
    directory: Path, listener: socket.socket, config: Config, clock: Clock
) -> Callable[[int], None]:
    """What the supervisor runs as the writer process."""

    def main(lifeline: int) -> None:
        try:
            writer = Writer(directory, config, clock)
        except (ledger.SchemaTooNew, ledger.NotALedger) as error:
            logger.error("%s", error)
            raise SystemExit(EXIT_FINAL) from None
        Service(writer, listener, lifeline, config).run()

    return main


class Answer(NamedTuple):
    """How one request ended, to be sent once it is durable."""

    outcome: Outcome
    payload: bytes


class WriteTransaction:
    """One operation's view of the open group."""

    __slots__ = ("_cursor", "_dirty", "_now", "_stamp", "_writer", "hooks")

    def __init__(self, writer: Writer, cursor: apsw.Cursor) -> None:
        self._writer = writer
        self._cursor = cursor
        self._dirty = False
        self._now: int | None = None
        self._stamp: int | None = None
        self.hooks: list[tuple[Callable[[Any], None], Any]] | None = None

    @property
    def now(self) -> int:
        if self._now is None:
            self._now = self._writer.now()
        return self._now

    @property
    def stamp(self) -> int:
        if self._stamp is None:
            self._stamp = self._writer.next_stamp()
        return self._stamp

    # There is one writer, so everything is guarded and nothing is held by others.
    def get(self, collection: Collection[K, R], key: K, guard: Guard | None = None) -> R | None:
        return ledger.get(self._cursor, collection, key)

    def scan(
        self,
        collection: Collection[K, R],
        span: Span,
        limit: int,
        *,
        reverse: bool = False,
        claim: bool = False,
    ) -> list[tuple[K, R]]:
        return ledger.scan(self._cursor, collection, span, limit, reverse)

    def put(self, collection: Collection[K, R], key: K, record: R) -> R:
        packed = collection.pack(key)
        if not self._dirty:
            self._set_savepoint()
        self._cursor.execute(ledger.statements(collection).put, (packed, ENCODE(record)))
        return record

    def delete(self, collection: Collection[K, R], key: K) -> None:
        packed = collection.pack(key)
        if not self._dirty:
            self._set_savepoint()
        self._cursor.execute(ledger.statements(collection).delete, (packed,))

    def on_commit(self, hook: Callable[[Any], None], argument: Any) -> None:
        if self.hooks is None:
            self.hooks = []
        self.hooks.append((hook, argument))

    # Most refusals come before the first write: the savepoint waits for it.
    def _set_savepoint(self) -> None:
        self._cursor.execute("SAVEPOINT operation")
        self._dirty = True
        self._writer.changed()

    def keep(self) -> None:
        if self._dirty:
            self._cursor.execute("RELEASE operation")

    def undo(self) -> None:
        if self._dirty:
            self._cursor.execute("ROLLBACK TO operation")
            self._cursor.execute("RELEASE operation")


class _TransactionLost(Exception):
    """SQLite dropped the whole transaction, savepoints and all."""

    def __init__(self, error: apsw.Error) -> None:
        super().__init__(str(error))
        self.error = error


class _CommitUnknown(Exception):
    """A COMMIT failed in a way that may leave it on disk."""


class Writer:
    """Runs groups of operations against the database."""

    def __init__(self, directory: Path, config: Config, clock: Clock) -> None:
        self._directory = directory
        self._config = config
        self._clock = clock
        self._lock = _lock(directory)
        self._open()
        self._begin_timeline()
        self._reserve = Reserve(directory, config.reserve_bytes)

    def _open(self) -> None:
        self._connection = ledger.open_for_writing(self._directory, self._config)
        self._cursor = self._connection.cursor()
        self._log_pages = 0
        self._connection.set_wal_hook(self._note_log_pages)

    def _note_log_pages(self, _connection: apsw.Connection, _database: str, pages: int) -> int:
        self._log_pages = pages
        return apsw.SQLITE_OK

    def _begin_timeline(self) -> None:
        stored = ledger.stored_timeline(self._connection)
        self._timeline = timeline.begin(stored, self._clock)
        self._last_stamp = self._timeline.last_stamp
        self._cursor.execute(ledger.WRITE_TIMELINE, (ENCODE(self._timeline),))

    def now(self) -> int:
        return timeline.now_at(self._timeline, self._clock.elapsed())

    def next_stamp(self) -> int:
        self._last_stamp = timeline.next_stamp(self._last_stamp, self._clock.wall())
        return self._last_stamp

    def settle(self, group: Sequence[wire.Request]) -> list[Answer]:
        """Runs the requests of a group; on return every answer is durable. There may be fewer
        answers than requests: a group that takes long is cut off, the rest is for the next."""
        if self._reserve.spent:
            return [self._settle_alone(request) for request in group]
        try:
            return self._settle_together(group)
        except _TransactionLost as lost:
            logger.warning("a group of %d was rolled back (%s)", len(group), lost)
            return [self._settle_alone(request) for request in group]

    def _settle_alone(self, request: wire.Request) -> Answer:
        while True:
            if self._reserve.spent and not _reclaims(request):
                return _fault(FaultReason.DISK_FULL, "the disk is full")
            try:
                (answer,) = self._settle_together([request])
                return answer
            except _TransactionLost as lost:
                if isinstance(lost.error, apsw.FullError) and not self._reserve.spent:
                    logger.error("the disk is full: only what frees space is done until it is not")
                    self._reserve.spend()
                    continue
                fault = ledger.fault_of(lost.error)
                return _fault(fault.reason, fault.detail)

    def _settle_together(self, group: Sequence[wire.Request]) -> list[Answer]:
        self._changed = False
        answers, hooks = self._run(group)
        try:
            self._commit()
        except _CommitUnknown as unknown:
            logger.error("a commit of %d operations failed: %s", len(group), unknown)
            self._reopen()
            return [Answer(Outcome.UNKNOWN, ENCODE(str(unknown)))] * len(answers)
        for hook, argument in hooks:
            _call(hook, argument)
        return answers

    def _run(
        self, group: Sequence[wire.Request]
    ) -> tuple[list[Answer], list[tuple[Callable[[Any], None], Any]]]:
        try:
            self._cursor.execute("BEGIN IMMEDIATE")
        except apsw.Error as error:
            raise _TransactionLost(error) from error
        hooks: list[tuple[Callable[[Any], None], Any]] = []
        answers: list[Answer] = []
        deadline = time.monotonic() + self._config.group_seconds_max
        for request in group:
            if answers and time.monotonic() > deadline:
                break
            transaction = WriteTransaction(self, self._cursor)
            answer = self._attempt(request, transaction)
            if transaction.hooks and answer.outcome is Outcome.RESULT:
                hooks += transaction.hooks
            answers.append(answer)
        return answers, hooks

    def _attempt(self, request: wire.Request, transaction: WriteTransaction) -> Answer:
        try:
            operation = _operation(request.operation)
            result = operation.run(transaction, operation.decode_command(request.command))
            answer = Answer(Outcome.RESULT, ENCODE(result))
            transaction.keep()
            return answer
        except Refused as refused:
            answer = Answer(Outcome.REFUSED, ENCODE(refused.refusal))
        except Conflict:
            answer = Answer(Outcome.CONFLICT, b"")
        except apsw.Error as error:
            if not self._connection.in_transaction:
                raise _TransactionLost(error) from error
            fault = ledger.fault_of(error)
            answer = _fault(fault.reason, fault.detail)
        except Exception as error:
            logger.exception("the operation %s failed", bytes(request.operation).decode())
            answer = _fault(FaultReason.FAILED, f"{type(error).__name__}: {error}")
        self._undo(transaction)
        return answer

    def _undo(self, transaction: WriteTransaction) -> None:
        try:
            transaction.undo()
        except apsw.Error as error:
            self._abandon()
            raise _TransactionLost(error) from error

    def changed(self) -> None:
        """The open group has something to make durable: until then it costs no fsync."""
        self._changed = True

    def _commit(self) -> None:
        try:
            if self._changed:
                self._timeline = timeline.advance(self._timeline, self._clock, self._last_stamp)
                self._cursor.execute(ledger.WRITE_TIMELINE, (ENCODE(self._timeline),))
        except apsw.Error as error:
            self._abandon()
            raise _TransactionLost(error) from error
        try:
            self._cursor.execute("COMMIT")
        except apsw.FullError as error:
            # The log could not be written to its end: the frame that would make the
            # commit valid is not there, so nothing happened.
            self._abandon()
            raise _TransactionLost(error) from error
        except apsw.Error as error:
            raise _CommitUnknown(f"{type(error).__name__}: {error}") from error

    def _abandon(self) -> None:
        """Makes sure that no transaction is open."""
        if self._connection.in_transaction:
            try:
                self._cursor.execute("ROLLBACK")
            except apsw.Error:
                logger.exception("a rollback failed; opening the ledger again")
                self._reopen()

    def _reopen(self) -> None:
        """After a failed fsync nothing that this connection believes can be trusted."""
        for attempt in range(_REOPEN_ATTEMPTS):
            try:
                self._connection.close(True)
                self._open()
                return
            except apsw.Error:
                logger.exception("the ledger could not be opened again (attempt %d)", attempt + 1)
                time.sleep(0.1 * 2**attempt)
        raise SystemExit(1)

    def checkpoint_if_due(self) -> None:
        """Moves a long write-ahead log into the database."""
        if self._log_pages >= self._config.checkpoint_pages:
            self._checkpoint()

    def idle(self) -> None:
        """What there is to do when nobody asks for anything."""
        if self._log_pages:
            self._checkpoint()
        self.restore_reserve()

    def restore_reserve(self) -> None:
        if self._reserve.spent and self._reserve.restore():
            logger.warning("there is room on the disk again")

    def _checkpoint(self) -> None:
        try:
            in_log, moved = self._connection.wal_checkpoint()
        except apsw.Error as error:
            logger.warning("a checkpoint failed and will be tried again: %s", error)
            return
        self._log_pages = in_log - moved

    def close(self) -> None:
        self._connection.close(True)


def _lock(directory: Path) -> int:
    """Two writers would give the same stamp twice: waits until the one before is gone."""
    descriptor = os.open(directory / LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    return descriptor


def _operation(name: bytes) -> Operation[Any, Any]:
    try:
        return _OPERATIONS_BY_NAME[name]
    except KeyError:
        found = _OPERATIONS_BY_NAME[name] = OPERATIONS[name.decode()]
        return found


def _reclaims(request: wire.Request) -> bool:
    try:
        return _operation(request.operation).reclaims
    except KeyError:
        return False


def _fault(reason: FaultReason, detail: str) -> Answer:
    return Answer(Outcome.FAULT, ENCODE(wire.FaultNote(reason, detail)))


def _call(hook: Callable[[Any], None], argument: Any) -> None:
    try:
        hook(argument)
    except Exception:
        logger.exception("an on-commit hook failed")


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
        self._poll = select.epoll()
        self._poll.register(listener, select.EPOLLIN)
        self._poll.register(lifeline, select.EPOLLIN)
        self._stopping = False
        self._wakeup, self._waker = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._poll.register(self._wakeup, select.EPOLLIN)

    def run(self) -> None:
        """Serves until told to stop or until the supervisor is gone."""
        signal.signal(signal.SIGTERM, self._stop)
        signal.set_wakeup_fd(self._waker)
        reserve_due = 0.0
        while not self._stopping:
            waiting = any(peer.requests for peer in self._peers.values())
            if not self._receive(0 if waiting else _IDLE_SECONDS):
                if not waiting:
                    self._writer.idle()
            elif time.monotonic() >= reserve_due:
                self._writer.restore_reserve()
                reserve_due = time.monotonic() + _IDLE_SECONDS
            group = self._next_group()
            if group:
                self._settle(group)
                self._writer.checkpoint_if_due()
        while group := self._next_group():
            self._settle(group)
        self._writer.close()

    def _stop(self, _signal: int, _frame: object) -> None:
        self._stopping = True

    def _receive(self, timeout_seconds: float) -> bool:
        """Takes in what has arrived; says whether anything has."""
        events = self._poll.poll(timeout_seconds)
        for descriptor, event in events:
            if descriptor in (self._lifeline, self._wakeup):
                self._stopping = True
            elif descriptor == self._listener.fileno():
                self._accept()
            elif descriptor in self._peers:
                self._serve(self._peers[descriptor], event)
        return bool(events)

    def _accept(self) -> None:
        try:
            accepted, _ = self._listener.accept()
        except BlockingIOError:
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
            logger.error("dropping a front end that sent %s", error)
            self._forget(peer)

    def _take(self, peer: _Peer) -> None:
        data = peer.socket.recv(_RECEIVE_BYTES)
        if not data:
            self._forget(peer)
            return
        peer.requests.extend(map(wire.decode_request, peer.frames.feed(data)))

    def _forget(self, peer: _Peer) -> None:
        """A front end is gone: nobody is left to be told of its requests."""
        self._poll.unregister(peer.socket)
        del self._peers[peer.socket.fileno()]
        peer.socket.close()
        peer.requests.clear()

    def _next_group(self) -> list[tuple[_Peer, wire.Request]]:
        """As much as one commit should hold, every front end taking its turn."""
        group: list[tuple[_Peer, wire.Request]] = []
        peers = [peer for peer in self._peers.values() if peer.requests]
        while peers and len(group) < self._config.group_operations_max:
            share = max(1, (self._config.group_operations_max - len(group)) // len(peers))
            for peer in peers:
                for _ in range(min(share, len(peer.requests))):
                    group.append((peer, peer.requests.popleft()))
            peers = [peer for peer in peers if peer.requests]
        return group

    def _settle(self, group: list[tuple[_Peer, wire.Request]]) -> None:
        answers = self._writer.settle([request for _, request in group])
        outgoing: dict[_Peer, list[bytes]] = {}
        for peer, request in reversed(group[len(answers) :]):
            peer.requests.appendleft(request)
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
