"""The contract of a driver for an object store.

A driver stores immutable objects under names, for the processes of any number of machines. The body
store gives every object a name that was never used before, writes it once as a whole, and reads
ranges of it. It needs nothing else: no rename, no append, no multipart upload.

Every call ends within a bounded time. It raises `Fault` if the store cannot be reached
(`UNAVAILABLE`), is full (`DISK_FULL`) or refuses the request (`FAILED`). Drivers retry what may
succeed at the second attempt; callers do not.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from typing import Final, NamedTuple, Protocol

OBJECT_BYTES_MAX: Final = 64 << 20
"""The most that an object contains."""
NAME_BYTES_MAX: Final = 256
"""The maximum length of a name, which consists of `a-z`, `0-9`, `-`, `_`, `.` and `/`."""


class ObjectMissing(Exception):
    """There is no object with this name."""


class ObjectExists(Exception):
    """There is an object with this name, which was not overwritten."""


class ObjectEntry(NamedTuple):
    """An object in a listing."""

    name: str
    size: int
    """In bytes."""


class ObjectStore(Protocol):
    """The objects of one store, as one process uses them from one event loop."""

    async def put(self, name: str, buffers: Sequence[bytes | bytearray | memoryview]) -> None:
        """Stores a new object, which consists of these buffers and at least one byte. It is durable
        and visible to everyone on return. The buffers must not change before.

        Raises `ObjectExists`, and changes nothing, if the name is used; a store that cannot check
        this overwrites the object. A driver that retries does not report what an earlier attempt of
        the same call has stored.

        After a `Fault`, or if the call is cancelled, the object may exist, or may appear later."""
        ...

    async def get(self, name: str, offset: int, length: int) -> bytes:
        """Returns a range of an object: `length` bytes, or fewer at its end, or none past it.
        Raises `ObjectMissing`."""
        ...

    async def delete(self, names: Iterable[str]) -> None:
        """Deletes objects. Missing ones are ignored. After a `Fault`, some may be deleted."""
        ...

    def list(self, prefix: str) -> AsyncIterator[ObjectEntry]:
        """Yields the objects whose names begin with a prefix, which is empty or ends with `/`, in
        no particular order. An object that exists during the whole listing is included once."""
        ...

    def names(self, prefix: str) -> AsyncIterator[str]:
        """Yields the names that `list` would: some stores list names much faster without sizes."""
        ...

    async def close(self) -> None:
        """Closes the driver. No call may be under way."""
        ...
