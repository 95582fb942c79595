"""Headers and documents that responses of all services have in common."""

from __future__ import annotations

import time
from typing import Final

from etagere.clock import TICKS_PER_SECOND
from etagere.protocol.codecs import xml
from etagere.rules.conditions import format_etag
from etagere.rules.dates import format_http_date

Headers = list[tuple[bytes, bytes]]

XML: Final = (b"Content-Type", b"application/xml")
NO_CACHE: Final = (b"Cache-Control", b"no-cache")


def http_date(ticks: int) -> str:
    return format_http_date(ticks // TICKS_PER_SECOND)


def stats() -> bytes:
    """Returns the service statistics. There is no secondary location that could lag behind, so the
    last synchronization is always now."""
    synced = http_date(time.time_ns() // 100)
    return xml.document(
        "<StorageServiceStats><GeoReplication><Status>live</Status>"
        f"<LastSyncTime>{synced}</LastSyncTime></GeoReplication></StorageServiceStats>"
    )


def stamp_headers(stamp: int) -> Headers:
    return [
        (b"ETag", format_etag(stamp).encode()),
        (b"Last-Modified", http_date(stamp).encode()),
    ]
