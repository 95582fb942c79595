"""CLOSE ([MS-SMB2] 2.2.15, 2.2.16, 3.3.5.10)."""

from __future__ import annotations

import struct
from typing import Final

from etagere.engine.interface import Refused
from etagere.nt_status import NtStatus
from etagere.protocol.smb.information.files import network_open
from etagere.protocol.smb.requests import Reply, Request
from etagere.protocol.smb.state import remove_open
from etagere.protocol.smb.status import SmbError

_REQUEST: Final = struct.Struct("<HH4xQQ")
_RESPONSE_HEAD: Final = struct.Struct("<HH4x")
_STRUCTURE_SIZE: Final = 60
_POSTQUERY_ATTRIBUTES: Final = 0x1
_NO_ATTRIBUTES: Final = bytes(52)


async def close(request: Request) -> Reply:
    """Closes an open; returns the attributes of its entry if the client asks for them."""
    if len(request.body) < _REQUEST.size:
        raise SmbError(NtStatus.INVALID_PARAMETER)
    _, flags, persistent, volatile = _REQUEST.unpack_from(request.body)
    opened = request.open(persistent, volatile)
    handle, client = opened.handle, opened.tree.client
    # From now on other requests do not find it.
    remove_open(opened)
    if handle is None or client is None:
        return Reply(_RESPONSE_HEAD.pack(_STRUCTURE_SIZE, 0) + _NO_ATTRIBUTES)
    shown = b""
    try:
        if flags & _POSTQUERY_ATTRIBUTES:
            shown = network_open(await client.get_entry(handle), opened.allocation)
    except Refused:
        # The entry cannot be found any more. The handle is closed nevertheless.
        pass
    finally:
        await client.close(handle)
    flags = _POSTQUERY_ATTRIBUTES if shown else 0
    return Reply(_RESPONSE_HEAD.pack(_STRUCTURE_SIZE, flags) + (shown or _NO_ATTRIBUTES))
