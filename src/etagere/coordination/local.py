"""The coordinator for processes of one machine: locked files and the machine's monotonic clock.

Every process has a file that it holds locked for as long as it lives. The kernel drops the lock
when the process ends, however it ends. So the collector can distinguish uploads in progress, whose
owner is alive, from the remains of a crash.

The file is an array of 64-bit words that other processes read:

    word 0      when the oldest wide pin was taken (0: there is none)
    words 1..   numbers of segments that are pinned by themselves (0: the word is free)

A process that narrows a pin writes its segments before it takes the wide pin back, and the
collector reads in the opposite order: it finds one of the two.
"""

from __future__ import annotations

import contextlib
import fcntl
import mmap
import os
import sys
import time
from array import array
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

from etagere import directories
from etagere.coordination.interface import PinnedSegments
from etagere.coordination.pins import CountedPin, PinsFull
from etagere.model.ids import new_id

DIRECTORY_NAME = "processes"
_WORD_BYTES = 8
_FIRST_BYTES = mmap.PAGESIZE


class LocalCoordinator:
    """Knows the other processes of this machine that use a data directory."""

    is_draining = False  # there is nobody to leave the work to

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        folder = directory / DIRECTORY_NAME
        folder.mkdir(exist_ok=True, mode=0o700)
        while True:
            self.process_id = new_id()
            self._path = folder / self.process_id.hex()
            self._descriptor = os.open(
                self._path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600
            )
            directories.give_to_owner(self._descriptor, folder)
            fcntl.flock(self._descriptor, fcntl.LOCK_EX)
            # A collector may have taken the file for a dead process's before it was locked.
            if self._path.exists():
                break
            os.close(self._descriptor)
        try:
            self._map = self._allocated(_FIRST_BYTES)
        except OSError:
            self._path.unlink(missing_ok=True)
            os.close(self._descriptor)
            raise
        self._words = memoryview(self._map).cast("Q")
        self._free = list(range(len(self._words) - 1, 0, -1))
        self._wide: dict[CountedPin, int] = {}
        self._kept: dict[int, list[int]] = {}
        """By segment: its word, and how many pins keep it."""

    def _allocated(self, size: int) -> mmap.mmap:
        """Extends the file to this size and maps it. Blocks are allocated first: writing through
        the map to a hole, on a full disk, would kill the process."""
        os.posix_fallocate(self._descriptor, 0, size)
        return mmap.mmap(self._descriptor, size)

    def _grow(self, words: int) -> None:
        """Grows the map to at least this many words."""
        grown = self._allocated(max(2 * len(self._map), words * _WORD_BYTES))
        before = len(self._words)
        self._words.release()
        self._map.close()
        self._map, self._words = grown, memoryview(grown).cast("Q")
        self._free += range(len(self._words) - 1, before - 1, -1)

    async def is_alive(self, process_id: bytes) -> bool:
        return is_alive(self._directory, process_id)

    @contextlib.asynccontextmanager
    async def sole_worker(self, task: str) -> AsyncIterator[LocalTaskLock | None]:
        with sole_worker(self._directory, task) as is_sole:
            yield LocalTaskLock() if is_sole else None

    def timestamp(self) -> int:
        return time.monotonic_ns()

    async def pinned(self) -> PinnedSegments:
        return pinned(self._directory)

    def close(self) -> None:
        self._path.unlink(missing_ok=True)
        self._words.release()
        self._map.close()
        os.close(self._descriptor)

    # Pins

    def pin(self) -> CountedPin:
        pin = CountedPin(self)
        self._wide[pin] = now = time.monotonic_ns()
        if len(self._wide) == 1:
            self._words[0] = now
        return pin

    def end_wide(self, pin: CountedPin) -> None:
        """Ends a wide pin."""
        since = self._wide.pop(pin)
        if self._words[0] == since:
            # Pins are kept in the order in which they were taken.
            self._words[0] = next(iter(self._wide.values()), 0)

    def keep(self, segments: set[int]) -> None:
        """Adds a pin to each of these segments, or adds none and raises `PinsFull`: on a full disk
        the table cannot grow."""
        missing = len(segments - self._kept.keys()) - len(self._free)
        if missing > 0:
            try:
                self._grow(len(self._words) + missing)
            except OSError as error:
                raise PinsFull(str(error)) from error
        for segment in segments:
            kept = self._kept.get(segment)
            if kept is None:
                word = self._free.pop()
                self._words[word] = segment
                self._kept[segment] = [word, 1]
            else:
                kept[1] += 1

    def release(self, segment: int) -> None:
        """Removes a pin from a segment."""
        kept = self._kept[segment]
        kept[1] -= 1
        if not kept[1]:
            del self._kept[segment]
            self._words[kept[0]] = 0
            self._free.append(kept[0])


class LocalTaskLock:
    """A task whose lock file this process holds locked, and cannot lose."""

    epoch = 0

    async def is_held(self) -> bool:
        return True


def lock_name(task: str) -> str:
    """Returns the name of the file that the sole worker on a task holds locked."""
    return f"{task}.lock"


@contextlib.contextmanager
def sole_worker(directory: Path, task: str) -> Iterator[bool]:
    """Locks a task; yields whether it could be locked."""
    descriptor = directories.open_private(directory / lock_name(task))
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            locked = False
        else:
            locked = True
        yield locked
    finally:
        os.close(descriptor)


def is_alive(directory: Path, process_id: bytes) -> bool:
    """Returns whether a process still runs. Removes the file of one that does not."""
    path = directory / DIRECTORY_NAME / process_id.hex()
    with _opened(path) as descriptor:
        return descriptor is not None and _held(descriptor, path)


def pinned(directory: Path) -> PinnedSegments:
    """Returns what is pinned. Timestamps are those of `time.monotonic_ns`, which all processes of
    a machine share."""
    folder = directory / DIRECTORY_NAME
    moments: list[int] = []
    segments: set[int] = set()
    for path in folder.iterdir() if folder.exists() else ():
        with _opened(path) as descriptor:
            if descriptor is None or not _held(descriptor, path):
                continue
            # First the wide pin, then the segments: narrowing a pin writes in the opposite order.
            since = int.from_bytes(os.pread(descriptor, _WORD_BYTES, 0), sys.byteorder)
            if since:
                moments.append(since)
            words = array("Q")
            words.frombytes(_read(descriptor, _WORD_BYTES))
            segments.update(words)
    segments.discard(0)
    return PinnedSegments(min(moments, default=None), frozenset(segments))


def _read(descriptor: int, offset: int) -> bytes:
    """The rest of a file, in whole words."""
    chunks: list[bytes] = []
    while chunk := os.pread(descriptor, 1 << 20, offset):
        chunks.append(chunk)
        offset += len(chunk)
    data = b"".join(chunks)
    return data[: len(data) // _WORD_BYTES * _WORD_BYTES]


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[int | None]:
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        yield None
        return
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _held(descriptor: int, path: Path) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    path.unlink(missing_ok=True)
    return False
