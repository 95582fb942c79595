"""Runs background jobs so that none of them ends before the process does.

A job is a function that does one round of work. Its supervisor calls it repeatedly. A round that
fails is logged and retried after an increasing, jittered wait; it never ends the job, and affects
neither other jobs nor the shutdown. Results are counted for the health report.
"""

from __future__ import annotations

import asyncio
import logging
import random
import re
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import msgspec

from etagere.coordination.interface import CoordinatorUnavailable
from etagere.engine.interface import Conflict, Fault, Unknown
from etagere.metrics.snapshots import Snapshot
from etagere.telemetry.context import REQUEST_ID

logger = logging.getLogger(__name__)

ERROR_CHARACTERS_MAX = 300


class RoundFailed(Exception):
    """A round failed for a reason that the message explains; a traceback would not."""


_EXPECTED_ERRORS = (Fault, Unknown, Conflict, CoordinatorUnavailable, RoundFailed)
"""Errors whose causes are known, such as those that the engine reports: a traceback explains
nothing."""

# A query may carry a signature that grants access.
_QUERY = re.compile(r"\?\S+")

Round = Callable[[], Awaitable[object]]


@dataclass(frozen=True)
class Backoff:
    """The waits after failed rounds."""

    first_seconds: float = 1.0
    seconds_max: float = 30.0

    def wait_seconds(self, consecutive_failures: int) -> float:
        """Doubles with each failure up to the limit; jitter keeps processes that failed at the same
        time from retrying at the same time."""
        doublings = min(consecutive_failures - 1, 32)
        limit = min(self.seconds_max, self.first_seconds * 2.0**doublings)
        return limit * random.uniform(0.5, 1.0)


class JobHealth(msgspec.Struct, frozen=True):
    """The results of a job in one process. Times are in seconds since 1970."""

    name: str
    rounds: int
    """The number of successful rounds."""
    failures: int
    consecutive_failures: int
    last_success: float | None
    last_failure: float | None
    last_error: str
    """The error of the last failure, even if later rounds succeeded."""


class Job:
    """A repeated round of work."""

    def __init__(
        self, name: str, run_round: Round, pause_seconds: float, backoff: Backoff | None = None
    ) -> None:
        """`pause_seconds` is the pause between rounds; 0 for rounds that wait for work
        themselves."""
        self.name = name
        self._run_round = run_round
        self._pause_seconds = pause_seconds
        self._backoff = backoff or Backoff()
        self._rounds = 0
        self._failures = 0
        self._consecutive_failures = 0
        self._last_success: float | None = None
        self._last_failure: float | None = None
        self._last_error = ""

    @property
    def health(self) -> JobHealth:
        return JobHealth(
            self.name,
            self._rounds,
            self._failures,
            self._consecutive_failures,
            self._last_success,
            self._last_failure,
            self._last_error,
        )

    async def run(self) -> None:
        """Runs rounds until it is cancelled."""
        REQUEST_ID.set(f"job {self.name}")
        task = asyncio.current_task()
        assert task is not None
        while not task.cancelling():
            try:
                await self._run_round()
            except (Exception, asyncio.CancelledError) as error:
                # A cancelled round may end in another error; and a round may be cancelled because
                # something that it awaits was cancelled, not the job.
                if task.cancelling():
                    raise
                await asyncio.sleep(self._failed(error))
            else:
                self._succeeded()
                await asyncio.sleep(self._pause_seconds)

    def _succeeded(self) -> None:
        if self._consecutive_failures:
            logger.info("%s succeeded again", self.name)
        self._rounds += 1
        self._consecutive_failures = 0
        self._last_success = time.time()

    def _failed(self, error: BaseException) -> float:
        """Records a failure; returns how many seconds to wait."""
        text = describe_error(error)
        # The tracebacks of a persistent error would fill the log, and perhaps the disk.
        is_known = isinstance(error, _EXPECTED_ERRORS)
        repeated = bool(self._consecutive_failures) and text == self._last_error
        self._failures += 1
        self._consecutive_failures += 1
        self._last_failure = time.time()
        self._last_error = text
        wait_seconds = self._backoff.wait_seconds(self._consecutive_failures)
        logger.log(
            logging.WARNING if is_known else logging.ERROR,
            "%s failed (%d consecutive failures), retrying in %.1f s: %s",
            self.name,
            self._consecutive_failures,
            wait_seconds,
            text,
            exc_info=None if is_known or repeated else error,
        )
        return wait_seconds


class JobSupervisor:
    """The jobs of one process."""

    def __init__(self) -> None:
        self._jobs: list[Job] = []
        self._tasks: list[asyncio.Task[None]] = []

    def start(self, job: Job) -> None:
        self._jobs.append(job)
        self._tasks.append(asyncio.create_task(job.run(), name=job.name))

    def health(self) -> tuple[JobHealth, ...]:
        return tuple(job.health for job in self._jobs)

    def report(self, snapshot: Snapshot) -> None:
        """Adds the results of the jobs."""
        for job in self._jobs:
            health = job.health
            snapshot.add("job_rounds", health.rounds, health.name)
            snapshot.add("job_failures", health.failures, health.name)
            snapshot.add("job_consecutive_failures", health.consecutive_failures, health.name)
            if health.last_success is not None:
                snapshot.add("job_last_success_timestamp_seconds", health.last_success, health.name)

    async def stop(self) -> None:
        """Cancels all jobs at their next await. Errors of jobs are logged, not raised."""
        for task in self._tasks:
            task.cancel()
        for task in self._tasks:
            (outcome,) = await asyncio.gather(task, return_exceptions=True)
            if isinstance(outcome, Exception):
                logger.error("%s failed while stopping", task.get_name(), exc_info=outcome)
        self._tasks.clear()


def describe_error(error: BaseException) -> str:
    """Returns one line about an error, of bounded length and without secrets, for logs and health
    reports."""
    text = _QUERY.sub("?…", " ".join(str(error).split()))
    name = type(error).__name__
    return (f"{name}: {text}" if text else name)[:ERROR_CHARACTERS_MAX]
