"""Moving an account to another cell: opens both cells and reports errors to the command."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterator
from typing import NamedTuple

from etagere.bodies.contents import MissingRecord
from etagere.coordination.interface import CoordinatorUnavailable
from etagere.data_directory import CannotUse
from etagere.engine.interface import Conflict, Fault, FaultReason, T, Unknown, abort_if
from etagere.engine.postgres.running_transactions import StillRunning
from etagere.model.cells import KEEP_SECONDS
from etagere.node.account_move_steps import Moved, Report
from etagere.node.account_mover import AccountMover
from etagere.node.cell_access import CellLocation, identify, location_of, open_cell
from etagere.node.cluster_ledger import ClusterLedger
from etagere.rules.accounts import check_changeable
from etagere.settings import Settings
from etagere.settings.addresses import DatabaseAddress


class MoveEndpoints(NamedTuple):
    """The two cells of a move, and the ledger with the account map."""

    source: CellLocation
    target: CellLocation
    account_map: DatabaseAddress


def endpoints_of(source: Settings, target: Settings) -> MoveEndpoints:
    """Returns the cells of nodes with these settings, which have the same account map."""
    assert source.account_map is not None
    return MoveEndpoints(location_of(source), location_of(target), source.account_map)


def move_account(
    account: str,
    endpoints: MoveEndpoints,
    *,
    keep_seconds: int = KEEP_SECONDS,
    report: Report = lambda _: None,
    copied: Callable[[int], None] = lambda _: None,
) -> Moved:
    """Moves an account, or continues a move that was interrupted. The nodes of the source remove it
    after this many seconds. Raises `CannotUse`, `ExtentsDamaged` or `Refused`."""
    return _run(account, endpoints, lambda mover: mover.move(keep_seconds), report, copied)


def cancel_move(account: str, endpoints: MoveEndpoints) -> None:
    """Cancels a move that was interrupted. Raises `CannotUse` or `Refused`."""
    _run(account, endpoints, AccountMover.cancel, lambda _: None, lambda _: None)


def _run(
    account: str,
    endpoints: MoveEndpoints,
    act: Callable[[AccountMover], Awaitable[T]],
    report: Report,
    copied: Callable[[int], None],
) -> T:
    abort_if(check_changeable(account))
    source, target, account_map = endpoints
    with (
        _raising_cannot_use(),
        ClusterLedger(source.engine) as source_ledger,
        ClusterLedger(target.engine) as target_ledger,
        ClusterLedger(account_map) as map_ledger,
    ):
        if identify(source, source_ledger).id == identify(target, target_ledger).id:
            raise CannotUse(f"{source.engine} and {target.engine} are the same cell")

        async def act_on_cells() -> T:
            name = f"move of account {account}"
            async with (
                open_cell(source, source_ledger, name) as source_cell,
                open_cell(target, target_ledger, name) as target_cell,
            ):
                mover = AccountMover(account, source_cell, target_cell, map_ledger, report, copied)
                return await act(mover)

        return asyncio.run(act_on_cells())


@contextlib.contextmanager
def _raising_cannot_use() -> Iterator[None]:
    """Raises `CannotUse`, with a message of one line, instead of the errors of a move."""
    try:
        yield
    except StillRunning as error:
        raise CannotUse(f"{error}; run the command again") from error
    except CoordinatorUnavailable as error:
        raise CannotUse(f"a cell cannot be used: {error}") from error
    except Unknown as error:
        raise CannotUse(f"the outcome is unknown; run the command again: {error}") from error
    except Conflict as error:
        raise CannotUse("another command has changed the account; run this one again") from error
    except MissingRecord as error:
        raise CannotUse(f"{error} is missing; run `etagere check`") from error
    except Fault as fault:
        advice = "; free some space" if fault.reason is FaultReason.DISK_FULL else ""
        text = f"the move failed: {fault.detail}{advice}; run the command again"
        raise CannotUse(text) from fault
