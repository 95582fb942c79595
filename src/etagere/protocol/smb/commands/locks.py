"""LOCK: byte-range locks ([MS-SMB2] 2.2.26, 2.2.27, 3.3.5.14).

Lock sequence numbers are for clients that reconnect to durable handles or have several channels.
There are neither, so that the numbers are ignored.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Sequence
from itertools import takewhile
from typing import TYPE_CHECKING, Final, NamedTuple

from etagere.nt_status import NtStatus
from etagere.opens.handles import LockRange
from etagere.protocol.smb.access import DATA_ACCESS
from etagere.protocol.smb.requests import Reply, Request
from etagere.protocol.smb.responses import EMPTY_REPLY
from etagere.protocol.smb.status import SmbError

if TYPE_CHECKING:
    from etagere.opens.client import ShareClient
    from etagere.opens.handles import Handle

_REQUEST: Final = struct.Struct("<HHIQQ")
_ELEMENT: Final = struct.Struct("<QQI4x")

_SHARED: Final = 0x1
_EXCLUSIVE: Final = 0x2
_UNLOCK: Final = 0x4
_FAIL_IMMEDIATELY: Final = 0x10
_LOCKING: Final = frozenset(
    {_SHARED, _EXCLUSIVE, _SHARED | _FAIL_IMMEDIATELY, _EXCLUSIVE | _FAIL_IMMEDIATELY}
)
_RANGE_END_MAX: Final = 1 << 64
ELEMENTS_MAX: Final = 256
"""The maximum number of ranges in a request; Linux sends up to 170."""


class LockElement(NamedTuple):
    """A range to lock or to unlock ([MS-SMB2] 2.2.26.1). The end is exclusive."""

    start: int
    end: int
    flags: int


class LockRequest(NamedTuple):
    persistent: int
    volatile: int
    elements: tuple[LockElement, ...]


def parse_lock(body: memoryview) -> LockRequest:
    if len(body) < _REQUEST.size:
        raise SmbError(NtStatus.INVALID_PARAMETER)
    _size, count, _sequence, persistent, volatile = _REQUEST.unpack_from(body)
    end = _REQUEST.size + count * _ELEMENT.size
    if not count or end > len(body):
        raise SmbError(NtStatus.INVALID_PARAMETER)
    if count > ELEMENTS_MAX:
        raise SmbError(NtStatus.INSUFFICIENT_RESOURCES)
    elements = tuple(
        LockElement(offset, offset + length, flags)
        for offset, length, flags in _ELEMENT.iter_unpack(body[_REQUEST.size : end])
    )
    return LockRequest(persistent, volatile, elements)


async def lock(request: Request) -> Reply:
    """Locks or unlocks ranges: all of them, or for locks none."""
    asked = parse_lock(request.body)
    opened = request.open(asked.persistent, asked.volatile)
    handle, client = opened.handle, opened.tree.client
    if handle is None or client is None or handle.entry.is_directory:
        raise SmbError(NtStatus.INVALID_DEVICE_REQUEST)
    if not opened.access & DATA_ACCESS:
        # Such an open does not mind the share modes of others, so that it must not exclude them.
        raise SmbError(NtStatus.ACCESS_DENIED)
    if asked.elements[0].flags == _UNLOCK:
        _unlock(client, handle, asked.elements)
    else:
        await _lock(request, client, handle, asked.elements)
    return EMPTY_REPLY


def _unlock(client: ShareClient, handle: Handle, elements: Sequence[LockElement]) -> None:
    """Unlocks ranges up to the first that is wrong; those before it stay unlocked."""
    ranges = list(takewhile(_is_valid_unlock, elements))
    if not client.unlock(handle, [(one.start, one.end) for one in ranges]):
        raise SmbError(NtStatus.RANGE_NOT_LOCKED)
    if len(ranges) < len(elements):
        is_unlock = elements[len(ranges)].flags == _UNLOCK
        raise SmbError(NtStatus.INVALID_LOCK_RANGE if is_unlock else NtStatus.INVALID_PARAMETER)


def _is_valid_unlock(element: LockElement) -> bool:
    return element.flags == _UNLOCK and element.end <= _RANGE_END_MAX


async def _lock(
    request: Request, client: ShareClient, handle: Handle, elements: Sequence[LockElement]
) -> None:
    for element in elements:
        if element.flags not in _LOCKING:
            raise SmbError(NtStatus.INVALID_PARAMETER)
        if len(elements) > 1 and not element.flags & _FAIL_IMMEDIATELY:
            # Only a single lock may wait.
            raise SmbError(NtStatus.INVALID_PARAMETER)
        _check_range(element)
    ranges = [LockRange(one.start, one.end, bool(one.flags & _EXCLUSIVE)) for one in elements]
    try:
        if elements[0].flags & _FAIL_IMMEDIATELY:
            await client.lock_all(handle, ranges)
        else:
            start, end, exclusive = ranges[0]
            await client.lock(
                handle, start, end, exclusive=exclusive, waits=True, on_wait=request.pend
            )
    except asyncio.CancelledError:
        if request.tree.id in request.session.trees:
            raise
        # The tree or the session ends, and with it all locks. Windows answers that it was granted.
        task = asyncio.current_task()
        assert task is not None
        task.uncancel()


def _check_range(element: LockElement) -> None:
    # The last byte of a range is at most that with the highest offset.
    if element.end > _RANGE_END_MAX:
        raise SmbError(NtStatus.INVALID_LOCK_RANGE)
