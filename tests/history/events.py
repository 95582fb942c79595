"""The event log of a run: operations with their outcomes, and kills of the server.

All times are nanoseconds of the machine's monotonic clock, which its processes share. A client logs
a request before it sends it, and the outcome as soon as it knows it: a client may be killed at any
moment, and its last request may be carried out nevertheless.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

import msgspec

NANOSECONDS: Final = 1_000_000_000
"""In a second."""
NEVER: Final = 1 << 62
"""Later than any other time."""
_DRIFT_PER_MILLE: Final = 1
_DRIFT_NANOSECONDS: Final = 5_000_000


def drift(seconds: int) -> int:
    """How far the server's clock may be off after so many seconds, in nanoseconds."""
    return seconds * NANOSECONDS * _DRIFT_PER_MILLE // 1000 + _DRIFT_NANOSECONDS


class Refused(msgspec.Struct, frozen=True, tag="refused"):
    """The server answered with an error code, and so changed nothing."""

    code: str


class Unknown(msgspec.Struct, frozen=True, tag="unknown"):
    """The client does not know whether the operation was carried out."""

    why: str = ""


class ServerKill(msgspec.Struct, frozen=True, tag="kill"):
    """A kill of all processes of the server."""

    ended: int
    """When none of its processes was left."""
    restarted: int
    """When the next server was about to be started."""


class Settled(ServerKill, frozen=True, tag="settled"):
    """The end of a fault of a cluster, of which other nodes may carry out what a client has given
    up: by `ended` at the latest if the client gave up before the fault ended, at `restarted`."""


class Crash(msgspec.Struct, frozen=True, tag="crash"):
    """A kill after which something may be lost that was acknowledged, but not made durable."""

    began: int
    ended: int


class Run(msgspec.Struct, frozen=True, tag="run"):
    """How a history was made, so that it can be repeated."""

    made_by: str
    seed: int


RequestT = TypeVar("RequestT")
DoneT = TypeVar("DoneT")


class Operation(msgspec.Struct, Generic[RequestT, DoneT], frozen=True, tag="operation"):
    """A request and its outcome."""

    client: int
    request: RequestT
    began: int
    ended: int
    """When the client had its answer, gave up, or was killed."""
    outcome: DoneT | Refused | Unknown


OperationT = TypeVar("OperationT", bound=Operation[Any, Any])


class History(msgspec.Struct, Generic[OperationT], frozen=True):
    """Everything that happened in a run."""

    run: Run
    operations: tuple[OperationT, ...]
    kills: tuple[ServerKill, ...] = ()
    crashes: tuple[Crash, ...] = ()


def latest_moment(operation: Operation[Any, Any], kills: Iterable[ServerKill]) -> int:
    """The time after which the operation was not carried out any more.

    A dead server does nothing: if the client gave up before the next one was started, then its
    operation was carried out before the kill, or never. A cluster may need some time for it.
    """
    if not isinstance(operation.outcome, Unknown):
        return operation.ended
    return min((kill.ended for kill in kills if operation.ended <= kill.restarted), default=NEVER)


def in_order(operations: Iterable[OperationT]) -> tuple[OperationT, ...]:
    """Sorts operations by the time at which they began."""
    return tuple(sorted(operations, key=lambda each: each.began))


def describe(operation: Operation[Any, Any], origin: int) -> str:
    """Formats an operation as one line, with times in milliseconds after the origin."""
    fields = msgspec.to_builtins(operation.request)
    arguments = ", ".join(f"{name}={value}" for name, value in fields.items() if name != "verb")
    began = (operation.began - origin) / 1e6
    ended = (operation.ended - origin) / 1e6
    outcome = msgspec.json.encode(operation.outcome).decode()
    verb = operation.request.verb.value
    return (
        f"[{began:10.3f} .. {ended:10.3f}] client {operation.client}: "
        f"{verb}({arguments}) -> {outcome}"
    )


# The log of one client


class Asked(msgspec.Struct, Generic[RequestT], frozen=True, tag="asked"):
    """A request that is about to be sent."""

    client: int
    request: RequestT
    began: int


class Answered(msgspec.Struct, Generic[DoneT], frozen=True, tag="answered"):
    """The outcome of the request before; None if it was never sent."""

    ended: int
    outcome: DoneT | Refused | Unknown | None


class Killed(msgspec.Struct, frozen=True, tag="killed"):
    """The client was dead by then; logged by the process that killed it."""

    ended: int


_KILLED: Final = b'{"type":"killed"'


class EventLog(Generic[OperationT]):
    """Reads and writes the operations of a service as lines of JSON."""

    def __init__(self, operation: type[OperationT], request: Any, done: Any) -> None:
        self.operation = operation
        self._history = msgspec.json.Decoder(Run | operation | ServerKill | Settled | Crash)
        self._client = msgspec.json.Decoder(Asked[request] | Answered[done] | Killed)

    def write_history(self, path: Path, history: History[OperationT]) -> None:
        events = (history.run, *history.kills, *history.crashes, *history.operations)
        path.write_bytes(b"".join(msgspec.json.encode(event) + b"\n" for event in events))

    def read_history(self, path: Path) -> History[OperationT]:
        events: list[Any] = [self._history.decode(line) for line in path.read_bytes().splitlines()]
        (run,) = (event for event in events if isinstance(event, Run))
        operations = (event for event in events if isinstance(event, self.operation))
        kills = tuple(event for event in events if isinstance(event, ServerKill))
        crashes = tuple(event for event in events if isinstance(event, Crash))
        return History(run, in_order(operations), kills, crashes)

    def read_client(self, path: Path) -> list[OperationT]:
        """Returns the operations of one client.

        The request that it had sent when it was killed has an unknown outcome, even if it was
        killed while it logged the answer.
        """
        operations: list[OperationT] = []
        asked: Any = None
        for event in self._read_events(path):
            if isinstance(event, Asked):
                asked = event
            elif asked is not None:
                outcome = Unknown("killed") if isinstance(event, Killed) else event.outcome
                if outcome is not None:
                    operations.append(self._joined(asked, event.ended, outcome))
                asked = None
        if asked is not None:
            # Nothing logged when the client was killed.
            operations.append(self._joined(asked, NEVER, Unknown("killed")))
        return operations

    def _joined(self, asked: Asked[Any], ended: int, outcome: Any) -> OperationT:
        return self.operation(asked.client, asked.request, asked.began, ended, outcome)

    def _read_events(self, path: Path) -> Iterator[Any]:
        """Yields the events of a log whose last line may be incomplete.

        Behind half a line there may only be the kill, on the same line or the next. A request
        whose line is incomplete was never sent, and an incomplete answer is none.
        """
        torn = b""
        for line in filter(None, path.read_bytes().splitlines()):
            try:
                event = self._client.decode(line)
            except msgspec.DecodeError:
                if torn:
                    raise
                torn, found, rest = line.rpartition(_KILLED)
                if not found:
                    torn = line
                    continue
                event = self._client.decode(found + rest)
            if torn and not isinstance(event, Killed):
                raise ValueError(f"{path} goes on behind a torn line: {torn!r}") from None
            yield event
