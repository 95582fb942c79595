"""Create contexts: the extensions of CREATE requests and responses ([MS-SMB2] 2.2.13.2, 2.2.14.2).

Contexts that the server does not know are ignored, and so are requests for durable handles: a
client that gets no context back does not have one.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from etagere.nt_status import NtStatus
from etagere.protocol.smb.status import SmbError
from etagere.rules.caching import Caching

LEASE_KEY_BYTES: Final = 16

MAXIMAL_ACCESS: Final = b"MxAc"
DISK_ID: Final = b"QFid"
LEASE: Final = b"RqLs"
_ALLOCATION: Final = b"AlSi"
_SNAPSHOT: Final = b"TWrp"
_DESCRIPTOR: Final = b"SecD"
_EXTENDED_ATTRIBUTES: Final = b"ExtA"
_RECONNECTS: Final = frozenset({b"DHnC", b"DH2C"})

_HEAD: Final = struct.Struct("<IHHHHI")
_TAG_BYTES_MIN: Final = 4
_TIME_OR_SIZE: Final = struct.Struct("<Q")
_LEASE_V1: Final = struct.Struct("<16sIIQ")
_LEASE_V2: Final = struct.Struct("<16sIIQ16sHH")
_MAXIMAL_ACCESS: Final = struct.Struct("<II")
_DISK_ID: Final = struct.Struct("<QQ16x")

LEASE_BREAK_IN_PROGRESS: Final = 0x2
LEASE_PARENT_KEY_SET: Final = 0x4

_CACHING_OF_LEASE: Final = (
    (0x1, Caching.READ),
    (0x2, Caching.HANDLE),
    (0x4, Caching.WRITE),
)
"""The bits of a lease state ([MS-SMB2] 2.2.13.2.8)."""


class LeaseRequest(NamedTuple):
    """A lease that a client asks for ([MS-SMB2] 2.2.13.2.8, 2.2.13.2.10)."""

    key: bytes
    state: Caching
    is_v2: bool = False
    parent_key: bytes | None = None
    epoch: int = 0


class CreateContexts(NamedTuple):
    """What the contexts of a request ask for."""

    lease: LeaseRequest | None = None
    asks_maximal_access: bool = False
    asks_disk_id: bool = False
    allocation: int = 0
    snapshot: int | None = None
    """The FILETIME of a share snapshot."""
    descriptor: bytes | None = None
    """A security descriptor, in its self-relative binary form."""


def parse_contexts(buffer: memoryview, *, has_lease_v2: bool) -> CreateContexts:
    """Parses the contexts of a request; `has_lease_v2` says whether the dialect has leases of the
    second version."""
    if not buffer:
        return _NO_CONTEXTS
    found = dict(_split(buffer))
    if _EXTENDED_ATTRIBUTES in found:
        raise SmbError(NtStatus.EAS_NOT_SUPPORTED)
    if not _RECONNECTS.isdisjoint(found):
        # There are no durable handles that a client could reconnect to.
        raise SmbError(NtStatus.OBJECT_NAME_NOT_FOUND)
    maximal_access = found.get(MAXIMAL_ACCESS)
    if maximal_access is not None and len(maximal_access) not in (0, _TIME_OR_SIZE.size):
        raise SmbError(NtStatus.INVALID_PARAMETER)
    lease, snapshot = found.get(LEASE), found.get(_SNAPSHOT)
    descriptor, allocation = found.get(_DESCRIPTOR), found.get(_ALLOCATION)
    return CreateContexts(
        None if lease is None else _parse_lease(lease, has_lease_v2),
        maximal_access is not None,
        DISK_ID in found,
        0 if allocation is None else _parse_number(allocation),
        None if snapshot is None else _parse_number(snapshot),
        None if descriptor is None else bytes(descriptor),
    )


_NO_CONTEXTS: Final = CreateContexts()


def _split(buffer: memoryview) -> Iterator[tuple[bytes, memoryview]]:
    """Yields the tags and data of a chain of contexts."""
    start = 0
    while True:
        if len(buffer) - start < _HEAD.size:
            raise SmbError(NtStatus.INVALID_PARAMETER)
        step, tag_at, tag_bytes, _, data_at, data_bytes = _HEAD.unpack_from(buffer, start)
        # A step of at least the head: the chain ends.
        is_valid = not step % 8 and (_HEAD.size <= step <= len(buffer) - start or not step)
        if not is_valid:
            raise SmbError(NtStatus.INVALID_PARAMETER)
        context = buffer[start : start + step] if step else buffer[start:]
        tag = _part(context, tag_at, tag_bytes)
        if len(tag) < _TAG_BYTES_MIN:
            raise SmbError(NtStatus.INVALID_PARAMETER)
        yield bytes(tag), _part(context, data_at, data_bytes)
        if not step:
            return
        start += step


def _part(context: memoryview, offset: int, length: int) -> memoryview:
    if length and (offset < _HEAD.size or offset + length > len(context)):
        raise SmbError(NtStatus.INVALID_PARAMETER)
    return context[offset : offset + length] if length else context[:0]


def _parse_number(data: memoryview) -> int:
    if len(data) != _TIME_OR_SIZE.size:
        raise SmbError(NtStatus.INVALID_PARAMETER)
    (number,) = _TIME_OR_SIZE.unpack(data)
    return int(number)


def _parse_lease(data: memoryview, has_v2: bool) -> LeaseRequest:
    if len(data) == _LEASE_V2.size and has_v2:
        key, state, flags, _, parent_key, epoch, _ = _LEASE_V2.unpack(data)
        has_parent = flags & LEASE_PARENT_KEY_SET
        return LeaseRequest(
            key, parse_lease_state(state), True, parent_key if has_parent else None, epoch
        )
    if len(data) not in (_LEASE_V1.size, _LEASE_V2.size):
        raise SmbError(NtStatus.INVALID_PARAMETER)
    key, state, _, _ = _LEASE_V1.unpack_from(data)
    return LeaseRequest(key, parse_lease_state(state))


def parse_lease_state(state: int) -> Caching:
    caching = Caching.NONE
    for bit, meaning in _CACHING_OF_LEASE:
        if state & bit:
            caching |= meaning
    return caching


def lease_state(caching: Caching) -> int:
    """Returns the lease state that stands for what a client may cache."""
    state = 0
    for bit, meaning in _CACHING_OF_LEASE:
        if caching & meaning:
            state |= bit
    return state


# Responses


def pack_contexts(contexts: Iterable[tuple[bytes, bytes]]) -> bytes:
    """Returns the chain of contexts of a response, from their tags and data."""
    packed = bytearray()
    last = 0
    for tag, data in contexts:
        if packed:
            packed += bytes(-len(packed) % 8)
            struct.pack_into("<I", packed, last, len(packed) - last)
            last = len(packed)
        # All tags have four bytes; the data is aligned to eight.
        data_at = _HEAD.size + 8
        packed += _HEAD.pack(0, _HEAD.size, len(tag), 0, data_at if data else 0, len(data))
        packed += tag + bytes(8 - len(tag)) + data
    return bytes(packed)


def pack_lease(asked: LeaseRequest, granted: Caching, *, is_breaking: bool, epoch: int) -> bytes:
    """Returns the data of the lease context of a response ([MS-SMB2] 2.2.14.2.10, 2.2.14.2.11)."""
    flags = LEASE_BREAK_IN_PROGRESS if is_breaking else 0
    state = lease_state(granted)
    if not asked.is_v2:
        return _LEASE_V1.pack(asked.key, state, flags, 0)
    if asked.parent_key is not None:
        flags |= LEASE_PARENT_KEY_SET
    parent_key = asked.parent_key or bytes(LEASE_KEY_BYTES)
    return _LEASE_V2.pack(asked.key, state, flags, 0, parent_key, epoch, 0)


def pack_maximal_access(access: int) -> bytes:
    """Returns the data of a maximal access context ([MS-SMB2] 2.2.14.2.5)."""
    return _MAXIMAL_ACCESS.pack(NtStatus.SUCCESS, access)


def pack_disk_id(file_id: int, volume_id: int) -> bytes:
    """Returns the data of a disk ID context ([MS-SMB2] 2.2.14.2.9)."""
    return _DISK_ID.pack(file_id, volume_id)
