"""Group commit: runs operations, each of which can be undone alone, and commits them together.

Responses are sent after the commit. That includes refusals, which may rest on a write in the same
group. docs/decisions/0006 describes what happens on which error.
"""

from __future__ import annotations

import fcntl
import logging
import os
import time
from collections.abc import Sequence
from pathlib import Path

import apsw

from etagere import directories
from etagere.clock import Clock
from etagere.config import Config
from etagere.engine import ledger, timeline, wire
from etagere.engine.checkpoints import Checkpointer
from etagere.engine.deadlines import Expired, require_in_time
from etagere.engine.group_writer import (
    Answer,
    Hook,
    answer_expired,
    call_hooks,
    fault_answer,
    operation_named,
    origin,
    origins,
)
from etagere.engine.interface import Conflict, FaultReason, Refused
from etagere.engine.records import ENCODE
from etagere.engine.reserve import Reserve, free_bytes
from etagere.engine.vacuum import Vacuum
from etagere.engine.wire import Outcome
from etagere.engine.workspace import TransactionLost, Workspace
from etagere.engine.write_transaction import WriteTransaction
from etagere.metrics.counters import WriterCounters
from etagere.telemetry.formats import describe_exception

logger = logging.getLogger(__name__)

LOCK_NAME = "writer.lock"
_REOPEN_ATTEMPTS = 3
_IDLE_SECONDS = 1.0
_RESERVE_SECONDS = 1.0


class Writer:
    """Runs groups of operations on the database."""

    def __init__(self, directory: Path, config: Config, clock: Clock) -> None:
        self._directory = directory
        self._config = config
        self._clock = clock
        self._logs_operations = logger.isEnabledFor(logging.DEBUG)
        self._lock = _lock(directory)
        # The previous writer may have failed to sync the pages that it had checkpointed.
        ledger.forget_checkpoints(directory)
        self._checkpoints = Checkpointer(directory, config)
        self._vacuum = Vacuum(config)
        self._log_in_doubt = False
        self.counters = WriterCounters(Outcome)
        self._open()
        self._begin_timeline()
        self._checkpoints.start_over()
        if config.durable:
            # The log exists now. SQLite syncs its directory too, but ignores errors.
            directories.sync(directory)
        self._reserve = Reserve(directory, config.reserve_bytes)
        self._reserve_due = 0.0

    def _open(self) -> None:
        self._connection = ledger.open_for_writing(self._directory, self._config)
        self._cursor = self._connection.cursor()
        self._workspace = Workspace(self._cursor)
        self._checkpoints.follow(self._connection)

    def _begin_timeline(self) -> None:
        stored = ledger.stored_timeline(self._connection)
        self._timeline = timeline.begin(stored, self._clock)
        self._last_stamp = self._timeline.last_stamp
        self._cursor.execute(ledger.WRITE_TIMELINE, (ENCODE(self._timeline),))

    def now(self) -> int:
        return timeline.now_at(self._timeline, self._clock.elapsed())

    @property
    def clock_offset(self) -> int:
        return self._timeline.offset

    def next_stamp(self) -> int:
        self._last_stamp = timeline.next_stamp(self._last_stamp, self._clock.wall())
        return self._last_stamp

    def run_group(self, group: Sequence[wire.Request]) -> list[Answer]:
        """Runs the requests of a group; on return every answer is durable. A group that takes too
        long is cut: then there are fewer answers than requests, and the rest belongs to the next
        group. No answer: the group was rolled back, because the deadline of a request has
        passed."""
        if self._log_in_doubt and not self._repair_log():
            fault = fault_answer(FaultReason.FAILED, "the write-ahead log cannot be written")
            return [fault] * len(group)
        if self._reserve.released:
            return [self._run_alone(request) for request in group]
        try:
            return self._run_and_commit(group)
        except Expired:
            return []
        except TransactionLost as lost:
            logger.warning(
                "rolled back a group of %d operations: %s", len(group), lost, extra=origins(group)
            )
            return [self._run_alone(request) for request in group]

    def _run_alone(self, request: wire.Request) -> Answer:
        while True:
            if self._reserve.released and not _reclaims(request):
                return fault_answer(FaultReason.DISK_FULL, "the disk is full")
            try:
                (answer,) = self._run_and_commit([request])
                return answer
            except Expired:
                return answer_expired([request])[0]
            except TransactionLost as lost:
                if ledger.is_disk_full(lost.error) and not self._reserve.released:
                    logger.error("the disk is full: running only operations that free space")
                    self._reserve.release()
                    continue
                fault = ledger.fault_of(lost.error)
                logger.error("an operation failed: %s", fault, extra=origin(request))
                return fault_answer(fault.reason, fault.detail)

    def _run_and_commit(self, group: Sequence[wire.Request]) -> list[Answer]:
        self._changed = False
        try:
            answers, hooks = self._run_operations(group)
            require_in_time(group)
            began = time.monotonic()
            doubt = self._commit()
        except (TransactionLost, Expired):
            self._roll_back()
            self._workspace.clear()
            raise
        if doubt is not None:
            logger.error(
                "the commit of %d operations failed: %s", len(group), doubt, extra=origins(group)
            )
            self._reopen()
            return [Answer(Outcome.UNKNOWN, ENCODE(doubt))] * len(answers)
        seconds = time.monotonic() - began
        if seconds > self._config.slow_seconds:
            extra = origins(group[: len(answers)])
            logger.warning(
                "a commit of %d operations took %.3f s", len(answers), seconds, extra=extra
            )
        if hooks:
            call_hooks(hooks)
        return answers

    def _run_operations(self, group: Sequence[wire.Request]) -> tuple[list[Answer], list[Hook]]:
        try:
            self._cursor.execute("BEGIN IMMEDIATE")
        except apsw.Error as error:
            raise TransactionLost(error) from error
        hooks: list[Hook] = []
        answers: list[Answer] = []
        slow_seconds = self._config.slow_seconds
        began = time.monotonic()
        deadline = began + self._config.group_seconds_max
        for request in group:
            if answers and began > deadline:
                break
            transaction = WriteTransaction(self, self._cursor, self._workspace)
            answer = self._attempt(request, transaction)
            if transaction.hooks and answer.outcome is Outcome.RESULT:
                hooks += transaction.hooks
            answers.append(answer)
            ended = time.monotonic()
            if ended - began > slow_seconds:
                logger.warning("an operation took %.3f s", ended - began, extra=origin(request))
            elif self._logs_operations:
                logger.debug("ran an operation", extra=origin(request))
            began = ended
        return answers, hooks

    def _attempt(self, request: wire.Request, transaction: WriteTransaction) -> Answer:
        try:
            operation = operation_named(request.operation)
            result = operation.run(transaction, operation.decode_command(request.command))
            answer = Answer(Outcome.RESULT, ENCODE(result))
        except Refused as refused:
            answer = Answer(Outcome.REFUSED, ENCODE(refused.refusal))
        except Conflict:
            logger.debug("an operation met a conflict", extra=origin(request))
            answer = Answer(Outcome.CONFLICT, b"")
        except apsw.Error as error:
            if not self._connection.in_transaction:
                raise TransactionLost(error) from error
            fault = ledger.fault_of(error)
            logger.error("an operation failed: %s", fault, extra=origin(request))
            answer = fault_answer(fault.reason, fault.detail)
        except TransactionLost:
            raise
        except Exception as error:
            logger.exception("an operation failed", extra=origin(request))
            answer = fault_answer(FaultReason.FAILED, describe_exception(error))
        else:
            self._keep(transaction)
            return answer
        self._undo(transaction)
        return answer

    def _keep(self, transaction: WriteTransaction) -> None:
        try:
            transaction.keep()
        except apsw.Error as error:
            raise TransactionLost(error) from error

    def _undo(self, transaction: WriteTransaction) -> None:
        try:
            transaction.undo()
        except apsw.Error as error:
            raise TransactionLost(error) from error

    def changed(self) -> None:
        """Notes that the open group has something to make durable. A group without changes and
        without stamps needs no fsync."""
        self._changed = True

    def _commit(self) -> str | None:
        """Commits the group. Returns an error if the commit failed but may be on the disk."""
        self._workspace.store_all()
        try:
            if (
                self._changed
                or self._last_stamp != self._timeline.last_stamp
                or timeline.is_advance_due(self._timeline, self._clock)
            ):
                self._timeline = timeline.advance(self._timeline, self._clock, self._last_stamp)
                self._cursor.execute(ledger.WRITE_TIMELINE, (ENCODE(self._timeline),))
        except apsw.Error as error:
            raise TransactionLost(error) from error
        began = time.monotonic()
        try:
            self._cursor.execute("COMMIT")
        except apsw.FullError as error:
            # The last frame, which makes a commit valid, could not be written to the log: nothing
            # happened.
            raise TransactionLost(error) from error
        except apsw.Error as error:
            return f"{type(error).__name__}: {error}"
        self.counters.commit_seconds.observe(time.monotonic() - began)
        return None

    def _roll_back(self) -> None:
        """Rolls back the open transaction, if there is one."""
        if self._connection.in_transaction:
            try:
                self._cursor.execute("ROLLBACK")
            except apsw.Error:
                logger.exception("the rollback failed; reopening the ledger")
                self._reopen()

    def _reopen(self) -> None:
        """Opens a new connection: after a failed fsync the state of the old one is not reliable."""
        for attempt in range(_REOPEN_ATTEMPTS):
            try:
                self._connection.close(True)
                self._open()
            except apsw.Error:
                logger.exception("could not reopen the ledger (attempt %d)", attempt + 1)
                time.sleep(0.1 * 2**attempt)
            else:
                self._log_in_doubt = True
                self._repair_log()
                return
        raise SystemExit(1)

    def _repair_log(self) -> bool:
        """Makes the log reliable again after a failed fsync; returns whether that succeeded.

        The failed commit may be complete in the log, where a recovery would find it. The next
        commit overwrites it; so commit once and checkpoint everything before answering anybody."""
        try:
            self._cursor.execute(ledger.WRITE_TIMELINE, (ENCODE(self._timeline),))
        except apsw.Error as error:
            logger.error("still cannot write to the ledger: %s", error)
            if ledger.is_disk_full(error) and not self._reserve.released:
                self._reserve.release()
            return False
        try:
            self._checkpoints.start_over()
        except OSError as error:
            logger.error("cannot rewrite the write-ahead log: %s", error)
            return False
        self._log_in_doubt = False
        return True

    def maintain(self) -> None:
        """Does one step of the maintenance that is due between two groups."""
        self._checkpoints.run_if_due()
        self._keep_space_for_checkpoint()
        self._return_free_pages()
        if self._reserve.released and time.monotonic() >= self._reserve_due:
            self.restore_reserve()
            self._reserve_due = time.monotonic() + _RESERVE_SECONDS

    def idle(self) -> None:
        """Does maintenance while there are no requests."""
        if self._vacuum.is_due:
            self._checkpoints.run_if_due()
        else:
            self._checkpoints.run_idle()
        self._return_free_pages()
        self._keep_space_for_checkpoint()
        self.restore_reserve()

    @property
    def idle_seconds(self) -> float:
        """How long to wait for requests before the next maintenance."""
        return self._vacuum.pause_seconds if self._vacuum.is_due else _IDLE_SECONDS

    def _return_free_pages(self) -> None:
        try:
            self._vacuum.run_if_due(self._cursor)
        except apsw.FullError as error:
            logger.info("cannot return free pages while the log has no room: %s", error)
            self._roll_back()
        except apsw.Error as error:
            logger.error("could not return free pages: %s", error)
            self._reopen()

    def _keep_space_for_checkpoint(self) -> None:
        """Releases the reserve before the disk is full, if a reader keeps the log from being
        restarted. On a full disk a long log could not be checkpointed, even with the reserve, when
        the reader has ended: no delete would free anything."""
        if self._reserve.released:
            return
        needed = self._checkpoints.bytes_needed()
        if needed and free_bytes(self._directory) < needed:
            logger.error(
                "the disk is nearly full, and a reader keeps the write-ahead log from being "
                "restarted: running only operations that free space"
            )
            self._reserve.release()

    def restore_reserve(self) -> None:
        if self._reserve.released and self._reserve.restore(self._checkpoints.bytes_needed()):
            logger.warning("there is space on the disk again")

    def close(self) -> None:
        self._checkpoints.close()
        self._connection.close(True)
        os.close(self._lock)


def _lock(directory: Path) -> int:
    """Takes the writer's lock, and waits until the previous writer is gone: two writers would give
    out the same stamps."""
    descriptor = os.open(directory / LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    return descriptor


def _reclaims(request: wire.Request) -> bool:
    try:
        return operation_named(request.operation).reclaims
    except KeyError:
        return False
