"""The interface of a writer that runs operations in groups, and what its implementations share."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import msgspec

from etagere.engine import wire
from etagere.engine.deadlines import Expired
from etagere.engine.interface import OPERATIONS, FaultReason, Operation
from etagere.engine.records import ENCODE
from etagere.engine.wire import Outcome
from etagere.metrics.counters import WriterCounters
from etagere.telemetry.formats import fields

logger = logging.getLogger(__name__)

Hook = tuple[Callable[[Any], None], Any]
"""A commit hook and its argument."""

_OPERATIONS_BY_NAME: dict[bytes, Operation[Any, Any]] = {}


class Answer(msgspec.Struct, frozen=True, gc=False):
    """The outcome of one request, to be sent once it is durable."""

    outcome: Outcome
    payload: bytes


class GroupWriter(Protocol):
    """Runs groups of operations, and commits each group at once."""

    @property
    def counters(self) -> WriterCounters: ...

    def run_group(self, group: Sequence[wire.Request]) -> list[Answer]:
        """Runs the requests of a group; on return every answer is durable. A group that takes too
        long is cut: then there are fewer answers than requests, and the rest belongs to the next
        group. No answer: the group was rolled back, because the deadline of a request has
        passed."""
        ...

    def maintain(self) -> None:
        """Does the maintenance that is due between two groups."""
        ...

    def idle(self) -> None:
        """Does maintenance while there are no requests."""
        ...

    @property
    def idle_seconds(self) -> float:
        """How long to wait for requests before the next maintenance."""
        ...

    def close(self) -> None: ...


def operation_named(name: bytes) -> Operation[Any, Any]:
    """Returns a registered operation. Raises KeyError."""
    try:
        return _OPERATIONS_BY_NAME[name]
    except KeyError:
        found = _OPERATIONS_BY_NAME[name] = OPERATIONS[name.decode()]
        return found


def origin(request: wire.Request) -> dict[str, object]:
    """Returns the fields of log lines about a request."""
    return fields(
        request_id=request.origin.decode("utf-8", "replace"),
        operation=request.operation.decode("utf-8", "replace"),
    )


def origins(group: Sequence[wire.Request]) -> dict[str, object]:
    """Returns the fields of log lines about a group."""
    if len(group) == 1:
        return origin(group[0])
    return fields(request_ids=[one.origin.decode("utf-8", "replace") or "-" for one in group])


def fault_answer(reason: FaultReason, detail: str) -> Answer:
    return Answer(Outcome.FAULT, ENCODE(wire.FaultNote(reason, detail)))


def answer_expired(requests: Sequence[wire.Request]) -> list[Answer]:
    """Logs and answers requests whose deadline has passed."""
    expired = str(Expired())
    logger.error(
        "%d operations were not carried out: %s", len(requests), expired, extra=origins(requests)
    )
    return [fault_answer(FaultReason.UNAVAILABLE, expired)] * len(requests)


def call_hooks(hooks: Sequence[Hook]) -> None:
    """Calls commit hooks. A hook that fails affects nothing else."""
    for hook, argument in hooks:
        try:
            hook(argument)
        except Exception:
            logger.exception("a commit hook failed")
