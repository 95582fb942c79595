"""Bodies of responses that several commands have in common."""

from __future__ import annotations

import struct
from typing import Final

from etagere.nt_status import NtStatus
from etagere.protocol.smb.header import HEADER_BYTES
from etagere.protocol.smb.requests import Reply

_BUFFER: Final = struct.Struct("<HHI")
"""Structure size, offset and length of the buffer ([MS-SMB2] 2.2.34, 2.2.36, 2.2.38)."""
_BUFFER_OFFSET: Final = HEADER_BYTES + _BUFFER.size

EMPTY_REPLY: Final = Reply(struct.pack("<HH", 4, 0))
"""The reply to ECHO, FLUSH, LOCK, LOGOFF and TREE_DISCONNECT."""


def with_buffer(data: bytes | bytearray, status: NtStatus = NtStatus.SUCCESS) -> Reply:
    """Returns the reply to QUERY_INFO, QUERY_DIRECTORY or CHANGE_NOTIFY."""
    offset = _BUFFER_OFFSET if data else 0
    return Reply(_BUFFER.pack(9, offset, len(data)), status, data)
