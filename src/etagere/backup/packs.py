"""Packs: immutable files of blocks, each with its position in what was copied and its checksums.

    magic | blocks | index | footer

The index has a record per block, in the order of their positions. The footer has the length of the
index and its SHA-256, so the bytes of a whole pack are covered by the checksum in its footer, which
the manifests of points repeat.
"""

from __future__ import annotations

import hashlib
import os
import struct
from bisect import bisect_left
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec
from awscrt.checksums import crc64nvme

from etagere.backup.files import Files
from etagere.config import MIB

_MAGIC = b"ETPACK01"
_RECORD = struct.Struct(">QQQQ32s")
_FOOTER = struct.Struct(">Q32s8s")
_SYNC_BYTES = 16 * MIB
"""What is written between syncs: a sync of more would delay those of a server on the same disk."""
_READ_BYTES = 1 * MIB


class BackupDamaged(Exception):
    """A part of a backup is missing or was changed; the message names the file."""


class Block(NamedTuple):
    """A block of a pack."""

    position: int
    """Where it belongs: the number of a chunk of the ledger, or the offset of an extent."""
    offset: int
    """Where it begins in the pack."""
    length: int
    crc: int
    """The CRC64 by which extents are compared with those of a store."""
    sha256: bytes


class PackRef(msgspec.Struct, frozen=True):
    """A pack, as the manifest of a point refers to it."""

    name: str
    length: int
    index_sha256: str


class PackIndex:
    """The blocks of a pack, in the order of their positions."""

    def __init__(self, ref: PackRef, records: bytes) -> None:
        self.ref = ref
        self._records = records

    def __len__(self) -> int:
        return len(self._records) // _RECORD.size

    def __getitem__(self, number: int) -> Block:
        return Block(*_RECORD.unpack_from(self._records, number * _RECORD.size))

    def __iter__(self) -> Iterator[Block]:
        return (Block(*fields) for fields in _RECORD.iter_unpack(self._records))

    def find(self, position: int) -> Block | None:
        numbers = range(len(self))
        at = bisect_left(numbers, position, key=lambda number: self[number].position)
        if at == len(numbers) or self[at].position != position:
            return None
        return self[at]


class PackWriter:
    """A pack that is being written. Blocks are written in the order of their positions."""

    def __init__(self, files: Files, path: Path) -> None:
        self._files = files
        self._descriptor = files.create(path)
        self._records = bytearray()
        self._end = 0
        self._synced = 0
        self._position = 0
        self._begin = 0
        self.crc = 0
        """The CRC64 of the current block so far."""
        self._sha256 = hashlib.sha256()
        self._append(_MAGIC)

    def __enter__(self) -> PackWriter:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._descriptor)

    def __len__(self) -> int:
        return len(self._records) // _RECORD.size

    def begin_block(self, position: int) -> None:
        self._position, self._begin = position, self._end
        self.crc, self._sha256 = 0, hashlib.sha256()

    def write(self, data: bytes | memoryview) -> None:
        """Writes a part of the current block."""
        self.crc = crc64nvme(data, self.crc)
        self._sha256.update(data)
        self._append(data)

    def end_block(self) -> None:
        length = self._end - self._begin
        checksums = self.crc, self._sha256.digest()
        self._records += _RECORD.pack(self._position, self._begin, length, *checksums)

    def discard_block(self) -> None:
        """Forgets the current block; the next one is written in its place."""
        self._end = self._begin

    def finish(self, name: str) -> PackRef:
        """Writes the index; the contents are durable on return."""
        records = bytes(self._records)
        digest = hashlib.sha256(records)
        self._append(records + _FOOTER.pack(len(records), digest.digest(), _MAGIC))
        self._files.truncate(self._descriptor, self._end)
        self._files.sync(self._descriptor)
        # The copy must not push out of memory what a server needs.
        os.posix_fadvise(self._descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        return PackRef(name, self._end, digest.hexdigest())

    def _append(self, data: bytes | memoryview) -> None:
        self._files.write(self._descriptor, data, self._end)
        self._end += len(data)
        if self._end - self._synced > _SYNC_BYTES:
            self._files.sync(self._descriptor)
            self._synced = self._end


class PackReader:
    """An open pack."""

    def __init__(self, path: Path) -> None:
        """Opens a pack and reads its index. Raises `BackupDamaged`."""
        self._path = path
        try:
            self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            raise BackupDamaged(f"{path} is missing") from None
        except OSError as error:
            raise BackupDamaged(f"{path} cannot be read: {error.strerror}") from error
        try:
            self.index = self._read_index()
        except BaseException:
            os.close(self._descriptor)
            raise

    def __enter__(self) -> PackReader:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._descriptor)

    def _read_index(self) -> PackIndex:
        length = os.fstat(self._descriptor).st_size
        footer_at = length - _FOOTER.size
        if footer_at < len(_MAGIC):
            raise BackupDamaged(f"{self._path} is too short")
        index_length, digest, magic = _FOOTER.unpack(self._read(footer_at, _FOOTER.size))
        if magic != _MAGIC or index_length > footer_at - len(_MAGIC) or index_length % _RECORD.size:
            raise BackupDamaged(f"{self._path} has no index")
        records = self._read(footer_at - index_length, index_length)
        if hashlib.sha256(records).digest() != digest:
            raise BackupDamaged(f"the index of {self._path} does not match its checksum")
        return PackIndex(PackRef(self._path.stem, length, digest.hex()), records)

    def require(self, ref: PackRef) -> None:
        """Raises `BackupDamaged` if this is not the pack that a point refers to."""
        if self.index.ref != ref:
            raise BackupDamaged(f"{self._path} is not the file that the point refers to")

    def parts(self, block: Block) -> Iterator[bytes]:
        """Yields the bytes of a block in parts. At the end raises `BackupDamaged` if they do not
        match their checksum."""
        sha256 = hashlib.sha256()
        at, end = block.offset, block.offset + block.length
        while at < end:
            part = self._read(at, min(_READ_BYTES, end - at))
            sha256.update(part)
            at += len(part)
            yield part
        if sha256.digest() != block.sha256:
            raise BackupDamaged(f"{self._path} is damaged at {block.offset}")

    def verify(self) -> None:
        """Raises `BackupDamaged` if any byte was changed."""
        if self._read(0, len(_MAGIC)) != _MAGIC:
            raise BackupDamaged(f"{self._path} is not a pack")
        at = len(_MAGIC)
        for block in self.index:
            if block.offset != at:
                raise BackupDamaged(f"{self._path} has a wrong index")
            at += block.length
            for _ in self.parts(block):
                pass

    def _read(self, offset: int, length: int) -> bytes:
        parts: list[bytes] = []
        while length:
            try:
                part = os.pread(self._descriptor, length, offset)
            except OSError as error:
                raise BackupDamaged(f"{self._path} cannot be read: {error.strerror}") from error
            if not part:
                raise BackupDamaged(f"{self._path} ends at {offset}")
            parts.append(part)
            offset, length = offset + len(part), length - len(part)
        return b"".join(parts)
