"""A progress bar, shown only on a terminal."""

from __future__ import annotations

import shutil
import time
from types import TracebackType
from typing import TextIO

_SECONDS_BETWEEN = 0.1
_BAR_CELLS_MAX = 40
_BEFORE_BAR_CELLS = 24
_CLEAR_LINE = "\r\x1b[K"


class ProgressBar:
    """A line at the bottom of the terminal that is removed at the end."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._shown = False
        self._due = 0.0
        self._phase = ""
        self._watched = stream.isatty()

    def __enter__(self) -> ProgressBar:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.clear()

    def __call__(self, phase: str, done: int, total: int) -> None:
        """Shows that `done` of `total` are done; a total of 0 means that it is unknown."""
        if not self._watched:
            return
        now = time.monotonic()
        if now < self._due and phase == self._phase:
            return
        self._due, self._phase = now + _SECONDS_BETWEEN, phase
        self._stream.write(_CLEAR_LINE + _line(phase, done, total))
        self._stream.flush()
        self._shown = True

    def clear(self) -> None:
        if self._shown:
            self._stream.write(_CLEAR_LINE)
            self._stream.flush()
            self._shown = False


def _line(phase: str, done: int, total: int) -> str:
    if not total:
        return f"{phase} …"
    share = min(1.0, done / total)
    cells = min(_BAR_CELLS_MAX, shutil.get_terminal_size().columns - _BEFORE_BAR_CELLS)
    full = round(share * cells)
    bar = "#" * full + "-" * (cells - full)
    return f"{phase:<10} [{bar}] {share:4.0%}" if cells > 0 else f"{phase} {share:.0%}"
