"""Memory for bytes on their way to and from an object store."""

from __future__ import annotations

from typing import Protocol


class Budget(Protocol):
    """The memory budget of a server, which all its processes share. Sizes are in bytes."""

    def reserve_spare(self, size: int) -> bool:
        """Reserves memory that only makes requests faster, if there is enough; returns whether it
        did."""
        ...

    def release(self, size: int) -> None: ...


class BufferMemory:
    """The memory that uploads and downloads of this process may use in addition to what is counted
    for each request: see `docs/decisions/0039`. Those that get none continue with less. Sizes are
    in bytes."""

    def __init__(self, bytes_max: int, budget: Budget | None = None) -> None:
        self._bytes_max = bytes_max
        self._budget = budget
        self.used_bytes = 0

    def reserve(self, size: int) -> bool:
        """Reserves memory if there is enough; returns whether it did."""
        if self.used_bytes + size > self._bytes_max:
            return False
        if self._budget is not None and not self._budget.reserve_spare(size):
            return False
        self.used_bytes += size
        return True

    def release(self, size: int) -> None:
        self.used_bytes -= size
        if size and self._budget is not None:
            self._budget.release(size)
