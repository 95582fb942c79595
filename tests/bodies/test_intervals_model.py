"""Interval maps compared with plain bytes: after any sequence of changes, every held content has
exactly its own bytes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

import pytest
from awscrt.checksums import crc64nvme
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from etagere.bodies import folding, intervals, reaping
from etagere.bodies.contents import EXTENTS, share
from etagere.bodies.maps import (
    FORMER_INTERVALS,
    GENERATIONS,
    INTERVAL_MAPS,
    INTERVALS,
    MAPS_TO_FLATTEN,
    MAPS_TO_REAP,
    is_held,
    parts,
)
from etagere.bodies.plans import Hole, Plan, SegmentRange
from etagere.bodies.reaping import Flatten, flatten, reap_intervals
from etagere.engine.interface import T, WriteTxn
from etagere.model.bodies import Body, Mapped, Piece
from etagere.model.ids import new_id
from tests.model.ledger_fixture import LedgerFixture

LENGTH_MAX = 40
HELD_MAX = 8

Byte = tuple[int, int, int] | int | None
"""One byte: its extent and its offset there, the byte itself if inline, or None in a hole."""
Shown = tuple[int, int] | int | None


@dataclass
class ModelContent:
    """A content and its expected bytes."""

    content: Mapped
    shows: list[Byte]


def bytes_of(piece: Piece) -> list[Byte]:
    return [(piece.segment, piece.offset, piece.skip + at) for at in range(piece.length)]


def shown(plan: Plan) -> list[Shown]:
    found: list[Shown] = []
    for segment_range in (plan,) if isinstance(plan, bytes) else plan:
        if isinstance(segment_range, bytes):
            found += segment_range
        elif isinstance(segment_range, Hole):
            found += [None] * segment_range.length
        else:
            assert isinstance(segment_range, SegmentRange)
            found += [
                (segment_range.segment, segment_range.offset + at)
                for at in range(segment_range.length)
            ]
    return found


def places(shows: list[Byte]) -> list[Shown]:
    return [(byte[0], byte[1] + byte[2]) if isinstance(byte, tuple) else byte for byte in shows]


def written_ranges(shows: list[Byte], start: int, end: int) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    for at in range(start, min(end, len(shows))):
        if shows[at] is None:
            continue
        if found and found[-1][1] == at:
            found[-1] = (found[-1][0], at + 1)
        else:
            found.append((at, at + 1))
    return found


def require_differences(
    found: list[tuple[int, int, bool]], old: list[Byte], new: list[Byte], start: int, end: int
) -> None:
    """Checks for exactly the expected ranges, ignoring clears of ranges that were already empty."""
    result = {at: written for first, behind, written in found for at in range(first, behind)}
    for at in range(start, min(end, len(new))):
        before = old[at] if at < len(old) else None
        if before != new[at] or isinstance(new[at], int):
            assert result.pop(at) is (new[at] is not None)
        elif new[at] is None:
            assert not result.pop(at, False)
    assert not result
    for one, following in pairwise(found):
        assert one[1] < following[0] or (one[1] == following[0] and one[2] != following[2])


def look(ledger: LedgerFixture, work: Callable[..., T], *arguments: object) -> T:
    return ledger.look(lambda txn, _: work(txn, *arguments))


def require_counts(ledger: LedgerFixture, contents: list[Mapped]) -> None:
    """Recounts the holders of generations and extents."""
    maps = ledger.rows(INTERVAL_MAPS)
    held: Counter[tuple[bytes, int]] = Counter((c.id, c.generation) for c in contents)
    held.update((m.base, m.base_generation) for m in maps.values() if m.base is not None)
    assert {key: record.count for key, record in ledger.rows(GENERATIONS).items()} == held
    assert {key[0] for key in held} <= {key[0] for key in maps}
    current, former = ledger.rows(INTERVALS), ledger.rows(FORMER_INTERVALS)
    pieces = [row.piece for row in (*current.values(), *former.values())]
    references = Counter(piece.extent for piece in pieces if isinstance(piece, Piece))
    assert {key: extent.references for key, extent in ledger.rows(EXTENTS).items()} == references
    reaped = {key[0] for key in ledger.rows(MAPS_TO_REAP)}
    for map_id in {key[0] for key in maps} - reaped:
        assert any(key[0] == map_id for key in held), "a map that nobody holds"
    for (map_id, _, born), row in former.items():
        if map_id not in reaped:
            assert look(ledger, is_held, map_id, born, row.ended)
        assert row.length <= maps[map_id,].longest
    ends: dict[bytes, int] = {}
    for (map_id, offset), row in current.items():
        assert offset >= ends.get(map_id, 0), "intervals that overlap"
        ends[map_id] = offset + row.length


class QuickLedgerFixture(LedgerFixture):
    """Reads without an event loop, because there are many reads."""

    def look(self, work: Callable[[Any, Any], T], command: object = None) -> T:
        txn = self.engine.begin_read()
        try:
            return work(txn, command)
        finally:
            txn.close()


class Maps(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.ledger = QuickLedgerFixture()
        # Lowers limits, so that large writes start children and steps are short.
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr(intervals, "ROWS_AT_ONCE_MAX", 4)
        self.patch.setattr(reaping, "_SEARCHED_PER_DROPPED", 1)
        self.patch.setattr(folding, "_FOLDED_INTERVALS_MAX", 3)
        self.copies: list[ModelContent] = []

    # Steps

    @precondition(lambda self: not self.copies)
    @rule(length=st.integers(LENGTH_MAX // 2, LENGTH_MAX))
    def begin(self, length: int) -> None:
        content = self.ledger.change(lambda txn: intervals.begin(txn, new_id(), length))
        self.copies.append(ModelContent(content, [None] * length))

    @precondition(lambda self: self.copies)
    @rule(
        which=st.integers(0, 99),
        at=st.integers(0, LENGTH_MAX),
        lengths=st.lists(st.integers(1, 9), max_size=3),
    )
    def write(self, which: int, at: int, lengths: list[int]) -> None:
        copy = self.copies[which % len(self.copies)]
        at = min(at, len(copy.shows))
        pieces = [self.ledger.piece(length) for length in lengths]
        self._change(copy, lambda txn: intervals.write(txn, copy.content, at, pieces, new_id()))
        data = [byte for piece in pieces for byte in bytes_of(piece)]
        copy.shows[at : at + len(data)] = data

    @precondition(lambda self: self.copies)
    @rule(
        which=st.integers(0, 99),
        at=st.integers(0, LENGTH_MAX) | st.none(),
        blocks=st.lists(st.binary(max_size=9), max_size=4),
    )
    def write_inline(self, which: int, at: int | None, blocks: list[bytes]) -> None:
        """Appends in the ledger, or at the end of a segment."""
        copy = self.copies[which % len(self.copies)]
        at = len(copy.shows) if at is None else min(at, len(copy.shows))
        for data in blocks:
            self._change(copy, partial(self._written_inline, copy.content, at, data))
            copy.shows[at : at + len(data)] = data
            at += len(data)

    @staticmethod
    def _written_inline(content: Mapped, at: int, data: bytes, txn: WriteTxn) -> Mapped:
        return intervals.write_inline(txn, content, at, data, new_id())

    @precondition(lambda self: self.copies)
    @rule(
        which=st.integers(0, 99),
        added=st.lists(st.binary(max_size=5), max_size=2),
        cleared=st.integers(0, LENGTH_MAX) | st.none(),
    )
    def fold(self, which: int, added: list[bytes], cleared: int | None) -> None:
        """Others may append or clear between the scan and the change."""
        copy = self.copies[which % len(self.copies)]
        asked, chunks = look(self.ledger, folding.find, copy.content)
        data = b"".join(chunks)
        pieces = tuple(self.ledger.piece(len(part)) for part in (data[:7], data[7:]) if part)
        body = Body(new_id(), len(data), crc64nvme(data), pieces=pieces)
        self.write_inline(which, None, added)
        if cleared is not None:
            self.clear(which, cleared, 3)
        folded = self.ledger.change(
            lambda txn: folding.fold(txn, copy.content, asked, body, new_id())
        )
        folded_bytes = [byte for piece in pieces for byte in bytes_of(piece)]
        if folded is None:
            began_child = copy.content.id != asked.map
            assert cleared is not None or began_child or not asked.runs
            return
        copy.content = folded
        replaced = [byte for run in asked.runs for byte in copy.shows[run.start : run.end]]
        assert replaced == list(data)
        for run in asked.runs:
            length = run.end - run.start
            copy.shows[run.start : run.end], folded_bytes = (
                folded_bytes[:length],
                folded_bytes[length:],
            )

    @precondition(lambda self: self.copies)
    @rule(
        which=st.integers(0, 99),
        source=st.integers(0, 99),
        at=st.integers(0, LENGTH_MAX),
        start=st.integers(0, LENGTH_MAX),
        length=st.integers(1, 20),
    )
    def lay(self, which: int, source: int, at: int, start: int, length: int) -> None:
        """Writes pieces of one content into another, possibly the same one."""
        copy = self.copies[which % len(self.copies)]
        other = self.copies[source % len(self.copies)]
        at = min(at, len(copy.shows))
        found = self.ledger.look(
            lambda txn, _: list(parts(txn, other.content, start, start + length))
        )
        pieces = [part.piece for part in found if isinstance(part.piece, Piece)]
        self._change(
            copy, lambda txn: intervals.write_shared(txn, copy.content, at, pieces, new_id())
        )
        data = [byte for piece in pieces for byte in bytes_of(piece)]
        copy.shows[at : at + len(data)] = data

    @precondition(lambda self: self.copies)
    @rule(
        which=st.integers(0, 99),
        start=st.integers(0, LENGTH_MAX),
        length=st.integers(0, LENGTH_MAX),
    )
    def clear(self, which: int, start: int, length: int) -> None:
        copy = self.copies[which % len(self.copies)]
        self._change(
            copy, lambda txn: intervals.clear(txn, copy.content, start, start + length, new_id())
        )
        for at in range(start, min(start + length, len(copy.shows))):
            copy.shows[at] = None

    @precondition(lambda self: self.copies)
    @rule(which=st.integers(0, 99), length=st.integers(0, LENGTH_MAX))
    def resize(self, which: int, length: int) -> None:
        copy = self.copies[which % len(self.copies)]
        self._change(copy, lambda txn: intervals.resize(txn, copy.content, length, new_id()))
        copy.shows = (copy.shows + [None] * length)[:length]

    @precondition(lambda self: 0 < len(self.copies) < HELD_MAX)
    @rule(which=st.integers(0, 99))
    def share(self, which: int) -> None:
        copy = self.copies[which % len(self.copies)]
        self.ledger.change(lambda txn: share(txn, copy.content))
        self.copies.append(ModelContent(copy.content, list(copy.shows)))

    @precondition(lambda self: 0 < len(self.copies) < HELD_MAX)
    @rule(
        which=st.integers(0, 99),
        at=st.integers(0, LENGTH_MAX),
        lengths=st.lists(st.integers(1, 9), min_size=1, max_size=3),
        both=st.booleans(),
    )
    def diverge(self, which: int, at: int, lengths: list[int], both: bool) -> None:
        """Changes one of two holders of a map, or both; then one of them gets a child."""
        which %= len(self.copies)
        self.share(which)
        self.write(which, at, lengths)
        if both:
            self.write(len(self.copies) - 1, max(0, at - 3), lengths)

    @precondition(lambda self: len(self.copies) > 2)
    @rule(which=st.integers(0, 99))
    def release(self, which: int) -> None:
        copy = self.copies.pop(which % len(self.copies))
        self.ledger.release(copy.content)

    @rule(steps=st.integers(1, 4), rows_max=st.integers(1, 5))
    def reap(self, steps: int, rows_max: int) -> None:
        for _ in range(steps):
            self.ledger.change(lambda txn: reap_intervals(txn, rows_max))

    @rule(steps=st.integers(1, 4), parts_max=st.integers(1, 5))
    def flatten(self, steps: int, parts_max: int) -> None:
        for _ in range(steps):
            self.ledger.change(lambda txn: flatten(txn, Flatten(parts_max)))

    def _change(self, copy: ModelContent, work: Callable[[WriteTxn], Mapped]) -> None:
        copy.content = self.ledger.change(work)

    # Invariants

    @invariant()
    def every_content_shows_its_bytes(self) -> None:
        for copy in self.copies:
            assert copy.content.length == len(copy.shows)
            plan = self.ledger.plan(copy.content)
            assert shown(plan) == places(copy.shows)
            for start, length in ((7, 11), (12, 2)):
                some = self.ledger.plan(copy.content, start, length)
                assert shown(some) == places(copy.shows)[start : start + length]
            found = look(self.ledger, intervals.ranges, copy.content, 3, 40, 100)
            assert found == written_ranges(copy.shows, 3, 40)
            inline = [at for at, byte in enumerate(copy.shows) if isinstance(byte, int)]
            assert len(inline) <= copy.content.inline_bytes
            assert min(inline, default=LENGTH_MAX * 100) >= copy.content.folded

    @invariant()
    def differences_are_shown(self) -> None:
        for old in self.copies:
            for new in self.copies[:3]:
                ask = (old.content, new.content, 2, 45, 100)
                found = look(self.ledger, intervals.changes, *ask)
                if found is not None:
                    require_differences(found, old.shows, new.shows, 2, 45)
                if old.content.id == new.content.id:
                    assert found is not None

    @invariant()
    def counts_are_right(self) -> None:
        require_counts(self.ledger, [copy.content for copy in self.copies])

    def teardown(self) -> None:
        try:
            self._end()
        finally:
            self.patch.undo()

    def _end(self) -> None:
        while self.ledger.change(lambda txn: flatten(txn, Flatten(3))):
            pass
        self.every_content_shows_its_bytes()
        self.differences_are_shown()
        self.counts_are_right()
        reaped = self.ledger.rows(MAPS_TO_REAP)
        for key, record in self.ledger.rows(INTERVAL_MAPS).items():
            assert record.base is None or key in reaped
        for copy in self.copies:
            self.ledger.release(copy.content)
        steps = 0
        while self.ledger.change(lambda txn: reap_intervals(txn, 4)):
            steps += 1
            assert steps < 1_000
        for collection in (
            INTERVALS,
            FORMER_INTERVALS,
            INTERVAL_MAPS,
            GENERATIONS,
            MAPS_TO_REAP,
            MAPS_TO_FLATTEN,
            EXTENTS,
        ):
            assert self.ledger.rows(collection) == {}


TestMaps = Maps.TestCase
TestMaps.settings = settings(
    max_examples=40,
    stateful_step_count=40,
    deadline=None,
    # Shrinking takes minutes here and adds little.
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
