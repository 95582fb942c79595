"""The trees of shares for `etagere check`: every entry can be reached from the root, and what is
counted agrees with what is there."""

from __future__ import annotations

from collections import Counter
from typing import Final

from etagere.bodies.audit import findings as kinds
from etagere.bodies.audit.findings import LedgerRemedy
from etagere.bodies.audit.snapshot import Audit
from etagere.model.files import ROOT_ID, Entry, FileNode, HardLinkNode
from etagere.operations.file.collections import (
    DELETED_SHARES,
    ENTRIES,
    SHARE_USAGE,
    SHARES,
    SHARES_TO_PURGE,
    EntryKey,
)
from etagere.operations.file.purging import OF_SHARES, MarkShare, mark_share
from etagere.operations.permission_audits import check_permissions
from etagere.rules.file_names import fold_name

_TABLES: Final = (
    "CREATE TEMP TABLE audit_entries (share BLOB, id INT, parent INT, is_directory INT, "
    "is_link INT, key BLOB)",
    "CREATE TEMP TABLE audit_linked (share BLOB, id INT, links INT, key BLOB)",
    "CREATE TEMP TABLE audit_reached (share BLOB, id INT, PRIMARY KEY (share, id)) WITHOUT ROWID",
)


def check_trees(audit: Audit) -> None:
    living = _living_shares(audit)
    _check_shares(audit, living)
    if not living:
        return
    for table in _TABLES:
        audit.execute(table)
    lengths = _read_entries(audit, living)
    audit.execute("CREATE INDEX audit_children ON audit_entries (share, parent, id)")
    audit.execute("CREATE INDEX audit_ids ON audit_entries (share, id)")
    _check_ids(audit)
    _check_reachable(audit)
    _check_links(audit)
    _check_usage(audit, living, lengths)
    for table in ("audit_entries", "audit_linked", "audit_reached"):
        audit.execute(f"DROP TABLE {table}")


TREE_AUDITS: Final = (
    (check_trees, "trees of shares"),
    (check_permissions, "permissions of files"),
)


# Shares


def _living_shares(audit: Audit) -> dict[bytes, str]:
    """Returns a description of each share that exists or can be restored, by id."""
    shares = audit.rows(SHARES, first_time=False)
    living = {share.id: audit.name(SHARES, packed) for packed, _, share, _ in shares}
    for packed, _, kept, _ in audit.rows(DELETED_SHARES, first_time=False):
        living[kept.share.id] = audit.name(DELETED_SHARES, packed)
    return living


def _check_shares(audit: Audit, living: dict[bytes, str]) -> None:
    """Finds records of shares that are neither there nor marked to be purged."""
    known = living.keys() | {
        share_id for _, (share_id,), _, _ in audit.rows(SHARES_TO_PURGE, first_time=False)
    }
    unknown = Counter(
        key[0]
        for collection in OF_SHARES
        for _, key, _, _ in audit.rows(collection, first_time=False)
        if key[0] not in known
    )
    for share_id, count in unknown.items():
        remedy = LedgerRemedy(mark_share, MarkShare(share_id))
        what = f"{count} records belong to no share"
        audit.suspect(kinds.SHARE_UNKNOWN, f"share {share_id.hex()}", what, remedy)


# Entries


def _read_entries(audit: Audit, living: dict[bytes, str]) -> Counter[bytes]:
    """Collects the entries of living shares; returns the length of the files of each."""
    lengths: Counter[bytes] = Counter()
    for packed, key, entry, _ in audit.rows(ENTRIES, first_time=False):
        if key[0] not in living:
            continue
        _check_place(audit, packed, key, entry)
        node = entry.node
        if isinstance(node, FileNode):
            lengths[key[0]] += node.content.length
            if entry.name and node.links:
                what = f"it has {node.links} links, but no record of its own"
                audit.find(kinds.LINKS_WRONG, audit.name(ENTRIES, packed), what)
        if entry.name:
            audit.execute(
                "INSERT INTO audit_entries VALUES (?, ?, ?, ?, ?, ?)",
                (
                    key[0],
                    entry.id,
                    key[1],
                    entry.is_directory,
                    isinstance(node, HardLinkNode),
                    packed,
                ),
            )
        elif isinstance(node, FileNode):
            row = (key[0], entry.id, node.links, packed)
            audit.execute("INSERT INTO audit_linked VALUES (?, ?, ?, ?)", row)
    return lengths


def _check_place(audit: Audit, packed: bytes, key: EntryKey, entry: Entry) -> None:
    """Checks that an entry is under its key. Those without a name, the root and files with several
    links, are in themselves."""
    is_in_place = entry.name or entry.id == entry.parent_id
    if not is_in_place or (entry.parent_id, fold_name(entry.name)) != key[1:]:
        what = f"the record is of {entry.name!r} in directory {entry.parent_id}"
        audit.find(kinds.ENTRY_MISPLACED, audit.name(ENTRIES, packed), what)


def _check_ids(audit: Audit) -> None:
    """Finds ids that several entries have; only hard links share one."""
    rows = audit.execute(
        "SELECT max(key), id FROM audit_entries GROUP BY share, id "
        "HAVING count(*) > 1 AND NOT min(is_link)"
    )
    for packed, entry_id in list(rows):
        what = f"another entry of the share has the id {entry_id} too"
        audit.find(kinds.ENTRY_ID_SHARED, audit.name(ENTRIES, packed), what)


def _check_reachable(audit: Audit) -> None:
    """Finds entries that no path leads to: their directory is missing, or below itself."""
    audit.execute(
        "WITH RECURSIVE reached (share, id) AS (SELECT DISTINCT share, ? FROM audit_entries UNION "
        "SELECT e.share, e.id FROM audit_entries e, reached r "
        "WHERE e.share = r.share AND e.parent = r.id AND e.is_directory) "
        "INSERT INTO audit_reached SELECT share, id FROM reached",
        (ROOT_ID,),
    )
    lost = audit.execute(
        "SELECT key, parent FROM audit_entries e WHERE NOT EXISTS "
        "(SELECT 1 FROM audit_reached r WHERE r.share = e.share AND r.id = e.parent) ORDER BY key"
    )
    for packed, parent in list(lost):
        what = f"no path leads to its directory, {parent}"
        audit.find(kinds.ENTRY_UNREACHABLE, audit.name(ENTRIES, packed), what)


# Counts


def _check_links(audit: Audit) -> None:
    """Compares the links to files with those that are there."""
    audit.execute("CREATE INDEX audit_files ON audit_linked (share, id)")
    wrong = audit.execute(
        "SELECT l.key, l.links, (SELECT count(*) FROM audit_entries e WHERE e.is_link "
        "AND e.share = l.share AND e.id = l.id) AS found FROM audit_linked l "
        "WHERE found != l.links ORDER BY l.key"
    )
    for packed, links, found in list(wrong):
        what = f"the file has {found} links, and {links} are recorded"
        audit.find(kinds.LINKS_WRONG, audit.name(ENTRIES, packed), what)
    lost = audit.execute(
        "SELECT key, id FROM audit_entries e WHERE is_link AND NOT EXISTS "
        "(SELECT 1 FROM audit_linked l WHERE l.share = e.share AND l.id = e.id) ORDER BY key"
    )
    for packed, file_id in list(lost):
        what = f"it is a link to the file {file_id}, which is missing"
        audit.find(kinds.LINKS_WRONG, audit.name(ENTRIES, packed), what)


def _check_usage(audit: Audit, living: dict[bytes, str], lengths: Counter[bytes]) -> None:
    usage: Counter[bytes] = Counter()
    for _, (share_id, _), part, _ in audit.rows(SHARE_USAGE, first_time=False):
        usage[share_id] += part.length
    for share_id, where in living.items():
        if usage[share_id] != lengths[share_id]:
            what = f"its files have {lengths[share_id]} bytes, and {usage[share_id]} are counted"
            audit.find(kinds.USAGE_WRONG, where, what)
