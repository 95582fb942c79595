"""The file or directory that an open is on."""

from __future__ import annotations

from typing import NamedTuple

from etagere.nt_status import NtStatus
from etagere.opens.client import ShareClient
from etagere.opens.handles import Handle
from etagere.protocol.smb.state import Open
from etagere.protocol.smb.status import SmbError


class FileTarget(NamedTuple):
    """The handle of an open, and the client of its share."""

    client: ShareClient
    handle: Handle


def file_target(opened: Open) -> FileTarget:
    """Returns the target of an open; raises `SmbError` for a pipe, or if it was closed
    meanwhile."""
    client, handle = opened.tree.client, opened.handle
    if client is None or handle is None:
        raise SmbError(NtStatus.INVALID_DEVICE_REQUEST)
    if not handle.is_open:
        raise SmbError(NtStatus.FILE_CLOSED)
    return FileTarget(client, handle)


def directory_target(opened: Open) -> FileTarget:
    """Returns the target of an open of a directory."""
    target = file_target(opened)
    if not target.handle.entry.is_directory:
        raise SmbError(NtStatus.INVALID_PARAMETER)
    return target
