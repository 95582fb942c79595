"""The snapshot of the ledger that a check reads, and the data that the check collects.

Counts are kept in temporary tables next to the snapshot (`engine/snapshots`), and joined with the
tables of the snapshot in the order of their keys.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from etagere.bodies.audit import findings as kinds
from etagere.bodies.audit.findings import Finding, FindingKind, Remedy, Report
from etagere.bodies.contents import (
    CHUNK_SHARERS,
    CONTENT_SHARERS,
    CONTENTS_TO_REAP,
    COUNTED_DEAD,
    COUNTERS,
    DEAD_TOTALS,
    HOLDERS,
    SEGMENTS,
    UNCOUNTED_DEAD,
)
from etagere.bodies.maps import GENERATIONS, MAPS_TO_FLATTEN, MAPS_TO_REAP
from etagere.config import Config
from etagere.engine import ledger
from etagere.engine.records import COLLECTIONS, Collection, K, KeyKind, R
from etagere.engine.snapshots import (
    UNREADABLE,
    Corrupt,
    LedgerSnapshot,
    LogTooLong,
    OutOfSpace,
    Progress,
)

_ROWS_PER_REPORT = 2_000
_NO_ROOM = (
    "there is no room for temporary files; SQLITE_TMPDIR names another directory for them. "
    "Beside a running server a check needs room for a copy of the ledger."
)
_MESSAGES_MAX = 100
_NAMES_MAX = 3

_BOOKKEEPING = (
    CONTENT_SHARERS,
    CHUNK_SHARERS,
    CONTENTS_TO_REAP,
    GENERATIONS,
    MAPS_TO_REAP,
    MAPS_TO_FLATTEN,
    COUNTED_DEAD,
    DEAD_TOTALS,
    UNCOUNTED_DEAD,
    SEGMENTS,
    COUNTERS,
)
"""Collections that are not needed to read any object."""

_TEMPORARY_TABLES = """
CREATE TEMP TABLE audit_held (
    id BLOB PRIMARY KEY, kind INT, content BLOB, count INT, holder INT, key BLOB
) WITHOUT ROWID;
CREATE TEMP TABLE audit_chunks (
    key BLOB PRIMARY KEY, count INT, low INT, high INT, user BLOB
) WITHOUT ROWID;
CREATE TEMP TABLE audit_generations (
    key BLOB PRIMARY KEY, count INT, length INT, user BLOB
) WITHOUT ROWID;
CREATE TEMP TABLE audit_maps (id BLOB PRIMARY KEY, newest INT) WITHOUT ROWID;
CREATE TEMP TABLE audit_references (
    place BLOB PRIMARY KEY, count INT, reach INT, crc BLOB, crc_length INT, holder INT, user BLOB
) WITHOUT ROWID;
CREATE TEMP TABLE audit_moves (place BLOB PRIMARY KEY, origin BLOB) WITHOUT ROWID;
"""

BY_CONTENT = -1
"""In place of a holder: the user is a content, whose holder is looked up."""


class CannotCheck(Exception):
    """The directory cannot be checked; the message says why."""


class Audit:
    """A check in progress: the snapshot, the counts and the findings."""

    def __init__(
        self,
        directory: Path,
        config: Config,
        progress: Progress,
        segment_name: Callable[[int], str],
    ) -> None:
        self.directory = directory
        self.segment_name = segment_name
        """Returns what a segment is called in messages."""
        self.report = Report()
        self.snapshot = _open(directory, config, progress)
        self._suspects: list[Finding] = []
        self._progress = progress
        self._rows_done = 0
        self._rows_total = 0

    def close(self) -> None:
        self.snapshot.close()

    # Findings

    def find(self, kind: FindingKind, where: str, what: str) -> None:
        self.report.findings.append(Finding(kind, where, what))

    def suspect(
        self, kind: FindingKind, where: str, what: str, remedy: Remedy | None = None
    ) -> None:
        """Adds a finding that counts only if everything that might refer to the data could be
        read."""
        self._suspects.append(Finding(kind, where, what, remedy))

    def mark_incomplete(self) -> None:
        """Notes that a record that may refer to other data is unreadable or missing."""
        self.report.is_complete = False

    def conclude(self) -> Report:
        """Returns the report, without findings of unused data that may be in use."""
        if self.report.is_complete:
            doubts = set[FindingKind]().union(
                *(kinds.DOUBTS.get(found.kind, ()) for found in self.report.findings)
            )
            certain = [found for found in self._suspects if found.kind not in doubts]
            self.report.findings += certain
            self.report.is_complete = len(certain) == len(self._suspects)
        return self.report

    # Reading

    def execute(self, sql: str, values: tuple[Any, ...] = ()) -> Iterator[Any]:
        return self.snapshot.execute(sql, values)

    def attempt(self, phase: Callable[[Audit], None], name: str) -> None:
        """Runs a part of the check, as far as the database is readable."""
        try:
            phase(self)
        except UNREADABLE as error:
            self.mark_incomplete()
            what = f"SQLite cannot read what it takes to compare {name}: {error}"
            self.find(kinds.TABLE_UNREADABLE, ledger.DATABASE_NAME, what)
        except OutOfSpace as error:
            raise CannotCheck(f"there is no room for temporary files: {error}") from error

    def rows(
        self,
        collection: Collection[K, R],
        columns: str = "",
        join: str = "",
        *,
        first_time: bool = True,
    ) -> Iterator[tuple[bytes, K, R, Any]]:
        """Yields the records of a collection `t` in the order of their keys: encoded key, key,
        record and the joined columns. Records that cannot be decoded are reported the first time,
        and skipped."""
        pack, unpack, decode = collection.pack, collection.unpack, collection.decode
        sql = f"SELECT t.key, t.value{columns} FROM {collection.name} t {join} ORDER BY t.key"  # noqa: S608
        try:
            for row in self.execute(sql):
                packed = row[0]
                try:
                    if type(packed) is not bytes:
                        raise TypeError("the key is not of bytes")
                    key = unpack(packed)
                    if pack(key) != packed:
                        raise ValueError("the key is not in its canonical form")
                    record = decode(row[1])
                except (ValueError, TypeError, msgspec.DecodeError) as error:
                    if first_time:
                        self._find_unreadable(collection, packed, error)
                    continue
                if first_time:
                    self._count_row()
                yield packed, key, record, row[2:]
        except UNREADABLE as error:
            if first_time:
                self.mark_incomplete()
                what = f"the table cannot be read to its end: {error}"
                self.find(kinds.TABLE_UNREADABLE, collection.name, what)

    def _find_unreadable(
        self, collection: Collection[Any, Any], packed: object, error: Exception
    ) -> None:
        self._count_row()
        self.mark_incomplete()
        needed = collection not in _BOOKKEEPING
        kind = kinds.RECORD_UNREADABLE if needed else kinds.ACCOUNT_UNREADABLE
        where = self.name(collection, packed)
        self.find(kind, where, f"the record cannot be decoded: {error}")

    def packed(
        self, collection: Collection[K, Any], key: K, where: Callable[[], str]
    ) -> bytes | None:
        """Encodes a key that a record contains; returns None, with a finding, if it is
        impossible."""
        try:
            return collection.pack(key)
        except (ValueError, TypeError, OverflowError) as error:
            self.mark_incomplete()
            what = f"the record names {key} in {collection.name}, which cannot be: {error}"
            self.find(kinds.RECORD_UNREADABLE, where(), what)
            return None

    def _count_row(self) -> None:
        self._rows_done += 1
        if not self._rows_done % _ROWS_PER_REPORT:
            self._progress("records", self._rows_done, self._rows_total)

    def progress(self, phase: str, done: int, total: int) -> None:
        self._progress(phase, done, total)

    def count_rows(self) -> None:
        """Counts the rows of all tables, to measure progress."""
        for name in COLLECTIONS:
            # Unreadable tables are reported when they are read.
            with contextlib.suppress(*UNREADABLE):
                ((count,),) = self.execute(f"SELECT count(*) FROM {name}")  # noqa: S608
                self._rows_total += count

    # Descriptions

    def name(self, collection: Collection[Any, Any], packed: object) -> str:
        """Describes a record."""
        try:
            if not isinstance(packed, bytes):
                raise TypeError("not a key")
            key = collection.unpack(packed)
            if collection.pack(key) != packed:
                raise ValueError("not a key")
        except (ValueError, TypeError):
            shown = packed.hex() if isinstance(packed, bytes) else repr(packed)
            return f"{collection.name} (key {shown})"
        parts = [
            part.hex() if kind is KeyKind.ID else repr(part)
            for kind, part in zip(collection.kinds, key, strict=True)
        ]
        return f"{collection.name} {', '.join(parts)}"

    def user(self, holder: int, user: bytes) -> str:
        """Describes the user of an extent or a chunk."""
        if holder != BY_CONTENT:
            return self.name(HOLDERS[holder].collection, user)
        for held_by, key in self.execute(
            "SELECT holder, key FROM audit_held WHERE id = ?", (user,)
        ):
            return self.name(HOLDERS[held_by].collection, key)
        return f"content {user.hex()}, which nothing holds any more"

    def users_of_segment(self, number: int) -> str:
        """Describes some users of a segment."""
        span = number.to_bytes(8, "big"), (number + 1).to_bytes(8, "big")
        found = self.execute(
            "SELECT holder, user FROM audit_references WHERE place >= ? AND place < ? LIMIT ?",
            (*span, _NAMES_MAX + 1),
        )
        names = list(dict.fromkeys(self.user(*row) for row in found))
        more = ", …" if len(names) > _NAMES_MAX else ""
        return ", ".join(names[:_NAMES_MAX]) + more if names else "nothing that is known"


def require_ledger(directory: Path) -> None:
    """Raises `CannotCheck` if a directory is not a data directory, before anything is created in
    it."""
    name = ledger.DATABASE_NAME
    try:
        if not directory.is_dir():
            raise CannotCheck(f"there is no directory {directory}")
        if not (directory / name).is_file():
            raise CannotCheck(f"{directory} is not a data directory: it has no file {name}")
    except OSError as error:
        raise CannotCheck(f"{error.filename} cannot be read: {error.strerror}") from error


def _open(directory: Path, config: Config, progress: Progress) -> LedgerSnapshot:
    path = ledger.database_path(directory)
    try:
        return LedgerSnapshot(directory, config, progress)
    except Corrupt as error:
        message = f"{path} is damaged beyond checking: restore it from a backup ({error})"
        raise CannotCheck(message) from None
    except OutOfSpace:
        raise CannotCheck(_NO_ROOM) from None
    except LogTooLong as error:
        raise CannotCheck(str(error)) from None
    except ledger.DatabaseError as error:
        raise CannotCheck(f"{path} cannot be read: {error}") from None


def check_database(audit: Audit) -> None:
    """Runs SQLite's own checks of the database file."""
    audit.progress("database", 0, 0)
    for pragma in ("quick_check", "integrity_check"):
        messages = [row[0] for row in audit.execute(f"PRAGMA main.{pragma}({_MESSAGES_MAX})")]
        if messages != ["ok"]:
            audit.mark_incomplete()
            for message in messages:
                what = f"SQLite finds: {' '.join(str(message).split())}"
                audit.find(kinds.DATABASE_DAMAGED, ledger.DATABASE_NAME, what)
            break


def check_tables(audit: Audit) -> None:
    """Reports unknown tables, which may hold contents, so that unused data cannot be determined.
    Creates empty tables for those that an older ledger lacks."""
    audit.execute(_TEMPORARY_TABLES)
    rows = audit.execute(
        "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite\\_%' "
        "ESCAPE '\\'"
    )
    tables = {name for (name,) in rows}
    for name in sorted(tables - COLLECTIONS.keys() - {"timeline"}):
        if _has_rows(audit, name):
            audit.mark_incomplete()
            audit.find(kinds.TABLE_UNKNOWN, name, "this version of etagere does not know the table")
    for name in COLLECTIONS.keys() - tables:
        audit.execute(
            f"CREATE TEMP TABLE {name} (key BLOB PRIMARY KEY NOT NULL, value BLOB NOT NULL) "
            "WITHOUT ROWID"
        )
    audit.count_rows()
    _check_timeline(audit, "timeline" in tables)


def _has_rows(audit: Audit, table: str) -> bool:
    quoted = table.replace('"', '""')
    try:
        return bool(list(audit.execute(f'SELECT 1 FROM "{quoted}" LIMIT 1')))  # noqa: S608
    except UNREADABLE:
        return True


def _check_timeline(audit: Audit, is_there: bool) -> None:
    rows = list(audit.execute(ledger.READ_TIMELINE)) if is_there else []
    if len(rows) != 1:
        what = f"there are {len(rows)} records of the time and the last stamp; there must be one"
        audit.find(kinds.TIMELINE_WRONG, "timeline", what)
        return
    try:
        timeline = ledger.decode_timeline(rows[0][0])
    except (ValueError, TypeError, msgspec.DecodeError) as error:
        audit.find(kinds.TIMELINE_WRONG, "timeline", f"the record cannot be decoded: {error}")
        return
    if timeline.last_stamp < 0 or timeline.now <= 0 or timeline.elapsed < 0:
        what = f"the record has impossible times: {timeline}"
        audit.find(kinds.TIMELINE_WRONG, "timeline", what)
