"""SMB leases that a test client holds: requested, broken and acknowledged."""

from __future__ import annotations

import os
import struct
from typing import Any, NamedTuple

from smbprotocol.create_contexts import (
    CreateContextName,
    SMB2CreateContextRequest,
    SMB2CreateRequestLease,
    SMB2CreateResponseLease,
)
from smbprotocol.open import Open

from etagere.protocol.smb.header import Command
from tests.smb.client import SmbClient
from tests.smb.messages import Message

R, H, W = 1, 2, 4
"""The bits of a lease state ([MS-SMB2] 2.2.13.2.8)."""
LEASE = 0xFF
"""The oplock level that asks for a lease."""
_READ_ATTRIBUTES = 0x80
_NOTIFICATION = struct.Struct("<HHI16sIIIII")


class LeaseBreak(NamedTuple):
    """What a notification says."""

    key: bytes
    held: int
    left: int
    is_awaited: bool


def parse_break(body: bytes) -> LeaseBreak:
    size, _, flags, key, held, left, *_ = _NOTIFICATION.unpack(body)
    assert size == _NOTIFICATION.size
    return LeaseBreak(key, held, left, bool(flags & 1))


class Lease:
    """A lease of one client on one file."""

    def __init__(self, client: SmbClient, name: str) -> None:
        self.key = os.urandom(16)
        self._client = client
        self._name = name

    def open(self, state: int, access: int, **options: Any) -> Open:
        """Opens the file with the lease; the client must get all that it asks for."""
        opened, granted = self._open(state, access, **options)
        assert granted == state
        return opened

    def state(self) -> int:
        """Returns the state of the lease at the server."""
        opened, granted = self._open(0, _READ_ATTRIBUTES)
        opened.close()
        return granted

    def _open(self, state: int, access: int, **options: Any) -> tuple[Open, int]:
        asked = SMB2CreateRequestLease()
        asked["lease_key"], asked["lease_state"] = self.key, state
        context = SMB2CreateContextRequest()
        context["buffer_name"] = CreateContextName.SMB2_CREATE_REQUEST_LEASE
        context["buffer_data"] = asked
        opened = self._client.open(self._name, access, oplock=LEASE, contexts=[context], **options)
        (granted,) = (one for one in opened.contexts if isinstance(one, SMB2CreateResponseLease))
        return opened, granted["lease_state"].get_value()

    def acknowledge(self, state: int) -> None:
        tree = self._client.tree
        body = struct.pack("<HHI16sIQ", 36, 0, 0, self.key, state, 0)
        request = tree.session.connection.send(
            Message(Command.OPLOCK_BREAK, body), tree.session.session_id, tree.tree_connect_id
        )
        tree.session.connection.receive(request)
