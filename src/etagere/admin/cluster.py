"""The condition of a node of a cluster: whether it can serve requests, and which.

The functions wait for answers, so they run on a thread.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from concurrent.futures import Executor, Future, wait
from typing import Any, Final, Generic, NamedTuple, TypeVar

from etagere.coordination.interface import NodeStatus
from etagere.front.storage import NodeProbe
from etagere.jobs.supervision import describe_error

ANSWER_SECONDS_MAX: Final = 3.0
_BODIES_FRESH_SECONDS: Final = 4.0
"""How long a result is used again: several load balancers may ask every second, and an object store
charges for each request."""
_DRAINED: Final = "the node is being drained"
_NO_FILES: Final = "another node serves files"
_NEEDS_NO_BODIES: Final = ("queue", "table")
SERVICES: Final = ("blob", "queue", "table", "file")

T = TypeVar("T")


class NodeCondition(NamedTuple):
    """The state of a node of a cluster and of its dependencies."""

    status: NodeStatus | None
    """None if the database does not answer."""
    problems: Mapping[str, str]
    """By dependency: `database`, `ledger`, `bodies`."""

    def problems_of(self, service: str | None) -> list[str]:
        """Returns the reasons why the node cannot serve a service; None: any of them. A node that
        does not serve files is unready only for `file`."""
        found = [
            f"{what}: {problem}"
            for what, problem in self.problems.items()
            if what != "bodies" or service not in _NEEDS_NO_BODIES
        ]
        if self.status is not None and self.status.is_draining:
            found.append(_DRAINED)
        if service == "file" and self.status is not None and not self.status.serves_files:
            found.append(_NO_FILES)
        return found


class NodeObserver:
    """Queries the dependencies of a node in parallel."""

    def __init__(
        self, probe: NodeProbe, check_ledger: Callable[[], None], threads: Executor
    ) -> None:
        """`check_ledger` reads something from the ledger, and raises an exception if it cannot."""
        self._status = _SharedCall(probe.status, threads)
        self._checks = {
            "ledger": _SharedCall(check_ledger, threads),
            "bodies": _SharedCall(probe.check_bodies, threads, _BODIES_FRESH_SECONDS),
        }

    def observe(self) -> NodeCondition:
        status = self._status.ask()
        checks = {what: call.ask() for what, call in self._checks.items()}
        answers: list[Future[Any]] = [status, *checks.values()]
        wait(answers, ANSWER_SECONDS_MAX)
        asked = {"database": _describe_failure(status)}
        asked |= {what: _describe_failure(answer) for what, answer in checks.items()}
        problems = {what: problem for what, problem in asked.items() if problem is not None}
        return NodeCondition(None if "database" in problems else status.result(), problems)


class _SharedCall(Generic[T]):
    """A function that runs on a thread. It is not called again while it runs, or while its last
    result is fresh."""

    def __init__(
        self, function: Callable[[], T], threads: Executor, fresh_seconds: float = 0.0
    ) -> None:
        self._function = function
        self._threads = threads
        self._fresh_seconds = fresh_seconds
        self._asked_at = 0.0
        self._answer: Future[T] | None = None

    def ask(self) -> Future[T]:
        now = time.monotonic()
        is_old = now - self._asked_at >= self._fresh_seconds
        if self._answer is None or (self._answer.done() and is_old):
            self._asked_at = now
            self._answer = self._threads.submit(self._function)
        return self._answer


def _describe_failure(answer: Future[Any]) -> str | None:
    if not answer.done():
        return f"no answer for {ANSWER_SECONDS_MAX:g} s"
    error = answer.exception()
    return None if error is None else describe_error(error)
