"""Points: the states of a store that a backup contains, each described by a manifest."""

from __future__ import annotations

import hashlib
from pathlib import Path

import msgspec

from etagere.backup.packs import BackupDamaged, PackRef

VERSION = 1


class ChunkRun(msgspec.Struct, frozen=True, array_like=True):
    """Successive chunks of the ledger that are in the same pack."""

    pack: int
    """The number of the pack in `LedgerRef.packs`."""
    first: int
    count: int


class LedgerRef(msgspec.Struct, frozen=True):
    """Where the ledger of a point is."""

    length: int
    chunk_bytes: int
    packs: tuple[PackRef, ...]
    runs: tuple[ChunkRun, ...]


class SegmentRef(msgspec.Struct, frozen=True):
    """Where the extents of a segment are that a point needs."""

    number: int
    packs: tuple[PackRef, ...]


class LostExtent(msgspec.Struct, frozen=True):
    """An extent that was damaged or missing in the store when the point was taken."""

    segment: int
    offset: int
    length: int
    reason: str


class Point(msgspec.Struct, frozen=True):
    """The manifest of a point."""

    version: int
    name: str
    sequence: int
    """Points are numbered in the order in which they were taken, whatever the clock said."""
    taken: str
    """When the snapshot was taken, which is the state that the point contains."""
    ended: str
    etagere: str
    """The version of the program."""
    schema: int
    """The schema of the ledger."""
    ledger: LedgerRef
    segments: tuple[SegmentRef, ...]
    extents: int
    extent_bytes: int
    added_bytes: int
    """The size of the packs that were written for this point."""
    lost: tuple[LostExtent, ...] = ()

    @property
    def total_bytes(self) -> int:
        """The number of bytes of the store that the point restores."""
        return self.ledger.length + self.extent_bytes


class _Version(msgspec.Struct):
    version: int


def encode(point: Point) -> bytes:
    """Returns the text of a manifest: a line of JSON and a line with its checksum."""
    text = msgspec.json.encode(point)
    return text + b"\n" + hashlib.sha256(text).hexdigest().encode() + b"\n"


def read(path: Path) -> Point:
    """Reads a manifest. Raises `BackupDamaged`."""
    try:
        text, _, checksum = path.read_bytes().partition(b"\n")
    except OSError as error:
        raise BackupDamaged(f"{path} cannot be read: {error.strerror}") from error
    if checksum.strip() != hashlib.sha256(text).hexdigest().encode():
        raise BackupDamaged(f"{path} does not match its checksum")
    try:
        version = msgspec.json.decode(text, type=_Version).version
        if version > VERSION:
            raise BackupDamaged(f"{path} was written by a newer version of etagere")
        point = msgspec.json.decode(text, type=Point)
    except msgspec.MsgspecError as error:
        raise BackupDamaged(f"{path} is not a manifest: {error}") from error
    if point.name != path.stem:
        raise BackupDamaged(f"{path} is the manifest of {point.name}")
    return point
