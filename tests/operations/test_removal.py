"""Steps that remove many rows, which other writes wait for."""

from __future__ import annotations

from typing import Any

from etagere.engine.records import Span
from etagere.operations.removal import RemovalStep
from etagere.operations.table.collections import ENTITIES


class _Rows:
    """A transaction with rows of the same length."""

    def __init__(self, count: int, length: int) -> None:
        self._left = count
        self._length = length
        self.read = 0

    def scan(self, _collection: object, _span: Span, limit: int) -> list[tuple[Any, bytes]]:
        found = min(limit, self._left)
        self._left -= found
        self.read += found
        return [((bytes(16), "p", str(number)), bytes(self._length)) for number in range(found)]


def _rows(count: int, length: int = 10) -> Any:
    return _Rows(count, length)


def _removed(step: RemovalStep, txn: Any) -> int:
    return len(list(step.rows(txn, ENTITIES, ENTITIES.all())))


def test_a_step_removes_few_long_rows() -> None:
    for length, removed in ((1 << 20, 1), (1 << 16, 16)):
        step, txn = RemovalStep(500), _rows(500, length)
        assert _removed(step, txn) == removed
        assert txn.read <= removed + 4
        assert step.is_over
        assert _removed(step, txn) == 0


def test_a_step_removes_at_most_its_number_of_rows() -> None:
    step = RemovalStep(500)
    assert _removed(step, _rows(20)) + _removed(step, _rows(30)) == 50
    assert not step.is_over
    assert _removed(step, _rows(600)) == 450
    assert step.is_over


def test_a_step_ends_early_if_other_rows_are_removed_too() -> None:
    step, removed = RemovalStep(500), 0
    for _ in step.rows(_rows(500), ENTITIES, ENTITIES.all()):
        step.left -= 9
        removed += 1
    assert removed == 50
    assert step.is_over
