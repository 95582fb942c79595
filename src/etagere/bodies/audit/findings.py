"""The kinds of findings of a check, with their severity and advice for the user."""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from etagere.engine.interface import WriteTxn


class Severity(enum.Enum):
    """The severity of a finding, by its meaning for the objects in the store."""

    LOSS = "loss"
    """Bytes or records that an object needs are missing or damaged."""
    FAULT = "fault"
    """The ledger contradicts itself; no bytes are missing yet."""
    LEAK = "leak"
    """Space or records that nothing refers to; a repair removes them."""


LOSS, FAULT, LEAK = Severity.LOSS, Severity.FAULT, Severity.LEAK


class FindingKind(NamedTuple):
    """A kind of finding."""

    name: str
    severity: Severity
    advice: str


_BACKUP = "Restore the data directory from a backup."
_UPLOAD = "Upload the object again, or restore the data directory from a backup."
_REPAIR = "`etagere check --repair` removes it."
_STUCK = "No object is at risk, but the space will never be reclaimed."
_SHARED = (
    "Do not delete or overwrite the objects that share it: that would remove the bytes of the "
    "others. Upload them again under other names first."
)
_ORPHANS = (
    "Copy the data directory to a safe place before you start a server: the garbage collector may "
    "remove this data."
)

# The database
DATABASE_DAMAGED = FindingKind("database-damaged", LOSS, _BACKUP)
TABLE_UNREADABLE = FindingKind("table-unreadable", LOSS, _BACKUP)
RECORD_UNREADABLE = FindingKind("record-unreadable", LOSS, _BACKUP)
ACCOUNT_UNREADABLE = FindingKind("account-unreadable", FAULT, _BACKUP)
TABLE_UNKNOWN = FindingKind(
    "table-unknown", FAULT, "Check with the version of etagere that created this data directory."
)
TIMELINE_WRONG = FindingKind("timeline-wrong", FAULT, _BACKUP)
COUNTER_WRONG = FindingKind(
    "counter-wrong",
    FAULT,
    "Do not write to the store: a new segment could replace an existing one.",
)

# Contents
INLINE_MISSING = FindingKind("inline-missing", LOSS, _UPLOAD)
INLINE_DAMAGED = FindingKind("inline-damaged", LOSS, _UPLOAD)
INLINE_UNUSED = FindingKind("inline-unused", LEAK, _REPAIR)
CONTENTS_DIFFER = FindingKind("contents-differ", FAULT, _UPLOAD)
LENGTH_WRONG = FindingKind("length-wrong", LOSS, _UPLOAD)
LIST_MISSING = FindingKind("list-missing", LOSS, _UPLOAD)
LIST_UNUSED = FindingKind(
    "list-unused", LEAK, "`etagere check --repair` passes it to the garbage collector."
)
CHUNK_MISSING = FindingKind("chunk-missing", LOSS, _UPLOAD)
CHUNK_UNUSED = FindingKind("chunk-unused", LEAK, _REPAIR)
MAP_MISSING = FindingKind("map-missing", LOSS, _UPLOAD)
MAP_UNUSED = FindingKind(
    "map-unused", LEAK, "`etagere check --repair` passes it to the garbage collector."
)
MAP_UNMARKED = FindingKind(
    "map-unmarked", LEAK, "`etagere check --repair` marks it for the garbage collector."
)
GENERATION_UNUSED = FindingKind("generation-unused", LEAK, _REPAIR)
INTERVALS_OVERLAP = FindingKind("intervals-overlap", FAULT, _BACKUP)
INTERVAL_UNUSED = FindingKind("interval-unused", LEAK, _REPAIR)
CONTENT_TO_REAP_HELD = FindingKind("dying-held", FAULT, _ORPHANS)
CONTENT_TO_REAP_EMPTY = FindingKind("dying-empty", LEAK, _REPAIR)
SHARERS_TOO_FEW = FindingKind("sharers-too-few", FAULT, _SHARED)
SHARERS_TOO_MANY = FindingKind("sharers-too-many", FAULT, _STUCK)
SHARERS_UNUSED = FindingKind("sharers-unused", LEAK, _REPAIR)

# Indexes
INDEX_ROW_MISSING = FindingKind(
    "index-row-missing", FAULT, "Write the object again; this restores the index row."
)
INDEX_ROW_UNUSED = FindingKind("index-row-unused", LEAK, _REPAIR)

# Trees of shares
ENTRY_UNREACHABLE = FindingKind("entry-unreachable", LOSS, _BACKUP)
ENTRY_MISPLACED = FindingKind("entry-misplaced", FAULT, _BACKUP)
ENTRY_ID_SHARED = FindingKind("entry-id-shared", FAULT, _BACKUP)
LINKS_WRONG = FindingKind("links-wrong", FAULT, _BACKUP)
PERMISSION_MISSING = FindingKind("permission-missing", FAULT, _BACKUP)
USAGE_WRONG = FindingKind(
    "usage-wrong",
    FAULT,
    "No file is at risk, but the quota of the share is compared with a wrong number.",
)
SHARE_UNKNOWN = FindingKind(
    "share-unknown", LEAK, "`etagere check --repair` marks its records to be purged."
)

# Extents
EXTENT_MISSING = FindingKind(
    "extent-missing", LOSS, f"Do not start a server, which may reclaim the space. {_UPLOAD}"
)
EXTENT_EXCEEDED = FindingKind("extent-exceeded", LOSS, _UPLOAD)
EXTENT_DAMAGED = FindingKind("extent-damaged", LOSS, _UPLOAD)
EXTENT_UNUSED = FindingKind("extent-unused", LEAK, _REPAIR)
REFERENCES_TOO_FEW = FindingKind("references-too-few", FAULT, _SHARED)
REFERENCES_TOO_MANY = FindingKind("references-too-many", FAULT, _STUCK)
CHECKSUMS_DIFFER = FindingKind("checksums-differ", LOSS, _UPLOAD)
MOVE_MISSING = FindingKind("move-missing", LOSS, _BACKUP)
MOVE_WRONG = FindingKind("move-wrong", FAULT, _BACKUP)
MOVE_UNUSED = FindingKind("move-unused", LEAK, _REPAIR)

# Segments
SEGMENT_MISSING = FindingKind(
    "segment-missing", LOSS, "Restore the file from a backup, or upload the objects again."
)
SEGMENT_SHORT = FindingKind(
    "segment-short", LOSS, "Restore the file from a backup, or upload the objects again."
)
SEGMENT_RETIRED = FindingKind("segment-retired", LOSS, _ORPHANS)
SEGMENT_UNKNOWN = FindingKind("segment-unknown", FAULT, _BACKUP)
SEGMENT_LENGTH_WRONG = FindingKind("segment-length-wrong", FAULT, _BACKUP)
SEGMENT_EMPTY = FindingKind("segment-empty", LEAK, _REPAIR)
EXTENTS_OVERLAP = FindingKind("extents-overlap", FAULT, _BACKUP)
DEAD_TOTAL_WRONG = FindingKind(
    "dead-total-wrong", LEAK, "`etagere check --repair` counts again, so that space is given back."
)
DEAD_UNUSED = FindingKind("dead-unused", LEAK, _REPAIR)
FILE_UNUSED = FindingKind("file-unused", LEAK, _REPAIR)
FILE_TOO_LONG = FindingKind("file-too-long", LEAK, "`etagere check --repair` truncates it.")
FILE_STRANGE = FindingKind("file-strange", FAULT, "Move it elsewhere; Étagère did not create it.")

# Data that seems unused may be the target of a broken reference. It is then all that is left to
# restore an object from, and not a leak.
_MAPS = frozenset({MAP_UNUSED, GENERATION_UNUSED, INTERVAL_UNUSED})
_CONTENTS = frozenset({INLINE_UNUSED, LIST_UNUSED, CHUNK_UNUSED}) | _MAPS
_SPACE = frozenset(
    {EXTENT_UNUSED, MOVE_UNUSED, DEAD_TOTAL_WRONG, SEGMENT_EMPTY, FILE_UNUSED, FILE_TOO_LONG}
)
DOUBTS: dict[FindingKind, frozenset[FindingKind]] = {
    INLINE_MISSING: frozenset({INLINE_UNUSED}),
    MAP_MISSING: _MAPS | {SHARERS_TOO_MANY},
    CONTENTS_DIFFER: _CONTENTS | _SPACE,
    SHARERS_TOO_FEW: _CONTENTS | _SPACE,
    CONTENT_TO_REAP_HELD: _CONTENTS | _SPACE,
    SEGMENT_LENGTH_WRONG: frozenset({DEAD_TOTAL_WRONG}),
    **dict.fromkeys(
        (
            LENGTH_WRONG,
            INTERVALS_OVERLAP,
            EXTENT_MISSING,
            EXTENT_EXCEEDED,
            REFERENCES_TOO_FEW,
            CHECKSUMS_DIFFER,
            MOVE_MISSING,
            MOVE_WRONG,
        ),
        _SPACE,
    ),
}


class LedgerRemedy(NamedTuple):
    """An operation that removes a leak from the ledger, and its command."""

    operation: Callable[[WriteTxn, Any], Any]
    command: Any


class FileRemedy(NamedTuple):
    """A file to remove, or to truncate to a length."""

    path: Path
    length: int | None = None


Remedy = LedgerRemedy | FileRemedy


@dataclass(frozen=True, slots=True)
class Finding:
    """A finding, described for the user."""

    kind: FindingKind
    where: str
    what: str
    remedy: Remedy | None = None


@dataclass
class Report:
    """The result of a check."""

    findings: list[Finding] = field(default_factory=list)
    objects: int = 0
    extents: int = 0
    extent_bytes: int = 0
    segments: int = 0
    is_complete: bool = True
    """Whether unused data is known. False if something could not be read, or refers to something
    missing."""

    def count(self, severity: Severity) -> int:
        return sum(finding.kind.severity is severity for finding in self.findings)
