"""Counters that the front ends of one server publish to each other in shared memory.

There are no locks: each row is written by one process only, and of the one word that all of them
write it only matters that it changes. Decisions may be based on numbers of other front ends that
are slightly old.
"""

from __future__ import annotations

import mmap
import time
from collections.abc import Iterable, Sequence

from etagere.metrics.snapshots import Snapshot

_WORD_BYTES = 8
# The columns that every row has before those of the listeners.
_TURNS, _ACCEPTS, MEMORY, _MEMORY_AWAITED, _FIRST_LISTENER = range(5)


class FrontEndTable:
    """One row per front end. Created before the front ends are forked."""

    def __init__(self, front_ends: int, listeners: int) -> None:
        self.front_ends = front_ends
        self._columns = _FIRST_LISTENER + listeners
        words = front_ends * self._columns
        memory = mmap.mmap(-1, (words + 1) * _WORD_BYTES)
        self._words = memoryview(memory).cast("Q")
        self.properties_changed = self._words[words:]

    def row(self, number: int) -> FrontEndRow:
        """Returns the row of a front end, counted from 0. A process that replaces a dead one clears
        the row first."""
        start = number * self._columns
        return FrontEndRow(self._words[start : start + self._columns])

    def others(self, number: int, among: Iterable[int]) -> list[FrontEndRow]:
        return [self.row(other) for other in among if other != number]


class FrontEndRow:
    """The counters of one front end."""

    def __init__(self, words: memoryview[int]) -> None:
        self.words = words
        """The columns, for counters that change several times per request."""

    def clear(self) -> None:
        for column in range(len(self.words)):
            self.words[column] = 0

    @property
    def turns(self) -> int:
        """How often it has checked for new connections, which shows that it is alive."""
        return self.words[_TURNS]

    def count_turn(self) -> None:
        self.words[_TURNS] += 1

    @property
    def accepts(self) -> bool:
        return bool(self.words[_ACCEPTS])

    @accepts.setter
    def accepts(self, accepts: bool) -> None:
        self.words[_ACCEPTS] = accepts

    @property
    def memory_bytes(self) -> int:
        return self.words[MEMORY]

    @memory_bytes.setter
    def memory_bytes(self, count: int) -> None:
        self.words[MEMORY] = count

    @property
    def memory_is_awaited(self) -> bool:
        """Whether requests of this front end wait for memory."""
        return bool(self.words[_MEMORY_AWAITED])

    @memory_is_awaited.setter
    def memory_is_awaited(self, is_awaited: bool) -> None:
        self.words[_MEMORY_AWAITED] = is_awaited

    def connections(self, listener: int) -> int:
        return self.words[_FIRST_LISTENER + listener]

    def add_connections(self, listener: int, count: int) -> None:
        self.words[_FIRST_LISTENER + listener] += count


class ConnectionCounts:
    """The open connections of a front end, for its metrics."""

    def __init__(self, row: FrontEndRow, services: Sequence[str]) -> None:
        """`services` are those of its listeners, in their order."""
        self._row = row
        self._services = services

    def report(self, snapshot: Snapshot) -> None:
        for listener, service in enumerate(self._services):
            snapshot.add("connections", self._row.connections(listener), service)


class FrontEndShare:
    """One front end's view of the table: its own row, and those of the others."""

    def __init__(self, table: FrontEndTable, number: int, group: range | None = None) -> None:
        """`group` are the numbers of the front ends with the same listeners; None: all."""
        self.own_row = table.row(number)
        self.own_row.clear()
        everyone = range(table.front_ends)
        self.others = table.others(number, everyone)
        self.peers = table.others(number, everyone if group is None else group)
        """The others with the same listeners."""
        self._properties_changed = table.properties_changed
        # The process that this one replaces may have died before it could reset this.
        self.publish_change_of_properties()

    @property
    def properties_changed(self) -> int:
        """A number that differs from its earlier value if any front end has changed service
        properties."""
        return self._properties_changed[0]

    def publish_change_of_properties(self) -> None:
        self._properties_changed[0] = time.monotonic_ns()


def single_front_end() -> FrontEndShare:
    """Returns the view of the only front end of a server."""
    return FrontEndShare(FrontEndTable(1, 1), 0)
