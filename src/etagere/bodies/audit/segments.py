"""Compares the layout of segments in the ledger with what is stored of them."""

from __future__ import annotations

import heapq
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import NamedTuple

from etagere.bodies.audit import findings as kinds
from etagere.bodies.audit.audited_segments import AuditedSegments
from etagere.bodies.audit.extents import where_of
from etagere.bodies.audit.findings import LedgerRemedy
from etagere.bodies.audit.remedies import SetDeadTotal, set_dead_total
from etagere.bodies.audit.snapshot import Audit
from etagere.bodies.contents import (
    COUNTED_DEAD,
    COUNTERS,
    DEAD_TOTALS,
    EXTENTS,
    SEGMENTS,
    UNCOUNTED_DEAD,
)
from etagere.bodies.segment_files import DIRECTORY_NAME
from etagere.bodies.segments import SEGMENT_NUMBERS, SegmentNumber, forget_segment
from etagere.model.bodies import Segment, SegmentState

_EXTENT, _DEAD, _COUNTED, _MISSING = "extent", "dead space", "counted dead space", "missing extent"


class _Run(NamedTuple):
    """A run of bytes of a segment that a record describes."""

    segment: int
    offset: int
    length: int
    kind: str

    @property
    def end(self) -> int:
        return self.offset + self.length


@dataclass
class _Layout:
    """A summary of the runs of one segment."""

    extents: int = 0
    extents_end: int = 0
    extents_lost: int = 0
    """Extents that are not stored, or not completely."""
    runs: int = 0
    end: int = 0
    dead_total: int = 0
    """The correct total of dead bytes."""
    wanted: bool = False
    """Whether anything refers to bytes of the segment, with or without a record of the extent."""


def check_segments(audit: Audit, stored: AuditedSegments, names: dict[str, int]) -> None:
    """Compares every segment with its extents and with what is stored. `names` are what was stored
    before the snapshot: each segment had a record then, unless it may be newer."""
    segments: dict[int, Segment | None] = {}
    for (packed,) in audit.execute("SELECT key FROM segments"):
        if isinstance(packed, bytes) and len(packed) == 8:
            segments[SEGMENTS.unpack(packed)[0]] = None
    for _, (number,), segment, _ in audit.rows(SEGMENTS):
        segments[number] = segment
    audit.report.segments = len(segments)
    last = _check_counter(audit, max(segments, default=0))
    totals = {number: total.length for _, (number,), total, _ in audit.rows(DEAD_TOTALS)}
    laid_out: set[int] = set()
    wanted: set[int] = set()
    for number, runs in groupby(_runs(audit), key=lambda run: run.segment):
        laid_out.add(number)
        layout = _summarize(audit, stored, number, runs, segments.get(number))
        if layout.wanted:
            wanted.add(number)
        if number in segments:
            _compare_total(audit, stored, number, segments[number], layout, totals.pop(number, 0))
            _compare_with_stored(audit, stored, number, segments[number], layout)
        else:
            _find_unknown(audit, stored, number, layout)
            if layout.runs:
                totals.pop(number, None)
    for number in sorted(segments.keys() - laid_out):
        layout = _summarize(audit, stored, number, iter(()), segments[number])
        _compare_total(audit, stored, number, segments[number], layout, totals.pop(number, 0))
        _compare_with_stored(audit, stored, number, segments[number], layout)
    for number, total in sorted(totals.items()):
        _find_wrong_total(audit, stored, number, 0, total)
    _check_names(audit, stored, names, segments.keys() | wanted, last)


def _compare_total(
    audit: Audit,
    stored: AuditedSegments,
    number: int,
    segment: Segment | None,
    layout: _Layout,
    total: int,
) -> None:
    """Compares the total of dead bytes with what no record covers. The total of a segment that is
    being removed is not used, and a segment without a file and without used extents has nothing to
    count."""
    if segment is None or segment.state is SegmentState.RETIRED:
        return
    lost = stored.size(number) is None and not layout.wanted
    if layout.dead_total != total and not (lost and segment.state is SegmentState.SEALED):
        _find_wrong_total(audit, stored, number, layout.dead_total, total)


def _find_wrong_total(
    audit: Audit, stored: AuditedSegments, number: int, dead_bytes: int, total: int
) -> None:
    where = stored.where(number)
    what = f"{dead_bytes} bytes are dead, but {total} were counted"
    remedy = LedgerRemedy(set_dead_total, SetDeadTotal(number, dead_bytes))
    audit.suspect(kinds.DEAD_TOTAL_WRONG, where, what, remedy)


def _check_counter(audit: Audit, last: int) -> int:
    """Returns the last number of a segment that was used."""
    numbers = {key: counter.last for _, (key,), counter, _ in audit.rows(COUNTERS)}
    recorded = numbers.get(SEGMENT_NUMBERS, 0)
    if recorded < last:
        what = f"the last segment is {last}, but {recorded} is recorded"
        audit.suspect(kinds.COUNTER_WRONG, COUNTERS.name, what)
    return max(recorded, last)


def _runs(audit: Audit) -> Iterator[_Run]:
    """Yields all runs of bytes in segments, in order."""
    extents = (
        _Run(*place, extent.length, _EXTENT)
        for _, place, extent, _ in audit.rows(EXTENTS, first_time=False)
    )
    dead = (
        _Run(*place, record.length, _DEAD) for _, place, record, _ in audit.rows(UNCOUNTED_DEAD)
    )
    counted = (
        _Run(*place, record.length, _COUNTED) for _, place, record, _ in audit.rows(COUNTED_DEAD)
    )
    rows = audit.execute(
        "SELECT place, reach FROM audit_references r "
        "WHERE NOT EXISTS (SELECT 1 FROM extents t WHERE t.key = r.place) ORDER BY place"
    )
    missing = (_Run(*EXTENTS.unpack(place), reach, _MISSING) for place, reach in rows)
    return heapq.merge(extents, dead, counted, missing, key=lambda run: (run.segment, run.offset))


def _summarize(
    audit: Audit,
    stored: AuditedSegments,
    number: int,
    runs: Iterator[_Run],
    segment: Segment | None,
) -> _Layout:
    """Reports overlaps, and counts the dead bytes that have no record: of the bytes that sealing
    has counted, those that no other record covers; of the others, what schema 1 has counted."""
    layout = _Layout()
    counted_to, layout.dead_total = _counted(segment)
    covered_to = 0
    before: _Run | None = None
    for run in runs:
        if run.kind is _COUNTED:
            layout.dead_total += run.length if run.offset >= counted_to else 0
        elif run.offset < counted_to:
            layout.dead_total -= max(run.end - max(run.offset, covered_to), 0)
            covered_to = max(covered_to, run.end)
        layout.wanted = layout.wanted or run.kind in (_EXTENT, _MISSING)
        if run.kind is _MISSING:
            continue
        layout.runs += 1
        end = run.end if stored.is_contiguous else layout.end + run.length
        layout.end = max(layout.end, end)
        if run.kind is _EXTENT:
            layout.extents += 1
            layout.extents_end = max(layout.extents_end, run.end)
            layout.extents_lost += not stored.contains(number, run.offset, run.end)
        if before is not None and run.offset < before.end:
            what = f"{run.length} bytes ({run.kind}) begin inside "
            what += f"the {before.length} bytes at {before.offset} ({before.kind})"
            audit.find(kinds.EXTENTS_OVERLAP, where_of(audit, number, run.offset), what)
        if before is None or run.end > before.end:
            before = run
    layout.dead_total = max(layout.dead_total, 0)
    return layout


def _counted(segment: Segment | None) -> tuple[int, int]:
    """Returns the offset up to which sealing has counted, and the number of bytes."""
    if segment is None:
        return 0, 0
    if segment.state is not SegmentState.OPEN:
        return sys.maxsize, segment.length
    return segment.counted_to, segment.covered_bytes or segment.counted_to


def _compare_with_stored(
    audit: Audit, stored: AuditedSegments, number: int, segment: Segment | None, layout: _Layout
) -> None:
    where = stored.where(number)
    size = stored.size(number)
    if layout.extents_lost:
        users = audit.users_of_segment(number)
        if size is None:
            verb = "is" if stored.is_contiguous else "are"
            what = f"the {stored.noun} {verb} missing; it has {layout.extents} extents, "
            audit.find(kinds.SEGMENT_MISSING, where, f"{what}used by {users}")
        else:
            if stored.is_contiguous:
                what = f"the {stored.noun} ends at {size}, its extents at {layout.extents_end}; "
            else:
                what = f"some of the {stored.noun} are missing or too short; "
            what += f"{layout.extents_lost} of {layout.extents} are cut off. "
            what += f"The segment is used by {users}"
            audit.find(kinds.SEGMENT_SHORT, where, what)
    if segment is None:
        return
    if segment.state is SegmentState.RETIRED and layout.extents:
        what = f"is marked for removal, but has {layout.extents} extents, "
        what += f"used by {audit.users_of_segment(number)}"
        audit.find(kinds.SEGMENT_RETIRED, where, what)
    elif segment.state is SegmentState.SEALED:
        _compare_sealed(audit, stored, number, segment, layout)


def _compare_sealed(
    audit: Audit, stored: AuditedSegments, number: int, segment: Segment, layout: _Layout
) -> None:
    where = stored.where(number)
    size = stored.size(number)
    if layout.end > segment.length:
        what = f"was sealed with {segment.length} bytes, but records reach to {layout.end}"
        audit.find(kinds.SEGMENT_LENGTH_WRONG, where, what)
    elif size is None and segment.length and not layout.wanted:
        remedy = LedgerRemedy(forget_segment, SegmentNumber(number))
        what = f"there is neither a {stored.noun} nor anything in use in it"
        audit.suspect(kinds.SEGMENT_EMPTY, where, what, remedy)
    elif size is not None and size > segment.length:
        truncation = stored.truncation(number, segment.length)
        if truncation is not None:
            what = f"has {size} bytes, but was sealed with {segment.length}"
            audit.suspect(kinds.FILE_TOO_LONG, where, what, truncation)


def _find_unknown(audit: Audit, stored: AuditedSegments, number: int, layout: _Layout) -> None:
    """Reports extents or dead space of a segment without a record."""
    where = stored.where(number)
    if layout.extents:
        users = audit.users_of_segment(number)
        what = f"has {layout.extents} extents, used by {users}, but no record of its own"
        audit.find(kinds.SEGMENT_UNKNOWN, where, what)
        _compare_with_stored(audit, stored, number, None, layout)
    elif layout.runs:
        remedy = LedgerRemedy(forget_segment, SegmentNumber(number))
        what = f"{layout.runs} records of dead space are left of a segment that is gone"
        audit.suspect(kinds.DEAD_UNUSED, where, what, remedy)


def _check_names(
    audit: Audit, stored: AuditedSegments, names: dict[str, int], known: set[int], last: int
) -> None:
    for name, size in sorted(names.items()):
        where = f"{DIRECTORY_NAME}/{name}"
        number = stored.number_of(name)
        if number is None:
            audit.find(kinds.FILE_STRANGE, where, "is not the name of a segment")
        elif number not in known and not (stored.may_be_newer and number > last):
            remedy = stored.removal(name)
            if remedy is not None:
                what = f"the ledger knows nothing of this {stored.noun} of {size} bytes"
                audit.suspect(kinds.FILE_UNUSED, where, what, remedy)
