"""READ, WRITE and FLUSH ([MS-SMB2] 2.2.17 to 2.2.22, 3.3.5.11 to 3.3.5.13)."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final, NamedTuple

from etagere.nt_status import NtStatus
from etagere.opens.reports import WRITTEN, entry_modified
from etagere.protocol.smb.access import READ_RIGHTS, WRITE_RIGHTS, AccessMask
from etagere.protocol.smb.buffers import variable_part
from etagere.protocol.smb.commands.create import WRITE_THROUGH
from etagere.protocol.smb.header import HEADER_BYTES
from etagere.protocol.smb.limits import IO_BYTES_MAX, OFFSET_MAX
from etagere.protocol.smb.requests import Reply, Request
from etagere.protocol.smb.responses import EMPTY_REPLY
from etagere.protocol.smb.state import Open
from etagere.protocol.smb.status import SmbError

if TYPE_CHECKING:
    from etagere.opens.client import ShareClient
    from etagere.opens.handles import Handle

_READ: Final = struct.Struct("<HBBIQQQIIIHH")
_READ_RESPONSE: Final = struct.Struct("<HBxII4x")
_READ_RESPONSE_STRUCTURE_SIZE: Final = 17
_WRITE: Final = struct.Struct("<HHIQQQIIHHI")
_WRITE_RESPONSE: Final = struct.Struct("<HHIIHH")
_WRITE_RESPONSE_STRUCTURE_SIZE: Final = 17
_FLUSH: Final = struct.Struct("<H2x4xQQ")

_WRITE_FLAG_THROUGH: Final = 0x1
_NTFS_FILE_BYTES_MAX: Final = 0xFFF_FFFF_0000
"""Behind this no write is valid in Windows; below it, a file that is too long fills the disk."""


class ReadRequest(NamedTuple):
    """A READ request ([MS-SMB2] 2.2.19). What it says about caching and channels is ignored."""

    length: int
    offset: int
    persistent: int
    volatile: int
    minimum: int


def parse_read(body: memoryview) -> ReadRequest:
    if len(body) < _READ.size:
        raise SmbError(NtStatus.INVALID_PARAMETER)
    fields = _READ.unpack_from(body)
    _size, _padding, _flags, length, offset, persistent, volatile, minimum = fields[:8]
    return ReadRequest(length, offset, persistent, volatile, minimum)


async def read(request: Request) -> Reply:
    asked = parse_read(request.body)
    opened = request.open(asked.persistent, asked.volatile)
    if asked.length > IO_BYTES_MAX:
        raise SmbError(NtStatus.INVALID_PARAMETER)
    handle, client = opened.handle, opened.tree.client
    if handle is None or client is None:
        return _read_pipe(opened, asked.length)
    if handle.entry.is_directory:
        raise SmbError(NtStatus.INVALID_DEVICE_REQUEST)
    if asked.offset > OFFSET_MAX or asked.offset + asked.length > OFFSET_MAX:
        raise SmbError(NtStatus.INVALID_PARAMETER)
    if not opened.access & READ_RIGHTS:
        raise SmbError(NtStatus.ACCESS_DENIED)
    client.check_read(handle, asked.offset, asked.offset + asked.length)
    contents = request.server.contents
    data = await contents.read(client.share, handle, asked.offset, asked.length)
    if len(data) < asked.minimum or (asked.length and not data):
        raise SmbError(NtStatus.END_OF_FILE)
    opened.position = asked.offset + len(data)
    return _read_reply(data)


def _read_pipe(opened: Open, length: int) -> Reply:
    if opened.pipe is None:
        raise SmbError(NtStatus.INVALID_DEVICE_REQUEST)
    data, has_more = opened.pipe.read(length)
    return _read_reply(data, NtStatus.BUFFER_OVERFLOW if has_more else NtStatus.SUCCESS)


def _read_reply(data: bytes | bytearray | memoryview, status: NtStatus = NtStatus.SUCCESS) -> Reply:
    """Returns a response ([MS-SMB2] 2.2.20)."""
    offset = HEADER_BYTES + _READ_RESPONSE.size
    body = _READ_RESPONSE.pack(_READ_RESPONSE_STRUCTURE_SIZE, offset, len(data), 0)
    return Reply(body, status, data)


class WriteRequest(NamedTuple):
    """A WRITE request ([MS-SMB2] 2.2.21)."""

    offset: int
    persistent: int
    volatile: int
    is_through: bool
    data: memoryview


def parse_write(body: memoryview) -> WriteRequest:
    if len(body) < _WRITE.size:
        raise SmbError(NtStatus.INVALID_PARAMETER)
    fields = _WRITE.unpack_from(body)
    _size, data_offset, length, offset, persistent, volatile = fields[:6]
    flags = fields[-1]
    data = variable_part(body, data_offset, length, _WRITE.size)
    is_through = bool(flags & _WRITE_FLAG_THROUGH)
    return WriteRequest(offset, persistent, volatile, is_through, data)


async def write(request: Request) -> Reply:
    asked = parse_write(request.body)
    opened = request.open(asked.persistent, asked.volatile)
    length = len(asked.data)
    if length > IO_BYTES_MAX:
        raise SmbError(NtStatus.INVALID_PARAMETER)
    handle, client = opened.handle, opened.tree.client
    if handle is None or client is None:
        return await _write_pipe(opened, asked.data)
    if handle.entry.is_directory:
        raise SmbError(NtStatus.INVALID_DEVICE_REQUEST)
    if asked.offset > OFFSET_MAX or (length and asked.offset + length > _NTFS_FILE_BYTES_MAX):
        raise SmbError(NtStatus.INVALID_PARAMETER)
    if not opened.access & WRITE_RIGHTS:
        raise SmbError(NtStatus.ACCESS_DENIED)
    if length:
        await _write(request, opened, client, handle, asked)
    return _write_reply(length)


async def _write(
    request: Request, opened: Open, client: ShareClient, handle: Handle, asked: WriteRequest
) -> None:
    contents, share, entry = request.server.contents, client.share, handle.entry
    # A handle that may only append writes at the end of the file, whatever the offset.
    appends = not opened.access & AccessMask.WRITE_DATA
    is_through = asked.is_through or bool(opened.options & WRITE_THROUGH)
    opened.position = await contents.write(
        share,
        handle,
        None if appends else asked.offset,
        asked.data,
        through=is_through,
    )
    if share.watches:
        share.watches.report([entry_modified(entry, WRITTEN)])


async def _write_pipe(opened: Open, data: memoryview) -> Reply:
    if opened.pipe is None:
        raise SmbError(NtStatus.INVALID_DEVICE_REQUEST)
    await opened.pipe.write(data)
    return _write_reply(len(data))


def _write_reply(count: int) -> Reply:
    """Returns a response ([MS-SMB2] 2.2.22)."""
    return Reply(_WRITE_RESPONSE.pack(_WRITE_RESPONSE_STRUCTURE_SIZE, 0, count, 0, 0, 0))


async def flush(request: Request) -> Reply:
    """Makes what was written to a file durable."""
    if len(request.body) < _FLUSH.size:
        raise SmbError(NtStatus.INVALID_PARAMETER)
    _, persistent, volatile = _FLUSH.unpack_from(request.body)
    opened = request.open(persistent, volatile)
    handle, client = opened.handle, opened.tree.client
    if handle is not None and client is not None:
        if not opened.access & WRITE_RIGHTS:
            raise SmbError(NtStatus.ACCESS_DENIED)
        if not handle.entry.is_directory:
            await request.server.contents.flush(client.share, handle.entry)
    return EMPTY_REPLY
