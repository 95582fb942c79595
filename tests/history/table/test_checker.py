"""The checker finds every planted bug, and nothing if there is none."""

from __future__ import annotations

import contextlib
import io
from pathlib import Path

import pytest

from tests.history.command_line import main
from tests.history.events import NANOSECONDS, Refused, Run, ServerKill, Unknown, in_order
from tests.history.table.checker import ORDER, VERSIONS, check_history
from tests.history.table.events import (
    LOG,
    Change,
    Done,
    Entity,
    History,
    Operation,
    Request,
    Verb,
)
from tests.history.table.fake import Bug
from tests.history.table.scheduler import Simulation
from tests.history.table.service import SERVICE

SEEDS = range(8)


def checks_that_find(bug: Bug | None, seed: int) -> set[str]:
    history = Simulation(seed, operations=400, bug=bug).run()
    return {finding.check for finding in check_history(history)}


@pytest.mark.parametrize("bug", Bug)
def test_planted_bugs(bug: Bug) -> None:
    found = [checks_that_find(bug, seed) for seed in SEEDS]
    assert set().union(*found) >= ({VERSIONS} if bug is Bug.ETAG_REUSED else {ORDER})
    assert sum(map(bool, found)) >= 2


def test_no_bugs() -> None:
    for seed in range(40):
        assert checks_that_find(None, seed) == set()


# Handwritten histories, with times in seconds


def operation(
    began: float, ended: float, request: Request, outcome: Done | Refused | Unknown
) -> Operation:
    return Operation(0, request, int(began * NANOSECONDS), int(ended * NANOSECONDS), outcome)


def change(
    began: float, ended: float, *changes: Change, outcome: Done | Refused | Unknown | None = None
) -> Operation:
    etags = tuple(f"e{each.token}" if each.token else "" for each in changes)
    request = Request(Verb.GROUP, "p", changes=changes)
    return operation(began, ended, request, outcome or Done(etags))


def insert(row: str, token: str) -> Change:
    return Change(Verb.INSERT, row, token, "A")


def read(began: float, ended: float, row: str, version: str, *, a: str, b: str = "") -> Operation:
    outcome = Done((f"e{version}",), Entity(version, (a, b)))
    return operation(began, ended, Request(Verb.GET, "p", row), outcome)


def missing(began: float, ended: float, row: str) -> Operation:
    return operation(began, ended, Request(Verb.GET, "p", row), Refused("ResourceNotFound"))


def found(*operations: Operation, kills: tuple[ServerKill, ...] = ()) -> set[str]:
    history = History(Run("hand", 0), in_order(operations), kills)
    return {finding.check for finding in check_history(history)}


def test_groups_are_atomic() -> None:
    both = change(0, 10, insert("r0", "1"), insert("r1", "2"))
    assert not found(both, read(1, 2, "r0", "1", a="1"), read(3, 4, "r1", "2", a="2"))
    assert not found(both, missing(1, 2, "r0"), read(3, 4, "r1", "2", a="2"))
    assert found(both, read(1, 2, "r0", "1", a="1"), missing(3, 4, "r1")) == {ORDER}


def test_merges_keep_other_properties() -> None:
    merge = Change(Verb.MERGE, "r0", "2", "B", "*")
    replace = Change(Verb.REPLACE, "r0", "2", "B", "*")
    merged, removed = read(4, 5, "r0", "2", a="1", b="2"), read(4, 5, "r0", "2", a="", b="2")
    first = change(0, 1, insert("r0", "1"))
    assert not found(first, change(2, 3, merge), merged)
    assert found(first, change(2, 3, merge), removed) == {ORDER}
    assert not found(first, change(2, 3, replace), removed)
    assert found(first, change(2, 3, replace), merged) == {ORDER}


def test_conditions() -> None:
    first, second = change(0, 1, insert("r0", "1")), Change(Verb.REPLACE, "r0", "2", "A", "e1")
    third = Change(Verb.REPLACE, "r0", "3", "A", "e1")
    unmet = Refused("UpdateConditionNotSatisfied")
    assert not found(first, change(2, 5, second), change(2, 5, third, outcome=unmet))
    assert found(first, change(2, 5, second), change(2, 5, third)) == {ORDER}
    assert found(first, change(2, 5, second, outcome=unmet)) == {ORDER}


def test_unknown_changes() -> None:
    lost = change(0, 1, insert("r0", "1"), outcome=Unknown())
    assert not found(lost, missing(2, 3, "r0"), read(4, 5, "r0", "1", a="1"))
    assert found(lost, read(2, 3, "r0", "1", a="1"), missing(4, 5, "r0")) == {ORDER}
    kill = ServerKill(NANOSECONDS, 2 * NANOSECONDS)
    late = missing(3, 4, "r0"), read(5, 6, "r0", "1", a="1")
    assert found(lost, *late, kills=(kill,)) == {ORDER}


def test_etags_name_versions() -> None:
    other = operation(2, 3, Request(Verb.GET, "p", "r0"), Done(("e9",), Entity("1", ("1", ""))))
    assert found(change(0, 1, insert("r0", "1")), other) == {VERSIONS}


def test_replay(tmp_path: Path) -> None:
    for bug, status in ((None, 0), (Bug.FAILED_BUT_DONE, 1)):
        history = Simulation(1, bug=bug).run()
        path = tmp_path / "history.jsonl"
        LOG.write_history(path, history)
        assert LOG.read_history(path) == history
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            assert main(SERVICE, ["replay", str(path)]) == status
        assert ("VIOLATION (order) of partition" in printed.getvalue()) == bool(status)


def test_seeds() -> None:
    one, same, other = (Simulation(seed).run() for seed in (1, 1, 2))
    assert one == same
    assert one.operations != other.operations
