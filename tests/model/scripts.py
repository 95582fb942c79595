"""An operation that runs a script, and the same script on a dictionary."""

from __future__ import annotations

import enum

from etagere.engine.interface import EXCLUSIVE, Refused, WriteTxn, operation
from etagere.errors import Refusal
from etagere.model.base import Command, Part
from tests.engine.samples import ITEMS, Item


class Act(enum.Enum):
    """One action of an operation on the items."""

    PUT = "put"
    DELETE = "delete"
    GET = "get"
    GUARD = "guard"
    SCAN = "scan"
    SCAN_REVERSE = "scan_reverse"
    FILL = "fill"
    """`number` puts, under keys that start with `key`."""


class Step(Part, frozen=True):
    act: Act
    key: str = ""
    number: int = 0


class Ending(enum.Enum):
    """How an operation ends; all but the first leave no trace."""

    KEEP = "keep"
    REFUSE = "refuse"
    FAIL = "fail"


class Script(Command, frozen=True):
    steps: list[Step]
    ending: Ending = Ending.KEEP


Seen = list[list[tuple[str, int]]]
"""The results of the steps that read."""


@operation
def run_script(txn: WriteTxn, command: Script) -> Seen:
    seen: Seen = []
    for step in command.steps:
        _take(txn, step, seen)
    if command.ending is Ending.REFUSE:
        raise Refused(Refusal("ConditionNotMet"))
    if command.ending is Ending.FAIL:
        raise RuntimeError("as the test wished")
    return seen


def _take(txn: WriteTxn, step: Step, seen: Seen) -> None:
    if step.act is Act.PUT:
        txn.put(ITEMS, (step.key,), Item(number=step.number))
    elif step.act is Act.DELETE:
        txn.delete(ITEMS, (step.key,))
    elif step.act in (Act.GET, Act.GUARD):
        found = txn.get(ITEMS, (step.key,), EXCLUSIVE if step.act is Act.GUARD else None)
        seen.append([] if found is None else [(step.key, found.number)])
    elif step.act is Act.FILL:
        for count in range(step.number):
            txn.put(ITEMS, (f"{step.key}{count}",), Item(number=count))
    else:
        reverse = step.act is Act.SCAN_REVERSE
        rows = txn.scan(ITEMS, ITEMS.under((), step.key), step.number, reverse=reverse)
        seen.append([(key, item.number) for (key,), item in rows])


def follow(items: dict[str, Item], script: Script) -> Seen:
    """Returns what the operation should see, and changes the items accordingly."""
    seen: Seen = []
    for step in script.steps:
        if step.act is Act.PUT:
            items[step.key] = Item(number=step.number)
        elif step.act is Act.DELETE:
            items.pop(step.key, None)
        elif step.act in (Act.GET, Act.GUARD):
            found = items.get(step.key)
            seen.append([] if found is None else [(step.key, found.number)])
        elif step.act is Act.FILL:
            for count in range(step.number):
                items[f"{step.key}{count}"] = Item(number=count)
        else:
            reverse = step.act is Act.SCAN_REVERSE
            keys = sorted((key for key in items if key.startswith(step.key)), reverse=reverse)
            seen.append([(key, items[key].number) for key in keys[: step.number]])
    return seen
