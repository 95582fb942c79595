"""QUERY_INFO: information about a file, its share, or its security ([MS-SMB2] 2.2.37, 3.3.5.20)."""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from etagere.engine.interface import ReadTxn
from etagere.model.files import GetPermission
from etagere.model.shares import ShareName
from etagere.nt_status import NtStatus
from etagere.operations.file import shares
from etagere.operations.file.permissions import get_permission
from etagere.protocol.smb.access import AccessMask
from etagere.protocol.smb.dialects import DIALECT_3_1_1
from etagere.protocol.smb.information.files import (
    ALTERNATE_NAME,
    FILE_CLASSES,
    FULL_EA,
    NORMALIZED_NAME,
    FileState,
)
from etagere.protocol.smb.information.kinds import FILE, FILE_SYSTEM, QUOTA, SECURITY
from etagere.protocol.smb.information.security import SACL, select_parts
from etagere.protocol.smb.information.volumes import VOLUME_CLASSES, VolumeState, serial_number
from etagere.protocol.smb.requests import Reply, Request
from etagere.protocol.smb.responses import with_buffer
from etagere.protocol.smb.state import Open
from etagere.protocol.smb.status import SmbError
from etagere.protocol.smb.targets import FileTarget, file_target
from etagere.rules.security_descriptors import decode_descriptor, encode_descriptor

_REQUEST: Final = struct.Struct("<2xBBIHxxIIIQQ")
_WORD: Final = struct.Struct("<I")


class QueryInfo(NamedTuple):
    """The fields of a request."""

    info_type: int
    info_class: int
    output_bytes_max: int
    input_offset: int
    input_length: int
    additional: int
    """The parts of the security descriptor that are asked for."""
    flags: int
    persistent: int
    volatile: int


def parse_query_info(body: memoryview) -> QueryInfo:
    if len(body) < _REQUEST.size:
        raise SmbError(NtStatus.INVALID_PARAMETER)
    asked = QueryInfo(*_REQUEST.unpack_from(body))
    if asked.input_length > len(body):
        raise SmbError(NtStatus.INVALID_PARAMETER)
    return asked


async def query_info(request: Request) -> Reply:
    asked = parse_query_info(request.body)
    opened = request.open(asked.persistent, asked.volatile)
    if asked.info_type == FILE:
        return await _query_file(request, opened, asked)
    if asked.info_type == FILE_SYSTEM:
        return await _query_volume(request, opened, asked)
    if asked.info_type == SECURITY:
        return await _query_security(request, opened, asked)
    if asked.info_type == QUOTA:
        raise SmbError(NtStatus.NOT_SUPPORTED)
    raise SmbError(NtStatus.INVALID_PARAMETER)


def _check_room(fixed_bytes: int, asked: QueryInfo) -> None:
    """Refuses a buffer that is too small for the fixed part."""
    if asked.output_bytes_max < fixed_bytes:
        raise SmbError(NtStatus.INFO_LENGTH_MISMATCH)


def _fitted(data: bytes, asked: QueryInfo) -> Reply:
    """Returns the reply. What follows the fixed part may be cut."""
    if len(data) > asked.output_bytes_max:
        return with_buffer(data[: asked.output_bytes_max], NtStatus.BUFFER_OVERFLOW)
    return with_buffer(data)


# Files


async def _query_file(request: Request, opened: Open, asked: QueryInfo) -> Reply:
    if opened.pipe is not None:
        return _query_pipe(asked)
    info_class = FILE_CLASSES.get(asked.info_class)
    if info_class is None:
        raise SmbError(_status_of_class(asked.info_class))
    if asked.info_class == NORMALIZED_NAME and request.negotiated.dialect < DIALECT_3_1_1:
        raise SmbError(NtStatus.NOT_SUPPORTED)
    if info_class.needs_attributes and not opened.access & AccessMask.READ_ATTRIBUTES:
        raise SmbError(NtStatus.ACCESS_DENIED)
    _check_room(info_class.fixed_bytes, asked)
    state = await file_state(opened)
    return _fitted(info_class.encode(state), asked)


def _status_of_class(info_class: int) -> NtStatus:
    if info_class == ALTERNATE_NAME:
        return NtStatus.OBJECT_NAME_NOT_FOUND
    if info_class == FULL_EA:
        return NtStatus.EAS_NOT_SUPPORTED
    return NtStatus.INVALID_INFO_CLASS


async def file_state(opened: Open) -> FileState:
    """Returns what the classes of a file are made of."""
    target = file_target(opened)
    entry = await target.client.get_entry(target.handle)
    return FileState(
        entry,
        target.handle.entry.path,
        opened.access,
        opened.options,
        opened.position,
        target.handle.entry.is_delete_pending,
        serial_number(target.client.share.id),
        opened.allocation,
    )


_PIPE_STANDARD: Final = struct.Struct("<qqIBBH")
_STANDARD: Final = 5


def _query_pipe(asked: QueryInfo) -> Reply:
    """Answers what clients ask about a pipe: its size, of which they only need that there is an
    answer."""
    if asked.info_class != _STANDARD:
        raise SmbError(NtStatus.NOT_SUPPORTED)
    _check_room(_PIPE_STANDARD.size, asked)
    return with_buffer(_PIPE_STANDARD.pack(4_096, 0, 1, 1, 0, 0))


# Volumes


async def _query_volume(request: Request, opened: Open, asked: QueryInfo) -> Reply:
    target = file_target(opened)
    info_class = VOLUME_CLASSES.get(asked.info_class)
    if info_class is None:
        raise SmbError(NtStatus.INVALID_INFO_CLASS)
    _check_room(info_class.fixed_bytes, asked)
    state = await request.server.engine.read(_volume_state, target.client.share.name)
    return _fitted(info_class.encode(state), asked)


def _volume_state(txn: ReadTxn, name: ShareName) -> VolumeState:
    share = shares.find(txn, name)
    quota_bytes = share.settings.quota_gib << 30
    return VolumeState(share.id, name.name, share.created, quota_bytes, shares.usage(txn, share.id))


# Security


async def _query_security(request: Request, opened: Open, asked: QueryInfo) -> Reply:
    target = file_target(opened)
    needed = AccessMask.READ_CONTROL if asked.additional else 0
    if asked.additional & SACL:
        needed |= AccessMask.ACCESS_SYSTEM_SECURITY
    if needed & ~opened.access:
        raise SmbError(NtStatus.ACCESS_DENIED)
    stored = await read_descriptor(request, target)
    data = encode_descriptor(select_parts(decode_descriptor(stored), asked.additional))
    if len(data) > asked.output_bytes_max:
        raise SmbError(NtStatus.BUFFER_TOO_SMALL, _WORD.pack(len(data)))
    return with_buffer(data)


async def read_descriptor(request: Request, target: FileTarget) -> bytes:
    """Returns the security descriptor of an entry in its binary form."""
    entry = await target.client.get_entry(target.handle)
    command = GetPermission(target.client.share.name, entry.permission)
    return await request.server.engine.read(get_permission, command)
