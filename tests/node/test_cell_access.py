"""The engine of a command that uses a cell."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from etagere.model.cells import EndMove
from etagere.node.cell_access import CommandEngine
from etagere.node.cluster_ledger import ClusterLedger
from etagere.operations.account_moves import end_move
from etagere.settings.addresses import DatabaseAddress
from tests.loops import in_event_loop

FIRST, SECOND = EndMove("first", b""), EndMove("second", b"")


class BlockedLedger(ClusterLedger):
    """A ledger whose first write waits."""

    def __init__(self) -> None:
        super().__init__(DatabaseAddress("postgresql://127.0.0.1:1/none"))
        self.events: list[str] = []
        self.has_begun = threading.Event()
        self.may_end = threading.Event()

    def write(self, _operation: Any, command: Any) -> Any:
        self.events.append(f"{command.account} begins")
        if command is FIRST:
            self.has_begun.set()
            self.may_end.wait(10)
        self.events.append(f"{command.account} ends")


@in_event_loop
async def test_a_write_that_is_cancelled_ends_before_the_next_begins() -> None:
    ledger = BlockedLedger()
    engine = CommandEngine(ledger)
    first = asyncio.create_task(engine.write(end_move, FIRST))
    await asyncio.to_thread(ledger.has_begun.wait, 10)
    first.cancel()
    second = asyncio.create_task(engine.write(end_move, SECOND))
    asyncio.get_running_loop().call_later(0.05, ledger.may_end.set)
    await second
    with pytest.raises(asyncio.CancelledError):
        await first
    assert ledger.events == ["first begins", "first ends", "second begins", "second ends"]
    await engine.close()
