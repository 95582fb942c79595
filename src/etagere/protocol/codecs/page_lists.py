"""Page lists as XML: which pages of a blob were written, and which were cleared."""

from __future__ import annotations

from etagere.model.page_blobs import ShownPageRanges
from etagere.protocol.codecs import xml


def encode(shown: ShownPageRanges, *, in_parts: bool) -> bytes:
    """In the order of the pages. On the wire the end of a range belongs to it. `in_parts`: the
    client knows that there may be more."""
    content = "".join(
        f"<{kind}><Start>{found.start}</Start><End>{found.end - 1}</End></{kind}>"
        for found in shown.ranges
        for kind in ("PageRange" if found.written else "ClearRange",)
    )
    if in_parts:
        following = "" if shown.following is None else shown.following
        content += f"<NextMarker>{following}</NextMarker>"
    return xml.document(f"<PageList>{content}</PageList>")
