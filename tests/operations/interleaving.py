"""Pairs of concurrent operations on the memory engine, one of them run at every step of the other.

The memory engine exposes decisions that rest on unguarded records: each pair must have the outcome
of one of the two serial orders."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, NamedTuple

from etagere.engine.interface import Conflict, Refused, WriteTxn
from etagere.engine.memory import MemoryEngine
from etagere.engine.memory_transactions import MemoryReadTxn, MemoryWriteTxn


class Call(NamedTuple):
    """An operation and its command."""

    operation: Callable[[WriteTxn, Any], Any]
    command: Any


def execute(engine: MemoryEngine, call: Call) -> Any:
    """Runs a call that must succeed."""
    txn = engine.begin()
    result = call.operation(txn, call.command)
    txn.commit()
    return result


def execute_until_done(engine: MemoryEngine, call: Call) -> None:
    """Repeats a call that removes or builds something until nothing is left to do."""
    while execute(engine, call):
        pass


def look(engine: MemoryEngine, question: Callable[[MemoryReadTxn, Any], Any]) -> Any:
    txn = engine.begin_read()
    try:
        return question(txn, None)
    finally:
        txn.close()


class Interleavings(NamedTuple):
    """An initial state, and calls of which any two can be interleaved on copies of it."""

    engine: MemoryEngine
    calls: Mapping[str, Call]
    show_result: Callable[[Any], object]
    """Makes the result of a call comparable."""
    show_outcome: Callable[[MemoryEngine, dict[str, object]], object]
    """Makes the outcome comparable: the shown results by call, and the state of the engine."""

    def run(self, txn: MemoryWriteTxn, call: Call) -> object:
        """Returns the code of the refusal, or the shown result."""
        try:
            result = call.operation(txn, call.command)
            txn.commit()
        except Refused as refused:
            return refused.refusal.code
        finally:
            txn.rollback()
        return self.show_result(result)

    def run_serially(self, first: str, second: str) -> object:
        engine = self.engine.restarted()
        results = {name: self.run(engine.begin(), self.calls[name]) for name in (first, second)}
        return self.show_outcome(engine, results)

    def run_interleaved(self, outer: str, inner: str, step: int) -> object | None:
        """Runs `inner` before a step of `outer`; returns None if `outer` has no such step.

        A call that meets a conflict is run again afterwards, as the engine does."""
        engine = self.engine.restarted()
        results: dict[str, object] = {}
        steps = 0

        def interrupt() -> None:
            nonlocal steps
            steps += 1
            if steps == step:
                with suppress(Conflict):
                    results[inner] = self.run(engine.begin(), self.calls[inner])

        try:
            results[outer] = self.run(engine.begin(interrupt), self.calls[outer])
        except Conflict:
            results[outer] = self.run(engine.begin(), self.calls[outer])
        if steps < step:
            return None
        if inner not in results:
            results[inner] = self.run(engine.begin(), self.calls[inner])
        return self.show_outcome(engine, results)

    def require_serializable(self, outer: str, inner: str, *, steps_min: int = 2) -> None:
        serial = (self.run_serially(outer, inner), self.run_serially(inner, outer))
        step = 1
        while (outcome := self.run_interleaved(outer, inner, step)) is not None:
            assert outcome in serial, (outer, inner, step)
            step += 1
        assert step > steps_min, "too few steps to interleave"
