"""The files of a share with gathered writes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, TypeVar

from etagere.model.open_files import OpenFileRef
from etagere.model.shares import ShareName
from etagere.opens.gathering import GatheredFile

if TYPE_CHECKING:
    from etagere.opens.handles import OpenEntry

T = TypeVar("T")


class GatheredFiles:
    """The files of a share with gathered writes, and the holds that keep writers waiting.

    A transaction that changes the content, the length or the place of a file directly holds its
    writers: what is gathered must apply to the state that the ledger has.
    """

    def __init__(self, share: ShareName, share_id: bytes, notify: Callable[[], None]) -> None:
        """`notify` wakes those who wait for the end of a hold, or for room."""
        self.share = share
        self.notify = notify
        self._share_id = share_id
        self.holds_ended = 0
        """How many holds have ended: the length of a file that was read before may have changed."""
        self.allowance = 0
        """By how much files may still grow before the quota is examined again,"""
        self.allowed_until = 0.0
        """and until when."""
        self._files: dict[int, GatheredFile] = {}
        self._held: dict[int, int] = {}
        self._all_held = 0

    def __len__(self) -> int:
        return len(self._files)

    def ref(self, entry: OpenEntry) -> OpenFileRef:
        name = entry.path.rpartition("/")[2]
        ids = entry.parent_id, name, entry.id
        return OpenFileRef(self.share, self._share_id, *ids, entry.snapshot)

    def get(self, entry_id: int) -> GatheredFile | None:
        return self._files.get(entry_id)

    async def read(
        self, entry_id: int, read: Callable[[], Awaitable[T]]
    ) -> tuple[T, GatheredFile | None]:
        """Reads from the ledger. Returns the file with the changes that are missing there, too."""
        while True:
            file = self._files.get(entry_id)
            stores = 0 if file is None else file.stores
            result = await read()
            now = self._files.get(entry_id)
            if file is None or (now is file and file.stores == stores):
                return result, now

    def add(self, file: GatheredFile) -> None:
        self._files[file.entry.id] = file

    def remove(self, file: GatheredFile) -> None:
        """Forgets a file without changes."""
        if self._files.get(file.entry.id) is file:
            del self._files[file.entry.id]
            file.end()
            self.notify()

    @property
    def growth(self) -> int:
        """How much longer the files are than in the ledger."""
        return sum(file.growth for file in self._files.values())

    @property
    def being_stored(self) -> list[GatheredFile]:
        return [file for file in self._files.values() if file.is_being_stored]

    # Holds

    def is_held(self, entry_id: int) -> bool:
        return bool(self._all_held) or entry_id in self._held

    def hold(self, entry_id: int | None) -> None:
        """Keeps the writers of a file, or (None) of all, waiting until `end_hold`."""
        if entry_id is None:
            self._all_held += 1
        else:
            self._held[entry_id] = self._held.get(entry_id, 0) + 1

    def end_hold(self, entry_id: int | None) -> None:
        if entry_id is None:
            self._all_held -= 1
        elif self._held[entry_id] > 1:
            self._held[entry_id] -= 1
        else:
            del self._held[entry_id]
        self.holds_ended += 1
        self.notify()

    @asynccontextmanager
    async def stored(self, entry_id: int) -> AsyncIterator[None]:
        """Flushes a file, and lets its writers wait until the context ends: for a transaction that
        changes the content, the length or the place of an open file directly."""
        self.hold(entry_id)
        try:
            await self.flush(entry_id)
            yield
        finally:
            self.end_hold(entry_id)

    # Flushing

    async def flush(self, entry_id: int) -> None:
        file = self._files.get(entry_id)
        if file is not None:
            await self._flush((file,))

    async def flush_in(self, directory_id: int) -> None:
        """Flushes the files in a directory, not those further down."""
        if self._files:
            files = self._files.values()
            await self._flush([one for one in files if one.entry.parent_id == directory_id])

    async def flush_all(self) -> None:
        await self._flush(list(self._files.values()))

    async def _flush(self, files: Sequence[GatheredFile]) -> None:
        flushes = (file.flush() for file in files)
        for failure in await asyncio.gather(*flushes, return_exceptions=True):
            if failure is not None:
                raise failure
        for file in files:
            if file.is_empty:
                # A writer that waits must examine the length again.
                self.remove(file)

    def discard(self, entry_id: int) -> None:
        """Forgets what was written to a file that was deleted."""
        file = self._files.get(entry_id)
        if file is not None:
            file.drop()

    def drop(self) -> None:
        """Forgets everything, because the share was deleted."""
        for file in list(self._files.values()):
            file.drop()
