"""Vacuum: giving free pages of the database back to the file system, in bounded steps."""

from __future__ import annotations

import time

import apsw

from etagere.config import Config

_LOOK_SECONDS = 1.0
# A step is followed by a pause of so many times its length: the rest is for requests.
_PAUSE_FACTOR = 3.0
_PAUSE_SECONDS_MIN = 0.005
_INCREMENTAL = 2
_USED_PAGES_PER_FREE_PAGE = 8


class Vacuum:
    """Moves pages from the end of the file to free ones and cuts the end off, when much is free.

    Free pages are counted once a second. A database that was made without incremental vacuum keeps
    its free pages for later use, until `etagere compact` has rewritten it.
    """

    def __init__(self, config: Config) -> None:
        self._step_pages = config.vacuum_step_pages
        self._kept_pages = config.free_pages_kept
        self._next_at = 0.0
        self.is_due = False
        """Whether the last step has left something to do."""
        self.pause_seconds = _PAUSE_SECONDS_MIN

    def run_if_due(self, cursor: apsw.Cursor) -> None:
        """One step, if it is time. It is a transaction of its own; raises what SQLite does."""
        began = time.monotonic()
        if began < self._next_at:
            return
        # Before anything that may fail: then the next try is not at once.
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
