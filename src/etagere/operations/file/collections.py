"""The collections of the file service, and the contents that their records hold."""

from __future__ import annotations

from collections.abc import Iterable

from etagere.bodies.contents import declare_holder
from etagere.engine.records import BYTES, ID, TEXT, UINT, Collection
from etagere.model.bodies import Content
from etagere.model.file_copies import PendingFileCopy
from etagere.model.files import (
    Entry,
    FileNode,
    FilePermission,
    FilePermissionNumber,
    FilePermissionUsage,
    InheritedPermission,
)
from etagere.model.shares import (
    DeletedShare,
    DeletedShareName,
    ExpiringShare,
    HistoryToPurge,
    Share,
    ShareSnapshot,
    ShareToPurge,
    ShareUsage,
)

SHARES: Collection[tuple[str, str], Share] = Collection("shares", Share, (TEXT, TEXT))
SHARE_SNAPSHOTS: Collection[tuple[bytes, int], ShareSnapshot] = Collection(
    "share_snapshots", ShareSnapshot, (ID, UINT)
)
DELETED_SHARES: Collection[tuple[str, str, int], DeletedShare] = Collection(
    "deleted_shares", DeletedShare, (TEXT, TEXT, UINT)
)
EXPIRING_SHARES: Collection[tuple[int, str, str, int], ExpiringShare] = Collection(
    "expiring_shares", ExpiringShare, (UINT, TEXT, TEXT, UINT)
)
DELETED_SHARE_NAMES: Collection[tuple[str, str], DeletedShareName] = Collection(
    "deleted_share_names", DeletedShareName, (TEXT, TEXT)
)
SHARES_TO_PURGE: Collection[tuple[bytes], ShareToPurge] = Collection(
    "shares_to_purge", ShareToPurge, (ID,)
)
SHARE_USAGE: Collection[tuple[bytes, int], ShareUsage] = Collection(
    "share_usage", ShareUsage, (ID, UINT)
)

EntryKey = tuple[bytes, int, str]
"""The id of the share, the id of the directory, and the folded name."""

ENTRIES: Collection[EntryKey, Entry] = Collection("file_entries", Entry, (ID, UINT, TEXT))
FORMER_ENTRIES: Collection[tuple[bytes, int, str, int], Entry] = Collection(
    "former_file_entries", Entry, (ID, UINT, TEXT, UINT)
)
"""States of entries that only snapshots show. The last part of the key is the generation of the
share in which the state was replaced."""
HISTORIES_TO_PURGE: Collection[tuple[bytes], HistoryToPurge] = Collection(
    "file_histories_to_purge", HistoryToPurge, (ID,)
)

PENDING_FILE_COPIES: Collection[EntryKey, PendingFileCopy] = Collection(
    "pending_file_copies", PendingFileCopy, (ID, UINT, TEXT)
)

PERMISSIONS: Collection[tuple[bytes, int], FilePermission] = Collection(
    "file_permissions", FilePermission, (ID, UINT)
)
PERMISSION_NUMBERS: Collection[tuple[bytes, bytes], FilePermissionNumber] = Collection(
    "file_permission_numbers", FilePermissionNumber, (ID, BYTES)
)
PERMISSION_USAGE: Collection[tuple[bytes], FilePermissionUsage] = Collection(
    "file_permission_usage", FilePermissionUsage, (ID,)
)
INHERITED_PERMISSIONS: Collection[tuple[bytes, int, int], InheritedPermission] = Collection(
    "inherited_file_permissions", InheritedPermission, (ID, UINT, UINT)
)


def _contents(entry: Entry) -> Iterable[Content]:
    return (entry.node.content,) if isinstance(entry.node, FileNode) else ()


declare_holder(ENTRIES, contents=_contents)
declare_holder(FORMER_ENTRIES, contents=_contents)
