"""DCE/RPC over a named pipe ([C706] chapter 12, [MS-RPCE] 2.2.2): the connection-oriented protocol,
version 5.0, without authentication of its own.

One interface per pipe, with the NDR transfer syntax. Requests and responses may have several
fragments.
"""

from __future__ import annotations

import struct
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, NamedTuple
from uuid import UUID

from etagere.config import KIB, MIB
from etagere.nt_status import NtStatus
from etagere.protocol.smb.status import SmbError

FRAGMENT_BYTES_MAX: Final = 4_280
"""What the server receives and sends at most in one fragment, as Windows does."""
REQUEST_BYTES_MAX: Final = 64 * KIB
"""The maximum length of a request without its headers."""
UNREAD_BYTES_MAX: Final = 4 * MIB
"""The maximum length of responses that the client has not read."""
_FRAGMENT_BYTES_MIN: Final = 1_432
"""Every implementation must be able to receive fragments of this length."""
CONTEXTS_MAX: Final = 16
"""The maximum number of presentation contexts in a bind request."""

_REQUEST: Final = 0
_RESPONSE: Final = 2
_FAULT: Final = 3
_BIND: Final = 11
_BIND_ACK: Final = 12
_BIND_NAK: Final = 13
_ALTER_CONTEXT: Final = 14
_ALTER_CONTEXT_RESPONSE: Final = 15

_FIRST: Final = 0x01
_LAST: Final = 0x02
_OBJECT_UUID: Final = 0x80
_LITTLE_ENDIAN: Final = 0x10

_HEADER: Final = struct.Struct("<BBBBIHHI")
"""Version, minor version, type, flags, data representation, lengths of the fragment and of its
authentication, call ID."""
_BIND_HEAD: Final = struct.Struct("<HHIB3x")
_CONTEXT: Final = struct.Struct("<HBx16sHH")
_SYNTAX: Final = struct.Struct("<16sHH")
_REQUEST_HEAD: Final = struct.Struct("<IHH")
_RESPONSE_HEAD: Final = struct.Struct("<IHBx")
_FAULT_BODY: Final = struct.Struct("<IHBxI4x")
_RESULT: Final = struct.Struct("<HH16sI")

_NDR: Final = UUID("8a885d04-1ceb-11c9-9fe8-08002b104860").bytes_le
_NDR_VERSION: Final = 2
_ACCEPTED: Final = 0
_PROVIDER_REJECTION: Final = 2
_NO_SUCH_INTERFACE: Final = 1
_NO_SUCH_TRANSFER_SYNTAX: Final = 2
_NO_SYNTAX: Final = bytes(16)


class RpcFault(Exception):
    """Ends a call with a fault ([C706] appendix E)."""

    def __init__(self, status: int) -> None:
        super().__init__(f"0x{status:08x}")
        self.status = status


UNKNOWN_OPERATION: Final = 0x1C01_0002
"""nca_op_rng_error"""
UNKNOWN_CONTEXT: Final = 0x1C01_0003
"""nca_unk_if"""
BAD_STUB_DATA: Final = 0x0000_06F7
"""RPC_X_BAD_STUB_DATA"""
PROTOCOL_ERROR: Final = 0x1C01_000B
"""nca_proto_error"""

Call = Callable[[memoryview], Awaitable[bytes]]
"""Carries out an operation: gets the marshalled parameters and returns the results. Raises
`RpcFault`."""


class Interface(NamedTuple):
    """An interface and its operations, by number."""

    name: str
    """The name of its pipe."""
    uuid: bytes
    version: int
    calls: Mapping[int, Call]


class _Fragment(NamedTuple):
    type: int
    flags: int
    call_id: int
    body: memoryview

    @property
    def is_first(self) -> bool:
        return bool(self.flags & _FIRST)

    @property
    def is_last(self) -> bool:
        return bool(self.flags & _LAST)


def _parse_fragment(data: memoryview) -> _Fragment:
    """Returns the fragment at the start of the data, without authentication."""
    if len(data) < _HEADER.size:
        raise SmbError(NtStatus.INVALID_PARAMETER)
    version, minor, kind, flags, order, length, auth_length, call_id = _HEADER.unpack_from(data)
    is_known = version == 5 and minor <= 1 and order & 0xFF == _LITTLE_ENDIAN
    if not is_known or auth_length or not _HEADER.size <= length <= len(data):
        raise SmbError(NtStatus.INVALID_PARAMETER)
    return _Fragment(kind, flags, call_id, data[_HEADER.size : length])


class RpcPipe:
    """An open pipe: takes requests and keeps their responses until they are read."""

    def __init__(self, interface: Interface) -> None:
        self._interface = interface
        self._contexts: set[int] = set()
        """The presentation contexts that were accepted."""
        self._fragment_bytes_max = _FRAGMENT_BYTES_MIN
        """What the client can receive."""
        self._is_bound = False
        self._request = bytearray()
        self._request_head: tuple[int, int, int] | None = None
        """Call ID, context and operation of a request whose last fragment has not come."""
        self._messages: list[bytes] = []
        """The fragments of responses that have not been read."""
        self._unread = 0

    async def write(self, data: bytes | memoryview) -> None:
        """Takes one or more fragments of the client."""
        rest = memoryview(data)
        while rest:
            fragment = _parse_fragment(rest)
            rest = rest[_HEADER.size + len(fragment.body) :]
            await self._take(fragment)

    def read(self, length: int) -> tuple[bytes, bool]:
        """Returns bytes of the first fragment that was not read, and whether it has more."""
        if not self._messages:
            return b"", False
        message = self._messages[0]
        data, left = message[:length], message[length:]
        self._unread -= len(data)
        if left:
            self._messages[0] = left
        else:
            del self._messages[0]
        return data, bool(left)

    async def _take(self, fragment: _Fragment) -> None:
        if fragment.type == _REQUEST:
            await self._take_request(fragment)
        elif fragment.type == _BIND and not self._is_bound:
            self._bind(fragment, _BIND_ACK)
        elif fragment.type == _ALTER_CONTEXT and self._is_bound:
            self._bind(fragment, _ALTER_CONTEXT_RESPONSE)
        else:
            self._fail(fragment.call_id, PROTOCOL_ERROR)

    # Bind

    def _bind(self, fragment: _Fragment, answer: int) -> None:
        """Answers every presentation context by itself: clients offer transfer syntaxes that the
        server does not have, and one that only states their features."""
        body = fragment.body
        if len(body) < _BIND_HEAD.size:
            raise SmbError(NtStatus.INVALID_PARAMETER)
        _, receive_max, _, count = _BIND_HEAD.unpack_from(body)
        if not 1 <= count <= CONTEXTS_MAX:
            self._send(_BIND_NAK, fragment.call_id, struct.pack("<HB", 0, 0))
            return
        results, offset = [], _BIND_HEAD.size
        for _ in range(count):
            result, offset = self._accept_context(body, offset)
            results.append(result)
        self._is_bound = True
        self._fragment_bytes_max = min(max(receive_max, _FRAGMENT_BYTES_MIN), FRAGMENT_BYTES_MAX)
        address = f"\\PIPE\\{self._interface.name}\0".encode()
        head = struct.pack("<HHIH", self._fragment_bytes_max, FRAGMENT_BYTES_MAX, 1, len(address))
        head += address
        head += bytes(-(_HEADER.size + len(head)) % 4)
        self._send(answer, fragment.call_id, head + struct.pack("<B3x", count) + b"".join(results))

    def _accept_context(self, body: memoryview, offset: int) -> tuple[bytes, int]:
        """Returns the result of a presentation context, and where the next one starts."""
        if offset + _CONTEXT.size > len(body):
            raise SmbError(NtStatus.INVALID_PARAMETER)
        context_id, syntaxes, uuid, major, _minor = _CONTEXT.unpack_from(body, offset)
        offset += _CONTEXT.size
        end = offset + syntaxes * _SYNTAX.size
        if end > len(body):
            raise SmbError(NtStatus.INVALID_PARAMETER)
        offered = {_SYNTAX.unpack_from(body, at)[:2] for at in range(offset, end, _SYNTAX.size)}
        reason = 0
        if (uuid, major) != (self._interface.uuid, self._interface.version):
            reason = _NO_SUCH_INTERFACE
        elif (_NDR, _NDR_VERSION) not in offered:
            reason = _NO_SUCH_TRANSFER_SYNTAX
        if reason:
            return _RESULT.pack(_PROVIDER_REJECTION, reason, _NO_SYNTAX, 0), end
        if len(self._contexts) >= CONTEXTS_MAX and context_id not in self._contexts:
            raise SmbError(NtStatus.INSUFFICIENT_RESOURCES)
        self._contexts.add(context_id)
        return _RESULT.pack(_ACCEPTED, 0, _NDR, _NDR_VERSION), end

    # Calls

    async def _take_request(self, fragment: _Fragment) -> None:
        body = fragment.body
        if len(body) < _REQUEST_HEAD.size:
            raise SmbError(NtStatus.INVALID_PARAMETER)
        _, context_id, number = _REQUEST_HEAD.unpack_from(body)
        start = _REQUEST_HEAD.size + (16 if fragment.flags & _OBJECT_UUID else 0)
        head = (fragment.call_id, context_id, number)
        if fragment.is_first:
            self._request.clear()
            self._request_head = head
        if head != self._request_head or start > len(body):
            self._fail(fragment.call_id, PROTOCOL_ERROR)
            return
        if len(self._request) + len(body) - start > REQUEST_BYTES_MAX:
            self._request.clear()
            raise SmbError(NtStatus.INSUFFICIENT_RESOURCES)
        self._request += body[start:]
        if not fragment.is_last:
            return
        parameters = memoryview(bytes(self._request))
        self._request.clear()
        self._request_head = None
        try:
            results = await self._call(context_id, number, parameters)
        except RpcFault as fault:
            self._fail(fragment.call_id, fault.status, context_id)
        else:
            self._respond(fragment.call_id, context_id, results)

    async def _call(self, context_id: int, number: int, parameters: memoryview) -> bytes:
        if context_id not in self._contexts:
            raise RpcFault(UNKNOWN_CONTEXT)
        call = self._interface.calls.get(number)
        if call is None:
            raise RpcFault(UNKNOWN_OPERATION)
        return await call(parameters)

    def _respond(self, call_id: int, context_id: int, results: bytes) -> None:
        room = self._fragment_bytes_max - _HEADER.size - _RESPONSE_HEAD.size
        room -= room % 8
        for start in range(0, max(len(results), 1), room):
            flags = (_FIRST if not start else 0) | (_LAST if start + room >= len(results) else 0)
            head = _RESPONSE_HEAD.pack(len(results) - start, context_id, 0)
            self._send(_RESPONSE, call_id, head + results[start : start + room], flags)

    def _fail(self, call_id: int, status: int, context_id: int = 0) -> None:
        self._send(_FAULT, call_id, _FAULT_BODY.pack(0, context_id, 0, status))

    def _send(self, kind: int, call_id: int, body: bytes, flags: int = _FIRST | _LAST) -> None:
        length = _HEADER.size + len(body)
        if self._unread + length > UNREAD_BYTES_MAX:
            raise SmbError(NtStatus.INSUFFICIENT_RESOURCES)
        head = _HEADER.pack(5, 0, kind, flags, _LITTLE_ENDIAN, length, 0, call_id)
        self._messages.append(head + body)
        self._unread += length
