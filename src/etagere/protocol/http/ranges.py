"""The Range header: one range of bytes, with or without an end."""

from __future__ import annotations

import re
from typing import NamedTuple

_RANGE = re.compile(r"bytes=(\d{1,19})-(\d{0,19})", re.ASCII)


class Range(NamedTuple):
    """The bytes from `start` to `end` inclusive; to the last byte if `end` is None."""

    start: int
    end: int | None


def parse_range(text: str) -> Range | None:
    """Parses a range; returns None for anything else, for which the service sends everything."""
    found = _RANGE.fullmatch(text.strip())
    if found is None:
        return None
    start, end = int(found[1]), int(found[2]) if found[2] else None
    return None if end is not None and end < start else Range(start, end)
