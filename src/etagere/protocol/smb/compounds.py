"""Compounds: several messages in one frame ([MS-SMB2] 3.3.4.1.3 and 3.3.5.2.7)."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final, NamedTuple

from etagere.nt_status import NtStatus
from etagere.protocol.smb.buffers import Buffer
from etagere.protocol.smb.header import HEADER_BYTES, Header, parse_header
from etagere.protocol.smb.limits import COMPOUND_MESSAGES_MAX
from etagere.protocol.smb.requests import Reply
from etagere.protocol.smb.status import Disconnect

if TYPE_CHECKING:
    from etagere.protocol.smb.signing import Signer
    from etagere.protocol.smb.state import Open

_ALIGNMENT: Final = 8
_NEXT_COMMAND_AT: Final = 20
_UINT32: Final = struct.Struct("<I")
# [MS-SMB2] 2.2.2
_ERROR: Final = struct.Struct("<HBBI")
_ERROR_STRUCTURE_SIZE: Final = 9
_ERROR_CONTEXT: Final = struct.Struct("<II")
_NO_ERROR_DATA: Final = _ERROR.pack(_ERROR_STRUCTURE_SIZE, 0, 0, 0) + b"\0"


class Message(NamedTuple):
    """A message of a frame."""

    header: Header
    data: memoryview
    """From its header to the next message, with the padding: this is what its signature covers."""


def split(frame: memoryview) -> list[Message]:
    """Returns the messages of a frame; raises `Disconnect` if it is malformed."""
    messages: list[Message] = []
    rest = frame
    while True:
        header = parse_header(rest)
        if header is None:
            raise Disconnect("a message has no SMB2 header")
        following = header.next_command
        if not following:
            messages.append(Message(header, rest))
            return messages
        if following < HEADER_BYTES or following % _ALIGNMENT or following >= len(rest):
            raise Disconnect("the offset of the next message is invalid")
        if len(messages) == COMPOUND_MESSAGES_MAX:
            raise Disconnect("a compound has too many messages")
        messages.append(Message(header, rest[:following]))
        rest = rest[following:]


class CompoundContext:
    """What a message passes on to the related message that follows it."""

    __slots__ = ("create_status", "is_invalid", "opened", "session_id", "tree_id")

    def __init__(self) -> None:
        self.reset(0, 0)

    def reset(self, session_id: int, tree_id: int) -> None:
        """Begins with a message that is not related to the one before it."""
        self.session_id = session_id
        self.tree_id = tree_id
        self.opened: Open | None = None
        """The open that the last message with a file ID has referred to, or created."""
        self.create_status: NtStatus | None = None
        """Why there is no such open."""
        self.is_invalid = False
        """Whether nothing can be related to the message."""


def error_reply(status: NtStatus, data: bytes = b"", *, with_contexts: bool = False) -> Reply:
    """Returns an error response. In 3.1.1, `data` is in an error context ([MS-SMB2] 2.2.2.1)."""
    if not data:
        return Reply(_NO_ERROR_DATA, status)
    if with_contexts:
        data = _ERROR_CONTEXT.pack(len(data), 0) + data
    fixed = _ERROR.pack(_ERROR_STRUCTURE_SIZE, int(with_contexts), 0, len(data))
    return Reply(fixed + data, status)


def pack_message(
    header: Header, reply: Reply, *, is_last: bool = True, signer: Signer | None = None
) -> list[Buffer]:
    """Returns the buffers of a response; the first one has the header and the body. The payload is
    not copied."""
    message = bytearray(header.pack())
    message += reply.body
    payload = reply.payload
    rest: tuple[Buffer, ...] = (payload,) if payload else ()
    if not is_last:
        padding = bytes(-(len(message) + len(payload)) % _ALIGNMENT)
        if padding:
            rest = (*rest, padding)
        following = len(message) + sum(map(len, rest))
        _UINT32.pack_into(message, _NEXT_COMMAND_AT, following)
    if signer is not None:
        signer.sign(message, *rest)
    return [message, *rest]
