"""Compares the layout of segments in the ledger with their files."""

from __future__ import annotations

import contextlib
import heapq
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

from etagere.bodies.audit import findings as kinds
from etagere.bodies.audit.extents import where_of
from etagere.bodies.audit.findings import FileRemedy, LedgerRemedy
from etagere.bodies.audit.remedies import SetDeadTotal, set_dead_total
from etagere.bodies.audit.snapshot import Audit, CannotCheck
from etagere.bodies.contents import (
    COUNTED_DEAD,
    COUNTERS,
    DEAD_TOTALS,
    EXTENTS,
    SEGMENTS,
    UNCOUNTED_DEAD,
)
from etagere.bodies.files import DIRECTORY_NAME, segment_path
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
    extents_beyond_file: int = 0
    runs: int = 0
    end: int = 0
    dead_total: int = 0
    """The correct total of dead bytes."""
    wanted: bool = False
    """Whether anything refers to bytes of the segment, with or without a record of the extent."""


def check_segments(audit: Audit, files: dict[str, int]) -> None:
    """Compares every segment with its extents and its file. `files` are the names in the directory
    before the snapshot: each had a record then."""
    segments: dict[int, Segment | None] = {}
    for (packed,) in audit.execute("SELECT key FROM segments"):
        if isinstance(packed, bytes) and len(packed) == 8:
            segments[SEGMENTS.unpack(packed)[0]] = None
    for _, (number,), segment, _ in audit.rows(SEGMENTS):
        segments[number] = segment
    audit.report.segments = len(segments)
    _check_counter(audit, max(segments, default=0))
    totals = {number: total.length for _, (number,), total, _ in audit.rows(DEAD_TOTALS)}
    laid_out: set[int] = set()
    wanted: set[int] = set()
    for number, runs in groupby(_runs(audit), key=lambda run: run.segment):
        laid_out.add(number)
        layout = _lay_out(audit, number, runs, segments.get(number))
        if layout.wanted:
            wanted.add(number)
        if number in segments:
            _compare_total(audit, number, segments[number], layout, totals.pop(number, 0))
            _compare_with_file(audit, number, segments[number], layout)
        else:
            _find_unknown(audit, number, layout)
            if layout.runs:
                totals.pop(number, None)
    for number in sorted(segments.keys() - laid_out):
        layout = _lay_out(audit, number, iter(()), segments[number])
        _compare_total(audit, number, segments[number], layout, totals.pop(number, 0))
        _compare_with_file(audit, number, segments[number], layout)
    for number, total in sorted(totals.items()):
        _find_wrong_total(audit, number, 0, total)
    _check_files(audit, files, segments.keys() | wanted)


def _compare_total(
    audit: Audit, number: int, segment: Segment | None, layout: _Layout, total: int
) -> None:
    """Compares the total of dead bytes with what no record covers. The total of a segment that is
    being removed is not used, and a segment without a file and without used extents has nothing to
    count."""
    if segment is None or segment.state is SegmentState.RETIRED:
        return
    lost = _file_bytes(segment_path(audit.directory, number)) is None and not layout.wanted
    if layout.dead_total != total and not (lost and segment.state is SegmentState.SEALED):
        _find_wrong_total(audit, number, layout.dead_total, total)


def _find_wrong_total(audit: Audit, number: int, dead_bytes: int, total: int) -> None:
    where = f"{DIRECTORY_NAME}/{segment_path(audit.directory, number).name}"
    what = f"{dead_bytes} bytes are dead, but {total} were counted"
    remedy = LedgerRemedy(set_dead_total, SetDeadTotal(number, dead_bytes))
    audit.suspect(kinds.DEAD_TOTAL_WRONG, where, what, remedy)


def _check_counter(audit: Audit, last: int) -> None:
    numbers = {key: counter.last for _, (key,), counter, _ in audit.rows(COUNTERS)}
    recorded = numbers.get(SEGMENT_NUMBERS, 0)
    if recorded < last:
        what = f"the last segment is {last}, but {recorded} is recorded"
        audit.suspect(kinds.COUNTER_WRONG, COUNTERS.name, what)


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


def _lay_out(audit: Audit, number: int, runs: Iterator[_Run], segment: Segment | None) -> _Layout:
    """Reports overlaps, and counts the dead bytes that have no record: up to the point that sealing
    has reached, all bytes that no other record covers; behind it, what schema 1 has counted."""
    layout = _Layout()
    counted_to = _counted_to(segment)
    file_bytes = _file_bytes(segment_path(audit.directory, number))
    covered = 0
    before: _Run | None = None
    for run in runs:
        if run.kind is not _COUNTED:
            layout.dead_total += max(min(run.offset, counted_to) - covered, 0)
            covered = max(covered, run.end)
        elif run.offset >= counted_to:
            layout.dead_total += run.length
        layout.wanted = layout.wanted or run.kind in (_EXTENT, _MISSING)
        if run.kind is _MISSING:
            continue
        layout.runs += 1
        layout.end = max(layout.end, run.end)
        if run.kind is _EXTENT:
            layout.extents += 1
            layout.extents_end = max(layout.extents_end, run.end)
            layout.extents_beyond_file += file_bytes is None or run.end > file_bytes
        if before is not None and run.offset < before.end:
            what = f"{run.length} bytes ({run.kind}) begin inside "
            what += f"the {before.length} bytes at {before.offset} ({before.kind})"
            audit.find(kinds.EXTENTS_OVERLAP, where_of(audit, number, run.offset), what)
        if before is None or run.end > before.end:
            before = run
    layout.dead_total += max(counted_to - covered, 0)
    return layout


def _counted_to(segment: Segment | None) -> int:
    if segment is None:
        return 0
    return segment.counted_to if segment.state is SegmentState.OPEN else segment.length


def _compare_with_file(audit: Audit, number: int, segment: Segment | None, layout: _Layout) -> None:
    path = segment_path(audit.directory, number)
    where = f"{DIRECTORY_NAME}/{path.name}"
    file_bytes = _file_bytes(path)
    if layout.extents_beyond_file:
        users = audit.users_of_segment(number)
        if file_bytes is None:
            what = f"the file is missing; it has {layout.extents} extents, used by {users}"
            audit.find(kinds.SEGMENT_MISSING, where, what)
        else:
            what = f"the file ends at {file_bytes}, its extents at {layout.extents_end}; "
            what += f"{layout.extents_beyond_file} of {layout.extents} are cut off. "
            what += f"The segment is used by {users}"
            audit.find(kinds.SEGMENT_SHORT, where, what)
    if segment is None:
        return
    if segment.state is SegmentState.RETIRED and layout.extents:
        what = f"is marked for removal, but has {layout.extents} extents, "
        what += f"used by {audit.users_of_segment(number)}"
        audit.find(kinds.SEGMENT_RETIRED, where, what)
    elif segment.state is SegmentState.SEALED:
        _compare_sealed(audit, number, segment, layout)


def _compare_sealed(audit: Audit, number: int, segment: Segment, layout: _Layout) -> None:
    path = segment_path(audit.directory, number)
    where = f"{DIRECTORY_NAME}/{path.name}"
    file_bytes = _file_bytes(path)
    if layout.end > segment.length:
        what = f"was sealed with {segment.length} bytes, but records reach to {layout.end}"
        audit.find(kinds.SEGMENT_LENGTH_WRONG, where, what)
    elif file_bytes is None and segment.length and not layout.wanted:
        remedy = LedgerRemedy(forget_segment, SegmentNumber(number))
        what = "there is neither a file nor anything in use in it"
        audit.suspect(kinds.SEGMENT_EMPTY, where, what, remedy)
    elif file_bytes is not None and file_bytes > segment.length:
        what = f"has {file_bytes} bytes, but was sealed with {segment.length}"
        audit.suspect(kinds.FILE_TOO_LONG, where, what, FileRemedy(path, segment.length))


def _find_unknown(audit: Audit, number: int, layout: _Layout) -> None:
    """Reports extents or dead space of a segment without a record."""
    path = segment_path(audit.directory, number)
    where = f"{DIRECTORY_NAME}/{path.name}"
    if layout.extents:
        users = audit.users_of_segment(number)
        what = f"has {layout.extents} extents, used by {users}, but no record of its own"
        audit.find(kinds.SEGMENT_UNKNOWN, where, what)
        _compare_with_file(audit, number, None, layout)
    elif layout.runs:
        remedy = LedgerRemedy(forget_segment, SegmentNumber(number))
        what = f"{layout.runs} records of dead space are left of a segment that is gone"
        audit.suspect(kinds.DEAD_UNUSED, where, what, remedy)


def list_files(directory: Path) -> dict[str, int]:
    """Returns the names and sizes of the files in the directory of segments."""
    sizes: dict[str, int] = {}
    try:
        for path in (directory / DIRECTORY_NAME).iterdir():
            # A running server may remove files meanwhile.
            with contextlib.suppress(FileNotFoundError):
                sizes[path.name] = path.lstat().st_size
        return sizes
    except FileNotFoundError:
        return sizes
    except OSError as error:
        raise CannotCheck(f"{error.filename} cannot be read: {error.strerror}") from error


def _check_files(audit: Audit, files: dict[str, int], known: set[int]) -> None:
    for name, size in sorted(files.items()):
        path = audit.directory / DIRECTORY_NAME / name
        where = f"{DIRECTORY_NAME}/{name}"
        number = _number_of(audit.directory, name)
        if number is None:
            audit.find(kinds.FILE_STRANGE, where, "is not the name of a segment")
        elif number not in known and path.exists():
            # A running server may have removed the file and its record meanwhile.
            what = f"the ledger knows nothing of this file of {size} bytes"
            audit.suspect(kinds.FILE_UNUSED, where, what, FileRemedy(path))


def _number_of(directory: Path, name: str) -> int | None:
    try:
        number = int(name.removesuffix(".seg"), 16)
    except ValueError:
        return None
    return number if number >= 0 and segment_path(directory, number).name == name else None


def _file_bytes(path: Path) -> int | None:
    """Returns the size of a file; None if there is none."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise CannotCheck(f"{path} cannot be read: {error.strerror}") from error
    return found.st_size if stat.S_ISREG(found.st_mode) else None
