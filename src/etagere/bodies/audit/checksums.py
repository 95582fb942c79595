"""Verifies the bytes of every extent, segment by segment and in order."""

from __future__ import annotations

from awscrt.checksums import crc64nvme

from etagere.bodies.audit import findings as kinds
from etagere.bodies.audit.audited_segments import AuditedSegments, CannotRead
from etagere.bodies.audit.extents import where_of
from etagere.bodies.audit.snapshot import Audit
from etagere.bodies.contents import EXTENTS
from etagere.model.bodies import Extent


def check_bytes(audit: Audit, stored: AuditedSegments) -> None:
    """Reads and verifies all extents. What is missing has been reported before."""
    done, total = 0, audit.report.extent_bytes
    for packed, (number, offset), extent, _ in audit.rows(EXTENTS, first_time=False):
        if stored.contains(number, offset, offset + extent.length):
            damage = _find_damage(stored, number, offset, extent)
            if damage:
                _report_damage(audit, packed, extent, damage)
        done += extent.length
        audit.progress("bytes", done, total)


def _find_damage(stored: AuditedSegments, number: int, offset: int, extent: Extent) -> str:
    """Returns what is wrong with the bytes of an extent; "" if they are intact."""
    crc = 0
    try:
        for data in stored.read(number, offset, extent.length):
            crc = crc64nvme(data, crc)
    except CannotRead as error:
        return str(error)
    if extent.crc is not None and crc != extent.crc:
        return "do not match their checksum"
    return ""


def _report_damage(audit: Audit, packed: bytes, extent: Extent, damage: str) -> None:
    users = "nothing that is known"
    rows = audit.execute("SELECT holder, user FROM audit_references WHERE place = ?", (packed,))
    for holder, user in rows:
        users = audit.user(holder, user)
    what = f"{extent.length} bytes {damage}; used by {users}"
    audit.find(kinds.EXTENT_DAMAGED, where_of(audit, *EXTENTS.unpack(packed)), what)
