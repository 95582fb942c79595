"""An account that moves back and forth between two cells while clients use it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from etagere.node.account_move_steps import Step
from tests.clusters import moving
from tests.clusters.cells import Cell
from tests.history.faults import Fault
from tests.server import KEY

ACCOUNT: Final = "history"
_KEEP_SECONDS: Final = 1
"""How long a cell keeps the data of an account that has moved."""
_ATTEMPTS_MAX: Final = 5


class AccountMoves:
    """Moves the account, and interrupts moves."""

    def __init__(self, cells: Sequence[Cell]) -> None:
        """The account is created in the first of the two cells."""
        self._source, self._target = cells
        added = self._source.command("account", "add", ACCOUNT, "--key", KEY)
        assert added.returncode == 0, added.stderr

    def faults(self) -> list[Fault]:
        """Returns a move, and for each of its steps one whose process is killed then."""
        kills = [self._killed_after(step) for step in Step]
        return [_fault("move of the account", self._move, _nothing), *kills]

    def _killed_after(self, step: Step) -> Fault:
        def begin() -> None:
            # It may also fail before, for instance because the database is slow to answer.
            moving.start(ACCOUNT, self._source, self._target, step).communicate()

        return _fault(f"kill -9 of a move when {step}", begin, self._move)

    def _move(self) -> None:
        """Moves the account, or completes its move. A command that fails is run again."""
        target = str(self._target.configuration())
        words = ["--to", target, "--keep", str(_KEEP_SECONDS), "--bodies", self._source.bodies]
        for _ in range(_ATTEMPTS_MAX):
            done = self._source.command("account", "move", ACCOUNT, *words)
            if done.returncode == 0:
                self._source, self._target = self._target, self._source
                return
            print(done.stderr, end="", flush=True)
        raise AssertionError("the account could not be moved")


def _fault(name: str, inject: Callable[[], None], heal: Callable[[], None]) -> Fault:
    return Fault(name, inject, heal, 0.0, may_lose_writes=False)


def _nothing() -> None:
    """The move is complete."""
