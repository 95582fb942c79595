"""A client of the table of opens in the same process: what an SMB server does with a share."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Final, TypeVar

from etagere.clock import Clock
from etagere.engine.interface import Engine, Fault, Refused, Unknown
from etagere.errors import Refusal
from etagere.model.files import (
    ChangedTimes,
    Entry,
    EntryPath,
    NewPermission,
    SetEntryProperties,
)
from etagere.model.shares import ShareName, ShareRef
from etagere.nt_status import NtStatus
from etagere.opens.caches import CacheGrant
from etagere.opens.handles import Handle, LockRange, Session
from etagere.opens.locks import ignore_wait
from etagere.opens.opening import OPEN_WAIT_SECONDS_MAX, Opener
from etagere.opens.renaming import rename_open_entry
from etagere.opens.reports import OVERWRITTEN, changed_subjects, entry_added, entry_modified
from etagere.opens.requests import Action, Opened, OpenRequest
from etagere.opens.share import HANDLE_CLOSED, ShareOpens
from etagere.opens.table import OpenTable
from etagere.operations.file import entries
from etagere.operations.file.tree import find_at, is_directory_empty, is_path_change
from etagere.rules.caching import Caching
from etagere.rules.file_attributes import FileAttributes, settable_attributes

T = TypeVar("T")

_ATTEMPTS_MAX: Final = 20
_CLOSED_AT_ONCE_MAX: Final = 100
"""The most handles that are closed without a pause; each takes about 10 µs."""
_KEEP_TIMES: Final = ChangedTimes()


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
        self._on_closed = on_closed
        self._has_left = False
        self._opener = Opener(engine, share, session, clock, self._forget)
        self.share = share
        self.session = session
        self.handles: dict[int, Handle] = {}

    # Handles

    async def open(
        self,
        request: OpenRequest,
        *,
        on_wait: Callable[[], None] = ignore_wait,
        seconds_max: float = OPEN_WAIT_SECONDS_MAX,
    ) -> Opened:
        """Opens or creates an entry. Waits for clients that have to give up their caches, after
        calling `on_wait`, and for REST operations that are in the way."""
        opened = await self._opener.open(request, on_wait, seconds_max)
        if not opened.handle.is_open:
            # A REST client has closed it before this client knew of it.
            raise Refused(HANDLE_CLOSED)
        if self._has_left:
            await self._close(opened.handle)
            raise Refused(Refusal("ShareBeingDeleted"))
        self.handles[opened.handle.id] = opened.handle
        if self.share.watches and opened.action is not Action.OPENED:
            entry = opened.handle.entry
            is_new = opened.action is Action.CREATED
            change = entry_added(entry) if is_new else entry_modified(entry, OVERWRITTEN)
            self.share.watches.report([change])
        return opened

    def _forget(self, handle: Handle) -> None:
        self.handles.pop(handle.id, None)
        self._on_closed(handle)

    async def close(self, handle: Handle) -> None:
        """Closes a handle; returns when what it wrote is durable, and when its entry is deleted, if
        it is deleted on close. If something cannot be stored or deleted, raises `Fault` or
        `Unknown` once the handle is closed."""
        entry = handle.entry
        deletes = entry.is_delete_pending or handle.deletes_on_close
        try:
            if entry.snapshot is None and not (deletes and len(entry.handles) == 1):
                await self.share.gathered.flush(entry.id)
        finally:
            failure = await self._close(handle)
        if failure is not None:
            raise failure

    async def _close(self, handle: Handle) -> Fault | Unknown | None:
        """Closes a handle; returns why its entry could not be deleted, if that was to be done."""
        self.handles.pop(handle.id, None)
        deletion = self.share.close(handle)
        return None if deletion is None else await asyncio.shield(deletion)

    async def disconnect(self) -> None:
        """Closes all handles and leaves the share. Gathered writes are stored later."""
        self._has_left = True
        for number, handle in enumerate(list(self.handles.values()), 1):
            await self._close(handle)
            if not number % _CLOSED_AT_ONCE_MAX:
                await asyncio.sleep(0)
        self._table.detach(self.share)

    # The entry of a handle

    async def get_entry(self, handle: Handle) -> Entry:
        """Returns the current state of an entry, with the length and the times that it has after
        everything that was written to it."""

        async def read() -> Entry:
            return await self._follow(handle, lambda path: self._engine.read(find_at, path))

        if handle.entry.snapshot is not None:
            return await read()
        found, file = await self.share.gathered.read(handle.entry.id, read)
        return found if file is None else file.overlaid(found)

    async def set_properties(
        self,
        handle: Handle,
        *,
        times: ChangedTimes = _KEEP_TIMES,
        attributes: int | None = None,
        permission: int | NewPermission | None = None,
    ) -> Entry:
        """Changes times, attributes or the permission of an entry; None leaves them as they are.
        Attributes that nobody can set are ignored."""
        entry = handle.entry
        _require_current(handle)
        if attributes is not None:
            attributes = int(settable_attributes(attributes, is_directory=entry.is_directory))

        def run(path: EntryPath) -> Awaitable[Entry]:
            command = SetEntryProperties(
                path,
                entry.is_directory,
                times=times,
                attributes=attributes,
                permission=permission,
                ignore_read_only=True,
            )
            return self._engine.write(entries.set_properties, command)

        if entry.is_directory:
            changed = await self._follow(handle, run)
        else:
            async with self.share.gathered.stored(entry.id):
                changed = await self._follow(handle, run)
        if self.share.watches:
            subjects = changed_subjects(times, attributes, permission)
            self.share.watches.report([entry_modified(entry, subjects)])
        return changed

    async def _follow(self, handle: Handle, run: Callable[[EntryPath], Awaitable[T]]) -> T:
        """Runs an operation on the entry of a handle, wherever it is moved meanwhile."""
        for _ in range(_ATTEMPTS_MAX):
            try:
                return await run(self.path_of(handle))
            except Refused as refused:
                if not is_path_change(refused):
                    raise
            if self.share.rest.is_moving:
                await self.share.changes.next()
        raise Refused(Refusal("ServerBusy"))

    def path_of(self, handle: Handle) -> EntryPath:
        """Returns the path of the entry of a handle, which must lead to that entry."""
        entry = handle.entry
        return EntryPath(ShareRef(self.share.name, entry.snapshot), entry.names, entry.id)

    # Renaming and deletion

    async def rename(
        self,
        handle: Handle,
        components: Sequence[str],
        *,
        replace: bool = False,
        on_wait: Callable[[], None] = ignore_wait,
    ) -> None:
        """Moves the entry of a handle with delete access to another path of the share."""
        await rename_open_entry(
            self._engine, self._table, self.share, handle, tuple(components), replace, on_wait
        )

    async def set_delete_pending(
        self, handle: Handle, *, on_wait: Callable[[], None] = ignore_wait
    ) -> None:
        """Marks the entry of a handle, which is deleted when its last handle is closed."""
        entry = handle.entry

        async def is_empty() -> bool:
            return await self._engine.read(is_directory_empty, (self.share.id, entry.id))

        self.share.check_delete_pending(handle)
        found = await self._follow(handle, lambda path: self._engine.read(find_at, path))
        if found.attributes & FileAttributes.READ_ONLY:
            raise Refused(Refusal("CannotDeleteFileOrDirectory"))
        await self.share.set_delete_pending(
            handle, is_empty if entry.is_directory else None, on_wait
        )

    def clear_delete_pending(self, handle: Handle) -> None:
        self.share.clear_delete_pending(handle)

    # Byte-range locks, and the bytes

    async def lock(
        self,
        handle: Handle,
        start: int,
        end: int,
        *,
        exclusive: bool,
        waits: bool = False,
        on_wait: Callable[[], None] = ignore_wait,
    ) -> None:
        """Locks a range, whose end is exclusive. If others have locked bytes of it, waits until
        they are unlocked, after calling `on_wait`, or is refused."""
        ranges = (LockRange(start, end, exclusive),)
        await self.share.lock(handle, ranges, waits=waits, on_wait=on_wait)

    async def lock_all(self, handle: Handle, ranges: Sequence[LockRange]) -> None:
        """Locks all ranges, or none, without waiting for other locks."""
        await self.share.lock(handle, ranges)

    def unlock(self, handle: Handle, ranges: Iterable[tuple[int, int]]) -> bool:
        """Removes the oldest lock of a handle on exactly each range, up to the first range that has
        none; returns whether all had one."""
        return self.share.unlock(handle, ranges)

    def check_read(self, handle: Handle, start: int, end: int) -> None:
        """Refuses to read bytes that others have locked."""
        self.share.check_read(handle, start, end)

    def check_write(self, handle: Handle, start: int, end: int) -> None:
        """Refuses to write to locked bytes, or else tells the clients that cache the file that it
        changes. For changes of the length, the range is what they add or cut off."""
        self.share.check_write(handle, start, end)

    # Caches

    def acknowledge(self, handle: Handle, state: Caching) -> None:
        """Takes the acknowledgement of a break of the oplock of a handle."""
        grant = handle.grant
        if grant is None or grant.lease is not None:
            raise _not_acknowledged(NtStatus.INVALID_OPLOCK_PROTOCOL)
        _acknowledge(grant, state)

    def acknowledge_lease(self, client: bytes, key: bytes, state: Caching) -> None:
        """Takes the acknowledgement of a break of a lease."""
        grant = self._table.leases.find(client, key)
        if grant is None:
            raise _not_acknowledged(NtStatus.OBJECT_NAME_NOT_FOUND)
        _acknowledge(grant, state)


def _acknowledge(grant: CacheGrant, state: Caching) -> None:
    error = grant.acknowledge(state)
    if error is not None:
        raise _not_acknowledged(error)


def _not_acknowledged(status: NtStatus) -> Refused:
    return Refused(Refusal("InvalidInput", nt_status_override=status))


def _require_current(handle: Handle) -> None:
    if handle.entry.snapshot is not None:
        raise Refused(Refusal("ShareSnapshotOperationNotSupported"))


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
