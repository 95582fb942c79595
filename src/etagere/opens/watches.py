"""Watches: SMB clients that wait for changes in a directory.

Whoever has changed an entry reports it to the watches of the share. A watch keeps what its client
has not fetched yet, up to a limit: after that the client has to list the directory.
"""

from __future__ import annotations

import asyncio
import enum
from collections import deque
from collections.abc import Iterable
from typing import Final, NamedTuple

EVENTS_MAX: Final = 1_000
"""The maximum number of changes that a watch keeps."""
_WOKEN_AT_ONCE_MAX: Final = 32
"""The most that are woken in one iteration of the event loop; each takes about 0.1 ms."""


class ChangeAction(enum.Enum):
    """What has happened to an entry."""

    ADDED = enum.auto()
    REMOVED = enum.auto()
    MODIFIED = enum.auto()
    RENAMED_FROM = enum.auto()
    RENAMED_TO = enum.auto()


class ChangeSubject(enum.IntFlag):
    """What a change concerns. A watch names the subjects that it is for."""

    FILE_NAME = 0x001
    DIRECTORY_NAME = 0x002
    ATTRIBUTES = 0x004
    SIZE = 0x008
    LAST_WRITE = 0x010
    LAST_ACCESS = 0x020
    CREATION = 0x040
    EXTENDED_ATTRIBUTES = 0x080
    SECURITY = 0x100


class Change(NamedTuple):
    """A change of an entry."""

    action: ChangeAction
    subjects: ChangeSubject
    directory_ids: tuple[int, ...]
    """The IDs of the directories above the entry, the root first."""
    names: tuple[str, ...]
    """The names on the way from the root, the last one that of the entry."""


class WatchedChange(NamedTuple):
    """A change as a watch sees it."""

    action: ChangeAction
    names: tuple[str, ...]
    """The names on the way from the directory."""


class Watch:
    """A client that waits for changes in a directory."""

    def __init__(
        self,
        watches: Watches,
        directory_id: int,
        subjects: int,
        *,
        is_recursive: bool,
        bytes_max: int = 0,
    ) -> None:
        """`bytes_max` is the maximum length of changes that the client wants to know at once."""
        self.directory_id = directory_id
        self.subjects = subjects
        self.is_recursive = is_recursive
        self.bytes_max = bytes_max
        self._watches = watches
        self._events: deque[WatchedChange] = deque()
        self._has_lost_events = False
        self._waiters: deque[asyncio.Future[None]] = deque()
        self.is_ended = False
        self.is_deleted = False
        """Whether it has ended because the directory is to be deleted."""
        watches.add(self)

    def report(self, change: WatchedChange) -> None:
        if self._has_lost_events or (self._events and self._events[-1] == change):
            return
        if len(self._events) >= EVENTS_MAX:
            self._has_lost_events = True
            self._events.clear()
        else:
            self._events.append(change)
        self.wake_one()

    def wake_one(self) -> None:
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                self._watches.wake(self, waiter)
                return

    @property
    def has_events(self) -> bool:
        return bool(self._events) or self._has_lost_events

    async def wait(self) -> None:
        """Waits for a change, or for the end. Those who wait take turns."""
        waiter = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        try:
            await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled():
                # What this one was woken for is for the next one.
                self.wake_one()
            raise

    def take(self) -> list[WatchedChange] | None:
        """Returns the changes since the last time; None: there were too many."""
        events, lost = list(self._events), self._has_lost_events
        self._events.clear()
        self._has_lost_events = False
        return None if lost else events

    def end(self) -> None:
        """Ends the watch: the directory was closed."""
        if not self.is_ended:
            self.is_ended = True
            self._watches.remove(self)
            for waiter in self._waiters:
                if not waiter.done():
                    waiter.set_result(None)
            self._waiters.clear()


class Watches:
    """The watches of a share."""

    def __init__(self) -> None:
        self._by_directory: dict[int, dict[Watch, None]] = {}
        self._waking: deque[tuple[Watch, asyncio.Future[None]]] = deque()
        """Those whose turn to be woken has not come."""
        self._is_waking = False

    def __bool__(self) -> bool:
        return bool(self._by_directory)

    def add(self, watch: Watch) -> None:
        self._by_directory.setdefault(watch.directory_id, {})[watch] = None

    def remove(self, watch: Watch) -> None:
        watches = self._by_directory[watch.directory_id]
        del watches[watch]
        if not watches:
            del self._by_directory[watch.directory_id]

    def mark_deleted(self, directory_id: int) -> None:
        """Ends the watches of a directory that is to be deleted."""
        for watch in list(self._by_directory.get(directory_id, ())):
            watch.is_deleted = True
            watch.end()

    def report(self, changes: Iterable[Change]) -> None:
        """Tells the watches of changes that have happened together."""
        if not self._by_directory:
            return
        for change in changes:
            self._report(change)

    def wake(self, watch: Watch, waiter: asyncio.Future[None]) -> None:
        """Wakes one who waits for a change, when it is its turn: to tell thousands of clients at
        once would keep everybody else waiting."""
        self._waking.append((watch, waiter))
        if not self._is_waking:
            self._is_waking = True
            asyncio.get_running_loop().call_soon(self._wake_some)

    def _wake_some(self) -> None:
        for _ in range(min(len(self._waking), _WOKEN_AT_ONCE_MAX)):
            watch, waiter = self._waking.popleft()
            if not waiter.done():
                waiter.set_result(None)
            elif not watch.is_ended:
                # It was cancelled: the change is for the next one.
                watch.wake_one()
        self._is_waking = bool(self._waking)
        if self._is_waking:
            asyncio.get_running_loop().call_soon(self._wake_some)

    def _report(self, change: Change) -> None:
        directory_ids = change.directory_ids
        for depth, directory_id in enumerate(directory_ids):
            watches = self._by_directory.get(directory_id)
            if not watches:
                continue
            is_parent = depth == len(directory_ids) - 1
            # One for all: a watch may keep a thousand.
            seen = WatchedChange(change.action, change.names[depth:])
            for watch in watches:
                if watch.subjects & change.subjects and (is_parent or watch.is_recursive):
                    watch.report(seen)
