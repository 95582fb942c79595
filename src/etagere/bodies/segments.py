"""The life cycle of segments in the ledger: opened, sealed, compacted, retired, forgotten."""

from __future__ import annotations

from collections import Counter
from typing import Any, NamedTuple

from msgspec.structs import replace

from etagere.bodies.contents import (
    COUNTED_DEAD,
    COUNTERS,
    DEAD_TOTALS,
    EXTENTS,
    MOVES,
    SEGMENTS,
    UNCOUNTED_DEAD,
    add_to_dead_total,
    reap_some,
    require_open,
)
from etagere.bodies.reaping import reap_intervals
from etagere.engine.interface import EXCLUSIVE, SHARED, Engine, WriteTxn, operation
from etagere.engine.records import Collection
from etagere.model.base import Command, Part
from etagere.model.bodies import Counter as LastNumber
from etagere.model.bodies import DeadExtent, Move, Segment, SegmentState

SEGMENT_NUMBERS = 0
_ROWS_PER_STEP = 250
_INTERVALS_PER_STEP = 200


class OpenSegment(Command, frozen=True):
    owner: bytes


@operation(reclaims=True)
def open_segment(txn: WriteTxn, command: OpenSegment) -> int:
    """Returns the number of a new segment. Numbers are never reused, so a retired segment stays
    retired."""
    counter = txn.get(COUNTERS, (SEGMENT_NUMBERS,), EXCLUSIVE)
    number = (counter.last if counter else 0) + 1
    txn.put(COUNTERS, (SEGMENT_NUMBERS,), LastNumber(number))
    txn.put(SEGMENTS, (number,), Segment(command.owner))
    return number


class SealSegment(Command, frozen=True):
    number: int
    length: int
    """The number of bytes that are stored in the segment."""
    rows_max: int = _ROWS_PER_STEP


@operation(reclaims=True)
def seal_segment(txn: WriteTxn, command: SealSegment) -> bool:
    """Counts the dead bytes of a segment that nothing more is written to, in bounded steps. Bytes
    that no extent covers are dead: uploads that were refused, abandoned, or interrupted by a crash.
    They are what is left of the stored bytes, since offsets need not be contiguous. Returns whether
    the segment is sealed."""
    segment = txn.get(SEGMENTS, (command.number,), EXCLUSIVE)
    if segment is None or segment.state is not SegmentState.OPEN:
        return True
    at = segment.counted_to
    covered = segment.covered_bytes or at  # earlier versions counted the bytes between extents too
    found = _next_extents(txn, command, at)
    for offset, length in found.covered:
        covered += max(offset + length - max(offset, at), 0)
        at = max(at, offset + length)
    dead = sum(length for _, length in found.uncounted)
    for offset, _ in found.uncounted:
        txn.delete(UNCOUNTED_DEAD, (command.number, offset))
    # A closed segment gets no new extents, so bytes that one step counts as dead stay dead.
    sealed = replace(segment, closed=True, counted_to=at, covered_bytes=covered)
    if found.is_rest:
        length = max(command.length, covered)
        dead += length - covered
        sealed = replace(sealed, state=SegmentState.SEALED, length=length)
    add_to_dead_total(txn, command.number, dead)
    txn.put(SEGMENTS, (command.number,), sealed)
    return found.is_rest


class _Extents(NamedTuple):
    """The next extents of a segment, each by its offset and length."""

    covered: list[tuple[int, int]]
    """All extents, live and dead, in order."""
    uncounted: list[tuple[int, int]]
    """The dead extents that no total contains."""
    is_rest: bool


def _next_extents(txn: WriteTxn, command: SealSegment, start: int) -> _Extents:
    def scan(collection: Collection[tuple[int, int], Any]) -> list[tuple[int, int]]:
        span = collection.starting(collection.under((number,)), (number, start))
        return [(at, row.length) for (_, at), row in txn.scan(collection, span, rows_max)]

    number, rows_max = command.number, command.rows_max
    # Live extents come first. An extent that dies in between is then found twice, and counted once;
    # in the opposite order it would be found in neither, and counted again later.
    found = [scan(EXTENTS), scan(COUNTED_DEAD), scan(UNCOUNTED_DEAD)]
    # A collection whose scan reached its limit may have more extents behind the last one.
    ends = [rows[-1][0] for rows in found if len(rows) == rows_max]
    if ends:
        found = [[row for row in rows if row[0] <= min(ends)] for rows in found]
    live, counted, uncounted = found
    return _Extents(sorted(live + counted + uncounted), uncounted, not ends)


async def seal(engine: Engine, number: int, length: int) -> None:
    """Seals a segment, in as many steps as it takes."""
    while not await engine.write(seal_segment, SealSegment(number, length)):
        pass


class CountDead(Command, frozen=True):
    segments: tuple[int, ...]
    rows_max: int = _ROWS_PER_STEP


@operation(reclaims=True)
def count_dead(txn: WriteTxn, command: CountDead) -> bool:
    """Adds dead extents of sealed segments to the totals, and deletes their records, in bounded
    steps; returns whether there may be more to count. Those of open segments stay: sealing needs
    them to find what no extent covers."""
    found: list[tuple[tuple[int, int], DeadExtent]] = []
    # All scans come before the first change: a scan after a change costs the writer a savepoint.
    for number in command.segments:
        segment = txn.get(SEGMENTS, (number,), SHARED)
        if segment is None or segment.state is not SegmentState.SEALED:
            continue
        span, left = UNCOUNTED_DEAD.under((number,)), command.rows_max - len(found)
        found += txn.scan(UNCOUNTED_DEAD, span, left, claim=True)
        if len(found) == command.rows_max:
            break
    totals: Counter[int] = Counter()
    for place, dead in found:
        txn.delete(UNCOUNTED_DEAD, place)
        totals[place[0]] += dead.length
    for number in sorted(totals):
        add_to_dead_total(txn, number, totals[number])
    return len(found) == command.rows_max


class Relocation(Part, frozen=True):
    """A live extent, and the place of its copy."""

    from_segment: int
    from_offset: int
    to_segment: int
    to_offset: int


class MoveExtents(Command, frozen=True):
    relocations: tuple[Relocation, ...]


@operation(reclaims=True)
def move_extents(txn: WriteTxn, command: MoveExtents) -> int:
    """Makes the ledger refer to copies of extents. Extents that died while they were copied stay
    dead."""
    dead: Counter[int] = Counter()
    moved = 0
    for number in sorted({step.to_segment for step in command.relocations}):
        require_open(txn, number)
    for step in command.relocations:
        old, new = (step.from_segment, step.from_offset), (step.to_segment, step.to_offset)
        seen = txn.get(EXTENTS, old)
        origin = (seen.origin if seen is not None else None) or old
        # All operations guard the two in this order: first the move, then the extent.
        txn.get(MOVES, origin, EXCLUSIVE)
        extent = txn.get(EXTENTS, old, EXCLUSIVE)
        if extent is None:
            continue
        txn.put(EXTENTS, new, replace(extent, origin=origin))
        txn.put(MOVES, origin, Move(*new))
        txn.delete(EXTENTS, old)
        # Only the collector changes the totals of sealed segments, so nobody waits for this one.
        dead[step.from_segment] += extent.length
        moved += 1
    for number in sorted(dead):
        add_to_dead_total(txn, number, dead[number])
    return moved


class SegmentNumber(Command, frozen=True):
    number: int


@operation(reclaims=True)
def retire_segment(txn: WriteTxn, command: SegmentNumber) -> bool:
    """Retires a segment if nothing in it is alive; returns whether it is retired."""
    segment = txn.get(SEGMENTS, (command.number,), EXCLUSIVE)
    if segment is None or segment.state is SegmentState.OPEN:
        return False
    if txn.scan(EXTENTS, EXTENTS.under((command.number,)), 1):
        return False
    retired = replace(segment, state=SegmentState.RETIRED)
    txn.put(SEGMENTS, (command.number,), retired)
    return True


@operation(reclaims=True)
def forget_segment(txn: WriteTxn, command: SegmentNumber) -> bool:
    """Removes the records of a segment whose file is gone, in bounded steps; True at the end."""
    for collection in (UNCOUNTED_DEAD, COUNTED_DEAD):
        rows = txn.scan(collection, collection.under((command.number,)), _ROWS_PER_STEP)
        for place, _ in rows:
            txn.delete(collection, place)
        if len(rows) == _ROWS_PER_STEP:
            return False
    txn.delete(DEAD_TOTALS, (command.number,))
    txn.delete(SEGMENTS, (command.number,))
    return True


class Reap(Command, frozen=True):
    chunks_max: int = 1


@operation(reclaims=True)
def reap(txn: WriteTxn, command: Reap) -> int:
    """Releases contents without holders, in one bounded step; returns 0 if nothing is left to
    do."""
    return reap_some(txn, command.chunks_max) or reap_intervals(txn, _INTERVALS_PER_STEP)
