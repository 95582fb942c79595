"""Open handles, and the indexes that find them."""

from __future__ import annotations

import asyncio
from array import array
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Final, NamedTuple

from etagere.model.files import ROOT_ID
from etagere.opens.caches import CacheGrant
from etagere.rules.opens import OpenMode, RangeLock


class Session(NamedTuple):
    """The session of an SMB client."""

    id: int
    client_address: str
    """IP address and port."""
    client_name: str = ""


class LockRange(NamedTuple):
    """A range to lock. The end is exclusive; an empty range is a lock, too."""

    start: int
    end: int
    exclusive: bool


@dataclass(slots=True, eq=False)
class OpenEntry:
    """A file or directory with open handles."""

    id: int
    directory_ids: tuple[int, ...]
    """The ids of the directories above it, the root first. The root has itself."""
    path: str
    is_directory: bool
    snapshot: int | None = None
    """The time of the share snapshot that it is in."""
    handles: dict[int, Handle] = field(default_factory=dict)
    """By id, in ascending order."""
    modes: dict[OpenMode, int] = field(default_factory=dict)
    """How many handles have each mode. Checks examine these: there are at most 64, and thousands of
    handles."""
    data_handles: int = 0
    """The number of handles with more than access to attributes."""
    locks: list[RangeLock] = field(default_factory=list)
    lock_queue: dict[LockWaiter, None] = field(default_factory=dict)
    """Those who wait for locks, in their order."""
    grants: dict[CacheGrant, None] = field(default_factory=dict)
    """What clients may cache. A grant that was broken to nothing is not among them."""
    is_delete_pending: bool = False
    """Whether it is deleted when the last handle is closed."""

    @property
    def parent_id(self) -> int:
        return self.directory_ids[-1]

    @property
    def is_root(self) -> bool:
        return self.id == ROOT_ID

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.path.split("/")) if self.path else ()


@dataclass(slots=True, eq=False)
class Handle:
    """An open handle."""

    id: int
    entry: OpenEntry
    mode: OpenMode
    session: Session
    opened: int
    """When it was opened, in ticks since 1970."""
    on_closed: Callable[[Handle], None]
    """Called when somebody else closes it."""
    reconnected: int | None = None
    """When the client last reconnected to it."""
    grant: CacheGrant | None = None
    """What the client may cache; None: it has neither an oplock nor a lease."""
    deletes_on_close: bool = False
    preserves_written: bool = False
    """Whether writes leave the last write time as it is, because the client has set it."""
    is_attribute_only: bool = False
    """Whether it has access to attributes alone, and is no reason to break caches."""
    is_open: bool = True


@dataclass(slots=True, eq=False)
class LockWaiter:
    """A handle that waits until it can lock ranges."""

    handle: Handle
    ranges: Sequence[LockRange]
    exclusive: bool
    """Whether any of the locks is exclusive."""
    end: asyncio.Future[bool]
    """Whether the ranges are locked; otherwise they are examined again."""


_SPARE_IDS: Final = 64


class HandleIndex:
    """The handles within a directory, in the order of their ids.

    Ids of closed handles stay until they are the majority: removing one at a time would move all
    that follow.
    """

    __slots__ = ("_ids", "_open", "directory_ids")

    def __init__(self) -> None:
        self.directory_ids: tuple[int, ...] = ()
        """The ids down to this directory, for the entries in it: one tuple for all of them."""
        self._ids = array("Q")
        self._open = 0

    def __len__(self) -> int:
        return self._open

    def add(self, handle_id: int) -> None:
        """Adds a new handle, whose id is greater than those of all others."""
        self._ids.append(handle_id)
        self._open += 1

    def count_closed(self, handles: Mapping[int, Handle]) -> None:
        """Counts a handle that was closed, and is not in `handles` any more."""
        self._open -= 1
        if len(self._ids) > 2 * self._open + _SPARE_IDS:
            self._ids = array("Q", (one for one in self._ids if one in handles))

    def add_all(self, handle_ids: Collection[int]) -> None:
        """Adds handles that were moved here."""
        self._ids = array("Q", sorted([*self._ids, *handle_ids]))
        self._open += len(handle_ids)

    def remove_all(self, handle_ids: Collection[int]) -> None:
        """Removes handles that stay open elsewhere."""
        self._ids = array("Q", (one for one in self._ids if one not in handle_ids))
        self._open -= len(handle_ids)

    def following(self, marker: int, handles: Mapping[int, Handle]) -> Iterator[Handle]:
        """Yields the open handles with an id of at least `marker`."""
        ids = self._ids
        for at in range(bisect_left(ids, marker), len(ids)):
            handle = handles.get(ids[at])
            if handle is not None:
                yield handle


class HandlePage(NamedTuple):
    """A page of handles in the order of their ids."""

    handles: list[Handle]
    following: int | None
    """The id of the first handle of the next page; None: there is none."""


class OpenTree:
    """The open entries of a share, or of a snapshot of it."""

    def __init__(self) -> None:
        self.entries: dict[int, OpenEntry] = {}
        self.handles: dict[int, Handle] = {}
        self._within: dict[int, HandleIndex] = {}
        """By the id of a directory: the handles on it, and on everything below it."""

    def add(self, handle: Handle) -> None:
        entry = handle.entry
        self.entries[entry.id] = entry
        self.handles[handle.id] = entry.handles[handle.id] = handle
        entry.modes[handle.mode] = entry.modes.get(handle.mode, 0) + 1
        entry.data_handles += not handle.is_attribute_only
        self._index(entry, handle.id)

    def remove(self, handle: Handle) -> None:
        entry = handle.entry
        del self.handles[handle.id], entry.handles[handle.id]
        if entry.modes[handle.mode] > 1:
            entry.modes[handle.mode] -= 1
        else:
            del entry.modes[handle.mode]
        entry.data_handles -= not handle.is_attribute_only
        for directory_id in _directories(entry):
            index = self._within[directory_id]
            index.count_closed(self.handles)
            if not index:
                del self._within[directory_id]
        if not entry.handles:
            del self.entries[entry.id]

    def move(self, entry: OpenEntry, directory_ids: tuple[int, ...], path: str) -> None:
        """Moves an entry, below which nothing is open, to another place."""
        before = _directories(entry)
        entry.directory_ids, entry.path = directory_ids, path
        after = _directories(entry)
        for directory_id in set(before).difference(after):
            index = self._within[directory_id]
            index.remove_all(entry.handles.keys())
            if not index:
                del self._within[directory_id]
        for directory_id in set(after).difference(before):
            self._index_of(directory_id).add_all(entry.handles.keys())
        self._share_directory_ids(entry)

    def _index(self, entry: OpenEntry, handle_id: int) -> None:
        for directory_id in _directories(entry):
            self._index_of(directory_id).add(handle_id)
        self._share_directory_ids(entry)

    def _index_of(self, directory_id: int) -> HandleIndex:
        index = self._within.get(directory_id)
        if index is None:
            index = self._within[directory_id] = HandleIndex()
        return index

    def _share_directory_ids(self, entry: OpenEntry) -> None:
        parent = self._within[entry.parent_id]
        if parent.directory_ids == entry.directory_ids:
            entry.directory_ids = parent.directory_ids
        else:
            parent.directory_ids = entry.directory_ids

    def is_open_below(self, directory_id: int) -> bool:
        """Returns whether anything below a directory is open, besides the directory itself."""
        own = self.entries.get(directory_id)
        return len(self._within.get(directory_id, ())) > (len(own.handles) if own else 0)

    def page(self, entry_id: int, marker: int, limit: int, *, is_recursive: bool) -> HandlePage:
        """Returns handles on an entry, and below it if asked, from the id `marker` on."""
        found: Iterator[Handle] = iter(())
        if is_recursive and entry_id in self._within:
            found = self._within[entry_id].following(marker, self.handles)
        elif entry_id in self.entries:
            found = (one for one in self.entries[entry_id].handles.values() if one.id >= marker)
        handles = list(islice(found, limit))
        following = next(found, None)
        return HandlePage(handles, None if following is None else following.id)


def _directories(entry: OpenEntry) -> tuple[int, ...]:
    """Returns the directories that have an entry within them, which include a directory itself."""
    if entry.is_directory and not entry.is_root:
        return (*entry.directory_ids, entry.id)
    return entry.directory_ids
