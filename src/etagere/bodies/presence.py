"""Which processes are alive, and since when their oldest reader has been reading.

Every process that writes or reads bodies has a file that it holds locked for as long as it
lives, however it ends. The file's only word is the time at which its oldest pin was taken (0:
none). So the collector can tell uploads in flight, whose owner is alive, from what a crash
left behind, and knows when nobody can still want a file that was retired.
"""

from __future__ import annotations

import contextlib
import fcntl
import mmap
import os
import time
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType

from etagere.model.ids import new_id

DIRECTORY_NAME = "processes"
_WORD_BYTES = 8


class Presence:
    """This process's own file."""

    def __init__(self, directory: Path) -> None:
        folder = directory / DIRECTORY_NAME
        folder.mkdir(exist_ok=True, mode=0o700)
        while True:
            self.id = new_id()
            self._path = folder / self.id.hex()
            self._descriptor = os.open(
                self._path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600
            )
            # Real blocks: to write through a map into a hole on a full disk would be fatal.
            os.posix_fallocate(self._descriptor, 0, _WORD_BYTES)
            fcntl.flock(self._descriptor, fcntl.LOCK_EX)
            # A collector may have taken the file for a dead process's before it was locked.
            if self._path.exists():
                break
            os.close(self._descriptor)
        self._map = mmap.mmap(self._descriptor, _WORD_BYTES)
        self._word = memoryview(self._map).cast("Q")
        self._pins: dict[Pin, int] = {}

    def pin(self) -> Pin:
        return Pin(self)

    def taken(self, pin: Pin) -> None:
        self._pins[pin] = now = time.monotonic_ns()
        if len(self._pins) == 1:
            self._word[0] = now

    def returned(self, pin: Pin) -> None:
        since = self._pins.pop(pin)
        if self._word[0] == since:
            # Pins are kept in the order in which they were taken.
            self._word[0] = next(iter(self._pins.values()), 0)

    def close(self) -> None:
        self._path.unlink(missing_ok=True)
        self._word.release()
        self._map.close()
        os.close(self._descriptor)


class Pin:
    """While it is held, nothing that is in use now is removed."""

    __slots__ = ("_presence",)

    def __init__(self, presence: Presence) -> None:
        self._presence = presence

    def __enter__(self) -> None:
        self._presence.taken(self)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._presence.returned(self)


def alive(directory: Path, process_id: bytes) -> bool:
    """Whether the process of this id still runs. Removes what is left of one that does not."""
    path = directory / DIRECTORY_NAME / process_id.hex()
    with _opened(path) as descriptor:
        return descriptor is not None and _held(descriptor, path)


def pinned_before(directory: Path, moment: int) -> bool:
    """Whether any live process has a pin that was taken before this moment (`time.monotonic_ns`,
    which all processes of a machine share)."""
    folder = directory / DIRECTORY_NAME
    for path in folder.iterdir() if folder.exists() else ():
        with _opened(path) as descriptor:
            if descriptor is None or not _held(descriptor, path):
                continue
            since = int.from_bytes(os.pread(descriptor, _WORD_BYTES, 0), "little")
            if since and since <= moment:
                return True
    return False


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
