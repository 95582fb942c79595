"""Clocks that tests control, shared with processes forked from the test."""

from __future__ import annotations

import mmap
from collections.abc import Callable

from etagere.clock import Clock, SystemClock

_WORD_BYTES = 8
_BOOT_ID_BYTES = 64


class SharedWords:
    """A few integers in memory shared with forked processes.

    Aligned words are written atomically, so readers need no lock; there is one writer at a time."""

    def __init__(self, count: int) -> None:
        self._words = memoryview(mmap.mmap(-1, count * _WORD_BYTES)).cast("q")

    def __getitem__(self, index: int) -> int:
        return self._words[index]

    def __setitem__(self, index: int, value: int) -> None:
        self._words[index] = value


class SharedClock:
    """The machine's clocks until a test changes them; changes apply to all processes."""

    _WALL_OFFSET, _ELAPSED_OFFSET, _FROZEN, _FROZEN_WALL, _FROZEN_ELAPSED, _ADVANCED = range(6)

    def __init__(self, beneath: Clock | None = None) -> None:
        self._beneath = beneath or SystemClock()
        self._words = SharedWords(6)
        self._boot_id = mmap.mmap(-1, _BOOT_ID_BYTES)
        self.set_boot_id(self._beneath.boot_id())

    def wall(self) -> int:
        return self._words[self._WALL_OFFSET] + self._base(self._FROZEN_WALL, self._beneath.wall)

    def elapsed(self) -> int:
        base = self._base(self._FROZEN_ELAPSED, self._beneath.elapsed)
        return self._words[self._ELAPSED_OFFSET] + base

    def boot_id(self) -> str:
        return self._boot_id[:].rstrip(b"\x00").decode("ascii")

    @property
    def wall_offset(self) -> int:
        return self._words[self._WALL_OFFSET]

    @wall_offset.setter
    def wall_offset(self, ticks: int) -> None:
        self._words[self._WALL_OFFSET] = ticks

    @property
    def elapsed_offset(self) -> int:
        return self._words[self._ELAPSED_OFFSET]

    @elapsed_offset.setter
    def elapsed_offset(self, ticks: int) -> None:
        self._words[self._ELAPSED_OFFSET] = ticks

    def set_boot_id(self, boot_id: str) -> None:
        self._boot_id[:] = boot_id.encode("ascii").ljust(_BOOT_ID_BYTES, b"\x00")

    def reboot(self, boot_id: str) -> None:
        """Simulates a reboot: a new boot ID, and an elapsed time of zero."""
        self.set_boot_id(boot_id)
        self.elapsed_offset -= self.elapsed()

    def freeze(self) -> None:
        """Stops both clocks; from now on only `advance` and the offsets move them."""
        self._words[self._FROZEN_WALL] = self._beneath.wall()
        self._words[self._FROZEN_ELAPSED] = self._beneath.elapsed()
        self._words[self._ADVANCED] = 0
        self._words[self._FROZEN] = 1

    def advance(self, ticks: int) -> None:
        """Advances both frozen clocks."""
        if not self._words[self._FROZEN]:
            raise RuntimeError("a clock that runs by itself is not advanced")
        self._words[self._ADVANCED] += ticks

    def _base(self, frozen_at: int, running: Callable[[], int]) -> int:
        if self._words[self._FROZEN]:
            return self._words[frozen_at] + self._words[self._ADVANCED]
        return running()
