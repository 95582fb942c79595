"""OPLOCK_BREAK: breaks of oplocks and leases, and their acknowledgements.

The server notifies a client that it may cache less ([MS-SMB2] 2.2.23); the client answers when it
has written back what it has cached, or has closed its handles ([MS-SMB2] 2.2.24, 3.3.5.22).
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable
from typing import Final

from etagere.nt_status import NtStatus
from etagere.opens.caches import CacheGrant
from etagere.protocol.smb.create_contexts import lease_state, parse_lease_state
from etagere.protocol.smb.requests import Reply, Request
from etagere.protocol.smb.status import SmbError
from etagere.rules.caching import Caching

OPLOCK_NONE: Final = 0x00
OPLOCK_LEVEL_II: Final = 0x01
OPLOCK_EXCLUSIVE: Final = 0x08
OPLOCK_BATCH: Final = 0x09
OPLOCK_LEASE: Final = 0xFF

_OPLOCK: Final = struct.Struct("<HBB4xQQ")
_OPLOCK_STRUCTURE_SIZE: Final = 24
_LEASE_NOTIFICATION: Final = struct.Struct("<HHI16sIIIII")
_LEASE_NOTIFICATION_STRUCTURE_SIZE: Final = 44
_LEASE_ACKNOWLEDGEMENT: Final = struct.Struct("<HHI16sIQ")
_LEASE_ACKNOWLEDGEMENT_STRUCTURE_SIZE: Final = 36
_ACKNOWLEDGEMENT_REQUIRED: Final = 0x1
_STRUCTURE_SIZE: Final = struct.Struct("<H")

_OPLOCKS: Final = {
    OPLOCK_LEVEL_II: Caching.READ,
    OPLOCK_EXCLUSIVE: Caching.READ | Caching.WRITE,
    OPLOCK_BATCH: Caching.READ | Caching.WRITE | Caching.HANDLE,
}
_LEVELS: Final = {caching: level for level, caching in _OPLOCKS.items()}


def caching_of_oplock(level: int) -> Caching:
    """Returns what a client with an oplock may cache; nothing for unknown levels."""
    return _OPLOCKS.get(level, Caching.NONE)


def oplock_of_caching(caching: Caching) -> int:
    return _LEVELS.get(caching, OPLOCK_NONE)


def lease_client(request: Request) -> bytes:
    """Returns what identifies a client, whose lease keys are its own. Clients choose their GUIDs,
    so that one account could use that of a client of another."""
    return request.negotiated.client_guid + request.session.account.encode("ascii")


# Notifications


def pack_oplock_break(level: int, file_id: int) -> bytes:
    """Returns the body of a notification, an acknowledgement or its response
    ([MS-SMB2] 2.2.23.1, 2.2.24.1, 2.2.25.1)."""
    return _OPLOCK.pack(_OPLOCK_STRUCTURE_SIZE, level, 0, file_id, file_id)


def pack_lease_break(
    key: bytes, current: Caching, left: Caching, *, is_awaited: bool, epoch: int
) -> bytes:
    """Returns the body of a notification ([MS-SMB2] 2.2.23.2). The epoch is 0 for a lease of the
    first version."""
    return _LEASE_NOTIFICATION.pack(
        _LEASE_NOTIFICATION_STRUCTURE_SIZE,
        epoch,
        _ACKNOWLEDGEMENT_REQUIRED if is_awaited else 0,
        key,
        lease_state(current),
        lease_state(left),
        0,
        0,
        0,
    )


class BreakNotifier:
    """Tells the client of an open that it may cache less.

    A break may come before the client has got the response to its CREATE. It is sent after that
    response then: the client would not know what it is about.
    """

    __slots__ = ("_early", "_file_id", "_send")

    def __init__(self, send: Callable[[bytes], None]) -> None:
        self._send = send
        self._file_id: int | None = None
        self._early: list[tuple[CacheGrant, Caching, Caching, bool]] = []

    def __call__(self, grant: CacheGrant, left: Caching, is_awaited: bool) -> None:
        if self._file_id is None:
            self._early.append((grant, grant.state, left, is_awaited))
        else:
            self._notify(self._file_id, grant, grant.state, left, is_awaited)

    def start(self, file_id: int) -> None:
        """Sends what has been held back, as soon as the current task has sent its response."""
        self._file_id = file_id
        if not self._early:
            return
        loop = asyncio.get_running_loop()
        for early in self._early:
            loop.call_soon(self._notify, file_id, *early)
        self._early.clear()

    def _notify(
        self, file_id: int, grant: CacheGrant, current: Caching, left: Caching, is_awaited: bool
    ) -> None:
        if grant.lease_key is None:
            body = pack_oplock_break(oplock_of_caching(left), file_id)
        else:
            epoch = grant.epoch if grant.is_v2 else 0
            body = pack_lease_break(
                grant.lease_key, current, left, is_awaited=is_awaited, epoch=epoch
            )
        self._send(body)


# Acknowledgements


async def oplock_break(request: Request) -> Reply:
    """Takes the acknowledgement of a break."""
    body = request.body
    if len(body) < _STRUCTURE_SIZE.size:
        raise SmbError(NtStatus.INVALID_PARAMETER)
    (size,) = _STRUCTURE_SIZE.unpack_from(body)
    if size == _OPLOCK_STRUCTURE_SIZE and len(body) >= _OPLOCK.size:
        return _acknowledge_oplock(request)
    if size == _LEASE_ACKNOWLEDGEMENT_STRUCTURE_SIZE and len(body) >= _LEASE_ACKNOWLEDGEMENT.size:
        return _acknowledge_lease(request)
    raise SmbError(NtStatus.INVALID_PARAMETER)


def _acknowledge_oplock(request: Request) -> Reply:
    """[MS-SMB2] 3.3.5.22.1."""
    _, level, _, persistent, volatile = _OPLOCK.unpack_from(request.body)
    opened = request.open(persistent, volatile)
    handle, client = opened.handle, opened.tree.client
    if handle is None or client is None or level not in (OPLOCK_NONE, OPLOCK_LEVEL_II):
        raise SmbError(NtStatus.INVALID_PARAMETER)
    client.acknowledge(handle, caching_of_oplock(level))
    return Reply(pack_oplock_break(level, opened.id))


def _acknowledge_lease(request: Request) -> Reply:
    """[MS-SMB2] 3.3.5.22.2."""
    _, _, _, key, state, _ = _LEASE_ACKNOWLEDGEMENT.unpack_from(request.body)
    client = request.tree.client
    if client is None:
        raise SmbError(NtStatus.OBJECT_NAME_NOT_FOUND)
    client.acknowledge_lease(lease_client(request), key, parse_lease_state(state))
    return Reply(
        _LEASE_ACKNOWLEDGEMENT.pack(_LEASE_ACKNOWLEDGEMENT_STRUCTURE_SIZE, 0, 0, key, state, 0)
    )
