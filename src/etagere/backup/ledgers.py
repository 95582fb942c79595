"""The ledger in a backup: chunks of its pages, of which a point adds only those that changed."""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from etagere.backup.files import Files
from etagere.backup.packs import BackupDamaged, PackIndex, PackRef, PackWriter
from etagere.backup.points import ChunkRun, LedgerRef, Point
from etagere.backup.repository import Repository
from etagere.config import KIB
from etagere.engine.snapshots import Progress

CHUNK_BYTES = 64 * KIB
PACKS_MAX = 32
"""The most packs of earlier points that a new point uses of one ledger or segment."""
_USED_SHARE_MIN = 0.5


class _Chunks:
    """The chunks of an earlier point that a new one may use."""

    def __init__(self, repository: Repository, point: Point | None) -> None:
        self._runs: list[tuple[ChunkRun, PackIndex]] = []
        self._next = 0
        if point is None or point.ledger.chunk_bytes != CHUNK_BYTES:
            return
        indexes = _usable(repository, point.ledger)
        self._runs = [
            (run, indexes[run.pack])
            for run in sorted(point.ledger.runs, key=lambda run: run.first)
            if run.pack in indexes
        ]

    def find(self, number: int, sha256: bytes) -> PackRef | None:
        """Returns the pack that has this chunk. Chunks are looked up in order."""
        while self._next < len(self._runs):
            run, index = self._runs[self._next]
            if number < run.first:
                return None
            if number < run.first + run.count:
                block = index.find(number)
                return index.ref if block is not None and block.sha256 == sha256 else None
            self._next += 1
        return None


def _usable(repository: Repository, ledger: LedgerRef) -> dict[int, PackIndex]:
    """Returns the indexes of the packs that a new point may use. Chunks in packs of which little is
    used any more are written again, so that the packs can be removed with the points before."""
    used: Counter[int] = Counter()
    for run in ledger.runs:
        used[run.pack] += run.count
    indexes: dict[int, PackIndex] = {}
    for number, count in used.most_common(PACKS_MAX):
        try:
            with repository.open_ledger_pack(ledger.packs[number]) as pack:
                if count >= _USED_SHARE_MIN * len(pack.index):
                    indexes[number] = pack.index
        except BackupDamaged:
            continue  # the chunks are written again
    return indexes


class _Runs:
    """The packs of a ledger, and which chunks are in which, collected chunk by chunk."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self._runs: list[ChunkRun] = []

    def add(self, chunk: int, pack: str) -> None:
        number = self._numbers.setdefault(pack, len(self._numbers))
        if self._runs and self._runs[-1].pack == number:
            last = self._runs[-1]
            self._runs[-1] = ChunkRun(number, last.first, last.count + 1)
        else:
            self._runs.append(ChunkRun(number, chunk, 1))

    def ref(self, length: int, packs: dict[str, PackRef]) -> LedgerRef:
        refs = tuple(packs[name] for name in self._numbers)
        return LedgerRef(length, CHUNK_BYTES, refs, tuple(self._runs))


def add_ledger(
    repository: Repository, path: Path, name: str, last: Point | None, progress: Progress
) -> tuple[LedgerRef, int]:
    """Adds a copy of a ledger, of which `last` may have chunks. Returns where it is, and the size
    of the pack that was written."""
    known, runs = _Chunks(repository, last), _Runs()
    packs: dict[str, PackRef] = {}
    length = path.stat().st_size
    temporary = repository.temporary / "ledger.pack"
    with PackWriter(repository.files, temporary) as writer:
        for number, data in enumerate(_read_chunks(path)):
            ref = known.find(number, hashlib.sha256(data).digest())
            if ref is None:
                writer.begin_block(number)
                writer.write(data)
                writer.end_block()
                runs.add(number, name)
            else:
                packs[ref.name] = ref
                runs.add(number, ref.name)
            progress("chunks", number * CHUNK_BYTES, length)
        added = 0
        if len(writer):
            packs[name] = writer.finish(name)
            added = packs[name].length
    if added:
        repository.files.rename(temporary, repository.ledger_pack(name))
    else:
        repository.files.unlink(temporary)
    return runs.ref(length, packs), added


def _read_chunks(path: Path) -> Iterator[bytes]:
    with path.open("rb", buffering=0) as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_SEQUENTIAL)
        while data := file.read(CHUNK_BYTES):
            yield data


def write_ledger(
    repository: Repository, ledger: LedgerRef, path: Path, progress: Progress, files: Files
) -> None:
    """Writes the ledger of a point to a file; durable on return. Raises `BackupDamaged`."""
    descriptor = files.create(path)
    try:
        files.truncate(descriptor, ledger.length)
        written = 0
        for run in ledger.runs:
            with repository.open_ledger_pack(ledger.packs[run.pack]) as pack:
                for number in range(run.first, run.first + run.count):
                    block = pack.index.find(number)
                    if block is None:
                        raise BackupDamaged(
                            f"{repository.directory} lacks chunk {number} of the ledger"
                        )
                    at = number * ledger.chunk_bytes
                    for part in pack.parts(block):
                        files.write(descriptor, part, at)
                        at += len(part)
                    written += block.length
                    progress("ledger", written, ledger.length)
        if written != ledger.length:
            raise BackupDamaged(f"{repository.directory} has only {written} bytes of the ledger")
        files.sync(descriptor)
    finally:
        os.close(descriptor)
