"""Page lists as XML: which pages of a blob were written, and which were cleared."""

from __future__ import annotations

from etagere.model.page_blobs import PageRangesResult
from etagere.protocol.codecs import xml


def encode(shown: PageRangesResult, *, in_parts: bool) -> bytes:
    """In the order of the pages. On the wire the end of a range belongs to it. `in_parts`: the
    client has asked for a part, and is told where the next one begins even if there is none."""
    content = "".join(
        f"<{kind}><Start>{found.start}</Start><End>{found.end - 1}</End></{kind}>"
        for found in shown.ranges
        for kind in ("PageRange" if found.written else "ClearRange",)
    )
    if shown.following is not None:
        content += f"<NextMarker>{shown.following}</NextMarker>"
    elif in_parts:
        content += "<NextMarker />"
    return xml.document(f"<PageList>{content}</PageList>" if content else "<PageList />")
