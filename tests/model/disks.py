"""Disks that count, wait, fill up or fail."""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from etagere.bodies.disk import Disk

_SECONDS_MAX = 20.0


class QuickDisk(Disk):
    """Skips syncs, for tests that do not simulate power loss."""

    def create(self, path: Path) -> int:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)

    def sync(self, descriptor: int) -> None:
        pass


class WatchedDisk(QuickDisk):
    """Counts its calls, and can block the next call of a kind.

    `hold("write")` makes writes wait until `let_go("write")`; `reached("write")` waits until one is
    waiting."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: Counter[str] = Counter()
        self.free: int | None = None
        self.sizes: list[int] = []
        self._held: dict[str, tuple[threading.Event, threading.Event]] = {}

    def hold(self, call: str) -> None:
        self._held[call] = (threading.Event(), threading.Event())

    def reached(self, call: str) -> bool:
        return self._held[call][0].wait(_SECONDS_MAX)

    def let_go(self, call: str) -> None:
        self._held.pop(call)[1].set()

    def let_others_go(self, call: str) -> threading.Event:
        """Later calls do not wait; those that are waiting continue when the event is set."""
        return self._held.pop(call)[1]

    def _note(self, call: str) -> None:
        self.calls[call] += 1
        held = self._held.get(call)
        if held is not None:
            held[0].set()
            assert held[1].wait(_SECONDS_MAX)

    def create(self, path: Path) -> int:
        self._note("create")
        return super().create(path)

    def write(self, descriptor: int, buffers: Sequence[bytes | memoryview], offset: int) -> None:
        self._note("write")
        self.sizes.append(sum(map(len, buffers)))
        super().write(descriptor, buffers, offset)

    def sync(self, descriptor: int) -> None:
        self._note("sync")

    def read(self, descriptor: int, length: int, offset: int) -> bytes:
        self._note("read")
        return super().read(descriptor, length, offset)

    def unlink(self, path: Path) -> None:
        self._note("unlink")
        super().unlink(path)

    def free_bytes(self, directory: Path) -> int:
        return super().free_bytes(directory) if self.free is None else self.free


class FaultyDisk(Disk):
    """Fails one call, once: the n-th of a kind from now. A sync that fails loses what was written
    since the last one, as a kernel does, and the next one succeeds."""

    CALLS = (
        "create", "open", "write", "allocate", "sync", "sync_directory",
        "read", "read_cached", "read_cached_into", "unlink", "free_bytes",
    )  # fmt: skip

    def __init__(self) -> None:
        super().__init__(durable=False)
        self._struck = ("", 0, 0)
        self.has_struck = False
        self._lock = threading.Lock()
        self._before: dict[tuple[int, int], list[tuple[int, bytes]]] = {}
        """By file: the bytes before each write that is not durable yet."""

    def strike(self, call: str, number: int, reason: int) -> None:
        self._struck = (call, number, reason)
        self.has_struck = False

    def _pass(self, call: str) -> None:
        with self._lock:
            struck, number, reason = self._struck
            if call != struck or self.has_struck:
                return
            self._struck = (struck, number - 1, reason)
            if number > 1:
                return
            self.has_struck = True
        raise OSError(reason, os.strerror(reason))

    def create(self, path: Path) -> int:
        self._pass("create")
        return super().create(path)

    def open(self, path: Path) -> int:
        self._pass("open")
        return super().open(path)

    def write(self, descriptor: int, buffers: Sequence[bytes | memoryview], offset: int) -> None:
        length = sum(map(len, buffers))
        there = os.pread(descriptor, length, offset).ljust(length, b"\x00")
        with self._lock:
            self._before.setdefault(_file(descriptor), []).append((offset, there))
        try:
            self._pass("write")
        except OSError:
            # A partial write.
            super().write(descriptor, [b"".join(buffers)[: length // 2]], offset)
            raise
        super().write(descriptor, buffers, offset)

    def allocate(self, descriptor: int, offset: int, length: int) -> None:
        self._pass("allocate")
        super().allocate(descriptor, offset, length)

    def sync(self, descriptor: int) -> None:
        with self._lock:
            before = self._before.pop(_file(descriptor), [])
        try:
            self._pass("sync")
        except OSError:
            for offset, data in reversed(before):
                os.pwrite(descriptor, data, offset)
            raise

    def sync_directory(self, directory: Path) -> None:
        self._pass("sync_directory")

    def read(self, descriptor: int, length: int, offset: int) -> bytes:
        self._pass("read")
        return super().read(descriptor, length, offset)

    def read_cached(self, descriptor: int, length: int, offset: int) -> bytes | None:
        self._pass("read_cached")
        return super().read_cached(descriptor, length, offset)

    def read_cached_into(self, descriptor: int, buffer: memoryview, offset: int) -> bool:
        self._pass("read_cached_into")
        return super().read_cached_into(descriptor, buffer, offset)

    def unlink(self, path: Path) -> None:
        self._pass("unlink")
        super().unlink(path)

    def free_bytes(self, directory: Path) -> int:
        self._pass("free_bytes")
        return super().free_bytes(directory)


def _file(descriptor: int) -> tuple[int, int]:
    status = os.fstat(descriptor)
    return status.st_dev, status.st_ino
