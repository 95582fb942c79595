"""Lookup and relaying for several cells, in a front end.

Imported only by nodes with an account map.
"""

from __future__ import annotations

from etagere.cells.account_map import AccountMap
from etagere.engine.interface import Engine
from etagere.model.accounts import BUILT_IN
from etagere.protocol.connections.memory import MemoryBudget
from etagere.protocol.relay.relaying import Relay
from etagere.protocol.rest.cells import Cells
from etagere.settings import Settings


def cells_of(
    engine: Engine,
    account_map: AccountMap,
    settings: Settings,
    memory: MemoryBudget,
    front_ends: int,
) -> Cells:
    """Returns the cells as the services of a front end use them, one of `front_ends`."""
    configured = {*BUILT_IN, *(account.name for account in settings.accounts)}
    relay = Relay(account_map, account_map.secret, memory, front_ends)
    return Cells(engine, account_map, configured, relay)
