"""Renames of open entries by the SMB clients that have them open."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from etagere.engine.interface import Engine, Refused
from etagere.errors import Refusal
from etagere.model.files import Entry, EntryPath, RenameEntry
from etagere.model.shares import ShareRef
from etagere.opens.caches import BREAK_SECONDS_MAX
from etagere.opens.handles import Handle
from etagere.opens.share import ShareOpens
from etagere.opens.table import OpenTable
from etagere.operations.file import renames
from etagere.operations.file.tree import LocatedEntry
from etagere.rules.opens import Access, OpenMode, conflicts

_WAIT_SECONDS_MAX: Final = 3 * BREAK_SECONDS_MAX
_REFUSED: Final = Refusal("AuthorizationFailure")
_IN_DIRECTORY: Final = OpenMode(Access.WRITE, Access.READ | Access.WRITE)
"""How a rename looks to those who have the directory of the destination open, as in Windows."""


async def rename_open_entry(
    engine: Engine,
    table: OpenTable,
    share: ShareOpens,
    handle: Handle,
    components: tuple[str, ...],
    replace: bool,
    on_wait: Callable[[], None],
) -> None:
    """Moves the entry of a handle. It counts as a REST operation, with which its own handle does
    not interfere."""
    entry = handle.entry
    if entry.snapshot is not None:
        raise Refused(Refusal("ShareSnapshotOperationNotSupported"))
    if entry.is_root or not components or not handle.mode.access & Access.DELETE:
        raise Refused(_REFUSED)

    def check(target: LocatedEntry) -> None:
        parent = share.current.entries.get(target.directory_ids[-1])
        if parent is not None and any(conflicts(_IN_DIRECTORY, mode) for mode in parent.modes):
            raise Refused(Refusal("FileOpenBySmbClient"))
        found = target.entry
        if found is None or found.id == entry.id:
            return
        if not replace:
            raise Refused(Refusal("ResourceAlreadyExists"))
        if found.is_directory:
            raise Refused(_REFUSED)

    async def run(source: EntryPath, destination: EntryPath) -> Entry:
        command = RenameEntry(source, destination, entry.is_directory, replace)
        return await engine.write(renames.rename_entry, command)

    ref = ShareRef(share.name)
    try:
        await table.move(
            lambda: EntryPath(ref, entry.names),
            EntryPath(ref, components),
            run,
            check=check,
            by=handle,
            on_wait=on_wait,
            seconds_max=_WAIT_SECONDS_MAX,
        )
    except Refused as refused:
        if refused.refusal.code == "SharingViolation":
            # Something below the directory is open, or the target is ([MS-FSA] 2.1.5.15.12).
            raise Refused(_REFUSED) from None
        raise
