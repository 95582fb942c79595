"""CHANGE_NOTIFY: waits for changes in a directory ([MS-SMB2] 2.2.35, 3.3.5.19)."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from typing import Final

from etagere.nt_status import NtStatus
from etagere.opens.watches import ChangeAction, Watch, WatchedChange
from etagere.protocol.smb.access import AccessMask
from etagere.protocol.smb.limits import WATCHES_PER_SESSION_MAX
from etagere.protocol.smb.requests import Reply, Request
from etagere.protocol.smb.responses import with_buffer
from etagere.protocol.smb.state import Open
from etagere.protocol.smb.status import SmbError
from etagere.protocol.smb.targets import directory_target

_REQUEST: Final = struct.Struct("<2xHIQQI4x")
_NOTIFICATION: Final = struct.Struct("<III")
_WATCH_TREE: Final = 0x0001
_ACTIONS: Final[Mapping[ChangeAction, int]] = {
    ChangeAction.ADDED: 1,
    ChangeAction.REMOVED: 2,
    ChangeAction.MODIFIED: 3,
    ChangeAction.RENAMED_FROM: 4,
    ChangeAction.RENAMED_TO: 5,
}
"""[MS-FSCC] 2.7.1."""


async def change_notify(request: Request) -> Reply:
    body = request.body
    if len(body) < _REQUEST.size:
        raise SmbError(NtStatus.INVALID_PARAMETER)
    flags, output_bytes_max, persistent, volatile, subjects = _REQUEST.unpack_from(body)
    opened = request.open(persistent, volatile)
    watch = _watch(opened, subjects, output_bytes_max, is_recursive=bool(flags & _WATCH_TREE))
    while not (watch.has_events or watch.is_ended):
        request.pend()
        await watch.wait()
    if watch.is_deleted:
        raise SmbError(NtStatus.DELETE_PENDING)
    if watch.is_ended:
        return with_buffer(b"", NtStatus.NOTIFY_CLEANUP)
    events = watch.take()
    encoded = None if events is None else encode_notifications(events)
    if encoded is None or len(encoded) > min(output_bytes_max, watch.bytes_max):
        # The client lists the directory instead.
        return with_buffer(b"", NtStatus.NOTIFY_ENUM_DIR)
    return with_buffer(encoded)


def _watch(opened: Open, subjects: int, bytes_max: int, *, is_recursive: bool) -> Watch:
    """Returns the watch of an open. The first request determines what it is for."""
    client, handle = directory_target(opened)
    if handle.entry.is_delete_pending:
        raise SmbError(NtStatus.DELETE_PENDING)
    if not opened.access & AccessMask.READ_DATA:
        raise SmbError(NtStatus.ACCESS_DENIED)
    if opened.watch is None:
        session = opened.tree.session
        if session.watches >= WATCHES_PER_SESSION_MAX:
            raise SmbError(NtStatus.INSUFFICIENT_RESOURCES)
        session.watches += 1
        watches = client.share.watches
        opened.watch = Watch(
            watches, handle.entry.id, subjects, is_recursive=is_recursive, bytes_max=bytes_max
        )
    return opened.watch


def encode_notifications(changes: Iterable[WatchedChange]) -> bytes:
    """FILE_NOTIFY_INFORMATION ([MS-FSCC] 2.7.1)."""
    encoded = bytearray()
    last = 0
    for change in changes:
        name = "\\".join(change.names).encode("utf-16-le", "surrogatepass")
        encoded += bytes(-len(encoded) % 4)
        if encoded:
            struct.pack_into("<I", encoded, last, len(encoded) - last)
        last = len(encoded)
        encoded += _NOTIFICATION.pack(0, _ACTIONS[change.action], len(name)) + name
    return bytes(encoded)
