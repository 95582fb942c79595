"""Headers of responses of the file service that describe directories and files."""

from __future__ import annotations

from etagere.model.files import Entry
from etagere.protocol.rest.responses import Headers, stamp_headers
from etagere.rules.dates import format_instant
from etagere.rules.file_attributes import FileAttributes, format_attributes
from etagere.rules.file_permissions import format_permission_key


def entry_headers(entry: Entry) -> Headers:
    """Returns the headers that describe an entry after a change, and when it is read."""
    times = entry.times
    attributes = format_attributes(FileAttributes(entry.attributes))
    return [
        *stamp_headers(entry.stamp),
        (b"x-ms-file-permission-key", format_permission_key(entry.permission).encode()),
        (b"x-ms-file-attributes", attributes.encode()),
        (b"x-ms-file-creation-time", format_instant(times.created).encode()),
        (b"x-ms-file-last-write-time", format_instant(times.written).encode()),
        (b"x-ms-file-change-time", format_instant(times.changed).encode()),
        (b"x-ms-file-id", b"%d" % entry.id),
        (b"x-ms-file-parent-id", b"%d" % entry.parent_id),
    ]
