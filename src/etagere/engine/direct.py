"""Running one write operation in this process, for commands while no server runs."""

from __future__ import annotations

from collections.abc import Callable

from etagere.engine import wire
from etagere.engine.group_writer import GroupWriter
from etagere.engine.interface import C, T, WriteTxn, registered
from etagere.engine.records import ENCODE
from etagere.engine.wire import Outcome
from etagere.engine.writer_client import raise_for


def write_directly(writer: GroupWriter, operation: Callable[[WriteTxn, C], T], command: C) -> T:
    """Runs an operation as a group of its own. Returns its result, or raises one of the four
    outcomes."""
    known = registered(operation)
    request = wire.Request(0, known.wire_name, memoryview(ENCODE(command)))
    (answer,) = writer.run_group([request])
    if answer.outcome is not Outcome.RESULT:
        raise_for(answer.outcome, answer.payload)
    return known.decode_result(answer.payload)
