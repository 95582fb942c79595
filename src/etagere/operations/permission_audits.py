"""The permissions of files for `etagere check`: every number that is used has a descriptor, and
their bytes are those that are counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from etagere.bodies.audit import findings as kinds
from etagere.bodies.audit.snapshot import Audit
from etagere.engine.records import Collection
from etagere.model.files import Entry
from etagere.operations.file.collections import (
    ENTRIES,
    FORMER_ENTRIES,
    INHERITED_PERMISSIONS,
    PERMISSION_NUMBERS,
    PERMISSION_USAGE,
    PERMISSIONS,
    SHARES_TO_PURGE,
)
from etagere.rules.file_permissions import DEFAULT_PERMISSIONS, stored_length


def check_permissions(audit: Audit) -> None:
    audit.execute(
        "CREATE TEMP TABLE audit_permissions (share BLOB, number INT, PRIMARY KEY (share, number)) "
        "WITHOUT ROWID"
    )
    lengths: Counter[bytes] = Counter()
    for _, key, stored, _ in audit.rows(PERMISSIONS, first_time=False):
        audit.execute("INSERT INTO audit_permissions VALUES (?, ?)", key)
        lengths[key[0]] += stored_length(stored.descriptor)
    _check_usage(audit, lengths)
    for collection, packed, share_id, number in _used(audit):
        if number in DEFAULT_PERMISSIONS:
            continue
        known = audit.execute(
            "SELECT 1 FROM audit_permissions WHERE share = ? AND number = ?", (share_id, number)
        )
        if not list(known):
            what = f"its permission, {number}, is missing"
            audit.find(kinds.PERMISSION_MISSING, audit.name(collection, packed), what)
    audit.execute("DROP TABLE audit_permissions")


def _check_usage(audit: Audit, lengths: Counter[bytes]) -> None:
    purged = {share_id for _, (share_id,), _, _ in audit.rows(SHARES_TO_PURGE, first_time=False)}
    usage: Counter[bytes] = Counter()
    for _, (share_id,), used, _ in audit.rows(PERMISSION_USAGE, first_time=False):
        usage[share_id] = used.length
    for share_id in (lengths.keys() | usage.keys()) - purged:
        length, counted = lengths[share_id], usage[share_id]
        if length != counted:
            what = f"its permissions take {length} bytes, and {counted} are counted"
            audit.find(kinds.USAGE_WRONG, f"share {share_id.hex()}", what)


def _used(audit: Audit) -> Iterator[tuple[Collection[Any, Any], bytes, bytes, int]]:
    """Yields the collection and the key of each record that names a permission, the share and the
    number of the permission."""
    of_entries: tuple[Collection[Any, Entry], ...] = (ENTRIES, FORMER_ENTRIES)
    for entries in of_entries:
        for packed, key, entry, _ in audit.rows(entries, first_time=False):
            yield entries, packed, key[0], entry.permission
    for packed, digest, stored, _ in audit.rows(PERMISSION_NUMBERS, first_time=False):
        yield PERMISSION_NUMBERS, packed, digest[0], stored.number
    for packed, parent, inherited, _ in audit.rows(INHERITED_PERMISSIONS, first_time=False):
        for number in (parent[1], inherited.number):
            yield INHERITED_PERMISSIONS, packed, parent[0], number
