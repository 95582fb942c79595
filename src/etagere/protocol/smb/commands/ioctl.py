"""IOCTL: control codes of files, pipes and the server itself ([MS-SMB2] 2.2.31, 3.3.5.15)."""

from __future__ import annotations

import struct
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from typing import Final, NamedTuple

from etagere.clock import TICKS_PER_SECOND
from etagere.engine.interface import ReadTxn
from etagere.model.shares import ShareName
from etagere.nt_status import NtStatus
from etagere.operations.file import shares
from etagere.operations.file.collections import SHARE_SNAPSHOTS
from etagere.protocol.smb.access import AccessMask
from etagere.protocol.smb.buffers import decode_utf16, variable_part
from etagere.protocol.smb.copy_chunks import copy_chunks, resume_key
from etagere.protocol.smb.header import HEADER_BYTES
from etagere.protocol.smb.limits import OFFSET_MAX
from etagere.protocol.smb.negotiation import validate_negotiate
from etagere.protocol.smb.requests import Reply, Request
from etagere.protocol.smb.srvsvc import PIPE
from etagere.protocol.smb.state import Open
from etagere.protocol.smb.status import SmbError
from etagere.protocol.smb.targets import file_target

_REQUEST: Final = struct.Struct("<4xIQQIIIIIII4x")
_RESPONSE: Final = struct.Struct("<H2xIQQIIII8x")
_OUTPUT_OFFSET: Final = HEADER_BYTES + _RESPONSE.size
_IS_FSCTL: Final = 0x0000_0001


class IoctlRequest(NamedTuple):
    """The fields of a request."""

    code: int
    persistent: int
    volatile: int
    input_offset: int
    input_length: int
    input_bytes_max: int
    output_offset: int
    output_length: int
    output_bytes_max: int
    flags: int


class Control(NamedTuple):
    """A control code with its input."""

    request: Request
    asked: IoctlRequest
    data: memoryview

    @property
    def opened(self) -> Open:
        return self.request.open(self.asked.persistent, self.asked.volatile)

    def unpack(self, layout: struct.Struct) -> tuple[int, ...]:
        if len(self.data) < layout.size:
            raise SmbError(NtStatus.INVALID_PARAMETER)
        return layout.unpack_from(self.data)


class Output(NamedTuple):
    """The output of a control code."""

    data: bytes
    status: NtStatus = NtStatus.SUCCESS


async def ioctl(request: Request) -> Reply:
    body = request.body
    if len(body) < _REQUEST.size:
        raise SmbError(NtStatus.INVALID_PARAMETER)
    asked = IoctlRequest(*_REQUEST.unpack_from(body))
    if asked.flags != _IS_FSCTL:
        raise SmbError(NtStatus.NOT_SUPPORTED)
    data = variable_part(body, asked.input_offset, asked.input_length, _REQUEST.size)
    control = Control(request, asked, data)
    carry_out = _CONTROLS.get(asked.code)
    if carry_out is None:
        # An open that does not exist is the more important error.
        _ = control.opened
        raise SmbError(NtStatus.INVALID_DEVICE_REQUEST)
    output = await carry_out(control)
    return _reply(control, output)


def _reply(control: Control, output: Output) -> Reply:
    asked = control.asked
    body = _RESPONSE.pack(
        49,
        asked.code,
        asked.persistent,
        asked.volatile,
        _OUTPUT_OFFSET,
        0,
        _OUTPUT_OFFSET,
        len(output.data),
    )
    return Reply(body, output.status, output.data)


# The server


async def _validate_negotiation(control: Control) -> Output:
    """FSCTL_VALIDATE_NEGOTIATE_INFO ([MS-SMB2] 3.3.5.15.12): whether somebody has changed the
    negotiation, which was not signed."""
    request = control.request
    output = validate_negotiate(request.negotiated, request.server.guid, control.data)
    if len(output) > control.asked.output_bytes_max:
        raise SmbError(NtStatus.INVALID_PARAMETER)
    return Output(output)


async def _refuse_referrals(_control: Control) -> Output:
    """FSCTL_DFS_GET_REFERRALS: there is no DFS ([MS-SMB2] 3.3.5.15.2)."""
    raise SmbError(NtStatus.FS_DRIVER_REQUIRED)


async def _refuse(_control: Control) -> Output:
    """What the server does not offer: several connections of a session, resilient handles."""
    raise SmbError(NtStatus.NOT_SUPPORTED)


async def _get_compression(control: Control) -> Output:
    """FSCTL_GET_COMPRESSION ([MS-FSCC] 2.3.21): nothing is compressed."""
    file_target(control.opened)
    if control.asked.output_bytes_max < len(_NOT_COMPRESSED):
        raise SmbError(NtStatus.INVALID_PARAMETER)
    return Output(_NOT_COMPRESSED)


async def _set_compression(control: Control) -> Output:
    """FSCTL_SET_COMPRESSION ([MS-FSCC] 2.3.69): a file can only stay as it is."""
    file_target(control.opened)
    if len(control.data) < len(_NOT_COMPRESSED):
        raise SmbError(NtStatus.INVALID_PARAMETER)
    if bytes(control.data[: len(_NOT_COMPRESSED)]) != _NOT_COMPRESSED:
        raise SmbError(NtStatus.NOT_SUPPORTED)
    return Output(b"")


_NOT_COMPRESSED: Final = b"\0\0"

# Pipes

_PIPE_WAIT: Final = struct.Struct("<qIBx")


async def _transceive(control: Control) -> Output:
    """FSCTL_PIPE_TRANSCEIVE ([MS-SMB2] 3.3.5.15.3): writes a message and reads its response."""
    pipe = control.opened.pipe
    if pipe is None:
        raise SmbError(NtStatus.INVALID_DEVICE_REQUEST)
    await pipe.write(control.data)
    data, has_more = pipe.read(control.asked.output_bytes_max)
    return Output(data, NtStatus.BUFFER_OVERFLOW if has_more else NtStatus.SUCCESS)


async def _wait_for_pipe(control: Control) -> Output:
    """FSCTL_PIPE_WAIT ([MS-FSCC] 2.3.49): pipes are available at any time."""
    if control.request.tree.name is not None:
        raise SmbError(NtStatus.INVALID_DEVICE_REQUEST)
    _, length, _ = control.unpack(_PIPE_WAIT)
    name = control.data[_PIPE_WAIT.size :]
    if length > len(name):
        raise SmbError(NtStatus.INVALID_PARAMETER)
    if decode_utf16(name[:length]).lower() != PIPE:
        raise SmbError(NtStatus.OBJECT_NAME_NOT_FOUND)
    return Output(b"")


# Snapshots

_SNAPSHOTS: Final = struct.Struct("<III")
_SNAPSHOTS_BYTES_MIN: Final = 16


async def _enumerate_snapshots(control: Control) -> Output:
    """FSCTL_SRV_ENUMERATE_SNAPSHOTS ([MS-SMB2] 2.2.32.2), the newest first."""
    if control.asked.output_bytes_max < _SNAPSHOTS_BYTES_MIN:
        raise SmbError(NtStatus.INVALID_PARAMETER)
    name = file_target(control.opened).client.share.name
    times = await control.request.server.engine.read(_snapshot_times, name)
    array = "".join(f"{_snapshot_token(time)}\0" for time in times).encode("utf-16-le")
    array += bytes(2 if times else 4)
    if _SNAPSHOTS.size + len(array) > control.asked.output_bytes_max:
        # The client asks again, with a buffer of this length.
        return Output(_SNAPSHOTS.pack(len(times), 0, len(array)) + bytes(4))
    return Output(_SNAPSHOTS.pack(len(times), len(times), len(array)) + array)


def _snapshot_times(txn: ReadTxn, name: ShareName) -> list[int]:
    share = shares.find(txn, name)
    span = SHARE_SNAPSHOTS.under((share.id,))
    rows = txn.scan(SHARE_SNAPSHOTS, span, shares.SNAPSHOTS_MAX, reverse=True)
    return [time for (_, time), _ in rows]


def _snapshot_token(time: int) -> str:
    return datetime.fromtimestamp(time // TICKS_PER_SECOND, UTC).strftime("@GMT-%Y.%m.%d-%H.%M.%S")


# Copies


async def _request_resume_key(control: Control) -> Output:
    """FSCTL_SRV_REQUEST_RESUME_KEY ([MS-SMB2] 2.2.32.3)."""
    key = resume_key(control.opened)
    if control.asked.output_bytes_max < len(key):
        raise SmbError(NtStatus.INVALID_PARAMETER)
    return Output(key)


async def _copy_chunks(control: Control) -> Output:
    """FSCTL_SRV_COPYCHUNK and FSCTL_SRV_COPYCHUNK_WRITE ([MS-SMB2] 3.3.5.15.6). The former needs
    read access to the destination, too."""
    needed = AccessMask.WRITE_DATA
    if control.asked.code == _COPYCHUNK:
        needed |= AccessMask.READ_DATA
    copied = await copy_chunks(
        control.request,
        control.opened,
        control.data,
        needed_access=needed,
        output_bytes_max=control.asked.output_bytes_max,
    )
    return Output(copied.data, copied.status)


# Ranges

_RANGE: Final = struct.Struct("<qq")


async def _query_allocated_ranges(control: Control) -> Output:
    """FSCTL_QUERY_ALLOCATED_RANGES ([MS-FSCC] 2.3.51)."""
    opened = control.opened
    client, handle = file_target(opened)
    if not opened.access & AccessMask.READ_DATA:
        raise SmbError(NtStatus.ACCESS_DENIED)
    start, length = control.unpack(_RANGE)
    if handle.entry.is_directory or start < 0 or length < 0 or start + length > OFFSET_MAX:
        raise SmbError(NtStatus.INVALID_PARAMETER)
    limit = control.asked.output_bytes_max // _RANGE.size
    contents = control.request.server.contents
    ranges = await contents.allocated_ranges(
        client.share, handle, start, start + length, max(limit, 1)
    )
    if ranges and not limit:
        raise SmbError(NtStatus.BUFFER_TOO_SMALL)
    status = NtStatus.BUFFER_OVERFLOW if len(ranges) > limit else NtStatus.SUCCESS
    data = b"".join(_RANGE.pack(start, end - start) for start, end in ranges[:limit])
    return Output(data, status)


async def _set_zero_data(control: Control) -> Output:
    """FSCTL_SET_ZERO_DATA ([MS-FSCC] 2.3.71). The file keeps its length."""
    opened = control.opened
    client, handle = file_target(opened)
    if not opened.access & AccessMask.WRITE_DATA:
        raise SmbError(NtStatus.ACCESS_DENIED)
    start, end = control.unpack(_RANGE)
    if handle.entry.is_directory or not 0 <= start <= end:
        raise SmbError(NtStatus.INVALID_PARAMETER)
    if start < end:
        await control.request.server.contents.clear(client.share, handle, start, end)
    return Output(b"")


_COPYCHUNK: Final = 0x0014_40F2

_CONTROLS: Final[Mapping[int, Callable[[Control], Awaitable[Output]]]] = {
    0x0006_0194: _refuse_referrals,
    0x0006_01B0: _refuse_referrals,
    0x0009_003C: _get_compression,
    0x0009_40CF: _query_allocated_ranges,
    0x0009_80C8: _set_zero_data,
    0x0009_C040: _set_compression,
    0x0011_0018: _wait_for_pipe,
    0x0011_C017: _transceive,
    0x0014_0078: _request_resume_key,
    0x0014_01D4: _refuse,
    0x0014_01FC: _refuse,
    0x0014_0204: _validate_negotiation,
    0x0014_4064: _enumerate_snapshots,
    _COPYCHUNK: _copy_chunks,
    0x0014_80F2: _copy_chunks,
}
"""Everything else is INVALID_DEVICE_REQUEST: object IDs, reparse points, sparse files."""
