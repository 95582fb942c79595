"""Removes the data of accounts that have moved to another cell. Imported only by nodes and commands
with an account map."""

from __future__ import annotations

from typing import Final

from etagere.coordination.interface import Coordinator
from etagere.engine.interface import Engine
from etagere.jobs.purging import Work, purge
from etagere.model.cells import PurgeMovedAccounts
from etagere.operations import account_purging

TASK: Final = "purging accounts"
PAUSE_SECONDS: Final = 5.0
"""The pause between two rounds."""
_WORK: Final[Work] = {
    account_purging.may_purge: ((account_purging.purge_moved_accounts, PurgeMovedAccounts()),)
}


async def purge_accounts(engine: Engine, coordinator: Coordinator) -> None:
    """Runs one round. What is in the containers, queues, tables and shares of these accounts is
    removed by the other purging job."""
    await purge(engine, coordinator, _WORK, TASK)
