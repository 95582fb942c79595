"""Limits how often a process logs the same message: a full disk must not fill the disk of the log
too."""

from __future__ import annotations

import logging
import time
from typing import Final

from etagere.telemetry.formats import SUPPRESSED_ATTRIBUTE

WINDOW_SECONDS: Final = 10.0
LINES_PER_WINDOW_MAX: Final = 20
"""For each place in the code that logs."""


class _Window:
    __slots__ = ("began", "lines", "suppressed")

    def __init__(self, began: float) -> None:
        self.began = began
        self.lines = 0
        self.suppressed = 0


class RepetitionFilter(logging.Filter):
    """Drops events of a place in the code that has logged many in a short time. The next event that
    passes has the number of those that were dropped. The table has one row per place."""

    def __init__(self) -> None:
        super().__init__()
        self._windows: dict[tuple[str, int], _Window] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno < logging.INFO:
            return True  # somebody wants to see all of them
        now = time.monotonic()
        place = record.pathname, record.lineno
        window = self._windows.get(place)
        if window is None:
            window = self._windows[place] = _Window(now)
        elif now - window.began > WINDOW_SECONDS:
            window.began, window.lines = now, 0
        window.lines += 1
        if window.lines > LINES_PER_WINDOW_MAX:
            window.suppressed += 1
            return False
        if window.suppressed:
            setattr(record, SUPPRESSED_ATTRIBUTE, window.suppressed)
            window.suppressed = 0
        return True
