"""Copies on the server: chunks of one open file to another ([MS-SMB2] 3.3.5.15.6)."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final, NamedTuple

from etagere.config import MIB
from etagere.engine.interface import Refused
from etagere.nt_status import NtStatus
from etagere.protocol.smb.access import READ_RIGHTS
from etagere.protocol.smb.limits import OFFSET_MAX
from etagere.protocol.smb.requests import Request
from etagere.protocol.smb.state import Open
from etagere.protocol.smb.status import SmbError, status_of
from etagere.protocol.smb.targets import FileTarget, file_target

CHUNKS_MAX: Final = 256
CHUNK_BYTES_MAX: Final = MIB
TOTAL_BYTES_MAX: Final = 16 * MIB

_KEY: Final = struct.Struct("<QQQ")
_KEY_RESPONSE: Final = struct.Struct("<24sI4x")
"""The key, and the length of a context that is not used; Windows appends four bytes."""
_HEAD: Final = struct.Struct("<24sI4x")
_CHUNK: Final = struct.Struct("<QQI4x")
_RESULT: Final = struct.Struct("<III")
_LIMITS: Final = _RESULT.pack(CHUNKS_MAX, CHUNK_BYTES_MAX, TOTAL_BYTES_MAX)


class Chunk(NamedTuple):
    source: int
    target: int
    length: int


class CopyResult(NamedTuple):
    """The response: how much was copied, or how much can be."""

    data: bytes
    status: NtStatus = NtStatus.SUCCESS


def resume_key(opened: Open) -> bytes:
    """Returns the response that names an open as the source of a copy ([MS-SMB2] 2.2.32.3)."""
    file_target(opened)
    return _KEY_RESPONSE.pack(_key(opened), 0)


def _key(opened: Open) -> bytes:
    return _KEY.pack(opened.id, opened.tree.session.id, 0)


def _find_source(request: Request, key: bytes) -> Open:
    source = request.session.opens.get(_KEY.unpack(key)[0])
    if source is None or _key(source) != key:
        raise SmbError(NtStatus.OBJECT_NAME_NOT_FOUND)
    return source


async def copy_chunks(
    request: Request,
    opened: Open,
    data: memoryview,
    *,
    needed_access: int,
    output_bytes_max: int,
) -> CopyResult:
    target = file_target(opened)
    if output_bytes_max < _RESULT.size or len(data) < _HEAD.size:
        raise SmbError(NtStatus.INVALID_PARAMETER)
    key, count = _HEAD.unpack_from(data)
    source_open = _find_source(request, key)
    source = file_target(source_open)
    if count > CHUNKS_MAX:
        return CopyResult(_LIMITS, NtStatus.INVALID_PARAMETER)
    if len(data) < _HEAD.size + count * _CHUNK.size:
        raise SmbError(NtStatus.INVALID_PARAMETER)
    chunks = [
        Chunk(*_CHUNK.unpack_from(data, _HEAD.size + at * _CHUNK.size)) for at in range(count)
    ]
    if not _are_within_limits(chunks):
        return CopyResult(_LIMITS, NtStatus.INVALID_PARAMETER)
    if source.handle.entry.is_directory or target.handle.entry.is_directory:
        raise SmbError(NtStatus.INVALID_DEVICE_REQUEST)
    if needed_access & ~opened.access or not source_open.access & READ_RIGHTS:
        raise SmbError(NtStatus.ACCESS_DENIED)
    return await _copy(request, source, target, chunks)


def _are_within_limits(chunks: Sequence[Chunk]) -> bool:
    if sum(chunk.length for chunk in chunks) > TOTAL_BYTES_MAX:
        return False
    return all(
        0 < chunk.length <= CHUNK_BYTES_MAX
        and max(chunk.source, chunk.target) + chunk.length <= OFFSET_MAX
        for chunk in chunks
    )


async def _copy(
    request: Request, source: FileTarget, target: FileTarget, chunks: Sequence[Chunk]
) -> CopyResult:
    """Copies one chunk after the other. If one fails, those before it stay copied."""
    copied = total = 0
    for chunk in chunks:
        try:
            async with request.session.copying:
                await _copy_chunk(request, source, target, chunk)
        except SmbError as error:
            return CopyResult(_RESULT.pack(copied, 0, total), error.status)
        except Refused as refused:
            return CopyResult(_RESULT.pack(copied, 0, total), status_of(refused.refusal))
        copied += 1
        total += chunk.length
    return CopyResult(_RESULT.pack(copied, 0, total))


async def _copy_chunk(
    request: Request, source: FileTarget, target: FileTarget, chunk: Chunk
) -> None:
    contents = request.server.contents
    start, end = chunk.source, chunk.source + chunk.length
    source.client.check_read(source.handle, start, end)
    data = await contents.read(source.client.share, source.handle, start, chunk.length)
    if len(data) < chunk.length:
        raise SmbError(NtStatus.INVALID_VIEW_SIZE)
    await contents.write(target.client.share, target.handle, chunk.target, memoryview(data))
