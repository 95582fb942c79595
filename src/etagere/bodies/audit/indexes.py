"""Verifies indexes, whose rows are derived from other records.

The check computes the rows again and compares them with the stored ones. If a row is missing,
searches do not find its record, but no data is lost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from etagere.bodies.audit import findings as kinds
from etagere.bodies.audit.findings import LedgerRemedy
from etagere.bodies.audit.remedies import RowKey, remove_row
from etagere.bodies.audit.snapshot import Audit
from etagere.engine.records import Collection


class Rows(NamedTuple):
    """How the rows of an index are computed."""

    of: Callable[[Any, Any], Iterator[tuple[Any, bool]]]
    """Returns the keys of the rows for a source record, and whether each must exist already."""
    is_over: Callable[[Any], bool] = lambda _: False
    """Whether a row may exist without its source record, because it is about to be removed."""


class Index(NamedTuple):
    rows: Collection[Any, Any]
    source: Collection[Any, Any]
    begin: Callable[[Audit], Rows | None]
    """Prepares to compute rows; returns None if there is nothing to compare."""


def check_indexes(audit: Audit, indexes: Sequence[Index]) -> None:
    for index in indexes:
        rows = index.begin(audit)
        if rows is not None:
            _compare(audit, index, rows)


def _compare(audit: Audit, index: Index, rows: Rows) -> None:
    audit.execute("CREATE TEMP TABLE audit_index (key BLOB PRIMARY KEY, needed INT) WITHOUT ROWID")
    name, pack = index.rows.name, index.rows.pack
    for _, key, record, _ in audit.rows(index.source, first_time=False):
        for row, is_needed in rows.of(key, record):
            audit.execute("INSERT OR IGNORE INTO audit_index VALUES (?, ?)", (pack(row), is_needed))
    missing = audit.execute(
        f"SELECT key FROM audit_index i WHERE needed AND NOT EXISTS "  # noqa: S608
        f"(SELECT 1 FROM {name} t WHERE t.key = i.key)"
    )
    for (packed,) in list(missing):
        what = "the row is missing: searches do not find what it stands for"
        audit.find(kinds.INDEX_ROW_MISSING, audit.name(index.rows, packed), what)
    unused = audit.execute(
        f"SELECT key FROM {name} t WHERE NOT EXISTS "  # noqa: S608
        "(SELECT 1 FROM audit_index i WHERE i.key = t.key)"
    )
    for (packed,) in list(unused):
        if not rows.is_over(index.rows.unpack(packed)):
            remedy = LedgerRemedy(remove_row, RowKey(name, packed))
            what = "it stands for nothing that is there"
            audit.suspect(kinds.INDEX_ROW_UNUSED, audit.name(index.rows, packed), what, remedy)
    audit.execute("DROP TABLE audit_index")
