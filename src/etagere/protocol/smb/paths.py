"""Names of files and directories in requests: UTF-16LE paths below the root of a share.

A path has no leading backslash ([MS-SMB2] 2.2.13), and its empty form is the root. The first
component may name a share snapshot, `@GMT-YYYY.MM.DD-HH.MM.SS` ([MS-SMB2] 2.2.32.2 has the same
form). There are no alternate data streams, so that a colon is as invalid as the other characters
that names must not have.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Final, NamedTuple

from etagere.clock import TICKS_PER_SECOND
from etagere.nt_status import NtStatus
from etagere.protocol.smb.buffers import decode_utf16
from etagere.protocol.smb.filetimes import from_filetime
from etagere.protocol.smb.status import SmbError
from etagere.rules.file_names import check_path

_SNAPSHOT: Final = re.compile(r"@GMT-(\d{4})\.(\d\d)\.(\d\d)-(\d\d)\.(\d\d)\.(\d\d)", re.ASCII)


class RequestedPath(NamedTuple):
    """The path of a request."""

    components: tuple[str, ...]
    snapshot: int | None = None
    """The time of the share snapshot that it is in, in ticks since 1970."""
    names_directory: bool = False
    """Whether it ends in a backslash."""


def decode_path(name: memoryview) -> RequestedPath:
    """Decodes the path of a request; raises `SmbError` if it is not valid."""
    text = decode_utf16(name)
    if not text:
        return RequestedPath(())
    if text[0] == "\\":
        raise SmbError(NtStatus.INVALID_PARAMETER)
    # No name has a slash, so that it can only separate them.
    text = text.replace("/", "\\")
    names_directory = text[-1] == "\\"
    components = tuple((text[:-1] if names_directory else text).split("\\"))
    snapshot = _parse_snapshot(components[0])
    if snapshot is not None:
        components = components[1:]
    if ".." in components:
        raise SmbError(NtStatus.OBJECT_PATH_SYNTAX_BAD)
    if check_path(components) is not None:
        raise SmbError(NtStatus.OBJECT_NAME_INVALID)
    return RequestedPath(components, snapshot, names_directory)


def _parse_snapshot(component: str) -> int | None:
    if not component.startswith("@GMT-"):
        return None
    found = _SNAPSHOT.fullmatch(component)
    if found is None:
        return None
    year, month, day, hour, minute, second = map(int, found.groups())
    try:
        time = datetime(year, month, day, hour, minute, second, tzinfo=UTC)
    except ValueError:
        return None
    return int(time.timestamp()) * TICKS_PER_SECOND


def snapshot_at(filetime: int) -> int:
    """Returns the time of the share snapshot that a FILETIME names: its second counts."""
    ticks = from_filetime(filetime)
    return ticks - ticks % TICKS_PER_SECOND
