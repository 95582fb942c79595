"""Blobs for tests of their encoding."""

from __future__ import annotations

from typing import Any, Final

from etagere.clock import TICKS_PER_SECOND
from etagere.model.blobs import Blob, BlobKind
from etagere.model.bodies import Empty

NOW: Final = 1_767_323_045 * TICKS_PER_SECOND
DATE: Final = "Fri, 02 Jan 2026 03:04:05 GMT"
"""`NOW` in HTTP headers."""
ID: Final = bytes(15) + b"\x07"


def blob(**fields: Any) -> Blob:
    """Returns an empty block blob that was created now, with these fields instead."""
    plain: dict[str, Any] = {
        "kind": BlobKind.BLOCK,
        "created": NOW,
        "stamp": NOW,
        "content": Empty(),
    }
    return Blob(**plain | fields)
