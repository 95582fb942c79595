"""SET_INFO: changes of a file or of its security ([MS-SMB2] 2.2.39, 3.3.5.21)."""

from __future__ import annotations

import struct
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, NamedTuple

from etagere.model.files import PRESERVE_TIME, ChangedTimes
from etagere.nt_status import NtStatus
from etagere.opens.reports import WRITTEN, entry_modified
from etagere.protocol.smb.access import AccessMask
from etagere.protocol.smb.buffers import variable_part
from etagere.protocol.smb.commands.query_info import read_descriptor
from etagere.protocol.smb.filetimes import SETTABLE_MAX, from_filetime
from etagere.protocol.smb.information.files import MODE_OPTIONS, length_of
from etagere.protocol.smb.information.kinds import FILE, FILE_SYSTEM, QUOTA, SECURITY
from etagere.protocol.smb.information.security import DACL, GROUP, OWNER, SACL, changed_permission
from etagere.protocol.smb.paths import decode_path
from etagere.protocol.smb.requests import Reply, Request
from etagere.protocol.smb.state import Open
from etagere.protocol.smb.status import SmbError
from etagere.protocol.smb.targets import FileTarget, file_target
from etagere.rules.file_attributes import FileAttributes
from etagere.rules.file_ranges import FILE_BYTES_MAX

_REQUEST: Final = struct.Struct("<2xBBIHxxIQQ")

_BASIC: Final = struct.Struct("<qqqqI4x")
_RENAME: Final = struct.Struct("<I4xQI")
"""Flags, root directory, length of the name ([MS-FSCC] 2.4.43, 2.4.44). In FileRenameInformation
the flags are one byte; the others are ignored."""
_LENGTH: Final = struct.Struct("<q")
_WORD: Final = struct.Struct("<I")


class SetInfo(NamedTuple):
    """The fields of a request."""

    info_type: int
    info_class: int
    length: int
    offset: int
    additional: int
    """The parts of the security descriptor that are set."""
    persistent: int
    volatile: int


class _Change(NamedTuple):
    """A change that a client asks for."""

    request: Request
    opened: Open
    target: FileTarget
    data: memoryview

    def require(self, access: int) -> None:
        if access & ~self.opened.access:
            raise SmbError(NtStatus.ACCESS_DENIED)

    def unpack(self, layout: struct.Struct) -> tuple[int, ...]:
        if len(self.data) < layout.size:
            raise SmbError(NtStatus.INFO_LENGTH_MISMATCH)
        return layout.unpack_from(self.data)


async def set_info(request: Request) -> Reply:
    body = request.body
    if len(body) < _REQUEST.size:
        raise SmbError(NtStatus.INVALID_PARAMETER)
    asked = SetInfo(*_REQUEST.unpack_from(body))
    opened = request.open(asked.persistent, asked.volatile)
    data = variable_part(body, asked.offset, asked.length, _REQUEST.size)
    change = _Change(request, opened, file_target(opened), data)
    if asked.info_type == FILE:
        apply = _FILE_CHANGES.get(asked.info_class)
        if apply is None:
            raise SmbError(_REFUSED_CLASSES.get(asked.info_class, NtStatus.INVALID_INFO_CLASS))
        await apply(change)
    elif asked.info_type == SECURITY:
        await _set_security(change, asked.additional)
    elif asked.info_type in (FILE_SYSTEM, QUOTA):
        raise SmbError(NtStatus.NOT_SUPPORTED)
    else:
        raise SmbError(NtStatus.INVALID_PARAMETER)
    return Reply(b"\x02\x00")


# Attributes and times


_CHANGE_ATTRIBUTES: Final = (
    FileAttributes.READ_ONLY
    | FileAttributes.HIDDEN
    | FileAttributes.SYSTEM
    | FileAttributes.ARCHIVE
    | FileAttributes.TEMPORARY
    | FileAttributes.OFFLINE
    | FileAttributes.NOT_CONTENT_INDEXED
    | FileAttributes.NO_SCRUB_DATA
)
_TIME_MIN: Final = -2


async def _set_basic(change: _Change) -> None:
    """FileBasicInformation ([MS-FSCC] 2.4.7)."""
    change.require(AccessMask.WRITE_ATTRIBUTES)
    created, accessed, written, changed, attributes = change.unpack(_BASIC)
    if not all(_TIME_MIN <= time <= SETTABLE_MAX for time in (created, accessed, written, changed)):
        raise SmbError(NtStatus.INVALID_PARAMETER)
    is_directory = change.target.handle.entry.is_directory
    if attributes & FileAttributes.DIRECTORY and not is_directory:
        raise SmbError(NtStatus.INVALID_PARAMETER)
    if attributes & FileAttributes.TEMPORARY and is_directory:
        raise SmbError(NtStatus.INVALID_PARAMETER)
    handle = change.target.handle
    # From now on, changes through this handle leave the time alone; -2 ends that.
    if written:
        handle.preserves_written = written != -2
    if changed:
        change.opened.preserves_changed = changed != -2
    new_attributes: int | None = None
    if attributes:
        new_attributes = attributes & _CHANGE_ATTRIBUTES
        if is_directory:
            new_attributes = new_attributes & ~FileAttributes.ARCHIVE | FileAttributes.DIRECTORY
    has_times = any(time > 0 for time in (created, accessed, written, changed))
    if new_attributes is None and not has_times:
        return
    times = ChangedTimes(
        _new_time(created),
        _new_time(written),
        _new_time(changed) if changed or change.opened.preserves_changed else None,
        _new_time(accessed),
    )
    await change.target.client.set_properties(handle, times=times, attributes=new_attributes)


def _new_time(filetime: int) -> int:
    """Returns a time to set. 0 leaves it as it is; -1 and -2 stop and resume its updates."""
    return from_filetime(filetime) if filetime > 0 else PRESERVE_TIME


# Names


_REPLACE: Final = 0x0000_0001


async def _rename(change: _Change) -> None:
    """FileRenameInformation ([MS-FSCC] 2.4.43)."""
    await _rename_with(change, change.unpack(_RENAME)[0] & 0xFF and _REPLACE)


async def _rename_extended(change: _Change) -> None:
    """FileRenameInformationEx ([MS-FSCC] 2.4.44), without POSIX semantics: neither an open file nor
    a read-only one is replaced."""
    flags = change.unpack(_RENAME)[0]
    if flags & ~_REPLACE:
        raise SmbError(NtStatus.NOT_SUPPORTED)
    await _rename_with(change, flags)


async def _rename_with(change: _Change, flags: int) -> None:
    change.require(AccessMask.DELETE)
    _, root, length = change.unpack(_RENAME)
    name = change.data[_RENAME.size :]
    if root or not length:
        raise SmbError(NtStatus.INVALID_PARAMETER)
    if length > len(name):
        raise SmbError(NtStatus.INFO_LENGTH_MISMATCH)
    name = name[:length]
    if bytes(name[:2]) == b"\\\0":
        # Windows accepts the path with a backslash at its start, too.
        name = name[2:]
    path = decode_path(name)
    if not path.components or path.snapshot is not None:
        raise SmbError(NtStatus.INVALID_PARAMETER)
    target = change.target
    await target.client.rename(
        target.handle,
        path.components,
        replace=bool(flags & _REPLACE),
        on_wait=change.request.pend,
    )


# Deletion

_DELETE: Final = 0x0000_0001
_DELETE_FORCE_IMAGE: Final = 0x0000_0004
_DELETE_ON_CLOSE: Final = 0x0000_0008


async def _set_disposition(change: _Change) -> None:
    """FileDispositionInformation ([MS-FSCC] 2.4.11)."""
    change.require(AccessMask.DELETE)
    if not change.data:
        raise SmbError(NtStatus.INFO_LENGTH_MISMATCH)
    await _set_delete_pending(change, bool(change.data[0]))


async def _set_disposition_extended(change: _Change) -> None:
    """FileDispositionInformationEx ([MS-FSCC] 2.4.12), without POSIX semantics: the name of an open
    file stays in use."""
    change.require(AccessMask.DELETE)
    (flags,) = change.unpack(_WORD)
    if flags & ~(_DELETE | _DELETE_FORCE_IMAGE | _DELETE_ON_CLOSE):
        raise SmbError(NtStatus.NOT_SUPPORTED)
    if flags & _DELETE_ON_CLOSE:
        change.target.handle.deletes_on_close = bool(flags & _DELETE)
        return
    await _set_delete_pending(change, bool(flags & _DELETE))


async def _set_delete_pending(change: _Change, is_pending: bool) -> None:
    client, handle = change.target
    if is_pending:
        await client.set_delete_pending(handle, on_wait=change.request.pend)
    else:
        client.clear_delete_pending(handle)


# Sizes


async def _set_end_of_file(change: _Change) -> None:
    """FileEndOfFileInformation ([MS-FSCC] 2.4.14)."""
    await _resize(change, change.unpack(_LENGTH)[0])


async def _set_allocation(change: _Change) -> None:
    """FileAllocationInformation ([MS-FSCC] 2.4.4): a file that is longer is cut. Space is not
    reserved, but the client sees it as such."""
    change.require(AccessMask.WRITE_DATA)
    (allocation,) = change.unpack(_LENGTH)
    client, handle = change.target
    length = length_of(await client.get_entry(handle))
    if allocation < length:
        await _resize(change, allocation)
    else:
        # Others must not rely on what they cache, as after any change of the size.
        client.check_write(handle, length, length)
    change.opened.allocation = allocation


async def _set_valid_data_length(change: _Change) -> None:
    """FileValidDataLengthInformation ([MS-FSCC] 2.4.50): needs a privilege that nobody has."""
    change.require(AccessMask.WRITE_DATA)
    raise SmbError(NtStatus.PRIVILEGE_NOT_HELD)


async def _resize(change: _Change, length: int) -> None:
    change.require(AccessMask.WRITE_DATA)
    client, handle = change.target
    if handle.entry.is_directory or not 0 <= length <= FILE_BYTES_MAX:
        raise SmbError(NtStatus.INVALID_PARAMETER)
    await change.request.server.contents.resize(client.share, handle, length)
    client.share.watches.report([entry_modified(handle.entry, WRITTEN)])


# The open itself


async def _set_position(change: _Change) -> None:
    """FilePositionInformation ([MS-FSCC] 2.4.40)."""
    (position,) = change.unpack(_LENGTH)
    if position < 0:
        raise SmbError(NtStatus.INVALID_PARAMETER)
    change.opened.position = position


_SYNCHRONOUS: Final = 0x0000_0010 | 0x0000_0020


async def _set_mode(change: _Change) -> None:
    """FileModeInformation ([MS-FSCC] 2.4.31)."""
    (mode,) = change.unpack(_WORD)
    if mode & ~MODE_OPTIONS or mode & _SYNCHRONOUS == _SYNCHRONOUS:
        raise SmbError(NtStatus.INVALID_PARAMETER)
    change.opened.options = change.opened.options & ~MODE_OPTIONS | mode


# Security


_STORED_PARTS: Final = OWNER | GROUP | DACL | SACL
_LABEL: Final = 0x0000_0010
_ATTRIBUTE: Final = 0x0000_0020
_SCOPE: Final = 0x0000_0040
_BACKUP: Final = 0x0001_0000
_ACCESS_OF_PARTS: Final = (
    (OWNER | GROUP | _LABEL | _BACKUP, AccessMask.WRITE_OWNER),
    (DACL | _ATTRIBUTE | _BACKUP, AccessMask.WRITE_DAC),
    (SACL | _SCOPE | _BACKUP, AccessMask.ACCESS_SYSTEM_SECURITY),
)


async def _set_security(change: _Change, parts: int) -> None:
    """Replaces parts of the security descriptor, which is stored, but not enforced. Integrity
    labels, resource attributes and central policies are parts of the SACL that are not stored."""
    for some_parts, access in _ACCESS_OF_PARTS:
        if parts & some_parts:
            change.require(access)
    target = change.target
    parts &= _STORED_PARTS
    old = await read_descriptor(change.request, target)
    permission = await changed_permission(old, bytes(change.data), parts)
    if parts:
        await target.client.set_properties(target.handle, permission=permission)


_FILE_CHANGES: Final[Mapping[int, Callable[[_Change], Awaitable[None]]]] = {
    4: _set_basic,
    10: _rename,
    13: _set_disposition,
    14: _set_position,
    16: _set_mode,
    19: _set_allocation,
    20: _set_end_of_file,
    39: _set_valid_data_length,
    64: _set_disposition_extended,
    65: _rename_extended,
}
_REFUSED_CLASSES: Final[Mapping[int, NtStatus]] = {
    11: NtStatus.NOT_SUPPORTED,
    15: NtStatus.EAS_NOT_SUPPORTED,
    40: NtStatus.NOT_SUPPORTED,
    72: NtStatus.NOT_SUPPORTED,
}
"""Links, extended attributes and short names."""
