"""Disks that count, wait, run full or lie, for tests of what rests on them."""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from etagere.bodies.disk import Disk

_SECONDS_MAX = 20.0


class QuickDisk(Disk):
    """Does not wait for the platters: for tests that do not pull the plug."""

    def create(self, path: Path) -> int:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)

    def sync(self, descriptor: int) -> None:
        pass


class WatchedDisk(QuickDisk):
    """Counts its calls, and can be made to wait in the next call of a kind.

    `hold("write")` makes writes wait until `let_go("write")`; `reached("write")` waits for
    one to be waiting.
    """

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
        """Later calls do not wait; those that do go on when the event is set."""
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
