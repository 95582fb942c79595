"""The deadlines of operations that front ends send to the writer.

A front end reports the outcome of an operation as unknown when the writer has not answered anything
for `writer_answer_seconds_max`. The client may then write something else, through another node too,
and that must not be overwritten later by an operation that a paused writer has kept. So a request
has a deadline some time before that, and a writer commits no operation after its deadline.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Final

from etagere.engine.wire import Request

_NANOSECONDS: Final = 1_000_000_000
_SHARE: Final = 5 / 6
"""The part of the time limit of a front end that a writer may use. The rest, 10 s by default, is
for a writer that is paused after it has looked at the clock: PostgreSQL does not execute its COMMIT
if that arrives more than 5 s later (`idle_in_transaction_session_timeout`)."""


class Expired(Exception):
    """The deadline of an operation has passed; nothing was changed."""

    def __init__(self) -> None:
        super().__init__("the time limit was reached before the operation was carried out")


class AnswerTimer:
    """Measures how long the writer has not answered a front end, and sets deadlines accordingly."""

    __slots__ = ("_allowed", "_reserved", "deadline")

    def __init__(self, answer_seconds_max: float) -> None:
        self._allowed = int(answer_seconds_max * _SHARE * _NANOSECONDS)
        self._reserved = int(answer_seconds_max * _NANOSECONDS) - self._allowed
        self.deadline = 0
        """That of requests which are sent now. It never decreases."""
        self.restart()

    def restart(self) -> None:
        """Notes that the writer has just answered, or that it had nothing to answer."""
        self.deadline = now() + self._allowed

    @property
    def is_over(self) -> bool:
        """Whether the writer has not answered for too long. All deadlines have passed then."""
        return now() > self.deadline + self._reserved


def now() -> int:
    """Returns the time that deadlines refer to, in nanoseconds. It includes the time for which the
    machine was suspended, and all processes of a machine have the same."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


def require_in_time(group: Iterable[Request]) -> None:
    """Raises `Expired` if the deadline of any of the requests has passed."""
    if min([request.deadline for request in group]) <= now():
        raise Expired
