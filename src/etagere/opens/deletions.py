"""Deletion on close: entries that are deleted when their last handle is closed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from etagere.engine.interface import Fault, FaultReason, Refused, Unknown
from etagere.errors import Refusal
from etagere.model.files import EntryPath
from etagere.model.shares import ShareName, ShareRef
from etagere.opens.changes import ChangeSignal
from etagere.opens.handles import OpenEntry
from etagere.opens.reports import entry_removed
from etagere.opens.watches import Watches
from etagere.operations.file.tree import LocatedEntry

logger = logging.getLogger(__name__)

EntryDeleter = Callable[[EntryPath, bool], Awaitable[object]]
"""Deletes a file, or a directory, in the ledger."""
Deletion = asyncio.Task[Fault | Unknown | None]
"""A deletion in progress. Its result is why it failed, if it did."""


class PendingDeletions:
    """The entries of a share that are marked for deletion, or are just being deleted."""

    def __init__(
        self, share: ShareName, delete: EntryDeleter, changes: ChangeSignal, watches: Watches
    ) -> None:
        self._share = share
        self._delete = delete
        self._changes = changes
        self._watches = watches
        self._entries: dict[int, OpenEntry] = {}
        self._tasks: dict[int, Deletion] = {}

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def entry_ids(self) -> frozenset[int]:
        return frozenset(self._entries)

    @property
    def in_progress(self) -> list[Deletion]:
        return list(self._tasks.values())

    def refuse(self, located: LocatedEntry) -> None:
        """Refuses access to an entry that is marked, or that is in a directory that is."""
        marked = self._entries
        if marked and (
            located.entry_id in marked or any(one in marked for one in located.directory_ids)
        ):
            raise Refused(Refusal("SMBDeletePending"))

    def is_in_progress_below(self, directory_id: int) -> bool:
        return any(directory_id in self._entries[one].directory_ids for one in self._tasks)

    def mark(self, entry: OpenEntry) -> None:
        entry.is_delete_pending = True
        self._entries[entry.id] = entry
        if entry.is_directory:
            self._watches.mark_deleted(entry.id)

    def clear(self, entry: OpenEntry) -> None:
        """Removes the mark, unless the deletion has begun."""
        if entry.id not in self._tasks:
            entry.is_delete_pending = False
            self._entries.pop(entry.id, None)

    def clear_all(self) -> None:
        for entry in list(self._entries.values()):
            self.clear(entry)

    def start(self, entry: OpenEntry) -> Deletion:
        """Deletes a marked entry whose last handle was closed."""
        task = asyncio.get_running_loop().create_task(self._carry_out(entry))
        self._tasks[entry.id] = task
        return task

    async def _carry_out(self, entry: OpenEntry) -> Fault | Unknown | None:
        path = EntryPath(ShareRef(self._share), entry.names, entry.id)
        try:
            await self._delete(path, entry.is_directory)
            self._watches.report([entry_removed(entry)])
        except Refused as refused:
            # Made read-only, or filled, after it was marked. It stays, as in Windows.
            logger.info("%s was not deleted on close: %s", entry.path, refused.refusal.code)
        except (Fault, Unknown) as failure:
            logger.warning("%s was not deleted on close: %s", entry.path, failure)
            return failure
        except Exception as error:
            logger.exception("%s was not deleted on close", entry.path)
            return Fault(FaultReason.FAILED, str(error))
        finally:
            del self._tasks[entry.id]
            del self._entries[entry.id]
            self._changes.notify()
        return None
