"""What a check can find, how bad each is and what a person can do about it."""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from etagere.engine.interface import WriteTxn


class Severity(enum.Enum):
    """What a finding means for the objects in the store."""

    LOSS = "loss"
    """Bytes or records that an object needs are missing or damaged."""
    FAULT = "fault"
    """The ledger contradicts itself; no bytes are missing yet."""
    LEAK = "leak"
    """Space or records that nothing refers to; a repair removes them."""


LOSS, FAULT, LEAK = Severity.LOSS, Severity.FAULT, Severity.LEAK


class Kind(NamedTuple):
    """One thing that can be wrong."""

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
DATABASE_DAMAGED = Kind("database-damaged", LOSS, _BACKUP)
TABLE_UNREADABLE = Kind("table-unreadable", LOSS, _BACKUP)
RECORD_UNREADABLE = Kind("record-unreadable", LOSS, _BACKUP)
ACCOUNT_UNREADABLE = Kind("account-unreadable", FAULT, _BACKUP)
TABLE_UNKNOWN = Kind(
    "table-unknown", FAULT, "Check with the version of etagere that created this data directory."
)
TIMELINE_WRONG = Kind("timeline-wrong", FAULT, _BACKUP)
COUNTER_WRONG = Kind(
    "counter-wrong",
    FAULT,
    "Do not write to the store: a new segment could replace an existing one.",
)

# Contents
INLINE_MISSING = Kind("inline-missing", LOSS, _UPLOAD)
INLINE_DAMAGED = Kind("inline-damaged", LOSS, _UPLOAD)
INLINE_UNUSED = Kind("inline-unused", LEAK, _REPAIR)
CONTENTS_DIFFER = Kind("contents-differ", FAULT, _UPLOAD)
LENGTH_WRONG = Kind("length-wrong", LOSS, _UPLOAD)
LIST_MISSING = Kind("list-missing", LOSS, _UPLOAD)
LIST_UNUSED = Kind(
    "list-unused", LEAK, "`etagere check --repair` passes it to the garbage collector."
)
CHUNK_MISSING = Kind("chunk-missing", LOSS, _UPLOAD)
CHUNK_UNUSED = Kind("chunk-unused", LEAK, _REPAIR)
MAP_MISSING = Kind("map-missing", LOSS, _UPLOAD)
MAP_UNUSED = Kind(
    "map-unused", LEAK, "`etagere check --repair` passes it to the garbage collector."
)
MAP_UNMARKED = Kind(
    "map-unmarked", LEAK, "`etagere check --repair` marks it for the garbage collector."
)
GENERATION_UNUSED = Kind("generation-unused", LEAK, _REPAIR)
INTERVALS_OVERLAP = Kind("intervals-overlap", FAULT, _BACKUP)
INTERVAL_UNUSED = Kind("interval-unused", LEAK, _REPAIR)
CONTENT_TO_REAP_HELD = Kind("dying-held", FAULT, _ORPHANS)
CONTENT_TO_REAP_EMPTY = Kind("dying-empty", LEAK, _REPAIR)
SHARERS_TOO_FEW = Kind("sharers-too-few", FAULT, _SHARED)
SHARERS_TOO_MANY = Kind("sharers-too-many", FAULT, _STUCK)
SHARERS_UNUSED = Kind("sharers-unused", LEAK, _REPAIR)

# Indexes
INDEX_ROW_MISSING = Kind(
    "index-row-missing", FAULT, "Write the object again; this restores the index row."
)
INDEX_ROW_UNUSED = Kind("index-row-unused", LEAK, _REPAIR)

# Extents
EXTENT_MISSING = Kind(
    "extent-missing", LOSS, f"Do not start a server, which may reclaim the space. {_UPLOAD}"
)
EXTENT_EXCEEDED = Kind("extent-exceeded", LOSS, _UPLOAD)
EXTENT_DAMAGED = Kind("extent-damaged", LOSS, _UPLOAD)
EXTENT_UNUSED = Kind("extent-unused", LEAK, _REPAIR)
REFERENCES_TOO_FEW = Kind("references-too-few", FAULT, _SHARED)
REFERENCES_TOO_MANY = Kind("references-too-many", FAULT, _STUCK)
CHECKSUMS_DIFFER = Kind("checksums-differ", LOSS, _UPLOAD)
MOVE_MISSING = Kind("move-missing", LOSS, _BACKUP)
MOVE_WRONG = Kind("move-wrong", FAULT, _BACKUP)
MOVE_UNUSED = Kind("move-unused", LEAK, _REPAIR)

# Segments
SEGMENT_MISSING = Kind(
    "segment-missing", LOSS, "Restore the file from a backup, or upload the objects again."
)
SEGMENT_SHORT = Kind(
    "segment-short", LOSS, "Restore the file from a backup, or upload the objects again."
)
SEGMENT_RETIRED = Kind("segment-retired", LOSS, _ORPHANS)
SEGMENT_UNKNOWN = Kind("segment-unknown", FAULT, _BACKUP)
SEGMENT_LENGTH_WRONG = Kind("segment-length-wrong", FAULT, _BACKUP)
SEGMENT_EMPTY = Kind("segment-empty", LEAK, _REPAIR)
EXTENTS_OVERLAP = Kind("extents-overlap", FAULT, _BACKUP)
DEAD_TOTAL_WRONG = Kind(
    "dead-total-wrong", LEAK, "`etagere check --repair` counts again, so that space is given back."
)
DEAD_UNUSED = Kind("dead-unused", LEAK, _REPAIR)
FILE_UNUSED = Kind("file-unused", LEAK, _REPAIR)
FILE_TOO_LONG = Kind("file-too-long", LEAK, "`etagere check --repair` truncates it.")
FILE_STRANGE = Kind("file-strange", FAULT, "Move it elsewhere; Étagère did not create it.")

# What looks unused may be what a reference that leads nowhere, or elsewhere, once meant; then it
# is all there is to restore an object from, and no leak.
_MAPS = frozenset({MAP_UNUSED, GENERATION_UNUSED, INTERVAL_UNUSED})
_CONTENTS = frozenset({INLINE_UNUSED, LIST_UNUSED, CHUNK_UNUSED}) | _MAPS
_SPACE = frozenset(
    {EXTENT_UNUSED, MOVE_UNUSED, DEAD_TOTAL_WRONG, SEGMENT_EMPTY, FILE_UNUSED, FILE_TOO_LONG}
)
DOUBTS: dict[Kind, frozenset[Kind]] = {
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
    """An operation of the ledger that removes a leak, and what it is asked."""

    operation: Callable[[WriteTxn, Any], Any]
    command: Any


class FileRemedy(NamedTuple):
    """A file that is removed, or cut to a length."""

    path: Path
    length: int | None = None


Remedy = LedgerRemedy | FileRemedy


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong, in words."""

    kind: Kind
    where: str
    what: str
    remedy: Remedy | None = None


@dataclass
class Report:
    """What a walk has seen."""

    findings: list[Finding] = field(default_factory=list)
    objects: int = 0
    extents: int = 0
    extent_bytes: int = 0
    segments: int = 0
    judged: bool = True
    """Whether what nothing refers to is known: not if something could not be read, or refers to
    what is not there."""

    def count(self, severity: Severity) -> int:
        return sum(finding.kind.severity is severity for finding in self.findings)
