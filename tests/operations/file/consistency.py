"""Checks of the tree of every share, on any engine: what `etagere check` verifies with SQLite."""

from __future__ import annotations

from collections import Counter

from etagere.engine.interface import ReadTxn
from etagere.model.files import (
    ROOT_ID,
    DirectoryNode,
    Entry,
    FileNode,
    FilePermissionUsage,
    HardLinkNode,
)
from etagere.operations.file.collections import (
    DELETED_SHARES,
    ENTRIES,
    EXPIRING_SHARES,
    FORMER_ENTRIES,
    PERMISSION_USAGE,
    PERMISSIONS,
    SHARE_SNAPSHOTS,
    SHARE_USAGE,
    SHARES,
    SHARES_TO_PURGE,
    EntryKey,
)
from etagere.rules.file_names import fold_name
from etagere.rules.file_permissions import stored_length
from tests.operations.blob.consistency import rows


def require_trees(txn: ReadTxn, _: None) -> None:
    """Checks that no share has orphans or cycles, and that its usage is that of its files."""
    deleted = rows(txn, DELETED_SHARES)
    shares = [*rows(txn, SHARES).values(), *(kept.share for kept in deleted.values())]
    dying = {key[0] for key in rows(txn, SHARES_TO_PURGE)}
    living = {share.id for share in shares}
    assert not living & dying
    entries: dict[EntryKey, Entry] = rows(txn, ENTRIES)
    former = rows(txn, FORMER_ENTRIES)
    snapshots = rows(txn, SHARE_SNAPSHOTS)
    assert {key[0] for key in (*entries, *former, *snapshots)} <= living | dying
    for share in shares:
        _require_tree({k: e for k, e in entries.items() if k[0] == share.id})
        parts = [part.length for key, part in rows(txn, SHARE_USAGE).items() if key[0] == share.id]
        files = [e.node for k, e in entries.items() if k[0] == share.id]
        lengths = [node.content.length for node in files if isinstance(node, FileNode)]
        assert sum(parts) == sum(lengths)
        used = rows(txn, PERMISSION_USAGE).get((share.id,), FilePermissionUsage(0))
        permissions = [p for key, p in rows(txn, PERMISSIONS).items() if key[0] == share.id]
        assert used.length == sum(stored_length(each.descriptor) for each in permissions)
        taken = [shown.generation for key, shown in snapshots.items() if key[0] == share.id]
        assert tuple(sorted(taken)) == share.snapshot_generations
        assert all(e.generation <= share.generation for k, e in entries.items() if k[0] == share.id)
    assert {key[1:] for key in rows(txn, EXPIRING_SHARES)} == deleted.keys()


def _require_tree(entries: dict[EntryKey, Entry]) -> None:
    stored = [entry for entry in entries.values() if entry.name]
    links = Counter(entry.id for entry in stored if isinstance(entry.node, HardLinkNode))
    files = [e for e in entries.values() if isinstance(e.node, FileNode) and not e.name]
    assert links == {e.id: e.node.links for e in files if isinstance(e.node, FileNode)}
    assert all(e.id == e.parent_id for e in entries.values() if not e.name)
    ids = Counter(entry.id for entry in stored if not isinstance(entry.node, HardLinkNode))
    assert max(ids.values(), default=1) == 1
    assert not ids.keys() & links.keys()
    assert not any(isinstance(e.node, FileNode) and e.node.links for e in stored)
    for (_, directory_id, name), entry in entries.items():
        assert (directory_id, name) == (entry.parent_id, fold_name(entry.name))
    parents = {e.id: e.parent_id for e in stored if isinstance(e.node, DirectoryNode)}
    for entry in stored:
        seen, at = set(), entry.parent_id
        while at != ROOT_ID:
            assert at in parents, "an orphan"
            assert at not in seen, "a cycle"
            seen.add(at)
            at = parents[at]


def history_records(txn: ReadTxn, _: None) -> int:
    return len(rows(txn, FORMER_ENTRIES))
