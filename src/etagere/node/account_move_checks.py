"""What has to hold before an account moves from one cell to another."""

from __future__ import annotations

from typing import Final, NamedTuple

from etagere.clock import TICKS_PER_SECOND
from etagere.data_directory import CannotUse
from etagere.engine.interface import ReadTxn
from etagere.node.cell_access import CellAccess

_BEHIND_TICKS_MAX: Final = 5 * TICKS_PER_SECOND
_AHEAD_TICKS_MAX: Final = 1 * TICKS_PER_SECOND


class _Times(NamedTuple):
    """The times of a ledger."""

    now: int
    steady_now: int


def _times(txn: ReadTxn, _: None) -> _Times:
    return _Times(txn.now, txn.steady_now)


def require_nodes_in_cells(source: CellAccess, target: CellAccess) -> None:
    """Raises `CannotUse` if a node was started before its cluster became a cell: it would not
    notice that an account is frozen, or has not been handed over yet. One that is drained still
    serves requests, and one that is gone may only be paused."""
    for cell in (source, target):
        for node in cell.nodes.list():
            if not node.is_in_cell:
                raise CannotUse(
                    f"node {node.name} of cell {cell.name} was started without --account-map and "
                    "--cell; restart it, or remove it with `etagere node forget`"
                )


async def require_similar_clocks(source: CellAccess, target: CellAccess) -> None:
    """Raises `CannotUse` if the clocks of the cells differ. Times are copied unchanged. If the
    clock of the target is ahead, leases end earlier than their holders expect; leases that end
    later do no harm."""
    before = await source.engine.read(_times, None)
    there = await target.engine.read(_times, None)
    after = await source.engine.read(_times, None)
    # The reads themselves take time, which must not count.
    behind = max(here - other for here, other in zip(before, there, strict=True))
    ahead = max(other - here for here, other in zip(after, there, strict=True))
    if behind > _BEHIND_TICKS_MAX or ahead > _AHEAD_TICKS_MAX:
        seconds = max(behind, ahead) / TICKS_PER_SECOND
        raise CannotUse(
            f"the clock of cell {target.name} is {seconds:.1f} s "
            f"{'behind' if behind > ahead else 'ahead'}; it may be "
            f"{_BEHIND_TICKS_MAX // TICKS_PER_SECOND} s behind, or "
            f"{_AHEAD_TICKS_MAX // TICKS_PER_SECOND} s ahead"
        )
