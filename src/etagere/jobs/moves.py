"""Completes or cancels moves of accounts whose command has ended.

A command that is killed may leave an account that cannot be written to, or that no cell serves. In
the source, a job cancels the move, or, if it can no longer be cancelled, records it in the account
map. The entry of the map shows the target that it may serve the account.
"""

from __future__ import annotations

import logging
from typing import Final

from etagere.cells.account_map import AccountMap
from etagere.coordination.interface import Coordinator
from etagere.engine.interface import Engine
from etagere.jobs.registering import Write
from etagere.model.cells import (
    AccountCell,
    AccountMove,
    CancelMove,
    EndMove,
    FinishMove,
    MoveState,
    RecordMove,
)
from etagere.operations.account_map import record_move
from etagere.operations.account_moves import (
    cancel_move,
    end_move,
    finish_move,
    get_move,
    list_unfinished,
)

logger = logging.getLogger(__name__)

MOVES_SECONDS: Final = 3.0
"""The interval of the check for moves whose command has ended."""


def task_of(account: str) -> str:
    """Returns the name of the task that a command has in the source while it moves an account."""
    return f"move of account {account}"


class MoveRecovery:
    """Completes or cancels the moves of a cell."""

    def __init__(
        self, engine: Engine, coordinator: Coordinator, account_map: AccountMap, write: Write
    ) -> None:
        """`engine` is that of the cell's ledger; `write` writes to the ledger with the map."""
        self._engine = engine
        self._coordinator = coordinator
        self._map = account_map
        self._write = write

    async def run(self) -> None:
        """Runs one round. An error with one account does not prevent the others: a move can be
        cancelled while the map is unavailable."""
        errors: list[Exception] = []
        for account, move in (await self._engine.read(list_unfinished, None)).items():
            try:
                await self._recover(account, move)
            except Exception as error:
                errors.append(error)
        if errors:
            raise errors[0]

    async def _recover(self, account: str, move: AccountMove) -> None:
        if move.state is MoveState.INCOMING:
            await self._serve_if_moved(account, move)
            return
        async with self._coordinator.sole_worker(task_of(account)) as lock:
            if lock is not None:
                await self._end(account, move)

    async def _serve_if_moved(self, account: str, move: AccountMove) -> None:
        """Serves an account that has arrived, if the source has recorded that it has moved."""
        entry = await self._map.stored_entry(account)
        if entry == AccountCell(self._map.own_cell, move.move_id):
            await self._engine.write(end_move, EndMove(account, move.move_id))
            logger.warning("completed the move of account %s from cell %s", account, move.cell)

    async def _end(self, account: str, move: AccountMove) -> None:
        """Ends a move of the source that no command works on."""
        if await self._engine.write(cancel_move, CancelMove(account, move.move_id)):
            logger.warning(
                "cancelled the move of account %s to cell %s: its command has ended",
                account,
                move.cell,
            )
        else:
            await self._record(account)

    async def _record(self, account: str) -> None:
        """Records in the map that an account has moved."""
        # Read first: if the account returns meanwhile, the map changes, and this entry is refused.
        known = await self._map.stored_entry(account)
        move = await self._engine.read(get_move, account)
        if move is None or move.state is not MoveState.MOVED:
            return
        # If the map names a third cell, the account has moved on since.
        if known is None or known.cell in (self._map.own_cell, move.cell):
            moved = AccountCell(move.cell, move.move_id)
            if not await self._write(record_move, RecordMove(account, moved, known)):
                return
            logger.warning("recorded that account %s has moved to cell %s", account, move.cell)
        await self._engine.write(finish_move, FinishMove(account, move.move_id))
