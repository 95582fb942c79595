"""The writer of a ledger in PostgreSQL.

A group of operations is one transaction of two round trips, however many there are. Like SQLite's
writer, it answers after the commit, refusals included.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from typing import Final, TypeGuard

import psycopg

from etagere.clock import Clock
from etagere.config import Config
from etagere.engine import wire
from etagere.engine.deadlines import Expired, require_in_time
from etagere.engine.group_writer import (
    Answer,
    answer_expired,
    call_hooks,
    fault_answer,
    origins,
)
from etagere.engine.interface import Conflict, Fault, FaultReason, Unknown
from etagere.engine.postgres import fence, schema
from etagere.engine.postgres.connecting import Database, connect_writer, outcome_of_error
from etagere.engine.postgres.fence import StaleFence
from etagere.engine.postgres.fence_renewal import timeline_of
from etagere.engine.postgres.group_run import GroupRun
from etagere.engine.postgres.group_times import ClockEstimate, GroupTimes
from etagere.engine.postgres.lock_requests import LockRequests
from etagere.engine.postgres.pipeline import Pipeline, PipelineFailed
from etagere.engine.postgres.record_cache import RecordCache
from etagere.engine.postgres.stamps import NotReserved
from etagere.engine.postgres.transaction import GroupTransaction
from etagere.engine.postgres.writer_renewals import WriterRenewals
from etagere.engine.records import ENCODE
from etagere.engine.wire import Outcome
from etagere.metrics.counters import ClusterWriterCounters
from etagere.telemetry.formats import describe_exception

logger = logging.getLogger(__name__)

_IDLE_SECONDS: Final = 1.0
_ATTEMPTS_MAX: Final = 4
_ATTEMPTS_SECONDS_MAX: Final = 3.0
"""A third or further attempt to run a group begins no later than this after the first."""
_ANSWER_SECONDS_MAX: Final = 5.0
"""How long a server may take to answer a new connection."""
_SKIP_LOCKED_SECONDS: Final = 1.0
"""For how long groups skip locked records after a wait for a lock timed out: the node that holds it
may be paused."""


class PostgresWriter:
    """Runs groups of operations; a `GroupWriter`."""

    def __init__(
        self,
        database: Database,
        config: Config,
        clock: Clock,
        counters: ClusterWriterCounters | None = None,
    ) -> None:
        """Creates the schema if necessary. Raises `Fault` or `SchemaTooNew`."""
        self._database = database
        self._config = config
        self._clock = clock
        self.counters = counters or ClusterWriterCounters(Outcome)
        self._cache = RecordCache()
        self._pipeline: Pipeline | None = None
        self._wal_timeline = ""
        self._lock_requests = LockRequests()
        self._skip_locked_until = 0.0
        self._last_now = 0
        self._create_schema()
        self._renewals = WriterRenewals(database, clock)
        try:
            asked_at = clock.elapsed()
            self._estimate = ClockEstimate(self._renewals.renew(), asked_at)
            # Before the other processes of the node open connections, of which there may be too
            # few.
            self._connect()
        except BaseException:
            # The caller tries again: every attempt would keep a thread, a connection and a slot.
            self.close()
            raise

    def _create_schema(self) -> None:
        connection = connect_writer(self._database, schema.ANSWER_SECONDS_MAX)
        try:
            schema.create(connection, self._database.schema)
        except psycopg.Error as error:
            outcome = outcome_of_error(error)
            raise Fault(FaultReason.UNAVAILABLE, str(outcome)) from None
        finally:
            connection.close()

    def _connect(self) -> Pipeline:
        """Returns the connection of groups; connects anew if it was lost. Raises `Fault`."""
        if self._pipeline is not None and self._pipeline.is_open:
            return self._pipeline
        connection = connect_writer(self._database, _ANSWER_SECONDS_MAX)
        try:
            self._wal_timeline = timeline_of(connection)
        except psycopg.Error as error:
            connection.close()
            raise Fault(FaultReason.UNAVAILABLE, str(outcome_of_error(error))) from None
        self._pipeline = Pipeline(connection)
        return self._pipeline

    def _disconnect(self) -> None:
        if self._pipeline is not None:
            self._pipeline.close()
            self._pipeline = None

    # Groups

    def run_group(self, group: Sequence[wire.Request]) -> list[Answer]:
        skip_locked = time.monotonic() < self._skip_locked_until
        try:
            return self._run(group, skip_locked=skip_locked)
        except Expired:
            return []
        except Conflict:
            self._skip_locked_until = time.monotonic() + _SKIP_LOCKED_SECONDS
        except Fault as fault:
            if is_unavailable(fault) or len(group) == 1:
                return answer_with_fault(group, fault)
            logger.warning(
                "rolled back a group of %d operations: %s", len(group), fault, extra=origins(group)
            )
        # One of the operations is the cause; the others must not wait for it.
        if not skip_locked:
            try:
                return self._run(group, skip_locked=True)
            except Expired:
                return []
            except (Conflict, Fault) as error:
                if is_unavailable(error):
                    return answer_with_fault(group, error)
                logger.debug("running %d operations one by one: %s", len(group), error)
        return self._run_one_by_one(group)

    def _run_one_by_one(self, group: Sequence[wire.Request]) -> list[Answer]:
        """Cuts the group when the database is unavailable, because each operation would wait for
        it. If it still is, those of the next group are all answered after the first wait."""
        answers: list[Answer] = []
        for request in group:
            try:
                answers += self._run([request], skip_locked=True)
            except Expired:
                answers += answer_expired([request])
            except Conflict:
                answers.append(Answer(Outcome.CONFLICT, b""))
            except Fault as fault:
                answers += answer_with_fault([request], fault)
                if is_unavailable(fault):
                    break
        return answers

    def _run(self, group: Sequence[wire.Request], *, skip_locked: bool) -> list[Answer]:
        """Runs a group, and repeats it if only the connection, the fence or the reservation of
        stamps failed. Raises `Conflict`, `Fault` or `Expired`; then nothing was changed."""
        fault = Fault(FaultReason.UNAVAILABLE, "the fence is not valid")
        deadline = time.monotonic() + _ATTEMPTS_SECONDS_MAX
        for attempt in range(_ATTEMPTS_MAX):
            if attempt > 1 and time.monotonic() > deadline:
                break
            if attempt:
                require_in_time(group)
            try:
                return self._run_once(group, skip_locked=skip_locked)
            except StaleFence:
                self._disconnect()
                self._renewals.renew()
            except NotReserved as error:
                self._renewals.reserve(error.until)
            except Fault as error:
                if not is_unavailable(error):
                    raise
                fault = error
                self._disconnect()
        raise fault

    def _run_once(self, group: Sequence[wire.Request], *, skip_locked: bool) -> list[Answer]:
        pipeline = self._connect()
        times = self._times()
        self._lock_requests.slot = self._renewals.stamps.slot
        transaction = GroupTransaction(
            pipeline,
            self._cache,
            self._database.clock,
            self._wal_timeline,
            self._clock.elapsed,
            self._lock_requests,
            self._lock_requests.of_others(self._clock.elapsed()),
            skip_locked=skip_locked,
        )
        round_trips = pipeline.round_trips
        run = GroupRun(group, transaction, times, self._config)
        try:
            answers, hooks = run.run()
        except PipelineFailed as failed:
            if isinstance(failed.outcome, Unknown):
                return self._answer_unknown(group[: run.count], failed.outcome)
            self._roll_back(transaction)
            raise failed.outcome from None
        except (StaleFence, NotReserved, Expired):
            self._roll_back(transaction)
            raise
        except Exception as error:
            # For example a record that cannot be decoded. The operations run one by one then.
            logger.exception("a group failed", extra=origins(group[: run.count]))
            self._roll_back(transaction)
            raise Fault(FaultReason.FAILED, describe_exception(error)) from None
        finally:
            self._note_time(transaction, was_wrong=times.estimate_was_wrong)
        self.counters.group_round_trips.observe(pipeline.round_trips - round_trips)
        self.counters.wrong_predictions += run.wrong_predictions
        self._note_commit(group[: run.count], run.commit_seconds)
        if self._estimate.last.is_old:
            self._renew()  # the thread for renewals should have done this
        call_hooks(hooks)
        return answers

    def _roll_back(self, transaction: GroupTransaction) -> None:
        try:
            transaction.roll_back()
        except PipelineFailed:
            self._disconnect()

    def _answer_unknown(self, group: Sequence[wire.Request], unknown: Unknown) -> list[Answer]:
        logger.error(
            "the commit of %d operations has an unknown outcome: %s",
            len(group),
            unknown,
            extra=origins(group),
        )
        self._cache.clear()
        self._disconnect()
        return [Answer(Outcome.UNKNOWN, ENCODE(str(unknown)))] * len(group)

    def _note_commit(self, group: Sequence[wire.Request], seconds: float) -> None:
        self.counters.commit_seconds.observe(seconds)
        if seconds > self._config.slow_seconds:
            extra = origins(group)
            logger.warning(
                "a commit of %d operations took %.3f s", len(group), seconds, extra=extra
            )

    # Time

    def _times(self) -> GroupTimes:
        elapsed = self._clock.elapsed()
        estimate = self._estimate.at(elapsed)
        return GroupTimes(estimate, elapsed, self._last_now, self._renewals.stamps)

    def _note_time(self, transaction: GroupTransaction, *, was_wrong: bool) -> None:
        reading = transaction.reading
        if reading is None or not reading.is_valid(self._wal_timeline):
            return
        self._estimate.note(reading, transaction.asked_at, was_wrong=was_wrong)
        self._last_now = max(self._last_now, reading.instant.now)
        self._renewals.note_time(self._last_now)

    # Maintenance

    def maintain(self) -> None:
        """Does nothing: renewals have a thread of their own (`WriterRenewals`)."""

    def idle(self) -> None:
        """Does nothing."""

    @property
    def idle_seconds(self) -> float:
        return _IDLE_SECONDS

    def _renew(self) -> None:
        try:
            self._renewals.renew(fence.RENEW_TICKS)
        except Fault as fault:
            logger.warning("cannot renew the fence: %s", fault)

    def close(self) -> None:
        self._disconnect()
        self._renewals.close()


def is_unavailable(error: Exception) -> TypeGuard[Fault]:
    """Returns whether an error is the fault that the database is unavailable."""
    return isinstance(error, Fault) and error.reason is FaultReason.UNAVAILABLE


def answer_with_fault(group: Sequence[wire.Request], fault: Fault) -> list[Answer]:
    """Logs a fault and answers the requests of a group with it."""
    logger.error("%d operations failed: %s", len(group), fault, extra=origins(group))
    return [fault_answer(fault.reason, fault.detail)] * len(group)
