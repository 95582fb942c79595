"""What the watches of a share are told of changes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from etagere.model.files import PRESERVE_TIME, ChangedTimes, Entry
from etagere.opens.handles import OpenEntry
from etagere.opens.watches import Change, ChangeAction, ChangeSubject
from etagere.operations.file.tree import LocatedEntry
from etagere.rules.opens import RestAccess

_BYTES: Final = ChangeSubject.SIZE | ChangeSubject.LAST_WRITE
_PROPERTIES: Final = (
    ChangeSubject.ATTRIBUTES
    | ChangeSubject.LAST_WRITE
    | ChangeSubject.LAST_ACCESS
    | ChangeSubject.CREATION
    | ChangeSubject.SECURITY
)
_MODIFIED: Final = {
    RestAccess.WRITE: _BYTES,
    RestAccess.SET: _PROPERTIES,
    RestAccess.REPLACE: _BYTES | _PROPERTIES,
}
WRITTEN: Final = _BYTES
"""What a write changes."""
OVERWRITTEN: Final = _BYTES | ChangeSubject.ATTRIBUTES
"""What an open that overwrites a file changes."""


def changed_subjects(
    times: ChangedTimes, attributes: int | None, permission: object | None
) -> ChangeSubject:
    """Returns what a change of properties concerns."""
    subjects = ChangeSubject(0)
    if attributes is not None:
        subjects |= ChangeSubject.ATTRIBUTES
    if permission is not None:
        subjects |= ChangeSubject.SECURITY
    if times.created != PRESERVE_TIME:
        subjects |= ChangeSubject.CREATION
    if times.written != PRESERVE_TIME:
        subjects |= ChangeSubject.LAST_WRITE
    if times.accessed != PRESERVE_TIME:
        subjects |= ChangeSubject.LAST_ACCESS
    return subjects


def _name_of(is_directory: bool) -> ChangeSubject:
    return ChangeSubject.DIRECTORY_NAME if is_directory else ChangeSubject.FILE_NAME


def rest_changes(access: RestAccess, located: LocatedEntry, result: object) -> Sequence[Change]:
    """Returns what a REST operation has changed. `located` is the entry before, and `result` what
    the operation returned: the new entry, if it creates one."""
    old = located.entry
    if access is RestAccess.DELETE and old is not None:
        return (removed(located.directory_ids, located.names, is_directory=old.is_directory),)
    if old is None:
        if access in (RestAccess.CREATE, RestAccess.REPLACE) and isinstance(result, Entry):
            return (added(located.directory_ids, located.names, is_directory=result.is_directory),)
        return ()
    subjects = _MODIFIED.get(access)
    return () if subjects is None else (modified(located.directory_ids, located.names, subjects),)


def added(directory_ids: tuple[int, ...], names: tuple[str, ...], *, is_directory: bool) -> Change:
    return Change(ChangeAction.ADDED, _name_of(is_directory), directory_ids, names)


def removed(
    directory_ids: tuple[int, ...], names: tuple[str, ...], *, is_directory: bool
) -> Change:
    return Change(ChangeAction.REMOVED, _name_of(is_directory), directory_ids, names)


def modified(
    directory_ids: tuple[int, ...], names: tuple[str, ...], subjects: ChangeSubject
) -> Change:
    return Change(ChangeAction.MODIFIED, subjects, directory_ids, names)


def entry_added(entry: OpenEntry) -> Change:
    return added(entry.directory_ids, entry.names, is_directory=entry.is_directory)


def entry_removed(entry: OpenEntry) -> Change:
    return removed(entry.directory_ids, entry.names, is_directory=entry.is_directory)


def entry_modified(entry: OpenEntry, subjects: ChangeSubject) -> Change:
    return modified(entry.directory_ids, entry.names, subjects)


def renamed(before: LocatedEntry, target: LocatedEntry, name: str) -> Sequence[Change]:
    """Returns what a rename has changed: within a directory it is told as such, else as a removal
    and an addition. `target` is what was at the destination before, and `name` the new name."""
    after = target._replace(names=(*target.names[:-1], name))
    subject = _name_of(before.entry is not None and before.entry.is_directory)
    actions = ChangeAction.REMOVED, ChangeAction.ADDED
    if before.directory_ids == after.directory_ids:
        actions = ChangeAction.RENAMED_FROM, ChangeAction.RENAMED_TO
    return (
        Change(actions[0], subject, before.directory_ids, before.names),
        Change(actions[1], subject, after.directory_ids, after.names),
    )
