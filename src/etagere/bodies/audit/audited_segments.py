"""The stored bytes of segments, as a check sees them: files or objects."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final, Protocol

from etagere.bodies.audit.findings import FileRemedy, Remedy
from etagere.bodies.audit.snapshot import CannotCheck
from etagere.bodies.segment_files import DIRECTORY_NAME, segment_path
from etagere.config import MIB

READ_BYTES: Final = 4 * MIB


class CannotRead(Exception):
    """Bytes of a segment cannot be read; the message says why."""


class AuditedSegments(Protocol):
    """What is stored of segments, by their numbers. A server may change it meanwhile."""

    @property
    def noun(self) -> str:
        """What a segment is stored as: "file" or "objects"."""
        ...

    @property
    def is_contiguous(self) -> bool:
        """Whether the length of a segment is the end of its last byte."""
        ...

    @property
    def may_be_newer(self) -> bool:
        """Whether segments may be listed that were created after the ledger was copied."""
        ...

    def list(self) -> dict[str, int]:
        """Returns the names of all segments that are stored, and of other things among them, with
        their sizes."""
        ...

    def number_of(self, name: str) -> int | None:
        """Returns the number of the segment with a name; None for other things."""
        ...

    def where(self, number: int) -> str:
        """Returns the name of a segment, for messages."""
        ...

    def size(self, number: int) -> int | None:
        """Returns how many bytes of a segment are stored; None if there is nothing."""
        ...

    def contains(self, number: int, offset: int, end: int) -> bool:
        """Returns whether a range of a segment is stored."""
        ...

    def read(self, number: int, offset: int, length: int) -> Iterator[bytes]:
        """Yields the bytes of a stored range. Raises `CannotRead`."""
        ...

    def removal(self, name: str) -> Remedy | None:
        """Returns the remedy for a segment without a record; None if none is needed."""
        ...

    def truncation(self, number: int, length: int) -> Remedy | None:
        """Returns the remedy for a sealed segment that has more bytes than when it was sealed; None
        if that is normal."""
        ...

    def close(self) -> None: ...


class AuditedFiles:
    """Segments that are files in a directory."""

    noun = "file"
    is_contiguous = True

    def __init__(self, directory: Path, *, may_be_newer: bool = False) -> None:
        self.may_be_newer = may_be_newer
        self._directory = directory
        self._open: tuple[int, int] | None = None
        """The number and the descriptor of the segment that was read last."""
        self._sized = -1, 0
        """The number and the size of the segment that was asked for last."""

    def list(self) -> dict[str, int]:
        sizes: dict[str, int] = {}
        try:
            for path in (self._directory / DIRECTORY_NAME).iterdir():
                # A running server may remove files meanwhile.
                with contextlib.suppress(FileNotFoundError):
                    sizes[path.name] = path.lstat().st_size
            return sizes
        except FileNotFoundError:
            return sizes
        except OSError as error:
            raise CannotCheck(f"{error.filename} cannot be read: {error.strerror}") from error

    def number_of(self, name: str) -> int | None:
        try:
            number = int(name.removesuffix(".seg"), 16)
        except ValueError:
            return None
        return number if number >= 0 and self._path(number).name == name else None

    def where(self, number: int) -> str:
        return f"{DIRECTORY_NAME}/{self._path(number).name}"

    def size(self, number: int) -> int | None:
        path = self._path(number)
        try:
            found = path.stat()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise CannotCheck(f"{path} cannot be read: {error.strerror}") from error
        return found.st_size if stat.S_ISREG(found.st_mode) else None

    def contains(self, number: int, offset: int, end: int) -> bool:
        if self._sized[0] != number or end > self._sized[1]:
            self._sized = number, self.size(number) or 0
        return end <= self._sized[1]

    def read(self, number: int, offset: int, length: int) -> Iterator[bytes]:
        descriptor = self._descriptor(number)
        at, end = offset, offset + length
        while at < end:
            try:
                data = os.pread(descriptor, min(READ_BYTES, end - at), at)
            except OSError as error:
                raise CannotRead(f"cannot be read: {error.strerror}") from None
            if not data:
                raise CannotRead(f"end at {at}")
            at += len(data)
            yield data

    def _descriptor(self, number: int) -> int:
        if self._open is not None and self._open[0] == number:
            return self._open[1]
        self.close()
        path = self._path(number)
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise CannotCheck(f"{path} cannot be read: {error.strerror}") from error
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_SEQUENTIAL)
        self._open = number, descriptor
        return descriptor

    def removal(self, name: str) -> Remedy | None:
        # A running server may have removed the file and its record meanwhile.
        path = self._directory / DIRECTORY_NAME / name
        return FileRemedy(path) if path.exists() else None

    def truncation(self, number: int, length: int) -> Remedy | None:
        return FileRemedy(self._path(number), length)

    def close(self) -> None:
        if self._open is not None:
            os.close(self._open[1])
            self._open = None

    def _path(self, number: int) -> Path:
        return segment_path(self._directory, number)
