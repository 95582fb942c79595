"""The opens of one share: open, close, lock, delete on close.

Nothing here waits between a check and the registration of what was checked, so that no other open
or REST operation can come in between. Whoever has to wait holds nothing meanwhile, and checks
everything again afterwards.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable

from etagere.engine.interface import Refused, abort_if
from etagere.errors import Refusal
from etagere.model.files import DirectoryNode
from etagere.model.shares import ShareName
from etagere.opens.admission import RestAdmission
from etagere.opens.caches import CacheGrant
from etagere.opens.changes import ChangeSignal
from etagere.opens.deletions import EntryDeleter, PendingDeletions
from etagere.opens.gathering import GatheredFiles
from etagere.opens.handles import Handle, HandlePage, OpenEntry, OpenTree, Session
from etagere.opens.watches import Watches
from etagere.operations.file.tree import LocatedEntry
from etagere.rules.opens import (
    OpenMode,
    RangeLock,
    check_delete_pending,
    check_handle_count,
    check_lock,
    check_open,
)

logger = logging.getLogger(__name__)


class HandleSupply:
    """The ids of the handles of a process, and the number of those that are open."""

    def __init__(self, first_id: int, handles_max: int) -> None:
        self._next_id = first_id
        self._handles_max = handles_max
        self.open = 0

    def take(self) -> int:
        if self.open >= self._handles_max:
            raise Refused(Refusal("HandleLimitExceeded"))
        self.open += 1
        self._next_id += 1
        return self._next_id - 1

    def give_back(self) -> None:
        self.open -= 1


class ShareOpens:
    """The opens of one share."""

    def __init__(
        self, name: ShareName, share_id: bytes, supply: HandleSupply, delete: EntryDeleter
    ) -> None:
        self.name = name
        self.id = share_id
        self.clients = 0
        """The number of SMB clients that are connected to the share."""
        self.is_gone = False
        """Whether the share was deleted."""
        self.current = OpenTree()
        self.changes = ChangeSignal()
        self.gathered = GatheredFiles(name, share_id, self.changes.notify)
        self.watches = Watches()
        self.deletions = PendingDeletions(name, delete, self.changes)
        self.rest = RestAdmission(self.current, self.deletions, self.changes, self.gathered)
        self._snapshots: dict[int, OpenTree] = {}
        self._supply = supply

    @property
    def is_idle(self) -> bool:
        """Whether nobody uses this object, so that the share need not be tracked."""
        return self.rest.is_idle and not (
            self.clients
            or self.current.handles
            or self._snapshots
            or self.deletions
            or self.gathered
        )

    # Opens

    def open(
        self,
        located: LocatedEntry,
        mode: OpenMode,
        session: Session,
        opened: int,
        on_closed: Callable[[Handle], None],
        *,
        snapshot: int | None = None,
        grant: CacheGrant | None = None,
        deletes_on_close: bool = False,
    ) -> Handle:
        """Opens an entry. The caller has made sure that no REST operation delays it, and verifies
        afterwards that the entry is still where it was."""
        entry = self._entry(located, snapshot)
        if self.is_gone:
            raise Refused(Refusal("ShareBeingDeleted"))
        if snapshot is None:
            self.deletions.refuse(located)
            leased, copied = located.is_leased, located.is_copied
            abort_if(check_open(mode, entry.modes, leased=leased, copied=copied))
        abort_if(check_handle_count(len(entry.handles), is_root=entry.is_root))
        if deletes_on_close:
            abort_if(check_delete_pending(mode))
        handle = Handle(
            self._supply.take(),
            entry,
            mode,
            session,
            opened,
            on_closed,
            grant=grant,
            deletes_on_close=deletes_on_close,
        )
        if grant is not None:
            entry.grants[grant] = entry.grants.get(grant, 0) + 1
        self._tree(snapshot).add(handle)
        return handle

    def _entry(self, located: LocatedEntry, snapshot: int | None) -> OpenEntry:
        """Returns the entry, which is new if it is not open yet."""
        found = located.entry
        if found is None:
            raise Refused(Refusal("ResourceNotFound"))
        tree = self.current if snapshot is None else self._snapshots.get(snapshot)
        known = None if tree is None else tree.entries.get(found.id)
        is_directory = isinstance(found.node, DirectoryNode)
        return known or OpenEntry(
            found.id, located.directory_ids, located.path, is_directory, snapshot
        )

    def _tree(self, snapshot: int | None) -> OpenTree:
        return (
            self.current if snapshot is None else self._snapshots.setdefault(snapshot, OpenTree())
        )

    def close(self, handle: Handle) -> asyncio.Task[None] | None:
        """Closes a handle. Returns the deletion of its entry, if that begins with it."""
        if not handle.is_open:
            return None
        handle.is_open = False
        entry = handle.entry
        if entry.locks:
            entry.locks = [lock for lock in entry.locks if lock.handle != handle.id]
        if handle.grant is not None:
            self._drop_grant(entry, handle.grant)
        if handle.deletes_on_close and entry.snapshot is None:
            self.deletions.mark(entry)
        self._tree(entry.snapshot).remove(handle)
        self._supply.give_back()
        if entry.snapshot is not None and not self._snapshots[entry.snapshot].handles:
            del self._snapshots[entry.snapshot]
        if entry.handles or not entry.is_delete_pending:
            return None
        return self.deletions.start(entry)

    def _drop_grant(self, entry: OpenEntry, grant: CacheGrant) -> None:
        if entry.grants[grant] > 1:
            entry.grants[grant] -= 1
        else:
            del entry.grants[grant]
            grant.end()

    def force_close(self, handles: Iterable[Handle]) -> list[asyncio.Task[None]]:
        """Closes handles and notifies their owners. Returns the deletions that this starts."""
        closed = [(handle, self.close(handle)) for handle in handles if handle.is_open]
        for handle, _ in closed:
            _notify_owner(handle)
        return [deletion for _, deletion in closed if deletion is not None]

    def drop(self) -> None:
        """Closes all handles because the share was deleted."""
        self.is_gone = True
        self.deletions.clear_all()
        for tree in (self.current, *self._snapshots.values()):
            self._drop_handles(tree)
        self.gathered.drop()
        self.changes.notify()

    def drop_snapshot(self, snapshot: int) -> None:
        """Closes the handles on a snapshot of the share that was deleted."""
        tree = self._snapshots.get(snapshot)
        if tree is not None:
            self._drop_handles(tree)

    def _drop_handles(self, tree: OpenTree) -> None:
        for handle in list(tree.handles.values()):
            handle.deletes_on_close = False
            self.close(handle)
            _notify_owner(handle)

    def find(
        self,
        handle_id: int,
        entry_id: int,
        *,
        snapshot: int | None = None,
        is_recursive: bool = False,
    ) -> Handle | None:
        """Returns a handle if it is on this entry, or below it if asked."""
        tree = self.current if snapshot is None else self._snapshots.get(snapshot)
        handle = None if tree is None else tree.handles.get(handle_id)
        if handle is None:
            return None
        is_below = is_recursive and entry_id in handle.entry.directory_ids
        return handle if is_below or handle.entry.id == entry_id else None

    def page(
        self,
        entry_id: int,
        marker: int,
        limit: int,
        *,
        snapshot: int | None = None,
        is_recursive: bool = False,
    ) -> HandlePage:
        """Returns handles on an entry, and below it if asked, in the order of their ids."""
        tree = self.current if snapshot is None else self._snapshots.get(snapshot)
        if tree is None:
            return HandlePage([], None)
        return tree.page(entry_id, marker, limit, is_recursive=is_recursive)

    # Byte-range locks

    async def lock(self, handle: Handle, start: int, end: int, *, exclusive: bool) -> None:
        """Locks a range. Waits for REST operations in progress, but not for other locks."""
        entry = handle.entry
        while self.rest.is_lock_delayed(entry.id, exclusive=exclusive):
            await self.changes.next()
        lock = RangeLock(handle.id, start, end, exclusive)
        abort_if(check_lock(lock, entry.locks))
        if handle.is_open:
            entry.locks.append(lock)

    def unlock(self, handle: Handle, start: int, end: int) -> bool:
        """Removes the oldest lock of this handle on exactly this range; returns whether there was
        one."""
        locks = handle.entry.locks
        for at, lock in enumerate(locks):
            if lock[:3] == (handle.id, start, end):
                del locks[at]
                return True
        return False

    # Deletion

    async def set_delete_pending(
        self, handle: Handle, is_empty: Callable[[], Awaitable[bool]] | None = None
    ) -> None:
        """Marks an entry, which is deleted when its last handle is closed. `is_empty` returns
        whether a directory has no entries."""
        entry = handle.entry
        abort_if(check_delete_pending(handle.mode))
        if entry.is_root or entry.snapshot is not None:
            raise Refused(Refusal("CannotDeleteFileOrDirectory"))
        if entry.is_delete_pending:
            return
        self.deletions.mark(entry)
        if is_empty is None:
            return
        # From now on nothing is created in the directory, except by operations in progress.
        try:
            while self.rest.is_creating_in(entry.id):
                await self.changes.next()
            empty = await is_empty()
        except BaseException:
            self.deletions.clear(entry)
            raise
        if not empty:
            self.deletions.clear(entry)
            raise Refused(Refusal("DirectoryNotEmpty"))

    def clear_delete_pending(self, handle: Handle) -> None:
        abort_if(check_delete_pending(handle.mode))
        self.deletions.clear(handle.entry)


def _notify_owner(handle: Handle) -> None:
    try:
        handle.on_closed(handle)
    except Exception:
        logger.exception("could not notify a client that its handle was closed")
