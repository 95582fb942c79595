"""What has to hold before an account moves: the clocks of the cells."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest

from etagere.clock import TICKS_PER_SECOND
from etagere.data_directory import CannotUse
from etagere.engine.memory import MemoryEngine
from etagere.node.account_move_checks import require_similar_clocks
from etagere.node.cell_access import CellAccess
from tests.clocks import SharedClock
from tests.loops import in_event_loop


def cell(name: str, ahead_seconds: float = 0.0) -> CellAccess:
    clock = SharedClock()
    clock.wall_offset = round(ahead_seconds * TICKS_PER_SECOND)
    return cast(CellAccess, SimpleNamespace(name=name, engine=MemoryEngine(clock)))


@pytest.mark.parametrize(
    ("ahead_seconds", "is_allowed"),
    [(0.0, True), (0.9, True), (-4.5, True), (3.0, False), (-20.0, False)],
)
@in_event_loop
async def test_clocks(ahead_seconds: float, is_allowed: bool) -> None:
    source, target = cell("one"), cell("two", ahead_seconds)
    if is_allowed:
        await require_similar_clocks(source, target)
        return
    side = "ahead" if ahead_seconds > 0 else "behind"
    with pytest.raises(CannotUse, match=rf"cell two is [\d.]+ s {side}; it may be 5 s behind"):
        await require_similar_clocks(source, target)
