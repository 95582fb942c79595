"""Vacuum: returning free pages of the database to the file system, in bounded steps."""

from __future__ import annotations

import time

import apsw

from etagere.config import Config

_LOOK_SECONDS = 1.0
# The pause after a step, as a multiple of its duration, in which requests are served.
_PAUSE_FACTOR = 3.0
_PAUSE_SECONDS_MIN = 0.005
_INCREMENTAL = 2
_USED_PAGES_PER_FREE_PAGE = 8


class Vacuum:
    """Runs SQLite's incremental vacuum when much of the file is free: moves pages from the end of
    the file to free ones, and truncates it.

    Free pages are counted once a second. A database that was created without incremental vacuum
    keeps its free pages for reuse until `etagere compact` rewrites it.
    """

    def __init__(self, config: Config) -> None:
        self._step_pages = config.vacuum_step_pages
        self._kept_pages = config.free_pages_kept
        self._next_at = 0.0
        self.is_due = False
        """Whether the last step left something to do."""
        self.pause_seconds = _PAUSE_SECONDS_MIN

    def run_if_due(self, cursor: apsw.Cursor) -> None:
        """Runs one step, if it is time, in a transaction of its own. Raises `apsw.Error`."""
        began = time.monotonic()
        if began < self._next_at:
            return
        # Before anything that may fail, so that the next attempt is not made at once.
        self._next_at = began + _LOOK_SECONDS
        self.is_due = False
        surplus = self._surplus_pages(cursor)
        if surplus <= 0:
            return
        step = min(surplus, self._step_pages)
        # SQLite frees one page for each row that is fetched.
        cursor.execute(f"PRAGMA incremental_vacuum({step})").fetchall()
        ended = time.monotonic()
        self.pause_seconds = max(_PAUSE_SECONDS_MIN, (ended - began) * _PAUSE_FACTOR)
        self._next_at = ended + self.pause_seconds
        self.is_due = True

    def _surplus_pages(self, cursor: apsw.Cursor) -> int:
        free = _pragma(cursor, "freelist_count")
        if free <= self._kept_pages or _pragma(cursor, "auto_vacuum") != _INCREMENTAL:
            return 0
        used = _pragma(cursor, "page_count") - free
        return free - self._kept_pages - used // _USED_PAGES_PER_FREE_PAGE


def _pragma(cursor: apsw.Cursor, name: str) -> int:
    ((value,),) = cursor.execute(f"PRAGMA {name}")
    return int(value)
