"""Admission of REST operations, which count as opens for as long as they take."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import NamedTuple

from etagere.engine.interface import Refused, abort_if
from etagere.errors import Refusal
from etagere.model.files import NO_ENTRY, DirectoryNode
from etagere.opens.breaking import (
    ask_to_close,
    break_for_rest,
    break_handles_for_rest,
    discard_for_rest,
)
from etagere.opens.changes import ChangeSignal
from etagere.opens.deletions import PendingDeletions
from etagere.opens.gathered_files import GatheredFiles
from etagere.opens.handles import Handle, OpenEntry, OpenTree
from etagere.operations.file.tree import LocatedEntry
from etagere.rules.caching import discards_caches
from etagere.rules.file_names import fold_name
from etagere.rules.opens import (
    OpenMode,
    RestAccess,
    check_rest_read,
    check_rest_write,
    delays_lock,
    delays_open,
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
    by: Handle | None = None
    """The handle of the SMB client that carries it out, which is not in its own way."""

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


_Name = tuple[int, str]
"""A name in a directory, whose ID comes first. The name is folded."""


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
        self._reserved: dict[_Name, tuple[int, ...]] = {}
        """The names at which SMB clients are creating entries, with the directories above."""

    @property
    def is_idle(self) -> bool:
        return not (self._in_progress or self._pending_opens)

    async def admit(
        self,
        claims: Sequence[RestClaim],
        seconds_max: float,
        on_wait: Callable[[], None] | None = None,
    ) -> None:
        """Registers REST operations as soon as nothing is in their way, or refuses them. Then what
        was written to their files is in the ledger. `on_wait` is called before waiting."""
        loop = asyncio.get_running_loop()
        ends_at = loop.time() + seconds_max
        while (obstacle := self._first_obstacle(claims)) is not None:
            if on_wait is not None:
                on_wait()
            left = ends_at - loop.time()
            done, _ = await asyncio.wait((obstacle.end,), timeout=max(left, 0))
            if not done:
                raise Refused(Refusal(obstacle.overdue))
        for claim in claims:
            self._register(claim)
        if self._gathered:
            try:
                for claim in claims:
                    await self._store_gathered(claim)
            except BaseException:
                self.release(claims)
                raise

    async def _store_gathered(self, claim: RestClaim) -> None:
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
            end = break_for_rest(entry, access, claim.by) or break_handles_for_rest(
                entry, access, claim.by
            )
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
        return ask_to_close([one for one in page.handles if one.entry.id != directory_id])

    def _has_to_wait(self, claim: RestClaim, entry: OpenEntry | None) -> bool:
        """Returns whether another change has to end first."""
        access, entry_id = claim.access, claim.located.entry_id
        if self._reserved and self._is_reserved(claim):
            return True
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

    def _is_reserved(self, claim: RestClaim) -> bool:
        """Returns whether a handle that is about to be registered may be in the way."""
        if _name_key(claim.located) in self._reserved:
            return True
        entry_id = claim.located.entry_id
        return claim.changes_directory and any(
            entry_id in directory_ids for directory_ids in self._reserved.values()
        )

    def _register(self, claim: RestClaim) -> None:
        located, access = claim.located, claim.access
        if located.entry_id == NO_ENTRY:
            self._in_progress.setdefault(located.directory_ids[-1], []).append(RestAccess.CREATE)
            return
        self._in_progress.setdefault(located.entry_id, []).append(access)
        entry = self._tree.entries.get(located.entry_id)
        if entry is not None:
            discard_for_rest(entry, access, claim.by)
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
            self._end_access(key, access)
            if claim.changes_directory:
                self._changing_directories[key] -= 1
                if not self._changing_directories[key]:
                    del self._changing_directories[key]
        self._changes.notify()

    def _end_access(self, key: int, access: RestAccess) -> None:
        in_progress = self._in_progress[key]
        in_progress.remove(access)
        if not in_progress:
            del self._in_progress[key]

    @property
    def is_moving(self) -> bool:
        """Whether entries with open handles are being renamed, so that their paths may not be up to
        date."""
        return self._moves > 0

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
        in_progress = self._in_progress
        if not in_progress:
            return False
        return any(
            delays_open(access, mode) for access in in_progress.get(located.entry_id, ())
        ) or self.is_place_delayed(located)

    def is_place_delayed(self, located: LocatedEntry) -> bool:
        """Returns whether an operation in progress changes the directories above an entry, or an
        SMB client is just creating it."""
        changing = self._changing_directories
        return _name_key(located) in self._reserved or (
            bool(changing) and any(one in changing for one in located.directory_ids)
        )

    def reserve(self, located: LocatedEntry) -> None:
        """Reserves a name for an SMB client that creates an entry: until `unreserve`, operations on
        the name wait, and nothing above it is moved. The caller has made sure that nothing delays
        it."""
        directory_ids = located.directory_ids
        self._reserved[_name_key(located)] = directory_ids
        self._in_progress.setdefault(directory_ids[-1], []).append(RestAccess.CREATE)

    def unreserve(self, located: LocatedEntry) -> None:
        del self._reserved[_name_key(located)]
        self._end_access(located.directory_ids[-1], RestAccess.CREATE)
        self._changes.notify()

    def announce(self, pending: PendingOpen) -> None:
        """Holds back REST operations that would delay an open, until `withdraw`."""
        self._pending_opens.append(pending)

    def withdraw(self, pending: PendingOpen) -> None:
        self._pending_opens.remove(pending)
        self._changes.notify()

    def is_changing(self, entry_id: int) -> bool:
        """Returns whether an operation in progress changes an entry, so that nobody may cache what
        it is now."""
        return any(map(discards_caches, self._in_progress.get(entry_id, ())))

    def is_lock_delayed(self, entry_id: int, *, exclusive: bool) -> bool:
        """Returns whether a byte-range lock has to wait for an operation in progress."""
        in_progress = self._in_progress.get(entry_id, ())
        return any(delays_lock(access, exclusive=exclusive) for access in in_progress)

    def is_creating_in(self, directory_id: int) -> bool:
        """Returns whether an operation in progress may create an entry in a directory."""
        return RestAccess.CREATE in self._in_progress.get(directory_id, ())


def _name_key(located: LocatedEntry) -> _Name:
    names = located.names
    return located.directory_ids[-1], fold_name(names[-1]) if names else ""


def _refuse_locked(entry: OpenEntry, claim: RestClaim) -> None:
    if not entry.locks:
        return
    if claim.access in _CHANGES_BYTES:
        abort_if(check_rest_write(entry.locks))
    elif claim.access is RestAccess.READ and claim.span is not None:
        abort_if(check_rest_read(entry.locks, *claim.span))
