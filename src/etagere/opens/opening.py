"""Opens of SMB clients: existing entries, and those that are created or overwritten.

An open looks up the entry, waits for what is in its way, and registers itself. If anything in the
share has changed since the lookup, it looks the entry up again after that: from its registration
on, no REST operation moves, removes or leases the entry.

A name at which an entry is created is reserved until the handle of its creator is registered.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from msgspec.structs import replace

from etagere.clock import Clock
from etagere.engine.interface import Engine, Refused, abort_if
from etagere.errors import Refusal
from etagere.model.files import (
    NO_ENTRY,
    CreateDirectory,
    CreateFile,
    Entry,
    EntryPath,
    FileNode,
    NewEntry,
    NewTimes,
    OverwriteFile,
)
from etagere.model.ids import new_id
from etagere.nt_status import NtStatus
from etagere.opens.admission import PendingOpen
from etagere.opens.breaking import break_after_overwrite
from etagere.opens.completion import completed
from etagere.opens.handles import Handle, Session
from etagere.opens.quotas import require_room
from etagere.opens.requests import Action, Disposition, EntryKind, Opened, OpenRequest
from etagere.opens.share import ShareOpens
from etagere.operations.file import entries, inheritance
from etagere.operations.file.changes import file_length
from etagere.operations.file.tree import LocatedEntry, is_path_change, locate_entry
from etagere.rules.file_attributes import FileAttributes, check_writable, settable_attributes
from etagere.rules.opens import Access, OpenMode, check_delete_pending, check_open

OPEN_WAIT_SECONDS_MAX: Final = 10.0
"""How long an open waits for REST operations, which are short."""

_ACTIONS: Final = {
    Disposition.SUPERSEDE: Action.SUPERSEDED,
    Disposition.OVERWRITE: Action.OVERWRITTEN,
    Disposition.OVERWRITE_IF: Action.OVERWRITTEN,
}
"""What is done with an existing file, if it is not just opened."""
_NEEDED: Final = {
    Disposition.SUPERSEDE: Access.WRITE | Access.DELETE,
    Disposition.OVERWRITE: Access.WRITE,
    Disposition.OVERWRITE_IF: Access.WRITE,
}
"""The access that overwriting needs from those who have the file open."""
_ONLY_EXISTING: Final = frozenset({Disposition.OPEN, Disposition.OVERWRITE})
_NEW_TIMES: Final = NewTimes()
_CANNOT_DELETE: Final = Refusal("CannotDeleteFileOrDirectory")
_SNAPSHOT_IS_READ_ONLY: Final = Refusal("ShareSnapshotOperationNotSupported")
_IS_DIRECTORY: Final = Refusal(
    "ResourceTypeMismatch", nt_status_override=NtStatus.FILE_IS_A_DIRECTORY
)
_NOT_A_DIRECTORY: Final = Refusal(
    "ResourceTypeMismatch", nt_status_override=NtStatus.NOT_A_DIRECTORY
)


class Opener:
    """Opens entries of a share for one client."""

    def __init__(
        self,
        engine: Engine,
        share: ShareOpens,
        session: Session,
        clock: Clock,
        on_closed: Callable[[Handle], None],
    ) -> None:
        self._engine = engine
        self._share = share
        self._session = session
        self._clock = clock
        self._on_closed = on_closed

    async def open(
        self, request: OpenRequest, on_wait: Callable[[], None], seconds_max: float
    ) -> Opened:
        """Opens or creates an entry. `on_wait` is called before a client is waited for;
        `seconds_max` is how long REST operations are waited for."""
        _check_request(request)
        wait = _RestWait(self._share, seconds_max)
        try:
            while True:
                count = self._share.changes.count
                located = await self._locate(request.path)
                opened = await self._attempt(request, located, count, wait, on_wait)
                if opened is not None:
                    return opened
        finally:
            wait.end()

    async def _attempt(
        self,
        request: OpenRequest,
        located: LocatedEntry,
        count: int,
        wait: _RestWait,
        on_wait: Callable[[], None],
    ) -> Opened | None:
        """Opens what was found when the share had this count of changes. Returns None if it has to
        be looked up again."""
        if located.entry is None:
            return await self._create(request, located, wait)
        _check_entry(request, located.entry)
        if request.path.ref.snapshot is not None:
            handle = self._register(request, located)
            return Opened(handle, located.entry, Action.OPENED)
        action = _ACTIONS.get(request.disposition)
        mode = request.mode
        if action is not None:
            await self._require_room(request, located.entry)
            mode = OpenMode(mode.access | _NEEDED[request.disposition], mode.share)
        if self._share.rest.is_delayed(located, mode):
            await wait.next(located.entry_id, mode)
            return None
        obstacle = self._share.obstacle(located, mode, request, overwrites=action is not None)
        if obstacle is not None:
            on_wait()
            await asyncio.wait((obstacle,))
            return None
        handle = self._register(request, located)
        try:
            if action is not None:
                entry = await self._overwrite(request, handle)
                return Opened(handle, entry, action)
            is_gathered = self._share.gathered.get(located.entry_id) is not None
            if count == self._share.changes.count and not is_gathered:
                return Opened(handle, located.entry, Action.OPENED)
            return await self._verify(request, located, handle)
        except Refused as refused:
            self._abandon(handle)
            if is_path_change(refused):
                return None
            raise
        except BaseException:
            self._abandon(handle)
            raise

    async def _locate(self, path: EntryPath) -> LocatedEntry:
        located = await self._engine.read(locate_entry, path)
        if located.share_id != self._share.id:
            raise Refused(Refusal("ShareBeingDeleted"))
        return located

    def _register(self, request: OpenRequest, located: LocatedEntry) -> Handle:
        return self._share.open(
            located,
            request.mode,
            self._session,
            self._clock.wall(),
            self._on_closed,
            snapshot=request.path.ref.snapshot,
            caching=request.caching,
            deletes_on_close=request.deletes_on_close,
            is_attribute_only=request.is_attribute_only,
        )

    async def _verify(
        self, request: OpenRequest, located: LocatedEntry, handle: Handle
    ) -> Opened | None:
        """Returns the open if the entry is where it was before; closes the handle if not."""
        gathered = self._share.gathered
        again, file = await gathered.read(located.entry_id, lambda: self._locate(request.path))
        if again[:2] != located[:2] or again.entry_id != located.entry_id or again.entry is None:
            self._abandon(handle)
            return None
        leased, copied = again.is_leased, again.is_copied
        abort_if(check_open(handle.mode, (), leased=leased, copied=copied))
        entry = again.entry if file is None else file.overlaid(again.entry)
        return Opened(handle, entry, Action.OPENED)

    def _abandon(self, handle: Handle) -> None:
        handle.deletes_on_close = False
        self._share.close(handle)

    # Creation and overwriting

    async def _create(
        self, request: OpenRequest, located: LocatedEntry, wait: _RestWait
    ) -> Opened | None:
        path = request.path
        if len(located.directory_ids) < len(path.components):
            raise Refused(Refusal("ParentNotFound"))
        if request.disposition in _ONLY_EXISTING:
            raise Refused(Refusal("ResourceNotFound"))
        if path.ref.snapshot is not None:
            raise Refused(_SNAPSHOT_IS_READ_ONLY)
        if request.kind is not EntryKind.DIRECTORY:
            await self._require_room(request, None)
        share = self._share
        share.check_creation(located, request)
        if share.rest.is_place_delayed(located):
            await wait.next(NO_ENTRY, request.mode)
            return None
        share.rest.reserve(located)
        try:
            expected = replace(path, expected_id=NO_ENTRY)
            entry = await completed(self._write_new(request, expected))
            handle = self._register(request, located._replace(entry=entry))
        except Refused as refused:
            if is_path_change(refused):
                return None
            raise
        finally:
            share.rest.unreserve(located)
        return Opened(handle, entry, Action.CREATED)

    async def _require_room(self, request: OpenRequest, old: Entry | None) -> None:
        """Refuses a file that is expected to exceed the quota."""
        if request.allocation:
            growth = request.allocation - file_length(old)
            await require_room(self._engine, self._share, growth)

    async def _write_new(self, request: OpenRequest, path: EntryPath) -> Entry:
        is_directory = request.kind is EntryKind.DIRECTORY
        attributes = settable_attributes(request.attributes, is_directory=is_directory)
        new = NewEntry(_NEW_TIMES, int(attributes), request.permission)
        engine, share, client = self._engine, self._share.name, self._session.client_address
        if is_directory:
            command = CreateDirectory(path, new)
            return await inheritance.write(engine, share, entries.create_directory, command, client)
        file = CreateFile(path, new, new_id(), length=0)
        return await inheritance.write(engine, share, entries.create_file, file, client)

    async def _overwrite(self, request: OpenRequest, handle: Handle) -> Entry:
        path = replace(request.path, expected_id=handle.entry.id)
        attributes = settable_attributes(request.attributes, is_directory=False)
        supersedes = request.disposition is Disposition.SUPERSEDE
        command = OverwriteFile(path, int(attributes), supersedes)
        async with self._share.gathered.stored(handle.entry.id):
            entry = await completed(self._engine.write(entries.overwrite_file, command))
        break_after_overwrite(handle.entry, handle)
        return entry


class _RestWait:
    """An open that waits for REST operations. Those that arrive meanwhile do not overtake it."""

    def __init__(self, share: ShareOpens, seconds_max: float) -> None:
        self._share = share
        self._seconds_left = seconds_max
        self._pending: PendingOpen | None = None

    async def next(self, entry_id: int, mode: OpenMode) -> None:
        """Waits until an operation has ended."""
        if self._pending is None and entry_id != NO_ENTRY:
            self._pending = PendingOpen(entry_id, mode)
            self._share.rest.announce(self._pending)
        loop = asyncio.get_running_loop()
        began = loop.time()
        done, _ = await asyncio.wait((self._share.changes.next(),), timeout=self._seconds_left)
        self._seconds_left -= loop.time() - began
        if not done or self._seconds_left <= 0:
            raise Refused(Refusal("SharingViolation"))

    def end(self) -> None:
        if self._pending is not None:
            self._share.rest.withdraw(self._pending)


def _check_request(request: OpenRequest) -> None:
    """Refuses what is not possible whatever there is."""
    overwrites = request.disposition in _ACTIONS
    if overwrites and request.kind is EntryKind.DIRECTORY:
        raise Refused(Refusal("InvalidInput"))
    if request.deletes_on_close:
        abort_if(check_delete_pending(request.mode))
        creates = request.disposition is not Disposition.OPEN
        if creates and request.attributes & FileAttributes.READ_ONLY:
            raise Refused(_CANNOT_DELETE)
    if request.path.ref.snapshot is not None and (
        overwrites
        or request.deletes_on_close
        or request.mode.access & (Access.WRITE | Access.DELETE)
    ):
        raise Refused(_SNAPSHOT_IS_READ_ONLY)


def _check_entry(request: OpenRequest, entry: Entry) -> None:
    """Refuses an open that the entry itself does not allow."""
    if request.disposition is Disposition.CREATE:
        raise Refused(Refusal("ResourceAlreadyExists"))
    if entry.is_directory:
        if request.kind is EntryKind.FILE:
            raise Refused(_IS_DIRECTORY)
        if request.disposition in _ACTIONS:
            raise Refused(Refusal("InvalidInput"))
    elif request.kind is EntryKind.DIRECTORY:
        raise Refused(_NOT_A_DIRECTORY)
    attributes = FileAttributes(entry.attributes)
    if not attributes & FileAttributes.READ_ONLY:
        return
    if request.deletes_on_close:
        raise Refused(_CANNOT_DELETE)
    writes = request.mode.access & Access.WRITE or request.disposition in _ACTIONS
    if isinstance(entry.node, FileNode) and writes:
        abort_if(check_writable(attributes))
