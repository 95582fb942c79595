"""A server with 1,000 and with 1,000,000 messages in one queue, over HTTP.

Requests alternate between two servers, one for each size, in short turns, so that other load on the
machine affects both. First all messages are visible; then the long queue has only as many visible
messages as the short one. The median latencies are compared.
"""

from __future__ import annotations

import contextlib
import itertools
import statistics
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import NamedTuple

from benchmarks.figures import Figure, Group, Round, Settings
from benchmarks.load import Run, development_sas, run_each
from benchmarks.queues import create, delete_load, get_load, put_load, taken_in
from benchmarks.services import QUEUE, Service, etagere
from benchmarks.tools import tell

_FEW, _MANY = 1_000, 1_000_000
_TURNS = 10
"""How often a round alternates between the compared variants."""
_REQUESTS = 300
"""Requests of each kind per turn."""
_HIDDEN_AT_ONCE = 20
"""Messages per Get Messages."""
_PUTS_PER_REPORT = 50_000
_QUEUE = "line"


class _Sizes(NamedTuple):
    few: int
    many: int
    requests: int

    @classmethod
    def of(cls, settings: Settings) -> _Sizes:
        return cls(60, 400, 20) if settings.quick else cls(_FEW, _MANY, _REQUESTS)


class _Line:
    """A server with a queue whose length is the same before and after a turn."""

    def __init__(self, directory: Path, messages: int, requests: int, sas: str) -> None:
        self.service: Service
        self._directory = directory
        self._messages = messages
        self._requests = requests
        self._sas = sas
        self._get, self._put = get_load(_QUEUE, sas), put_load(_QUEUE, sas)
        self._delete = delete_load(_QUEUE, sas)
        directory.mkdir()

    def start(self, ends: contextlib.ExitStack) -> None:
        self.service = etagere(self._directory, ends, QUEUE)

    def seed(self) -> None:
        create(self.service, _QUEUE, self._sas)
        for first in range(0, self._messages, _PUTS_PER_REPORT):
            stop = min(self._messages, first + _PUTS_PER_REPORT)
            put = run_each(self.service, self._put, [""] * (stop - first))
            tell(f"queue_growth: {stop:,} of {self._messages:,}, {put.per_second:,.0f}/s")

    def hide_all_but(self, shown: int) -> None:
        hidden = self._messages - shown
        load = get_load(_QUEUE, self._sas, _HIDDEN_AT_ONCE)
        run_each(self.service, load, [""] * (hidden // _HIDDEN_AT_ONCE))
        tell(f"queue_growth: {hidden:,} of {self._messages:,} are hidden")

    def turn(self) -> dict[str, Run]:
        """Sends a few requests of each kind."""
        taken: list[str] = []
        got = run_each(
            self.service, self._get, [""] * self._requests, lambda answer: _note(answer, taken)
        )
        deleted = run_each(self.service, self._delete, taken)
        put = run_each(self.service, self._put, [""] * self._requests)
        return {"get": got, "delete": deleted, "put": put}


def _note(answer: bytes, taken: list[str]) -> None:
    taken.append(taken_in(answer))


async def measure(settings: Settings) -> AsyncIterator[Round]:
    sizes = _Sizes.of(settings)
    sas = development_sas()
    below = tempfile.TemporaryDirectory(prefix="etagere-bench-", dir=settings.directory)
    with contextlib.ExitStack() as ends:
        directory = Path(ends.enter_context(below))
        few = _Line(directory / "few", sizes.few, sizes.requests, sas)
        many = _Line(directory / "many", sizes.many, sizes.requests, sas)
        for line in (few, many):
            line.start(ends)
            line.seed()
        turns = settings.scaled(_TURNS, 1)
        for _ in range(settings.rounds):
            told = _compared("seen", few, many, turns)
            yield told | {"queue_growth.memory": many.service.mebibytes()}
        many.hide_all_but(sizes.few)
        for _ in range(settings.rounds):
            yield _compared("hidden", few, many, turns)
        yield {"queue_growth.memory_peak": many.service.peak_mebibytes()}


def _compared(state: str, few: _Line, many: _Line, turns: int) -> Round:
    runs = [(few.turn(), many.turn()) for _ in range(turns)]
    told: Round = {}
    for kind in _KINDS:
        of_few, of_many = ([each[kind] for each in of] for of in zip(*runs, strict=True))
        p50_few, p50_many = (statistics.median(run.p50 for run in of) for of in (of_few, of_many))
        key = f"queue_growth.{kind}_{state}"
        told |= {
            key: p50_many / p50_few,
            f"{key}_few": 1000 * p50_few,
            f"{key}_many": 1000 * p50_many,
            f"{key}_cpu_few": statistics.mean(run.cpu_microseconds for run in of_few),
            f"{key}_cpu_many": statistics.mean(run.cpu_microseconds for run in of_many),
        }
    return told


def _figures(state: str, kind: str, at_most: float) -> tuple[Figure, ...]:
    key = f"queue_growth.{kind}_{state}"
    text = f"{kind.title()} Message, 1,000,000{_STATES[state]} to 1,000"
    return (
        Figure(key, text, " x", at_most=at_most),
        Figure(f"{key}_few", "  median latency, 1,000", " ms"),
        Figure(f"{key}_many", "  median latency, 1,000,000", " ms"),
        Figure(f"{key}_cpu_few", "  CPU time per request, 1,000", " µs"),
        Figure(f"{key}_cpu_many", "  CPU time per request, 1,000,000", " µs"),
    )


_KINDS = {"get": 1.3, "delete": 1.3, "put": 2}
"""The compared requests, and how much longer they may take."""
_STATES = {"seen": "", "hidden": ", most of them hidden,"}

GROUP = Group(
    "queue_growth",
    measure,
    (
        *itertools.chain.from_iterable(
            _figures(state, kind, at_most) for state in _STATES for kind, at_most in _KINDS.items()
        ),
        Figure("queue_growth.memory", "memory with 1,000,000 messages", " MiB", at_most=400),
        Figure(
            "queue_growth.memory_peak",
            "  peak, shared pages counted in each process",
            " MiB",
            at_most=400,
        ),
    ),
    on_request=True,
)
