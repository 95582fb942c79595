"""Verifies the bytes of every extent, segment by segment and in order."""

from __future__ import annotations

import os
from itertools import groupby

from awscrt.checksums import crc64nvme

from etagere.bodies.audit import findings as kinds
from etagere.bodies.audit.extents import where_of
from etagere.bodies.audit.snapshot import Audit, CannotCheck
from etagere.bodies.contents import EXTENTS
from etagere.bodies.files import segment_path
from etagere.config import MIB
from etagere.model.bodies import Extent

_READ_BYTES = 4 * MIB


def check_bytes(audit: Audit) -> None:
    """Reads and verifies all extents. Missing and short files have been reported before."""
    done, total = 0, audit.report.extent_bytes
    rows = audit.rows(EXTENTS, first_time=False)
    for number, group in groupby(rows, key=lambda row: row[1][0]):
        descriptor = _open(audit, number)
        if descriptor is None:
            continue
        try:
            size = os.fstat(descriptor).st_size
            for packed, (_, offset), extent, _ in group:
                if offset + extent.length <= size:
                    trouble = _trouble(descriptor, offset, extent)
                    if trouble:
                        _find_damaged(audit, packed, extent, trouble)
                done += extent.length
                audit.progress("bytes", done, total)
        finally:
            os.close(descriptor)


def _open(audit: Audit, number: int) -> int | None:
    path = segment_path(audit.directory, number)
    if not path.is_file():
        return None
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise CannotCheck(f"{path} cannot be read: {error.strerror}") from error
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_SEQUENTIAL)
    return descriptor


def _trouble(descriptor: int, offset: int, extent: Extent) -> str:
    """Returns what is wrong with the bytes of an extent; "" if they are intact."""
    at, end, crc = offset, offset + extent.length, 0
    while at < end:
        try:
            data = os.pread(descriptor, min(_READ_BYTES, end - at), at)
        except OSError as error:
            return f"cannot be read: {error.strerror}"
        if not data:
            return f"end at {at}"
        crc = crc64nvme(data, crc)
        at += len(data)
    if extent.crc is not None and crc != extent.crc:
        return "do not match their checksum"
    return ""


def _find_damaged(audit: Audit, packed: bytes, extent: Extent, trouble: str) -> None:
    users = "nothing that is known"
    rows = audit.execute("SELECT holder, user FROM audit_references WHERE place = ?", (packed,))
    for holder, user in rows:
        users = audit.user(holder, user)
    what = f"{extent.length} bytes {trouble}; used by {users}"
    audit.find(kinds.EXTENT_DAMAGED, where_of(audit, *EXTENTS.unpack(packed)), what)
