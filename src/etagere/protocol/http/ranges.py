"""The ranges that clients ask for: one run of bytes, with or without an end."""

from __future__ import annotations

import re
from typing import NamedTuple

_RANGE = re.compile(r"bytes=(\d{1,19})-(\d{0,19})", re.ASCII)


class Range(NamedTuple):
    """From `start` to `end`, which is included; None: to the last byte."""

    start: int
    end: int | None


def parse_range(text: str) -> Range | None:
    """None for what is no range; the service then sends everything."""
    found = _RANGE.fullmatch(text.strip())
    if found is None:
        return None
    start, end = int(found[1]), int(found[2]) if found[2] else None
    return None if end is not None and end < start else Range(start, end)
