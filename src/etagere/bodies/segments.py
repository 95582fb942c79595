"""The life of a segment in the ledger: opened, sealed, emptied, retired, forgotten."""

from __future__ import annotations

import msgspec

from etagere.bodies.contents import (
    COUNTERS,
    DEAD,
    DEAD_TOTALS,
    EXTENTS,
    MOVES,
    SEGMENTS,
    bury,
    reap_some,
    require_open,
)
from etagere.bodies.reaping import reap_intervals
from etagere.engine.interface import EXCLUSIVE, Engine, WriteTxn, operation
from etagere.model.base import Command, Part
from etagere.model.bodies import Counter, DeadTotal, Move, Segment, SegmentState

SEGMENT_NUMBERS = 0
_ROWS_PER_STEP = 250
_INTERVALS_PER_STEP = 200


class OpenSegment(Command, frozen=True):
    owner: bytes


@operation(reclaims=True)
def open_segment(txn: WriteTxn, command: OpenSegment) -> int:
    """The number of a new segment. Numbers are never given out twice, so that "retired" can be
    remembered for ever."""
    counter = txn.get(COUNTERS, (SEGMENT_NUMBERS,), EXCLUSIVE)
    number = (counter.last if counter else 0) + 1
    txn.put(COUNTERS, (SEGMENT_NUMBERS,), Counter(number))
    txn.put(SEGMENTS, (number,), Segment(command.owner))
    return number


class SealSegment(Command, frozen=True):
    number: int
    length: int
    start: int = 0
    """What lies before was looked at."""
    rows_max: int = _ROWS_PER_STEP


@operation(reclaims=True)
def seal_segment(txn: WriteTxn, command: SealSegment) -> int | None:
    """Nothing more will be written: what no live extent covers (uploads that were refused,
    given up, or cut off by a crash) becomes dead space. One bounded step; returns where to go on,
    or None if the segment is sealed."""
    segment = txn.get(SEGMENTS, (command.number,), EXCLUSIVE)
    if segment is None or segment.state is not SegmentState.OPEN:
        return None
    if not segment.closed:
        # From now on nothing in it comes to life: what one step finds dead is dead for the next.
        segment = msgspec.structs.replace(segment, closed=True)
        txn.put(SEGMENTS, (command.number,), segment)
    at = command.start
    covered, is_all = _covered(txn, command)
    if is_all:
        covered.append((command.length, 0))
    gaps: list[tuple[tuple[int, int], int]] = []
    for offset, length in covered:
        if offset > at:
            gaps.append(((command.number, at), offset - at))
        at = max(at, offset + length)
    bury(txn, gaps)
    if not is_all:
        return at
    sealed = msgspec.structs.replace(segment, state=SegmentState.SEALED, length=at)
    txn.put(SEGMENTS, (command.number,), sealed)
    return None


def _covered(txn: WriteTxn, command: SealSegment) -> tuple[list[tuple[int, int]], bool]:
    """The next extents, live and dead, by their offsets, and whether there are no more."""
    start = (command.number, command.start)
    span = EXTENTS.starting(EXTENTS.under((command.number,)), start)
    live = [(at, e.length) for (_, at), e in txn.scan(EXTENTS, span, command.rows_max)]
    dead = [(at, d.length) for (_, at), d in txn.scan(DEAD, span, command.rows_max)]
    # Behind the last of those that were cut off there may be others.
    ends = [rows[-1][0] for rows in (live, dead) if len(rows) == command.rows_max]
    if not ends:
        return sorted(live + dead), True
    return sorted(row for row in live + dead if row[0] <= min(ends)), False


async def seal(engine: Engine, number: int, length: int) -> None:
    """All of the steps."""
    start: int | None = 0
    while start is not None:
        start = await engine.write(seal_segment, SealSegment(number, length, start))


class Relocation(Part, frozen=True):
    """A live extent and where a copy of it was written."""

    from_segment: int
    from_offset: int
    to_segment: int
    to_offset: int


class MoveExtents(Command, frozen=True):
    relocations: tuple[Relocation, ...]


@operation(reclaims=True)
def move_extents(txn: WriteTxn, command: MoveExtents) -> int:
    """Points the ledger at copies. An extent that died while it was copied stays dead."""
    buried: list[tuple[tuple[int, int], int]] = []
    for number in sorted({step.to_segment for step in command.relocations}):
        require_open(txn, number)
    for step in command.relocations:
        old, new = (step.from_segment, step.from_offset), (step.to_segment, step.to_offset)
        seen = txn.get(EXTENTS, old)
        origin = (seen.origin if seen is not None else None) or old
        # In the order in which everybody guards the two: first the move, then the extent.
        txn.get(MOVES, origin, EXCLUSIVE)
        extent = txn.get(EXTENTS, old, EXCLUSIVE)
        if extent is None:
            continue
        txn.put(EXTENTS, new, msgspec.structs.replace(extent, origin=origin))
        txn.put(MOVES, origin, Move(*new))
        txn.delete(EXTENTS, old)
        buried.append((old, extent.length))
    bury(txn, buried)
    return len(buried)


class SegmentNumber(Command, frozen=True):
    number: int


@operation(reclaims=True)
def retire_segment(txn: WriteTxn, command: SegmentNumber) -> bool:
    """Takes a segment out of use if nothing in it is alive; says whether it is out of use."""
    segment = txn.get(SEGMENTS, (command.number,), EXCLUSIVE)
    if segment is None or segment.state is SegmentState.OPEN:
        return False
    if txn.scan(EXTENTS, EXTENTS.under((command.number,)), 1):
        return False
    retired = msgspec.structs.replace(segment, state=SegmentState.RETIRED)
    txn.put(SEGMENTS, (command.number,), retired)
    return True


@operation(reclaims=True)
def forget_segment(txn: WriteTxn, command: SegmentNumber) -> bool:
    """Removes the account of a segment whose file is gone, in bounded steps; True at the end."""
    dead = txn.scan(DEAD, DEAD.under((command.number,)), _ROWS_PER_STEP)
    for key, _ in dead:
        txn.delete(DEAD, key)
    if len(dead) == _ROWS_PER_STEP:
        total = txn.get(DEAD_TOTALS, (command.number,), EXCLUSIVE)
        if total is not None:
            left = total.length - sum(row.length for _, row in dead)
            txn.put(DEAD_TOTALS, (command.number,), DeadTotal(left))
        return False
    txn.delete(DEAD_TOTALS, (command.number,))
    txn.delete(SEGMENTS, (command.number,))
    return True


class Reap(Command, frozen=True):
    chunks_max: int = 1


@operation(reclaims=True)
def reap(txn: WriteTxn, command: Reap) -> int:
    """One bounded step of taking apart contents that nobody holds any more; returns 0 if nothing
    is left to do."""
    return reap_some(txn, command.chunks_max) or reap_intervals(txn, _INTERVALS_PER_STEP)
