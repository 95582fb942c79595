"""The opens of one share: open, close, lock, delete on close, and the part of REST operations.

Nothing here waits between a check and the registration of what was checked, so that no other open
or REST operation can come in between. Whoever has to wait holds nothing meanwhile, and checks
everything again afterwards.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import NamedTuple

from etagere.engine.interface import Refused, abort_if
from etagere.errors import Refusal
from etagere.model.files import NO_ENTRY, DirectoryNode, EntryPath
from etagere.model.shares import ShareName, ShareRef
from etagere.opens.caches import CacheGrant
from etagere.opens.handles import Handle, HandlePage, OpenEntry, OpenTree, Session
from etagere.operations.file.tree import LocatedEntry
from etagere.rules.opens import (
    CacheBreak,
    OpenMode,
    RangeLock,
    RestAccess,
    cache_break,
    check_delete_pending,
    check_handle_count,
    check_lock,
    check_open,
    check_rest_read,
    check_rest_write,
    delays_lock,
    delays_open,
    handle_cache_break,
    refused_by,
)

logger = logging.getLogger(__name__)

_CHANGES_PLACE = frozenset({RestAccess.RENAME, RestAccess.DELETE})
_CHANGES_BYTES = frozenset({RestAccess.WRITE, RestAccess.REPLACE})

DeleteEntry = Callable[[EntryPath, bool], Awaitable[object]]
"""Deletes a file, or a directory, in the ledger."""


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


class RestClaim(NamedTuple):
    """A REST operation on an entry, or on the place of one."""

    access: RestAccess
    located: LocatedEntry
    span: tuple[int, int] | None = None
    """The bytes that are read; the end is exclusive."""

    @property
    def changes_directory(self) -> bool:
        entry = self.located.entry
        is_directory = entry is not None and isinstance(entry.node, DirectoryNode)
        return is_directory and self.access in _CHANGES_PLACE


class PendingOpen(NamedTuple):
    """An open that waits for REST operations."""

    entry_id: int
    mode: OpenMode


class _Obstacle(NamedTuple):
    """Something that a REST operation has to wait for."""

    end: asyncio.Future[None]
    overdue: str
    """The error code if it does not end in time."""


class ShareOpens:
    """The opens of one share."""

    def __init__(
        self, name: ShareName, share_id: bytes, supply: HandleSupply, delete: DeleteEntry
    ) -> None:
        self.name = name
        self.id = share_id
        self.clients = 0
        """The number of SMB clients that are connected to the share."""
        self.is_gone = False
        """Whether the share was deleted."""
        self.current = OpenTree()
        self._snapshots: dict[int, OpenTree] = {}
        self._supply = supply
        self._delete = delete
        self._pending: dict[int, OpenEntry] = {}
        """Entries that are deleted when their last handle is closed, or are just being deleted."""
        self._deletions: dict[int, tuple[OpenEntry, asyncio.Task[None]]] = {}
        self._rest: dict[int, list[RestAccess]] = {}
        """The REST operations in progress. One that creates an entry is under the directory."""
        self._changing_directories: dict[int, int] = {}
        """The directories that REST operations are renaming or deleting, and how many of them."""
        self._moves = 0
        """The number of REST operations that are renaming entries with open handles."""
        self._pending_opens: list[PendingOpen] = []
        self._waiters: list[asyncio.Future[None]] = []

    @property
    def is_idle(self) -> bool:
        """Whether nobody uses this object, so that the share need not be tracked."""
        return not (
            self.clients
            or self.current.handles
            or self._snapshots
            or self._rest
            or self._pending
            or self._pending_opens
        )

    @property
    def pending_ids(self) -> frozenset[int]:
        """The ids of the entries that listings do not show."""
        return frozenset(self._pending)

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
            self._refuse_pending(located)
            abort_if(check_open(mode, entry.modes, leased=located.is_leased))
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
            self._mark_pending(entry)
        self._tree(entry.snapshot).remove(handle)
        self._supply.give_back()
        if entry.snapshot is not None and not self._snapshots[entry.snapshot].handles:
            del self._snapshots[entry.snapshot]
        if entry.handles or not entry.is_delete_pending:
            return None
        return self._start_deletion(entry)

    def _drop_grant(self, entry: OpenEntry, grant: CacheGrant) -> None:
        if entry.grants[grant] > 1:
            entry.grants[grant] -= 1
        else:
            del entry.grants[grant]
            grant.end()

    def force_close(self, handles: Iterable[Handle]) -> list[asyncio.Task[None]]:
        """Closes handles and tells their owners. Returns the deletions that begin with it."""
        closed = [(handle, self.close(handle)) for handle in handles if handle.is_open]
        for handle, _ in closed:
            _tell(handle)
        return [deletion for _, deletion in closed if deletion is not None]

    def drop(self) -> None:
        """Closes all handles because the share was deleted."""
        self.is_gone = True
        for entry in self._pending.values():
            entry.is_delete_pending = False
        for tree in (self.current, *self._snapshots.values()):
            self._drop_handles(tree)
        self._pending.clear()
        self._wake()

    def drop_snapshot(self, snapshot: int) -> None:
        """Closes the handles on a snapshot of the share that was deleted."""
        tree = self._snapshots.get(snapshot)
        if tree is not None:
            self._drop_handles(tree)

    def _drop_handles(self, tree: OpenTree) -> None:
        for handle in list(tree.handles.values()):
            handle.deletes_on_close = False
            self.close(handle)
            _tell(handle)

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
        while any(
            delays_lock(access, exclusive=exclusive) for access in self._rest.get(entry.id, ())
        ):
            await self.next_change()
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
        """Marks an entry, which is deleted when its last handle is closed. `is_empty` tells whether
        a directory has no entries."""
        entry = handle.entry
        abort_if(check_delete_pending(handle.mode))
        if entry.is_root or entry.snapshot is not None:
            raise Refused(Refusal("CannotDeleteFileOrDirectory"))
        if entry.is_delete_pending:
            return
        self._mark_pending(entry)
        if is_empty is None:
            return
        # From now on nothing is created in the directory, except by operations in progress.
        try:
            while RestAccess.CREATE in self._rest.get(entry.id, ()):
                await self.next_change()
            empty = await is_empty()
        except BaseException:
            self._clear_pending(entry)
            raise
        if not empty:
            self._clear_pending(entry)
            raise Refused(Refusal("DirectoryNotEmpty"))

    def clear_delete_pending(self, handle: Handle) -> None:
        abort_if(check_delete_pending(handle.mode))
        self._clear_pending(handle.entry)

    def _mark_pending(self, entry: OpenEntry) -> None:
        entry.is_delete_pending = True
        self._pending[entry.id] = entry

    def _clear_pending(self, entry: OpenEntry) -> None:
        if entry.id in self._deletions:
            return
        entry.is_delete_pending = False
        self._pending.pop(entry.id, None)

    def _start_deletion(self, entry: OpenEntry) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(self._carry_out_deletion(entry))
        self._deletions[entry.id] = entry, task
        return task

    async def _carry_out_deletion(self, entry: OpenEntry) -> None:
        path = EntryPath(ShareRef(self.name), entry.names, entry.id)
        try:
            await self._delete(path, entry.is_directory)
        except Refused as refused:
            # Made read-only, or filled, after it was marked. It stays, as in Windows.
            logger.info("%s was not deleted on close: %s", entry.path, refused.refusal.code)
        except Exception:
            logger.exception("%s was not deleted on close", entry.path)
        finally:
            del self._deletions[entry.id]
            self._pending.pop(entry.id, None)
            self._wake()

    def _refuse_pending(self, located: LocatedEntry) -> None:
        pending = self._pending
        if pending and (
            located.entry_id in pending or any(one in pending for one in located.directory_ids)
        ):
            raise Refused(Refusal("SMBDeletePending"))

    # REST operations

    async def admit(self, claims: Sequence[RestClaim], seconds_max: float) -> None:
        """Registers REST operations as soon as nothing is in their way, or refuses them."""
        loop = asyncio.get_running_loop()
        ends_at = loop.time() + seconds_max
        while (obstacle := self._first_obstacle(claims)) is not None:
            left = ends_at - loop.time()
            done, _ = await asyncio.wait((obstacle.end,), timeout=max(left, 0))
            if not done:
                raise Refused(Refusal(obstacle.overdue))
        for claim in claims:
            self._register(claim)

    def _first_obstacle(self, claims: Sequence[RestClaim]) -> _Obstacle | None:
        for claim in claims:
            obstacle = self._obstacle(claim)
            if obstacle is not None:
                return obstacle
        return None

    def _obstacle(self, claim: RestClaim) -> _Obstacle | None:
        access, located = claim.access, claim.located
        self._refuse_pending(located)
        entry = self.current.entries.get(located.entry_id)
        if entry is not None:
            end = _break_caches(entry, access) or _break_handle_caches(entry, access)
            if end is not None:
                return _Obstacle(end, "ClientCacheFlushDelay")
            _refuse_locked(entry, claim)
        if claim.changes_directory and self.current.is_open_below(located.entry_id):
            raise Refused(Refusal("SharingViolation"))
        if self._has_to_wait(claim, entry):
            return _Obstacle(self.next_change(), "ServerBusy")
        return None

    def _has_to_wait(self, claim: RestClaim, entry: OpenEntry | None) -> bool:
        """Returns whether another change has to end first."""
        access, entry_id = claim.access, claim.located.entry_id
        if any(
            one.entry_id == entry_id and delays_open(access, one.mode)
            for one in self._pending_opens
        ):
            return True
        if claim.changes_directory and (
            self._moves or any(entry_id in one.directory_ids for one, _ in self._deletions.values())
        ):
            # Both rely on the path.
            return True
        is_move = access is RestAccess.RENAME and entry is not None
        return is_move and bool(self._changing_directories)

    def _register(self, claim: RestClaim) -> None:
        located, access = claim.located, claim.access
        if located.entry_id == NO_ENTRY:
            self._rest.setdefault(located.directory_ids[-1], []).append(RestAccess.CREATE)
            return
        self._rest.setdefault(located.entry_id, []).append(access)
        if claim.changes_directory:
            count = self._changing_directories.get(located.entry_id, 0)
            self._changing_directories[located.entry_id] = count + 1

    def release(self, claims: Sequence[RestClaim]) -> None:
        """Ends REST operations that were admitted."""
        for claim in claims:
            located, access = claim.located, claim.access
            if located.entry_id == NO_ENTRY:
                key, access = located.directory_ids[-1], RestAccess.CREATE
            else:
                key = located.entry_id
            in_progress = self._rest[key]
            in_progress.remove(access)
            if not in_progress:
                del self._rest[key]
            if claim.changes_directory:
                self._changing_directories[key] -= 1
                if not self._changing_directories[key]:
                    del self._changing_directories[key]
        self._wake()

    def begin_move(self, entry_id: int) -> OpenEntry | None:
        """Returns the entry that an admitted rename moves, if it is open. Until `end_move`, no
        directory is renamed or deleted."""
        entry = self.current.entries.get(entry_id)
        if entry is not None:
            self._moves += 1
        return entry

    def end_move(self, entry: OpenEntry, located: LocatedEntry | None) -> None:
        """Ends a move; `located` is what the destination leads to now."""
        self._moves -= 1
        if located is not None and located.entry_id == entry.id and entry.handles:
            self.current.move(entry, located.directory_ids, located.path)
        self._wake()

    # Opens that wait for REST operations

    def is_delayed(self, located: LocatedEntry, mode: OpenMode) -> bool:
        """Returns whether an open has to wait for a REST operation in progress. After that the
        entry may be elsewhere."""
        changing = self._changing_directories
        return any(
            delays_open(access, mode) for access in self._rest.get(located.entry_id, ())
        ) or (bool(changing) and any(one in changing for one in located.directory_ids))

    def announce(self, pending: PendingOpen) -> None:
        """Holds back REST operations that would delay an open, until `withdraw`."""
        self._pending_opens.append(pending)

    def withdraw(self, pending: PendingOpen) -> None:
        self._pending_opens.remove(pending)
        self._wake()

    # Waiting

    def next_change(self) -> asyncio.Future[None]:
        """Returns what ends with the next REST operation, move or deletion that ends."""
        future = asyncio.get_running_loop().create_future()
        self._waiters.append(future)
        return future

    def _wake(self) -> None:
        waiters, self._waiters = self._waiters, []
        for future in waiters:
            if not future.done():
                future.set_result(None)


def _break_caches(entry: OpenEntry, access: RestAccess) -> asyncio.Future[None] | None:
    """Breaks the caches that an operation needs broken. Returns what it has to wait for."""
    awaited = None
    for grant in entry.grants:
        wanted = cache_break(access, grant.state)
        if wanted is not None:
            awaited = grant.demand(wanted) or awaited
    return awaited


def _break_handle_caches(entry: OpenEntry, access: RestAccess) -> asyncio.Future[None] | None:
    """Refuses an operation that handles exclude. If clients may only cache these handles, asks them
    to close them, and returns what the operation has to wait for."""
    if not any(refused_by(access, mode) for mode in entry.modes):
        return None
    breaks: dict[CacheGrant, CacheBreak] = {}
    for handle in entry.handles.values():
        if refused_by(access, handle.mode):
            grant = handle.grant
            wanted = None if grant is None else handle_cache_break(grant.state)
            if grant is None or wanted is None:
                raise Refused(Refusal("SharingViolation"))
            breaks[grant] = wanted
    awaited = None
    for grant, wanted in breaks.items():
        awaited = grant.demand(wanted) or awaited
    return awaited


def _refuse_locked(entry: OpenEntry, claim: RestClaim) -> None:
    if not entry.locks:
        return
    if claim.access in _CHANGES_BYTES:
        abort_if(check_rest_write(entry.locks))
    elif claim.access is RestAccess.READ and claim.span is not None:
        abort_if(check_rest_read(entry.locks, *claim.span))


def _tell(handle: Handle) -> None:
    try:
        handle.on_closed(handle)
    except Exception:
        logger.exception("could not tell a client that its handle was closed")
