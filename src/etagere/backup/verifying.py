"""Verifying a backup: reads every byte of it and compares the checksums."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from etagere.backup.packs import BackupDamaged, PackIndex, PackReader, PackRef
from etagere.backup.points import LedgerRef, Point
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
        for ref in point.ledger.packs:
            found += packs.verify(ref, repository.open_ledger_pack)
        found += _missing_chunks(repository, point.ledger, packs)
        for segment in point.segments:
            for ref in segment.packs:
                found += packs.verify(ref, repository.open_segment_pack)
    return Verified(points, damages, [str(damage) for damage in unreadable], packs.bytes_read)


class _Packs:
    """The packs of all points, each of which is read once."""

    def __init__(self, points: list[Point], progress: Progress) -> None:
        refs = {ref for point in points for ref in point.ledger.packs}
        refs |= {ref for point in points for one in point.segments for ref in one.packs}
        self._total = sum(ref.length for ref in refs)
        self._progress = progress
        self._damages: dict[PackRef, list[str]] = {}
        self.bytes_read = 0

    def verify(self, ref: PackRef, open_pack: Callable[[PackRef], PackReader]) -> list[str]:
        if ref not in self._damages:
            self._damages[ref] = []
            try:
                with open_pack(ref) as pack:
                    pack.verify()
            except BackupDamaged as damage:
                self._damages[ref].append(str(damage))
            self.bytes_read += ref.length
            self._progress("packs", self.bytes_read, self._total)
        return self._damages[ref]

    def is_damaged(self, ref: PackRef) -> bool:
        return bool(self._damages[ref])


def _missing_chunks(repository: Repository, ledger: LedgerRef, packs: _Packs) -> list[str]:
    """Compares the chunks that the ledger consists of with the indexes of its packs."""
    length = 0
    indexes: dict[int, PackIndex] = {}
    for run in ledger.runs:
        ref = ledger.packs[run.pack]
        if packs.is_damaged(ref):
            return []
        if run.pack not in indexes:
            with repository.open_ledger_pack(ref) as pack:
                indexes[run.pack] = pack.index
        for number in range(run.first, run.first + run.count):
            block = indexes[run.pack].find(number)
            if block is None:
                return [f"chunk {number} of the ledger is missing"]
            length += block.length
    if length != ledger.length:
        return [f"the ledger has {length} bytes instead of {ledger.length}"]
    return []
