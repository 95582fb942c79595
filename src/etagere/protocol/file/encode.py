"""Headers of responses of the file service that describe directories and files."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from etagere.auth.request import octets
from etagere.model.common import ContentHeaders
from etagere.model.files import (
    DirectoryNode,
    Entry,
    FileNode,
    Node,
    PosixOwner,
    SymbolicLinkNode,
    TimedEntry,
)
from etagere.protocol.rest import checksums, leases
from etagere.protocol.rest.metadata import metadata_headers
from etagere.protocol.rest.responses import (
    Headers,
    content_headers,
    copy_headers,
    stamp_headers,
)
from etagere.rules.dates import format_instant
from etagere.rules.file_attributes import format_attributes
from etagere.rules.file_permissions import format_permission_key
from etagere.rules.posix import format_mode

ENCRYPTED: Final = (b"x-ms-request-server-encrypted", b"true")
"""In responses to requests that store something."""
_STORED_ENCRYPTED: Final = (b"x-ms-server-encrypted", b"true")
"""In responses to requests that read."""
_IS_FILE: Final = (b"x-ms-type", b"File")
_LEASES_SHOWN_SINCE: Final = "2019-02-02"
"""The first version in which files have leases."""


# Directories and files


def changed_headers(entry: Entry) -> Headers:
    """Returns the headers that describe an entry after it was created, changed or renamed."""
    return [*entry_headers(entry), ENCRYPTED]


def entry_headers(entry: Entry) -> Headers:
    """Returns the headers that describe an entry after a change, and when it is read."""
    times = entry.times
    return [
        *stamp_headers(entry.stamp),
        *_protection_headers(entry),
        (b"x-ms-file-creation-time", format_instant(times.created).encode()),
        (b"x-ms-file-last-write-time", format_instant(times.written).encode()),
        (b"x-ms-file-change-time", format_instant(times.changed).encode()),
        (b"x-ms-file-id", b"%d" % entry.id),
        (b"x-ms-file-parent-id", b"%d" % entry.parent_id),
    ]


def _protection_headers(entry: Entry) -> Headers:
    """Returns the attributes and the permission of an entry; in an NFS share, its mode and owner
    take their place."""
    if entry.posix is not None:
        headers = [*posix_headers(entry.posix), (b"x-ms-file-file-type", _file_type(entry))]
        return headers if entry.is_directory else [*headers, link_count_header(entry.link_count)]
    return [
        (b"x-ms-file-permission-key", format_permission_key(entry.permission).encode()),
        (
            b"x-ms-file-attributes",
            format_attributes(entry.attributes).encode(),
        ),
    ]


def posix_headers(posix: PosixOwner) -> Headers:
    return [
        (b"x-ms-mode", format_mode(posix.mode).encode()),
        (b"x-ms-owner", octets(posix.owner)),
        (b"x-ms-group", octets(posix.group)),
    ]


def link_count_header(links: int) -> tuple[bytes, bytes]:
    return b"x-ms-link-count", b"%d" % links


def _file_type(entry: Entry) -> bytes:
    node = entry.node
    if isinstance(node, DirectoryNode):
        return b"Directory"
    return b"Regular" if isinstance(node, FileNode) else b"SymLink"


def directory_headers(entry: Entry) -> Headers:
    """Returns the headers of Get Directory Properties."""
    return [*entry_headers(entry), *metadata_headers(entry.metadata), _STORED_ENCRYPTED]


# Files


def file_headers(
    result: TimedEntry, overrides: Mapping[str, str], *, is_snapshot: bool, version: str
) -> Headers:
    """Returns the headers of a file that Get File and Get File Properties have in common: all
    except those about the bytes that are sent. Files in snapshots have no lease.

    `overrides` are the content headers that a token sets, by name in lower case.
    """
    entry = result.entry
    headers = entry_headers(entry)
    headers += metadata_headers(entry.metadata)
    headers += [_IS_FILE, _STORED_ENCRYPTED]
    node = entry.node
    if isinstance(node, FileNode):
        headers += content_headers(node.headers, overrides)
        if not is_snapshot and version >= _LEASES_SHOWN_SINCE:
            headers += leases.lease_headers(node.lease, result.now)
        if node.copied is not None:
            headers += copy_headers(node.copied)
    return headers


def content_length(node: Node) -> int:
    """Returns the length of a file; that of a symbolic link is the length of its text."""
    if isinstance(node, FileNode):
        return node.content.length
    return len(octets(node.target)) if isinstance(node, SymbolicLinkNode) else 0


def md5_headers(stored: ContentHeaders, name: bytes) -> Headers:
    """Returns the stored MD5 of a file under this name: `Content-MD5` if the response is about the
    whole file, else `x-ms-content-md5`."""
    md5 = stored.content_md5
    return [] if md5 is None else [(name, checksums.digest_text(md5))]
