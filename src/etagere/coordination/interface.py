"""The contract of a coordinator: liveness, sole workers and pins.

`coordination/local` is the coordinator for processes of one machine, `coordination/postgres` that
for processes of several machines, which share a database.

Pins are taken by every download, so taking, narrowing and closing one must not wait for anything.
Other processes need not see a pin at once. They have to see it no later than the answer of
`pinned` that they remove segments by: a driver may publish the pins of its process now and then,
and answer `pinned` once every live process has published after the call.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractAsyncContextManager
from typing import NamedTuple, Protocol, Self


class Pin(Protocol):
    """Keeps segments from being removed until it is closed.

    A new pin is *wide*: it keeps every segment that was in use when it was taken. Take it before
    the transaction that looks up where the bytes are, and narrow it to what that finds.
    """

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...

    def narrow(self, segments: Iterable[int]) -> None:
        """Limits a wide pin to these segments, all of which were found while it was held."""
        ...

    def release(self, segment: int) -> None:
        """Stops keeping one of the segments that the pin was narrowed to."""
        ...

    def close(self) -> None:
        """Stops keeping anything."""
        ...


class PinnedSegments(NamedTuple):
    """The segments that the readers of all live processes keep."""

    since: int | None
    """When the oldest wide pin was taken, if there is any, by the clock of the process that asked.
    A driver may give an earlier time, but none before the last answer that came before the pin."""
    segments: frozenset[int]

    def keeps(self, segment: int, retired_at: int) -> bool:
        """Returns whether a reader may still need a segment that was retired at this time or
        before."""
        return segment in self.segments or (self.since is not None and self.since <= retired_at)


class CoordinatorUnavailable(Exception):
    """The coordinator cannot answer now, for example because its database is unavailable."""


class NodeStatus(NamedTuple):
    """The state of a node of a cluster."""

    name: str
    is_draining: bool
    serves_files: bool
    """Whether it is the node that serves File and SMB."""


class TaskLock(Protocol):
    """Shows that this process is the only worker on a task."""

    @property
    def epoch(self) -> int:
        """Increases with each holder of the task. A transaction that records the epoch, and refuses
        lower ones, also stops a former holder that does not know yet that it lost the task. 0 if a
        running process cannot lose a task."""
        ...

    async def is_held(self) -> bool:
        """Returns whether this process still has the task. Ask before a step that is not decided by
        a transaction."""
        ...


class Coordinator(Protocol):
    """The view of a process on the other processes of the store. Methods that wait may raise
    `CoordinatorUnavailable`."""

    @property
    def process_id(self) -> bytes:
        """The id of this process, which no other process ever has."""
        ...

    @property
    def is_draining(self) -> bool:
        """Whether this process is to finish what is under way, and leave the rest to others. It
        gets no tasks then."""
        ...

    async def is_alive(self, process_id: bytes) -> bool:
        """Returns whether a process still runs. Once False, it is False for ever."""
        ...

    def sole_worker(self, task: str) -> AbstractAsyncContextManager[TaskLock | None]:
        """Makes this process the only worker on a task until the context ends. Yields None if
        another process is working on it. When a process ends, its tasks are free again."""
        ...

    def pin(self) -> Pin:
        """Takes a wide pin."""
        ...

    def timestamp(self) -> int:
        """Returns the time by a clock of this process, which `pinned` dates pins by."""
        ...

    async def pinned(self) -> PinnedSegments:
        """Returns what is pinned in all live processes. A reader that pins later also begins its
        snapshot later, and does not find what was retired before this call. Compare the answer only
        with timestamps of this process."""
        ...

    def close(self) -> None:
        """Ends the membership of this process: it is no longer alive to the others."""
        ...
