"""The rules of last access times.

The last access of a block blob is its last change or its last recorded read, whichever is later.
Only a read of the content counts. To keep reads cheap, a read is recorded only if none was recorded
in the 24 hours before. Page blobs, append blobs and snapshots have no last access time.
"""

from __future__ import annotations

from typing import Final

from etagere.clock import TICKS_PER_SECOND
from etagere.model.blobs import Blob, BlobKind

READ_INTERVAL_TICKS: Final = 24 * 3600 * TICKS_PER_SECOND
"""The least time between two recorded reads of a blob."""


def last_access(blob: Blob) -> int | None:
    """Returns the time of the last access to a current blob; None if it has none."""
    return max(blob.stamp, blob.read_at) if blob.kind is BlobKind.BLOCK else None


def is_read_to_record(blob: Blob, now: int) -> bool:
    """Whether a read of a current blob at this date is to be recorded."""
    return blob.kind is BlobKind.BLOCK and now - blob.read_at >= READ_INTERVAL_TICKS
