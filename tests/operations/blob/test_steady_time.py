"""Leases and all other timeouts of blobs use the steady time, which never jumps."""

from __future__ import annotations

import re
from pathlib import Path

from etagere.operations import blob

_DATES = re.compile(
    r"copy_state\(.*txn\.now\)|ended=txn\.now,|is_read_to_record\(.*txn\.now\)|read_at=txn\.now"
)
"""Dates that clients see: the end of a copy, and the last read of a blob."""


def test_the_wall_clock_is_used_only_for_dates() -> None:
    found = [
        f"{path.name}:{number}: {line.strip()}"
        for path in Path(blob.__path__[0]).glob("*.py")
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1)
        if "txn.now" in line and not _DATES.search(line)
    ]
    assert found == []
