"""Headers and documents that responses of all services have in common."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Final

from etagere.auth.request import octets
from etagere.clock import TICKS_PER_SECOND
from etagere.model.blobs import Copied
from etagere.model.common import ContentHeaders
from etagere.protocol.codecs import xml
from etagere.rules.conditions import format_etag
from etagere.rules.dates import format_http_date
from etagere.rules.leases import format_lease_id

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


def content_headers(stored: ContentHeaders, overrides: Mapping[str, str]) -> Headers:
    """Returns the headers that a blob or file stores for its downloads, except the MD5.

    `overrides` are the values that a token sets, by name in lower case.
    """
    headers = []
    for name, value in (
        (b"Content-Type", stored.content_type),
        (b"Content-Encoding", stored.content_encoding),
        (b"Content-Language", stored.content_language),
        (b"Content-Disposition", stored.content_disposition),
        (b"Cache-Control", stored.cache_control),
    ):
        shown = overrides.get(name.decode().lower(), value) if overrides else value
        if shown:
            headers.append((name, octets(shown)))
    return headers


def copy_headers(copied: Copied) -> Headers:
    """Returns the status of the last copy to a blob or file."""
    headers = [
        (b"x-ms-copy-id", format_lease_id(copied.id).encode()),
        (b"x-ms-copy-source", octets(copied.source)),
        (b"x-ms-copy-status", copied.status.value.encode()),
        (b"x-ms-copy-progress", b"%d/%d" % (copied.copied, copied.total)),
    ]
    if copied.ended:
        headers.append((b"x-ms-copy-completion-time", http_date(copied.ended).encode()))
    if copied.description:
        headers.append((b"x-ms-copy-status-description", octets(copied.description)))
    return headers
