"""Names of objects, and offsets in segments that consist of objects.

The object with the index i of segment n is named `segments/n/i`, both in hexadecimal. Its bytes
have the offsets from `i << 32`.
"""

from __future__ import annotations

import re
from typing import Final

PREFIX: Final = "segments/"
OBJECTS_PER_SEGMENT_MAX: Final = 1_000
"""Part of the format, since a driver may look for all objects that a segment can have."""
INDEX_SHIFT: Final = 32
_OFFSET_MASK: Final = (1 << INDEX_SHIFT) - 1
_NAME: Final = re.compile(r"segments/([0-9a-f]{8,15})/([0-9a-f]{8})")
_SEGMENT_PREFIX: Final = re.compile(r"segments/[0-9a-f]{8,15}/")


def segment_prefix(number: int) -> str:
    """Returns the common prefix of the objects of a segment."""
    return f"{PREFIX}{number:08x}/"


def object_name(number: int, offset: int) -> str:
    """Returns the name of the object that contains an offset of a segment."""
    return f"{PREFIX}{number:08x}/{offset >> INDEX_SHIFT:08x}"


def offset_in_object(offset: int) -> int:
    return offset & _OFFSET_MASK


def segment_of(name: str) -> int | None:
    """Returns the number of the segment that an object belongs to; None for other objects."""
    match = _NAME.fullmatch(name)
    return int(match[1], 16) if match else None


def index_of(name: str) -> int | None:
    """Returns the index of an object in its segment; None for other objects."""
    match = _NAME.fullmatch(name)
    return int(match[2], 16) if match else None


def possible_names(prefix: str) -> list[str] | None:
    """Returns all names that objects of a segment can have; None for other prefixes."""
    if not _SEGMENT_PREFIX.fullmatch(prefix):
        return None
    return [f"{prefix}{index:08x}" for index in range(OBJECTS_PER_SEGMENT_MAX)]
