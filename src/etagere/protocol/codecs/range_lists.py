"""Lists of the ranges of a file as XML."""

from __future__ import annotations

from collections.abc import Generator, Iterable
from typing import Final

from etagere.model.files import FileRange, FileRanges
from etagere.protocol.codecs import xml

_STEP_RANGES: Final = 256


def encode(listed: FileRanges, *, with_marker: bool) -> Generator[None, None, bytes]:
    """Encodes ranges in order, in steps; on the wire the end of a range is inclusive.
    `with_marker`: the client has requested a page, and gets a marker even if nothing follows."""
    ranges = listed.ranges
    parts = []
    for at in range(0, len(ranges), _STEP_RANGES):
        parts.append(_elements(ranges[at : at + _STEP_RANGES]))
        yield
    if listed.following is not None:
        parts.append(f"<NextMarker>{listed.following}</NextMarker>")
    elif with_marker:
        parts.append("<NextMarker />")
    content = "".join(parts)
    return xml.document(f"<Ranges>{content}</Ranges>" if content else "<Ranges />")


def _elements(ranges: Iterable[FileRange]) -> str:
    return "".join(
        [
            f"<{kind}><Start>{found.start}</Start><End>{found.end - 1}</End></{kind}>"
            for found in ranges
            for kind in ("Range" if found.written else "ClearRange",)
        ]
    )
