"""Page lists as XML."""

from __future__ import annotations

from etagere.model.page_blobs import PageRangesResult
from etagere.protocol.codecs import xml


def encode(shown: PageRangesResult, *, in_parts: bool) -> bytes:
    """Encodes page ranges in order; on the wire the end of a range is inclusive. `in_parts`: the
    client has requested a part, and gets a marker even if nothing follows."""
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
