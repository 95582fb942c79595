"""The extents in a backup: of each segment, a point adds those that no earlier one has copied.

An extent that the ledger refers to never changes, unlike the rest of its segment: uploads in
progress write before and behind it. So extents are copied, not files.
"""

from __future__ import annotations

import errno
import os
from collections import Counter
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

from etagere.backup.ledgers import PACKS_MAX
from etagere.backup.packs import BackupDamaged, Block, PackIndex, PackReader, PackRef, PackWriter
from etagere.backup.points import LostExtent, SegmentRef
from etagere.backup.repository import Repository, segment_identity
from etagere.bodies.contents import EXTENTS, SEGMENTS
from etagere.bodies.segment_files import segment_path
from etagere.config import MIB
from etagere.engine.snapshots import LedgerFile
from etagere.model.bodies import Extent

_READ_BYTES = 1 * MIB
_NO_OWNER = bytes(16)


class _Unreadable(Exception):
    """The bytes of an extent are missing or damaged; the message says how."""


class SegmentExtents(NamedTuple):
    """The extents of a segment that the ledger refers to."""

    number: int
    owner: bytes
    extents: list[tuple[int, Extent]]
    """By offset, in order."""

    @property
    def identity(self) -> str:
        return segment_identity(self.number, self.owner)


def read_extents(ledger: LedgerFile) -> Iterator[SegmentExtents]:
    """Yields the extents of one segment after the other."""
    owners = {number: segment.owner for (number,), segment in ledger.rows(SEGMENTS)}
    for number, rows in groupby(ledger.rows(EXTENTS), key=lambda row: row[0][0]):
        extents = [(offset, extent) for (_, offset), extent in rows]
        yield SegmentExtents(number, owners.get(number, _NO_OWNER), extents)


class Copied(NamedTuple):
    """The extents of a segment that a backup has and lacks."""

    packs: list[PackRef]
    """Those that have some of the extents."""
    missing: list[tuple[int, Extent]]

    @property
    def missing_bytes(self) -> int:
        return sum(extent.length for _, extent in self.missing)


def compare(repository: Repository, segment: SegmentExtents, names: list[str]) -> Copied:
    """Compares the extents of a segment with the packs of these names."""
    indexes: list[PackIndex] = []
    for name in names:
        try:
            with PackReader(repository.segment_pack(name)) as pack:
                indexes.append(pack.index)
        except BackupDamaged:
            continue  # the extents are copied again
    # Many small packs are replaced by one.
    indexes = sorted(indexes, key=len, reverse=True)[:PACKS_MAX]
    missing: list[tuple[int, Extent]] = []
    used: Counter[int] = Counter()
    for offset, extent in segment.extents:
        for number, index in enumerate(indexes):
            if find_extent(index, offset, extent) is not None:
                used[number] += 1
                break
        else:
            missing.append((offset, extent))
    return Copied([indexes[number].ref for number in sorted(used)], missing)


def find_extent(index: PackIndex, offset: int, extent: Extent) -> Block | None:
    """Returns the block of an extent. Its checksum is compared too: a machine that was set back to
    an earlier state writes other bytes to the same segment."""
    block = index.find(offset)
    if block is None or block.length != extent.length or extent.crc not in (None, block.crc):
        return None
    return block


class SegmentCopier:
    """Copies extents from a data directory to packs."""

    def __init__(self, repository: Repository, directory: Path) -> None:
        self._repository = repository
        self._directory = directory
        self.lost: list[LostExtent] = []
        self.added_bytes = 0

    def copy(self, segment: SegmentExtents, copied: Copied, names: list[str]) -> SegmentRef:
        """Copies the missing extents of a segment to a new pack. `names` are the packs that the
        segment has."""
        packs = list(copied.packs)
        if copied.missing:
            numbers = [int(name.rpartition("-")[2]) for name in names]
            name = f"{segment.identity}-{max(numbers, default=0) + 1:04}"
            ref = self._copy_missing(segment.number, copied.missing, name)
            if ref is not None:
                packs.append(ref)
                self.added_bytes += ref.length
        return SegmentRef(segment.number, tuple(packs))

    def _copy_missing(
        self, number: int, missing: list[tuple[int, Extent]], name: str
    ) -> PackRef | None:
        files = self._repository.files
        temporary = self._repository.temporary / "segment.pack"
        source = self._open(number)
        try:
            with PackWriter(files, temporary) as writer:
                for offset, extent in missing:
                    writer.begin_block(offset)
                    try:
                        _copy_extent(source, offset, extent, writer)
                    except _Unreadable as error:
                        writer.discard_block()
                        lost = LostExtent(number, offset, extent.length, str(error))
                        self.lost.append(lost)
                    else:
                        writer.end_block()
                ref = writer.finish(name) if len(writer) else None
        finally:
            if source is not None:
                os.close(source)
        if ref is None:
            files.unlink(temporary)
        else:
            files.rename(temporary, self._repository.segment_pack(name))
        return ref

    def _open(self, number: int) -> int | None:
        try:
            descriptor = os.open(segment_path(self._directory, number), os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_SEQUENTIAL)
        return descriptor


def _copy_extent(source: int | None, offset: int, extent: Extent, writer: PackWriter) -> None:
    if source is None:
        raise _Unreadable("the segment is missing")
    at, end = offset, offset + extent.length
    while at < end:
        data = _read(source, min(_READ_BYTES, end - at), at)
        writer.write(data)
        at += len(data)
    if extent.crc not in (None, writer.crc):
        raise _Unreadable("the bytes do not match their checksum")


def _read(source: int, length: int, offset: int) -> bytes:
    try:
        data = os.pread(source, length, offset)
    except OSError as error:
        if error.errno != errno.EIO:
            raise
        raise _Unreadable("the bytes cannot be read") from error
    if not data:
        raise _Unreadable(f"the segment ends at {offset}")
    return data
