"""The run of one group: predict, lock, run again what was predicted wrongly, commit."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from typing import Final

from etagere.config import Config
from etagere.engine import wire
from etagere.engine.deadlines import require_in_time
from etagere.engine.group_writer import Answer, Hook, origin
from etagere.engine.postgres.acquiring import WantedLocks, has_guard
from etagere.engine.postgres.attempts import Attempt, TimeOutdated
from etagere.engine.postgres.group_times import GroupTimes
from etagere.engine.postgres.transaction import GroupTransaction
from etagere.engine.records import RecordKey
from etagere.engine.wire import Outcome

logger = logging.getLogger(__name__)

_ROUNDS_MAX: Final = 3
"""After this many round trips, operations that still lack records run directly."""
_DIRECT_MAX: Final = 32
"""Operations of a group that must run directly, each with round trips of its own."""
_DIRECT_RUNS_MAX: Final = 3
"""Direct runs of one operation: it runs again if it used a time before it had all its locks."""
_RECORDS_ALONE: Final = 2_000
"""An operation that looks at or writes more records has a group to itself."""


class GroupRun:
    """Runs the operations of a group in one transaction."""

    def __init__(
        self,
        requests: Sequence[wire.Request],
        transaction: GroupTransaction,
        times: GroupTimes,
        config: Config,
    ) -> None:
        self._transaction = transaction
        self._times = times
        self._config = config
        self._attempts: list[Attempt] = []
        self.wrong_predictions = 0
        """The operations that ran again because of a wrong prediction."""
        self._predict(requests)

    @property
    def count(self) -> int:
        """The number of operations that are in the group."""
        return len(self._attempts)

    def run(self) -> tuple[list[Answer], list[Hook]]:
        """Runs the operations and commits. Returns the answers and the hooks to call. Raises
        `Expired` instead if the deadline of an operation has passed."""
        self._acquire_all()
        self._run_directly()
        require_in_time([attempt.request for attempt in self._attempts])
        began = time.monotonic()
        self._transaction.commit(self._times.next_stamp(self._transaction.latest_version))
        self.commit_seconds = time.monotonic() - began
        hooks = [hook for attempt in self._attempts for hook in attempt.hooks]
        return [attempt.answer for attempt in self._attempts], hooks

    def _predict(self, requests: Sequence[wire.Request]) -> None:
        """Runs the operations on cached records. A group that takes long is cut."""
        deadline = time.monotonic() + self._config.group_seconds_max
        direct = 0
        for request in requests:
            attempt = self._attempt(request, is_direct=False)
            is_long = len(attempt.reads) + len(attempt.writes) > _RECORDS_ALONE
            if is_long and self._attempts:
                break
            self._attempts.append(attempt)
            if attempt.is_done:
                self._transaction.apply(attempt.writes)
            else:
                direct += 1
            if is_long or direct >= _DIRECT_MAX or time.monotonic() > deadline:
                break

    def _attempt(self, request: wire.Request, *, is_direct: bool) -> Attempt:
        attempt = Attempt(request, self._transaction, self._times, is_direct=is_direct)
        began = time.monotonic()
        attempt.run()
        seconds = time.monotonic() - began
        if seconds > self._config.slow_seconds:
            logger.warning("an operation took %.3f s", seconds, extra=origin(request))
        return attempt

    def _acquire_all(self) -> None:
        """Locks and reads what the operations looked at, until nothing more is missing."""
        wanted = self._missing_locks()
        changed = self._acquire(wanted)
        self._run_again(changed, is_first=True)
        for _ in range(_ROUNDS_MAX - 1):
            wanted = self._missing_locks()
            if not wanted:
                return
            if has_guard(wanted):
                wanted = {**self._unguarded(), **wanted}
            self._run_again(self._acquire(wanted), is_first=False)
        self._defer_incomplete()

    def _acquire(self, wanted: WantedLocks) -> set[RecordKey]:
        changed = self._transaction.acquire(wanted)
        assert self._transaction.reading is not None
        self._times.update(self._transaction.reading, self._transaction.elapsed())
        return changed | self._transaction.unavailable

    def _missing_locks(self) -> WantedLocks:
        wanted: WantedLocks = {}
        with_writes = self._transaction.skip_locked
        for attempt in self._attempts:
            for record_key, level in attempt.missing_locks(with_writes=with_writes).items():
                if record_key not in wanted or wanted[record_key] < level:
                    wanted[record_key] = level
        return wanted

    def _unguarded(self) -> WantedLocks:
        wanted: WantedLocks = {}
        for attempt in self._attempts:
            wanted.update(attempt.unguarded())
        return wanted

    def _run_again(self, changed: set[RecordKey], *, is_first: bool) -> None:
        """Runs the operations again that looked at what has changed, or at what such operations
        wrote."""
        transaction = self._transaction
        transaction.overlay.clear()
        for place, attempt in enumerate(self._attempts):
            if not attempt.is_done:
                continue
            if attempt.is_blocked():
                changed.update(attempt.writes)
                attempt.give_up()
            elif attempt.is_affected_by(changed) or (is_first and self._used_estimate(attempt)):
                self.wrong_predictions += 1
                again = self._attempts[place] = self._attempt(attempt.request, is_direct=False)
                changed.update(attempt.writes)
                changed.update(again.writes)
                if again.is_done:
                    transaction.apply(again.writes)
            else:
                transaction.apply(attempt.writes)

    def _used_estimate(self, attempt: Attempt) -> bool:
        return self._times.estimate_was_wrong and (attempt.asked_time or attempt.asked_stamp)

    def _defer_incomplete(self) -> None:
        """Marks the operations that still lack records for a direct run."""
        transaction = self._transaction
        transaction.overlay.clear()
        changed: set[RecordKey] = set()
        with_writes = transaction.skip_locked
        for attempt in self._attempts:
            if not attempt.is_done:
                continue
            if attempt.missing_locks(with_writes=with_writes) or attempt.is_affected_by(changed):
                changed.update(attempt.writes)
                attempt.is_done = False
            else:
                transaction.apply(attempt.writes)

    def _run_directly(self) -> None:
        """Runs the operations that need queries, after all others."""
        for place, predicted in enumerate(self._attempts):
            if predicted.is_done:
                continue
            attempt = self._attempts[place] = self._run_direct(predicted.request)
            if attempt.answer.outcome is Outcome.RESULT:
                self._transaction.apply(attempt.writes)

    def _run_direct(self, request: wire.Request) -> Attempt:
        for _ in range(_DIRECT_RUNS_MAX):
            try:
                return self._attempt(request, is_direct=True)
            except TimeOutdated:
                logger.debug("an operation runs again with a later time", extra=origin(request))
        return Attempt(request, self._transaction, self._times, is_direct=True)  # a conflict
