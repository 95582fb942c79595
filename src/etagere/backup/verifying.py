"""Verifying a backup: reads every byte of it and compares the checksums."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from etagere.backup.packs import Damaged, PackIndex, PackReader, PackUse
from etagere.backup.points import LedgerUse, Point
from etagere.backup.repository import Repository
from etagere.engine.snapshots import Progress


class Verified(NamedTuple):
    """What the verification of a backup found."""

    points: list[Point]
    damages: dict[str, list[str]]
    """By point: what is wrong with it."""
    unreadable: list[str]
    """What is wrong with manifests that cannot be read."""
    bytes_read: int

    @property
    def is_clean(self) -> bool:
        return not self.unreadable and not any(self.damages.values())


def verify(repository: Repository, progress: Progress) -> Verified:
    points, unreadable = repository.points()
    packs = _Packs(points, progress)
    damages: dict[str, list[str]] = {}
    for point in points:
        found = damages[point.name] = []
        for use in point.ledger.packs:
            found += packs.verify(use, repository.open_ledger_pack)
        found += _missing_chunks(repository, point.ledger, packs)
        for segment in point.segments:
            for use in segment.packs:
                found += packs.verify(use, repository.open_segment_pack)
    return Verified(points, damages, [str(damage) for damage in unreadable], packs.bytes_read)


class _Packs:
    """The packs of all points, each of which is read once."""

    def __init__(self, points: list[Point], progress: Progress) -> None:
        uses = {use for point in points for use in point.ledger.packs}
        uses |= {use for point in points for one in point.segments for use in one.packs}
        self._total = sum(use.length for use in uses)
        self._progress = progress
        self._damages: dict[PackUse, list[str]] = {}
        self.bytes_read = 0

    def verify(self, use: PackUse, open_pack: Callable[[PackUse], PackReader]) -> list[str]:
        if use not in self._damages:
            self._damages[use] = []
            try:
                with open_pack(use) as pack:
                    pack.verify()
            except Damaged as damage:
                self._damages[use].append(str(damage))
            self.bytes_read += use.length
            self._progress("packs", self.bytes_read, self._total)
        return self._damages[use]

    def is_damaged(self, use: PackUse) -> bool:
        return bool(self._damages[use])


def _missing_chunks(repository: Repository, ledger: LedgerUse, packs: _Packs) -> list[str]:
    """Compares the chunks that the ledger consists of with the indexes of its packs."""
    length = 0
    indexes: dict[int, PackIndex] = {}
    for run in ledger.runs:
        use = ledger.packs[run.pack]
        if packs.is_damaged(use):
            return []
        if run.pack not in indexes:
            with repository.open_ledger_pack(use) as pack:
                indexes[run.pack] = pack.index
        for number in range(run.first, run.first + run.count):
            block = indexes[run.pack].find(number)
            if block is None:
                return [f"chunk {number} of the ledger is missing"]
            length += block.length
    if length != ledger.length:
        return [f"the ledger has {length} bytes instead of {ledger.length}"]
    return []
