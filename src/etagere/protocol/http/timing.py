"""How long a connection waits for its client, and how slow the client may be."""

from __future__ import annotations

import asyncio

from etagere.protocol.connections.memory import SMALL_BYTES_MAX, MemoryBudget
from etagere.protocol.http.input import Input
from etagere.protocol.http.limits import Limits
from etagere.protocol.http.messages import RequestBody
from etagere.protocol.http.output import Output
from etagere.protocol.http.pace import Pace

NEVER = float("inf")


class _BodyPace:
    """A pace that restarts with each body."""

    __slots__ = ("_body", "_pace")

    def __init__(self) -> None:
        self._body: RequestBody | None = None
        self._pace = Pace()

    def of(self, body: RequestBody) -> Pace:
        if body is not self._body:
            self._body = body
            self._pace = Pace()
        return self._pace

    def forget(self) -> None:
        self._body = None


class ClientTimer:
    """Decides whether the client of a connection is too slow.

    A client that owes a head has a deadline. One that sends a body, reads a response or holds
    memory that others need has to keep a minimum rate, which is measured whenever the server asks.
    """

    def __init__(
        self, limits: Limits, memory: MemoryBudget, input_half: Input, output_half: Output
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._limits = limits
        self._memory = memory
        self._input = input_half
        self._output = output_half
        self._input_pace = _BodyPace()
        self._memory_pace = _BodyPace()
        self.deadline = NEVER
        """The deadline for the next head, or the rest of it."""

    def expect_within(self, seconds: float) -> None:
        # While the server does not read, the client is not slow.
        self.deadline = NEVER if self._input.holds else self._loop.time() + seconds

    def is_late(self, now: float) -> bool:
        return now >= self.deadline and not self._output.pending()

    def is_too_slow(self, elapsed_seconds: float) -> bool:
        """Measures how fast a body arrives and a response is read."""
        limits = self._limits
        self._output.measure(elapsed_seconds, limits.body_bytes_per_second_min)
        input_behind_seconds = self._input_behind_seconds(elapsed_seconds)
        behind_seconds = max(self._output.pace.behind_seconds, input_behind_seconds)
        return behind_seconds >= limits.behind_seconds_max

    def _input_behind_seconds(self, elapsed_seconds: float) -> float:
        body = self._input.framing.body
        if body is None:
            self._input_pace.forget()
            return 0.0
        pace = self._input_pace.of(body)
        # While nobody waits for its bytes, or reads them, the client is not slow.
        waited_seconds = elapsed_seconds if body.awaited and not self._input.holds else 0.0
        pace.measure(waited_seconds, body.received, self._limits.body_bytes_per_second_min)
        return pace.behind_seconds

    def holds_wanted_memory(self, elapsed_seconds: float, served: RequestBody | None) -> bool:
        """Measures how fast a client returns the memory that its requests hold; returns whether it
        is too slow while others need that memory."""
        if served is None:
            self._memory_pace.forget()
            return False
        held_bytes = served.held_bytes
        held_bytes += sum([ahead.body.held_bytes for ahead in self._input.framing.requests])
        if held_bytes <= SMALL_BYTES_MAX:
            return False
        pace = self._memory_pace.of(served)
        is_waited_for = self._output.pending() or (served.awaited and not self._input.holds)
        pace.measure(
            elapsed_seconds if is_waited_for else 0.0,
            served.received + self._output.taken(),
            held_bytes / self._limits.held_memory_seconds_max,
        )
        is_behind = pace.behind_seconds >= self._limits.wanted_memory_seconds_max
        return is_behind and self._memory.is_wanted
