"""The opens of one share: open, close, lock, delete on close.

Nothing here waits between a check and the registration of what was checked, so that no other open
or REST operation can come in between. Whoever has to wait holds nothing meanwhile, and checks
everything again afterwards.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from itertools import islice
from typing import Final

from etagere.engine.interface import Refused, abort_if
from etagere.errors import Refusal
from etagere.model.files import DirectoryNode
from etagere.model.shares import ShareName
from etagere.nt_status import NtStatus
from etagere.opens.admission import RestAdmission
from etagere.opens.breaking import (
    break_for_open,
    break_for_rest,
    break_for_write,
    break_handles_for_open,
    other_opens,
)
from etagere.opens.caches import LeaseTable
from etagere.opens.changes import ChangeSignal
from etagere.opens.deletions import Deletion, EntryDeleter, PendingDeletions
from etagere.opens.gathered_files import GatheredFiles
from etagere.opens.handles import (
    Handle,
    HandlePage,
    LockRange,
    OpenEntry,
    OpenTree,
    Session,
)
from etagere.opens.locks import ignore_wait, lock, release_locks, unlock
from etagere.opens.requests import CachingRequest, OpenRequest
from etagere.opens.watches import Watches
from etagere.operations.file.tree import LocatedEntry
from etagere.rules.opens import (
    OpenMode,
    RestAccess,
    check_delete_pending,
    check_handle_count,
    check_handle_read,
    check_handle_write,
    check_open,
)

logger = logging.getLogger(__name__)

HANDLE_CLOSED: Final = Refusal("InvalidInput", nt_status_override=NtStatus.FILE_CLOSED)
_DROPPED_AT_ONCE_MAX: Final = 250
"""The most handles that are closed without a pause; each takes about 10 µs."""


class HandleSupply:
    """The ids of the handles of a process, and the number of those that are open."""

    def __init__(self, first_id: int, handles_max: int) -> None:
        self._next_id = first_id
        self._handles_max = handles_max
        self.open = 0

    def check(self) -> None:
        """Refuses one more handle if there are too many."""
        if self.open >= self._handles_max:
            raise Refused(Refusal("HandleLimitExceeded"))

    def take(self) -> int:
        self.check()
        self.open += 1
        self._next_id += 1
        return self._next_id - 1

    def give_back(self) -> None:
        self.open -= 1


class ShareOpens:
    """The opens of one share."""

    def __init__(
        self,
        name: ShareName,
        share_id: bytes,
        supply: HandleSupply,
        leases: LeaseTable,
        delete: EntryDeleter,
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
        self.deletions = PendingDeletions(name, delete, self.changes, self.watches)
        self.rest = RestAdmission(self.current, self.deletions, self.changes, self.gathered)
        self._snapshots: dict[int, OpenTree] = {}
        self._supply = supply
        self._leases = leases

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

    @property
    def is_used_over_smb(self) -> bool:
        """Whether SMB clients are connected to the share, or something that they did is not in the
        ledger yet."""
        return bool(self.clients or self.deletions or self.gathered)

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
        caching: CachingRequest | None = None,
        deletes_on_close: bool = False,
        is_attribute_only: bool = False,
    ) -> Handle:
        """Opens an entry. The caller has made sure that no REST operation delays it, and that the
        entry is still where it was, or verifies that afterwards."""
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
            if entry.is_root:
                raise Refused(Refusal("CannotDeleteFileOrDirectory"))
        handle = Handle(
            self._supply.take(),
            entry,
            mode,
            session,
            opened,
            on_closed,
            deletes_on_close=deletes_on_close,
            is_attribute_only=is_attribute_only,
        )
        if caching is not None and snapshot is None and not entry.is_directory:
            self._grant(handle, caching)
        self._tree(snapshot).add(handle)
        return handle

    def _grant(self, handle: Handle, asked: CachingRequest) -> None:
        entry = handle.entry
        own = self._leases.find_for(asked, entry)
        others = other_opens(entry, own)
        if self.rest.is_changing(entry.id):
            others = others._replace(changes=True)
        handle.grant = self._leases.grant(asked, entry, entry.grants, others)
        if handle.grant is not None:
            has_data = not handle.is_attribute_only
            handle.grant.add_handle(handle.id, asked.notify, has_data=has_data)

    def obstacle(
        self, located: LocatedEntry, mode: OpenMode, request: OpenRequest, *, overwrites: bool
    ) -> asyncio.Future[None] | None:
        """Refuses an open that other handles do not allow. Returns what it has to wait for: breaks
        of the caches of others. `mode` is that of the request, with what an overwrite needs."""
        entry = self.current.entries.get(located.entry_id)
        own = self._leases.find_for(request.caching, entry)
        self.deletions.refuse(located)
        abort_if(check_open(mode, (), leased=located.is_leased, copied=located.is_copied))
        if entry is None:
            return None
        awaited = break_handles_for_open(entry, mode, own)
        if awaited is None and (overwrites or not request.is_attribute_only):
            spares_leases = request.spares_leases and not overwrites
            awaited = break_for_open(entry, own, overwrites=overwrites, spares_leases=spares_leases)
        return awaited

    def check_creation(self, located: LocatedEntry, request: OpenRequest) -> None:
        """Refuses to create an entry that could not be opened then."""
        self.deletions.refuse(located)
        self._leases.find_for(request.caching, None)
        self._supply.check()
        if self.is_gone:
            raise Refused(Refusal("ShareBeingDeleted"))

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

    def count_locks(self) -> int:
        trees = (self.current, *self._snapshots.values())
        return sum(len(entry.locks) for tree in trees for entry in tree.entries.values())

    def close(self, handle: Handle) -> Deletion | None:
        """Closes a handle. Returns the deletion of its entry, if that begins with it."""
        if not handle.is_open:
            return None
        handle.is_open = False
        entry = handle.entry
        release_locks(handle, self.rest)
        grant = handle.grant
        if grant is not None and grant.remove_handle(
            handle.id, has_data=not handle.is_attribute_only
        ):
            self._leases.remove(grant)
        if handle.deletes_on_close and entry.snapshot is None and not entry.is_delete_pending:
            self.deletions.mark(entry)
            break_for_rest(entry, RestAccess.DELETE, handle)
        self._tree(entry.snapshot).remove(handle)
        self._supply.give_back()
        if entry.snapshot is not None and not self._snapshots[entry.snapshot].handles:
            del self._snapshots[entry.snapshot]
        if entry.handles or not entry.is_delete_pending:
            return None
        return self.deletions.start(entry)

    def force_close(self, handles: Iterable[Handle]) -> list[Deletion]:
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
        """Closes all handles; if there are many, the others of them soon."""
        for handle in list(islice(tree.handles.values(), _DROPPED_AT_ONCE_MAX)):
            handle.deletes_on_close = False
            self.close(handle)
            _notify_owner(handle)
        if tree.handles:
            asyncio.get_running_loop().call_soon(self._drop_handles, tree)

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

    # Byte-range locks, and the bytes

    async def lock(
        self,
        handle: Handle,
        ranges: Sequence[LockRange],
        *,
        waits: bool = False,
        on_wait: Callable[[], None] = ignore_wait,
    ) -> None:
        """Locks all ranges, or none."""
        await lock(handle, ranges, self.rest, self.changes, waits=waits, on_wait=on_wait)

    def unlock(self, handle: Handle, ranges: Iterable[tuple[int, int]]) -> bool:
        """Removes the oldest lock of this handle on exactly each range, up to the first range that
        has none; returns whether all had one."""
        return unlock(handle, ranges, self.rest)

    def check_read(self, handle: Handle, start: int, end: int) -> None:
        """Refuses to read bytes that others have locked."""
        locks = handle.entry.locks
        if locks and start < end:
            abort_if(check_handle_read(handle.id, locks, start, end))

    def check_write(self, handle: Handle, start: int, end: int) -> None:
        """Refuses to write to locked bytes, or else tells the clients that cache the file that it
        changes. For changes of the length, the range is what they add or cut off."""
        entry = handle.entry
        if not handle.is_open:
            raise Refused(HANDLE_CLOSED)
        if entry.locks and start < end:
            abort_if(check_handle_write(handle.id, entry.locks, start, end))
        break_for_write(entry, handle)

    # Deletion

    def check_delete_pending(self, handle: Handle) -> None:
        """Refuses to mark an entry through a handle that does not allow it."""
        abort_if(check_delete_pending(handle.mode))
        if handle.entry.is_root or handle.entry.snapshot is not None:
            raise Refused(Refusal("CannotDeleteFileOrDirectory"))

    async def set_delete_pending(
        self,
        handle: Handle,
        is_empty: Callable[[], Awaitable[bool]] | None = None,
        on_wait: Callable[[], None] = ignore_wait,
    ) -> None:
        """Marks an entry, which is deleted when its last handle is closed. `is_empty` returns
        whether a directory has no entries. Clients that cache handles on it are asked to close them
        first."""
        entry = handle.entry
        self.check_delete_pending(handle)
        while (end := break_for_rest(entry, RestAccess.DELETE, handle)) is not None:
            on_wait()
            await asyncio.wait((end,))
        if entry.is_delete_pending or not handle.is_open:
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
