"""The connection of a front end to the writer process, which runs all write operations."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn, cast

import msgspec

from etagere.config import Config
from etagere.engine import wire
from etagere.engine.deadlines import AnswerTimer
from etagere.engine.interface import (
    C,
    Conflict,
    Fault,
    FaultReason,
    Operation,
    Refused,
    T,
    Unknown,
    WriteTxn,
    registered,
)
from etagere.engine.records import ENCODE
from etagere.engine.retry import RetryCounters, RetryPolicy, retry_on_conflict
from etagere.engine.wire import Outcome
from etagere.engine.writer import SOCKET_NAME, unix_address
from etagere.errors import Refusal
from etagere.metrics.counters import WRITE_SECONDS, Histogram
from etagere.metrics.snapshots import Snapshot
from etagere.telemetry.context import ACCOUNT, REQUEST_ID, no_request

logger = logging.getLogger(__name__)

_RECONNECT_SECONDS = 0.02
_WATCH_SECONDS = 5.0

_decode_refusal = msgspec.msgpack.Decoder(Refusal).decode
_decode_fault = msgspec.msgpack.Decoder(wire.FaultNote).decode
_decode_text = msgspec.msgpack.Decoder(str).decode


class WriterClient:
    """Sends write operations to the writer process; belongs to one event loop."""

    def __init__(
        self,
        directory: Path,
        config: Config,
        epoch: int = 0,
        *,
        accounts_may_move: bool = False,
    ) -> None:
        """`epoch`: that of the task of this process (`tasks.py`), 0 if it has none.
        `accounts_may_move`: whether every write carries its account (`account_moves.py`)."""
        self._directory = directory
        self._config = config
        self._epoch = epoch
        self._accounts_may_move = accounts_may_move
        self.policy = RetryPolicy(
            attempts_max=config.conflict_attempts_max, seconds_max=config.conflict_seconds_max
        )
        self.retries = RetryCounters()
        """Of writes, and of the reads that an engine retries by the same policy."""
        self._write_seconds = Histogram(WRITE_SECONDS)
        self._connection: WriterConnection | None = None
        self._connecting = asyncio.Lock()
        self._closed = False

    async def write(self, operation: Callable[[WriteTxn, C], T], command: C) -> T:
        known = registered(operation)
        payload = ENCODE(command)
        try:
            return await self._ask(known, payload)
        except Conflict:
            self.retries.conflicts += 1
        return await retry_on_conflict(lambda: self._ask(known, payload), self.policy, self.retries)

    async def _ask(self, operation: Operation[C, T], payload: bytes) -> T:
        connection = self._connection
        if connection is None or connection.lost:
            connection = await self._connect()
        began = time.monotonic()
        outcome, answer = await connection.ask(operation.wire_name, payload)
        self._write_seconds.observe(time.monotonic() - began)
        if outcome == Outcome.RESULT:
            return operation.decode_result(answer)
        raise_for(Outcome(outcome), answer)

    def report(self, snapshot: Snapshot) -> None:
        """Adds what it has counted."""
        retries, seconds = self.retries, self._write_seconds
        snapshot.add("conflicts", retries.conflicts)
        # Each conflict is followed by another attempt, except the last ones.
        snapshot.add("retries", retries.conflicts - retries.gave_up)
        snapshot.add("retries_exhausted", retries.gave_up)
        snapshot.add_histogram("write_duration_seconds", seconds.counts, seconds.total)

    async def _connect(self) -> WriterConnection:
        """Returns the connection to the writer; connects again if the writer was restarted."""
        async with self._connecting:
            if self._closed:
                raise Fault(FaultReason.UNAVAILABLE, "the engine is closed")
            if self._connection is not None and not self._connection.lost:
                return self._connection
            deadline = time.monotonic() + self._config.writer_start_seconds_max
            while True:
                try:
                    self._connection = await self._open_connection()
                    # A connection that is already lost would never answer.
                    if not self._connection.lost:
                        return self._connection
                    problem = "it closed the connection at once"
                except OSError as error:
                    problem = str(error)
                if time.monotonic() > deadline:
                    detail = f"the writer process cannot be reached: {problem}"
                    raise Fault(FaultReason.UNAVAILABLE, detail)
                await asyncio.sleep(_RECONNECT_SECONDS)

    async def _open_connection(self) -> WriterConnection:
        loop = asyncio.get_running_loop()
        with unix_address(self._directory / SOCKET_NAME) as address:
            _, connection = await loop.create_unix_connection(
                lambda: WriterConnection(
                    self._config, self._epoch, accounts_may_move=self._accounts_may_move
                ),
                address,
            )
        return connection

    def close(self) -> None:
        self._closed = True
        if self._connection is not None:
            self._connection.close()


def raise_for(outcome: Outcome, answer: bytes | memoryview) -> NoReturn:
    """Raises the outcome of an operation that has no result."""
    if outcome is Outcome.REFUSED:
        raise Refused(_decode_refusal(answer))
    if outcome is Outcome.CONFLICT:
        raise Conflict
    if outcome is Outcome.FAULT:
        note = _decode_fault(answer)
        raise Fault(note.reason, note.detail)
    raise Unknown(_decode_text(answer))


class WriterConnection(asyncio.Protocol):
    """A connection to the writer. All requests of one iteration of the event loop are sent
    together, so that the writer commits them together."""

    def __init__(self, config: Config, epoch: int = 0, *, accounts_may_move: bool = False) -> None:
        self._epoch = epoch
        self._accounts_may_move = accounts_may_move
        self._loop = asyncio.get_running_loop()
        self._answer_seconds_max = config.writer_answer_seconds_max
        self._timer = AnswerTimer(config.writer_answer_seconds_max)
        self._frames = wire.FrameReader(config.frame_bytes_max)
        self._pending: dict[int, asyncio.Future[tuple[int, memoryview]]] = {}
        self._unsent: list[bytes] = []
        self._flush_due = False
        self._last_id = 0
        self.lost = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.WriteTransport", transport)
        self._watch()

    def ask(self, operation: bytes, command: bytes) -> asyncio.Future[tuple[int, memoryview]]:
        if not self._pending:
            self._timer.restart()
        self._last_id = request_id = self._last_id % wire.REQUEST_ID_MAX + 1
        answer = self._pending[request_id] = self._loop.create_future()
        if not self._flush_due:
            self._flush_soon()
        origin = REQUEST_ID.get().encode()
        account = ACCOUNT.get().encode() if self._accounts_may_move else b""
        frame = wire.encode_request(
            request_id, operation, command, origin, self._epoch, account, self._timer.deadline
        )
        self._unsent.append(frame)
        return answer

    def _flush_soon(self) -> None:
        self._flush_due = True
        self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._flush_due = False
        frames, self._unsent = self._unsent, []
        if frames and not self.lost:
            self._transport.write(frames[0] if len(frames) == 1 else b"".join(frames))

    def data_received(self, data: bytes) -> None:
        self._timer.restart()
        for frame in self._frames.feed(data):
            request_id, outcome, payload = wire.decode_answer(frame)
            answer = self._pending.pop(request_id, None)
            if answer is not None and not answer.done():
                answer.set_result((outcome, payload))
        # The tasks that were answered run next, and the flush right after them, so that their next
        # requests are sent one iteration earlier.
        if not self._flush_due:
            self._flush_soon()

    def connection_lost(self, error: Exception | None) -> None:
        self.lost = True
        unanswered, self._pending = self._pending, {}
        for answer in unanswered.values():
            if not answer.done():
                answer.set_exception(Unknown("the writer process went away before it answered"))

    def _watch(self) -> None:
        """Closes the connection if the writer has stopped answering."""
        if self.lost:
            return
        if self._pending and self._timer.is_over:
            logger.error("no response from the writer for %g s", self._answer_seconds_max)
            self._transport.abort()
        self._next_watch = self._loop.call_later(_WATCH_SECONDS, self._watch, context=no_request())

    def close(self) -> None:
        self._next_watch.cancel()
        self._transport.close()
