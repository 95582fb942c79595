"""Supervision of jobs: they continue after errors, and report their outcome."""

from __future__ import annotations

import asyncio
import errno
import logging
from collections.abc import Awaitable, Callable

import pytest

from etagere.engine.interface import Fault, FaultReason, Unknown
from etagere.jobs.supervision import (
    ERROR_CHARACTERS_MAX,
    Backoff,
    Job,
    JobSupervisor,
    describe_error,
)
from tests.loops import until

PROMPT = Backoff(first_seconds=0.001, seconds_max=0.002)


class Rounds:
    """Rounds that raise the given errors one after the other, and then succeed."""

    def __init__(self, *errors: BaseException) -> None:
        self._errors = list(errors)
        self.done = 0

    async def __call__(self) -> None:
        await asyncio.sleep(0)
        if self._errors:
            raise self._errors.pop(0)
        self.done += 1


def run(test: Callable[[], Awaitable[None]]) -> None:
    async def main() -> None:
        await test()

    asyncio.run(main())


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.EMFILE, "Too many open files"),
        Fault(FaultReason.DISK_FULL, "no room"),
        Unknown("lost"),
        KeyError("what nobody thought of"),
        MemoryError(),
        asyncio.CancelledError("of something that the round waited for"),
        TimeoutError(),
    ],
    ids=lambda error: type(error).__name__,
)
def test_no_error_ends_a_job(error: BaseException, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)

    async def test() -> None:
        jobs, rounds = JobSupervisor(), Rounds(error, error)
        jobs.start(Job("work", rounds, 0.001, PROMPT))
        await until(lambda: rounds.done > 1)
        (health,) = jobs.health()
        assert health.failures == 2
        assert health.consecutive_failures == 0
        assert health.last_success is not None
        assert health.last_failure is not None
        assert health.last_failure <= health.last_success
        assert type(error).__name__ in health.last_error
        await jobs.stop()

    run(test)
    texts = [record.getMessage() for record in caplog.records]
    assert [text.startswith("work failed") for text in texts] == [True, True, False]
    assert texts[-1] == "work succeeded again"


def test_an_unexpected_error_is_logged_with_its_traceback_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def test() -> None:
        jobs = JobSupervisor()
        expected, rounds = Rounds(Unknown("lost")), Rounds(OSError("one"), OSError("one"))
        jobs.start(Job("expected", expected, 0.001, PROMPT))
        jobs.start(Job("unexpected", rounds, 0.001, PROMPT))
        await until(lambda: bool(rounds.done and expected.done))
        await jobs.stop()

    run(test)
    traced = [record.getMessage() for record in caplog.records if record.exc_info]
    assert len(caplog.records) == 3
    assert len(traced) == 1
    assert traced[0].startswith("unexpected failed")


def test_consecutive_failures_are_counted() -> None:
    async def test() -> None:
        jobs, rounds = JobSupervisor(), Rounds(*[OSError("again")] * 1_000)
        jobs.start(Job("work", rounds, 0, PROMPT))
        await until(lambda: jobs.health()[0].consecutive_failures >= 5)
        (health,) = jobs.health()
        assert (health.rounds, health.last_success) == (0, None)
        await jobs.stop()

    run(test)


def test_jobs_do_not_disturb_a_stop() -> None:
    class Stubborn:
        async def __call__(self) -> None:
            try:
                await asyncio.sleep(60)
            finally:
                raise OSError("while it is stopped")

    async def test() -> None:
        jobs = JobSupervisor()
        idle = Rounds()
        jobs.start(Job("stubborn", Stubborn(), 0, Backoff(60, 60)))
        jobs.start(Job("idle", idle, 60))
        await until(lambda: idle.done == 1)
        async with asyncio.timeout(5):
            await jobs.stop()
            await jobs.stop()

    run(test)


def test_waits_grow_to_a_limit_with_jitter() -> None:
    backoff = Backoff(first_seconds=1.0, seconds_max=30.0)
    for failures, limit in ((1, 1.0), (2, 2.0), (5, 16.0), (6, 30.0), (10_000, 30.0)):
        waits = {backoff.wait_seconds(failures) for _ in range(50)}
        assert all(limit / 2 <= wait <= limit for wait in waits)
        assert len(waits) > 1


def test_an_error_is_one_bounded_line_without_signatures() -> None:
    text = describe_error(OSError("no\nhttps://host/c/b?sv=1&sig=secret%3D&se=2 answer"))
    assert text == "OSError: no https://host/c/b?… answer"
    assert len(describe_error(OSError("x" * 10_000))) == ERROR_CHARACTERS_MAX
    assert describe_error(KeyError()) == "KeyError"
