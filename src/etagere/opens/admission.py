"""Admission of REST operations, which count as opens for as long as they take."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from etagere.engine.interface import Refused, abort_if
from etagere.errors import Refusal
from etagere.model.files import NO_ENTRY, DirectoryNode
from etagere.opens.caches import CacheGrant
from etagere.opens.changes import ChangeSignal
from etagere.opens.deletions import PendingDeletions
from etagere.opens.gathering import GatheredFiles
from etagere.opens.handles import Handle, OpenEntry, OpenTree
from etagere.operations.file.tree import LocatedEntry
from etagere.rules.caching import CacheBreak, cache_break, handle_cache_break
from etagere.rules.opens import (
    OpenMode,
    RestAccess,
    check_rest_read,
    check_rest_write,
    delays_lock,
    delays_open,
    refused_by,
)

_ASKED_TO_CLOSE_MAX = 100
"""The maximum number of handles below a directory whose clients are asked to close them."""
_CHANGES_PLACE = frozenset({RestAccess.RENAME, RestAccess.DELETE})
_CHANGES_BYTES = frozenset({RestAccess.WRITE, RestAccess.REPLACE})
_HOLDS_WRITERS = frozenset({RestAccess.WRITE, RestAccess.REPLACE, RestAccess.RENAME})
"""While these are in progress, writes to the file wait: what is gathered must apply to the content
and the place that the file has."""


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


class RestAdmission:
    """The REST operations in progress in a share."""

    def __init__(
        self,
        tree: OpenTree,
        deletions: PendingDeletions,
        changes: ChangeSignal,
        gathered: GatheredFiles,
    ) -> None:
        self._gathered = gathered
        self._tree = tree
        self._deletions = deletions
        self._changes = changes
        self._in_progress: dict[int, list[RestAccess]] = {}
        """By the ID of the entry. An operation that creates an entry is under its directory."""
        self._changing_directories: dict[int, int] = {}
        """The directories that are being renamed or deleted, and by how many operations."""
        self._moves = 0
        """The number of operations that are renaming entries with open handles."""
        self._pending_opens: list[PendingOpen] = []

    @property
    def is_idle(self) -> bool:
        return not (self._in_progress or self._pending_opens)

    async def admit(self, claims: Sequence[RestClaim], seconds_max: float) -> None:
        """Registers REST operations as soon as nothing is in their way, or refuses them. Then what
        was written to their files is in the ledger."""
        loop = asyncio.get_running_loop()
        ends_at = loop.time() + seconds_max
        while (obstacle := self._first_obstacle(claims)) is not None:
            left = ends_at - loop.time()
            done, _ = await asyncio.wait((obstacle.end,), timeout=max(left, 0))
            if not done:
                raise Refused(Refusal(obstacle.overdue))
        for claim in claims:
            self._register(claim)
        if self._gathered:
            try:
                for claim in claims:
                    await self._flush(claim)
            except BaseException:
                self.release(claims)
                raise

    async def _flush(self, claim: RestClaim) -> None:
        """Stores the gathered writes that an operation has to see."""
        if claim.access is RestAccess.LIST:
            await self._gathered.flush_in(claim.located.entry_id)
        if claim.access is not RestAccess.DELETE:
            # A file that is deleted needs none, and can be deleted when the disk is full.
            await self._gathered.flush(claim.located.entry_id)

    def _first_obstacle(self, claims: Sequence[RestClaim]) -> _Obstacle | None:
        for claim in claims:
            obstacle = self._obstacle(claim)
            if obstacle is not None:
                return obstacle
        return None

    def _obstacle(self, claim: RestClaim) -> _Obstacle | None:
        access, located = claim.access, claim.located
        self._deletions.refuse(located)
        entry = self._tree.entries.get(located.entry_id)
        if entry is not None:
            end = _break_caches(entry, access) or _break_handle_caches(entry, access)
            if end is not None:
                return _Obstacle(end, "ClientCacheFlushDelay")
            _refuse_locked(entry, claim)
        if claim.changes_directory and self._tree.is_open_below(located.entry_id):
            end = self._break_handle_caches_below(located.entry_id)
            return _Obstacle(end, "ClientCacheFlushDelay")
        if self._has_to_wait(claim, entry):
            return _Obstacle(self._changes.next(), "ServerBusy")
        return None

    def _break_handle_caches_below(self, directory_id: int) -> asyncio.Future[None]:
        """Refuses to change a directory with handles below it, unless all of them may be cached."""
        own = self._tree.entries.get(directory_id)
        limit = _ASKED_TO_CLOSE_MAX + (0 if own is None else len(own.handles))
        page = self._tree.page(directory_id, 0, limit, is_recursive=True)
        if page.following is not None:
            raise Refused(Refusal("SharingViolation"))
        return _ask_to_close([one for one in page.handles if one.entry.id != directory_id])

    def _has_to_wait(self, claim: RestClaim, entry: OpenEntry | None) -> bool:
        """Returns whether another change has to end first."""
        access, entry_id = claim.access, claim.located.entry_id
        if any(
            one.entry_id == entry_id and delays_open(access, one.mode)
            for one in self._pending_opens
        ):
            return True
        if claim.changes_directory and (
            self._moves or self._deletions.is_in_progress_below(entry_id)
        ):
            # Both rely on the path.
            return True
        is_move = access is RestAccess.RENAME and entry is not None
        return is_move and bool(self._changing_directories)

    def _register(self, claim: RestClaim) -> None:
        located, access = claim.located, claim.access
        if located.entry_id == NO_ENTRY:
            self._in_progress.setdefault(located.directory_ids[-1], []).append(RestAccess.CREATE)
            return
        self._in_progress.setdefault(located.entry_id, []).append(access)
        if access in _HOLDS_WRITERS:
            self._gathered.hold(located.entry_id)
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
                if access in _HOLDS_WRITERS:
                    self._gathered.end_hold(key)
            in_progress = self._in_progress[key]
            in_progress.remove(access)
            if not in_progress:
                del self._in_progress[key]
            if claim.changes_directory:
                self._changing_directories[key] -= 1
                if not self._changing_directories[key]:
                    del self._changing_directories[key]
        self._changes.notify()

    def begin_move(self, entry_id: int) -> OpenEntry | None:
        """Returns the entry that an admitted rename moves, if it is open. Until `end_move`, no
        directory is renamed or deleted."""
        entry = self._tree.entries.get(entry_id)
        if entry is not None:
            self._moves += 1
        return entry

    def end_move(self, entry: OpenEntry, located: LocatedEntry | None) -> None:
        """Ends a move; `located` is what the destination leads to now."""
        self._moves -= 1
        if located is not None and located.entry_id == entry.id and entry.handles:
            self._tree.move(entry, located.directory_ids, located.path)
        self._changes.notify()

    # Opens that wait for REST operations

    def is_delayed(self, located: LocatedEntry, mode: OpenMode) -> bool:
        """Returns whether an open has to wait for a REST operation in progress. After that the
        entry may be elsewhere."""
        changing = self._changing_directories
        return any(
            delays_open(access, mode) for access in self._in_progress.get(located.entry_id, ())
        ) or (bool(changing) and any(one in changing for one in located.directory_ids))

    def announce(self, pending: PendingOpen) -> None:
        """Holds back REST operations that would delay an open, until `withdraw`."""
        self._pending_opens.append(pending)

    def withdraw(self, pending: PendingOpen) -> None:
        self._pending_opens.remove(pending)
        self._changes.notify()

    def is_lock_delayed(self, entry_id: int, *, exclusive: bool) -> bool:
        """Returns whether a byte-range lock has to wait for an operation in progress."""
        in_progress = self._in_progress.get(entry_id, ())
        return any(delays_lock(access, exclusive=exclusive) for access in in_progress)

    def is_creating_in(self, directory_id: int) -> bool:
        """Returns whether an operation in progress may create an entry in a directory."""
        return RestAccess.CREATE in self._in_progress.get(directory_id, ())


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
    return _ask_to_close(
        [handle for handle in entry.handles.values() if refused_by(access, handle.mode)]
    )


def _ask_to_close(handles: Iterable[Handle]) -> asyncio.Future[None]:
    """Asks the clients of handles that may be cached to close them; refuses if others are among
    them. Returns what ends when one of the clients has answered."""
    breaks: dict[CacheGrant, CacheBreak] = {}
    for handle in handles:
        grant = handle.grant
        wanted = None if grant is None else handle_cache_break(grant.state)
        if grant is None or wanted is None:
            raise Refused(Refusal("SharingViolation"))
        breaks[grant] = wanted
    ends = [grant.demand(wanted) for grant, wanted in breaks.items()]
    awaited = ends[-1]
    assert awaited is not None
    return awaited


def _refuse_locked(entry: OpenEntry, claim: RestClaim) -> None:
    if not entry.locks:
        return
    if claim.access in _CHANGES_BYTES:
        abort_if(check_rest_write(entry.locks))
    elif claim.access is RestAccess.READ and claim.span is not None:
        abort_if(check_rest_read(entry.locks, *claim.span))
