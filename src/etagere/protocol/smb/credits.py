"""Credits: which message IDs a client may use, and how many each request takes.

[MS-SMB2] 3.3.1.1, 3.3.1.2 and 3.3.5.2.5.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Final

from etagere.protocol.smb.header import Command

CREDITS_MAX: Final = 8_192
"""The most message IDs that a connection may have at a time, used or not."""
CREDIT_BYTES: Final = 65_536
"""The payload that one credit pays for."""
_MESSAGE_ID_END: Final = 0xFFFF_FFFF_FFFF_FFFF


class SequenceWindow:
    """The message IDs that a client may use, each of them once."""

    __slots__ = ("_end", "_low", "_used")

    def __init__(self) -> None:
        self._low = 0
        """The lowest ID that has not been used."""
        self._end = 1
        self._used: set[int] = set()
        """The used IDs above the lowest one that has not been used."""

    def take(self, message_id: int, charge: int) -> bool:
        """Uses IDs, from `message_id` on; returns whether the client may use them all."""
        end = message_id + charge
        if message_id < self._low or end > self._end:
            return False
        used = self._used
        if message_id == self._low and not used:
            self._low = end
            return True
        taken = range(message_id, end)
        if not used.isdisjoint(taken):
            return False
        used.update(taken)
        while self._low in used:
            used.remove(self._low)
            self._low += 1
        return True

    def grant(self, asked: int, charge: int) -> int:
        """Grants IDs for those that a request has used and for those that the client asks for;
        returns how many. The window ends at an ID that the client leaves out, so that it cannot
        grow."""
        wanted = charge + max(asked, 1) - 1
        room = min(CREDITS_MAX, _MESSAGE_ID_END - 1 - self._low) - (self._end - self._low)
        granted = min(wanted, room)
        self._end += granted
        return granted


_UINT32: Final = struct.Struct("<I")
_LENGTHS_AT: Final[Mapping[int, tuple[tuple[int, ...], tuple[int, ...]]]] = {
    Command.READ: ((), (4,)),
    Command.WRITE: ((4,), ()),
    Command.QUERY_DIRECTORY: ((), (28,)),
    Command.CHANGE_NOTIFY: ((), (4,)),
    Command.QUERY_INFO: ((12,), (4,)),
    Command.SET_INFO: ((4,), ()),
    Command.IOCTL: ((28, 40), (32, 44)),
}
"""Where the body of a request has the lengths of what is sent, and of what may be returned."""


def payload_bytes(command: int, body: memoryview) -> tuple[int, int]:
    """Returns how many bytes a request sends, and how many it asks for at most. The body has at
    least the length of the fixed part of the request."""
    at = _LENGTHS_AT.get(command)
    if at is None:
        return 0, 0
    sent, asked = at
    return (
        sum([_UINT32.unpack_from(body, offset)[0] for offset in sent]),
        sum([_UINT32.unpack_from(body, offset)[0] for offset in asked]),
    )


def needed_charge(payload: int) -> int:
    """Returns the credits that a request with this much payload takes."""
    return max(payload - 1, 0) // CREDIT_BYTES + 1
