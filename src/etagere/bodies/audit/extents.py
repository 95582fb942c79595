"""Verifies the references to extents, and the records of moved extents."""

from __future__ import annotations

from functools import partial
from typing import Any

from etagere.bodies.audit import findings as kinds
from etagere.bodies.audit.findings import LedgerRemedy
from etagere.bodies.audit.remedies import ExtentPlace, RowKey, release_unused_extent, remove_row
from etagere.bodies.audit.snapshot import Audit
from etagere.bodies.contents import EXTENTS, MOVES
from etagere.model.bodies import Extent

_REMOVE_REFERENCES = "DELETE FROM audit_references WHERE place = ? RETURNING *"
_ADD_REFERENCES = """
INSERT INTO audit_references VALUES (?, ?, ?, ?, ?, ?, ?)
ON CONFLICT DO UPDATE SET count = count + excluded.count, reach = max(reach, excluded.reach),
    crc = iif(excluded.crc_length > crc_length, excluded.crc, crc),
    crc_length = max(crc_length, excluded.crc_length)
"""
_COUNTED = "count, reach, crc, crc_length, holder, user"


def where_of(audit: Audit, segment: int, offset: int) -> str:
    """Describes a place in a segment."""
    return f"{audit.segment_name(segment)} at {offset}"


def check_moves(audit: Audit) -> None:
    """Follows every move, and moves the counted references along with it."""
    for packed, origin, move, _ in audit.rows(MOVES):
        place = audit.packed(
            EXTENTS, (move.segment, move.offset), partial(audit.name, MOVES, packed)
        )
        if place is None:
            continue
        for _, *counted in audit.execute(_REMOVE_REFERENCES, (packed,)):
            audit.execute(_ADD_REFERENCES, (place, *counted))
        audit.execute("INSERT OR IGNORE INTO audit_moves VALUES (?, ?)", (place, packed))
        if not audit.snapshot.changed_rows():
            target = where_of(audit, move.segment, move.offset)
            what = f"what was written at {origin} is said to lie at {target}, as is something else"
            audit.find(kinds.MOVE_WRONG, audit.name(MOVES, packed), what)


def check_references(audit: Audit) -> None:
    """Compares the references to each extent with its record."""
    columns = f", m.origin, {', '.join(f'r.{name}' for name in _COUNTED.split(', '))}"
    join = (
        "LEFT JOIN audit_moves m ON m.place = t.key LEFT JOIN audit_references r ON r.place = t.key"
    )
    for packed, place, extent, (moved_from, *found) in audit.rows(EXTENTS, columns, join):
        audit.report.extents += 1
        audit.report.extent_bytes += extent.length
        origin = None
        if extent.origin is not None:
            origin = audit.packed(MOVES, extent.origin, partial(where_of, audit, *place))
        counted = found
        if moved_from != origin:
            counted = _check_move(audit, packed, origin, moved_from, found)
        _compare(audit, place, extent, counted)
    _find_missing(audit)


def _check_move(
    audit: Audit, packed: bytes, origin: bytes | None, moved_from: bytes | None, counted: list[Any]
) -> list[Any]:
    """Reports an extent that contradicts its move; returns the references to the extent all the
    same."""
    where = where_of(audit, *EXTENTS.unpack(packed))
    if moved_from is not None:
        what = f"{audit.name(MOVES, moved_from)} points here, which the extent does not confirm"
        audit.find(kinds.MOVE_WRONG, where, what)
        return counted
    assert origin is not None
    said = origin
    kind, what = kinds.MOVE_MISSING, "is missing: what refers to the extent cannot find it"
    for place, _ in audit.execute("SELECT * FROM audit_moves WHERE origin = ?", (origin,)):
        said = place
        kind, what = kinds.MOVE_WRONG, f"points to {where_of(audit, *EXTENTS.unpack(place))}"
    # A move that exists but was not followed is unreadable, which has been reported.
    if said != origin or not list(audit.execute("SELECT 1 FROM moves WHERE key = ?", (origin,))):
        name = audit.name(MOVES, origin)
        audit.find(kind, where, f"the extent was moved here, but {name} {what}")
    if list(audit.execute("SELECT 1 FROM extents WHERE key = ?", (said,))):
        return counted
    audit.execute("DELETE FROM audit_moves WHERE place = ?", (said,))
    for _, *elsewhere in audit.execute(_REMOVE_REFERENCES, (said,)):
        audit.execute(_ADD_REFERENCES, (packed, *elsewhere))
    query = f"SELECT {_COUNTED} FROM audit_references WHERE place = ?"  # noqa: S608
    return next(([*row] for row in audit.execute(query, (packed,))), counted)


def _compare(audit: Audit, place: tuple[int, int], extent: Extent, counted: list[Any]) -> None:
    count, reach, crc, crc_length, holder, user = counted
    if count is None:
        remedy = LedgerRemedy(release_unused_extent, ExtentPlace(*place))
        what = f"nothing refers to this extent of {extent.length} bytes"
        audit.suspect(kinds.EXTENT_UNUSED, where_of(audit, *place), what, remedy)
        return
    if count != extent.references:
        what = f"{extent.references} references are recorded, {count} found"
        what += f", one of them by {audit.user(holder, user)}"
        if extent.references < count:
            audit.find(kinds.REFERENCES_TOO_FEW, where_of(audit, *place), what)
        else:
            audit.suspect(kinds.REFERENCES_TOO_MANY, where_of(audit, *place), what)
    if reach > extent.length:
        what = f"{audit.user(holder, user)} refers to {reach} bytes of an extent of {extent.length}"
        audit.find(kinds.EXTENT_EXCEEDED, where_of(audit, *place), what)
    own_crc = b"" if extent.crc is None else extent.crc.to_bytes(8, "big")
    if own_crc and crc_length == extent.length and crc != own_crc:
        what = f"{audit.user(holder, user)} knows another checksum than the extent's record"
        audit.find(kinds.CHECKSUMS_DIFFER, where_of(audit, *place), what)


def _find_missing(audit: Audit) -> None:
    missing = audit.execute(
        "SELECT place, reach, holder, user FROM audit_references r "
        "WHERE NOT EXISTS (SELECT 1 FROM extents t WHERE t.key = r.place)"
    )
    for place, reach, holder, user in missing:
        what = f"the record of an extent of {reach} bytes is missing; "
        what += f"{audit.user(holder, user)} refers to it"
        audit.find(kinds.EXTENT_MISSING, where_of(audit, *EXTENTS.unpack(place)), what)
    unused = audit.execute(
        "SELECT m.origin FROM audit_moves m "
        "WHERE NOT EXISTS (SELECT 1 FROM extents t WHERE t.key = m.place) "
        "AND NOT EXISTS (SELECT 1 FROM audit_references r WHERE r.place = m.place)"
    )
    for (origin,) in unused:
        remedy = LedgerRemedy(remove_row, RowKey(MOVES.name, origin))
        what = "the move leads to an extent that does not exist"
        audit.suspect(kinds.MOVE_UNUSED, audit.name(MOVES, origin), what, remedy)
