"""What happened in a run: requests with what came of them, and the deaths of the server.

All times are nanoseconds of the machine's monotonic clock, which its processes share. A client
writes down what it asks before it asks, and what it was told as soon as it knows: it may be killed
at any moment, and what it had asked for may have been done all the same.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

import msgspec

from tests.history.events import NEVER, Death, Refused, Run, Unknown


class Verb(enum.Enum):
    PUT = "put"
    GET = "get"
    UPDATE = "update"
    DELETE = "delete"


class Request(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a client asks of the queue. What the verb does not use is left out."""

    verb: Verb
    token: str = ""
    """Of the text that is put; an update may leave the text as it is."""
    message: str = ""
    """The id that the service gave it."""
    receipt: str = ""
    count: int = 1
    hidden_seconds: int = 0
    ttl_seconds: int | None = None
    """None: longer than any run."""


class Seen(msgspec.Struct, frozen=True, omit_defaults=True):
    """What an answer shows of a message."""

    message: str
    receipt: str
    token: str = ""
    """Of its text; one that nobody wrote if it is damaged. Only a get shows this and the next."""
    count: int = 0
    """How often it has been delivered."""


class Done(msgspec.Struct, frozen=True, tag="done"):
    seen: tuple[Seen, ...] = ()


Outcome = Done | Refused | Unknown


class Operation(msgspec.Struct, frozen=True, tag="operation"):
    client: int
    request: Request
    began: int
    ended: int
    """When the client had its answer, gave up, or died."""
    outcome: Outcome


class History(msgspec.Struct, frozen=True):
    """Of a queue that was emptied in the end: whatever was left was taken and deleted."""

    run: Run
    operations: tuple[Operation, ...]
    """By the time at which they began."""
    deaths: tuple[Death, ...] = ()

    def latest_moment(self, operation: Operation) -> int:
        """After which the operation was not carried out any more: a dead server does nothing."""
        if not isinstance(operation.outcome, Unknown):
            return operation.ended
        deaths = (death.ended for death in self.deaths if operation.ended <= death.revived)
        return min(deaths, default=NEVER)


# The record of one client


class Asked(msgspec.Struct, frozen=True, tag="asked"):
    client: int
    request: Request
    began: int


class Answered(msgspec.Struct, frozen=True, tag="answered"):
    """To what was asked last. Without an outcome it was never sent."""

    ended: int
    outcome: Outcome | None


class Fallen(msgspec.Struct, frozen=True, tag="fallen"):
    """The client was dead by then; whoever killed it says so."""

    ended: int


_RECORD: Final = msgspec.json.Decoder(Asked | Answered | Fallen)
_FALLEN: Final = b'{"type":"fallen"'


def read_record(path: Path) -> list[Operation]:
    """The operations of one client. What it had asked for when it was killed has an unknown
    outcome, also if it was killed while it wrote down the answer."""
    operations: list[Operation] = []
    asked: Asked | None = None
    for event in _read_events(path):
        if isinstance(event, Asked):
            asked = event
        elif asked is not None:
            outcome = Unknown("killed") if isinstance(event, Fallen) else event.outcome
            if outcome is not None:
                operations.append(
                    Operation(asked.client, asked.request, asked.began, event.ended, outcome)
                )
            asked = None
    if asked is not None:
        # Nobody was there to say when it died.
        killed = Unknown("killed")
        operations.append(Operation(asked.client, asked.request, asked.began, NEVER, killed))
    return operations


def _read_events(path: Path) -> Iterator[Asked | Answered | Fallen]:
    """A client that is killed may leave half a line, behind which only its death is told, on the
    same line or the next. Half a question was never asked; half an answer is none."""
    torn = b""
    for line in filter(None, path.read_bytes().splitlines()):
        try:
            event = _RECORD.decode(line)
        except msgspec.DecodeError:
            if torn:
                raise
            torn, found, rest = line.rpartition(_FALLEN)
            if not found:
                torn = line
                continue
            event = _RECORD.decode(found + rest)
        if torn and not isinstance(event, Fallen):
            raise ValueError(f"{path} goes on behind a torn line: {torn!r}")
        yield event


# Whole histories

_LINES: Final = msgspec.json.Decoder(Run | Operation | Death)


def in_order(operations: Iterable[Operation]) -> tuple[Operation, ...]:
    return tuple(sorted(operations, key=lambda each: each.began))


def write_history(path: Path, history: History) -> None:
    events = (history.run, *history.deaths, *history.operations)
    path.write_bytes(b"".join(msgspec.json.encode(event) + b"\n" for event in events))


def read_history(path: Path) -> History:
    events = [_LINES.decode(line) for line in path.read_bytes().splitlines()]
    (run,) = (event for event in events if isinstance(event, Run))
    operations = (event for event in events if isinstance(event, Operation))
    deaths = tuple(event for event in events if isinstance(event, Death))
    return History(run, in_order(operations), deaths)


def describe(operation: Operation, origin: int) -> str:
    """One line for people, with times in milliseconds after the origin."""
    asked = msgspec.to_builtins(operation.request)
    arguments = ", ".join(f"{name}={value}" for name, value in asked.items() if name != "verb")
    began = (operation.began - origin) / 1e6
    ended = (operation.ended - origin) / 1e6
    told = msgspec.json.encode(operation.outcome).decode()
    verb = operation.request.verb.value
    return f"[{began:10.3f} .. {ended:10.3f}] client {operation.client}: {verb}({arguments}) {told}"
