"""A client of the table of opens in the same process: opens entries by their paths."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from etagere.clock import Clock
from etagere.engine.interface import Engine, Refused, abort_if
from etagere.errors import Refusal
from etagere.model.files import EntryPath
from etagere.model.shares import ShareName
from etagere.opens.admission import PendingOpen
from etagere.opens.caches import CacheGrant
from etagere.opens.handles import Handle, Session
from etagere.opens.share import ShareOpens
from etagere.opens.table import OpenTable
from etagere.operations.file.tree import LocatedEntry, is_directory_empty, locate_entry
from etagere.rules.opens import OpenMode, check_open

OPEN_WAIT_SECONDS_MAX: Final = 10.0
"""How long an open waits for REST operations, which are short."""


def _ignore(_handle: Handle) -> None:
    pass


class ShareClient:
    """A session that is connected to a share. Its methods raise `Refused`."""

    def __init__(
        self,
        engine: Engine,
        table: OpenTable,
        share: ShareOpens,
        session: Session,
        clock: Clock,
        on_closed: Callable[[Handle], None] = _ignore,
    ) -> None:
        """`on_closed` is called when somebody else has closed a handle of this client."""
        self._engine = engine
        self._table = table
        self._clock = clock
        self._on_closed = on_closed
        self.share = share
        self.session = session
        self.handles: dict[int, Handle] = {}

    async def open(
        self,
        path: EntryPath,
        mode: OpenMode,
        *,
        grant: CacheGrant | None = None,
        deletes_on_close: bool = False,
        seconds_max: float = OPEN_WAIT_SECONDS_MAX,
    ) -> Handle:
        """Opens an existing entry. Waits for REST operations that are in the way."""
        try:
            async with asyncio.timeout(seconds_max):
                return await self._open(path, mode, grant, deletes_on_close)
        except TimeoutError:
            raise Refused(Refusal("SharingViolation")) from None

    async def _open(
        self, path: EntryPath, mode: OpenMode, grant: CacheGrant | None, deletes_on_close: bool
    ) -> Handle:
        is_current = path.ref.snapshot is None
        pending: PendingOpen | None = None
        try:
            while True:
                located = await self._locate(path)
                if is_current and self.share.rest.is_delayed(located, mode):
                    if pending is None:
                        pending = PendingOpen(located.entry_id, mode)
                        self.share.rest.announce(pending)
                    await self.share.changes.next()
                    continue
                handle = self.share.open(
                    located,
                    mode,
                    self.session,
                    self._clock.wall(),
                    self._forget,
                    snapshot=path.ref.snapshot,
                    grant=grant,
                    deletes_on_close=deletes_on_close,
                )
                if not is_current or await self._is_still_there(path, located, handle):
                    self.handles[handle.id] = handle
                    return handle
        finally:
            if pending is not None:
                self.share.rest.withdraw(pending)

    async def _locate(self, path: EntryPath) -> LocatedEntry:
        located = await self._engine.read(locate_entry, path)
        if located.share_id != self.share.id:
            raise Refused(Refusal("ShareBeingDeleted"))
        located.found(path.components)
        return located

    async def _is_still_there(self, path: EntryPath, located: LocatedEntry, handle: Handle) -> bool:
        """Returns whether the entry is where it was before it was opened; closes the handle if not.

        From the time when it was opened, no REST operation moves, removes or leases it, so this
        read shows what an earlier one could have missed.
        """
        try:
            again = await self._locate(path)
            leased, copied = again.is_leased, again.is_copied
            abort_if(check_open(handle.mode, (), leased=leased, copied=copied))
        except BaseException:
            self._abandon(handle)
            raise
        is_there = again[:2] == located[:2] and again.entry_id == located.entry_id
        if not is_there:
            self._abandon(handle)
        return is_there

    def _abandon(self, handle: Handle) -> None:
        handle.deletes_on_close = False
        self.share.close(handle)

    def _forget(self, handle: Handle) -> None:
        self.handles.pop(handle.id, None)
        self._on_closed(handle)

    async def close(self, handle: Handle) -> None:
        """Closes a handle; returns when its entry is deleted, if it is deleted on close."""
        self.handles.pop(handle.id, None)
        deletion = self.share.close(handle)
        if deletion is not None:
            await asyncio.shield(deletion)

    async def set_delete_pending(self, handle: Handle) -> None:
        """Marks the entry of a handle, which is deleted when its last handle is closed."""
        entry = handle.entry

        async def is_empty() -> bool:
            return await self._engine.read(is_directory_empty, (self.share.id, entry.id))

        await self.share.set_delete_pending(handle, is_empty if entry.is_directory else None)

    async def disconnect(self) -> None:
        """Closes all handles and leaves the share."""
        for handle in list(self.handles.values()):
            await self.close(handle)
        self._table.detach(self.share)


async def connect(
    engine: Engine,
    table: OpenTable,
    name: ShareName,
    session: Session,
    clock: Clock,
    on_closed: Callable[[Handle], None] = _ignore,
) -> ShareClient:
    """Connects a session to a share."""
    return ShareClient(engine, table, await table.attach(name), session, clock, on_closed)
