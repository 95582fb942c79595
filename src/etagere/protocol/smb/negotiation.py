"""NEGOTIATE: the dialect of a connection, and what goes with it.

[MS-SMB2] 2.2.3, 2.2.4, 3.3.5.3 and 3.3.5.4.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Collection, Iterator, Sequence
from typing import Final, NamedTuple

from etagere.nt_status import NtStatus
from etagere.protocol.smb.dialects import DIALECT_3_0, DIALECT_3_1_1, DIALECTS
from etagere.protocol.smb.encryption import Cipher
from etagere.protocol.smb.filetimes import to_filetime
from etagere.protocol.smb.header import HEADER_BYTES
from etagere.protocol.smb.limits import IO_BYTES_MAX
from etagere.protocol.smb.signing import SigningAlgorithm
from etagere.protocol.smb.state import Negotiated
from etagere.protocol.smb.status import Disconnect, SmbError

NEGOTIATE_STRUCTURE_SIZE: Final = 36
_RESPONSE_STRUCTURE_SIZE: Final = 65
_DIALECTS_MAX: Final = 64
_CONTEXTS_MAX: Final = 64
_ALGORITHMS_MAX: Final = 64
SALT_BYTES: Final = 32

_REQUEST: Final = struct.Struct("<HHHHI16sIHH")
_RESPONSE: Final = struct.Struct("<HHHH16sIIIIQQHHI")
_CONTEXT: Final = struct.Struct("<HHI")
_VALIDATE_REQUEST: Final = struct.Struct("<I16sHH")
_VALIDATE_RESPONSE: Final = struct.Struct("<I16sHH")


class SecurityMode(enum.IntFlag):
    SIGNING_ENABLED = 0x0001
    SIGNING_REQUIRED = 0x0002


class Capability(enum.IntFlag):
    """[MS-SMB2] 2.2.4. Not offered: DFS, multiple channels, persistent handles, and leases of
    directories."""

    LEASING = 0x0002
    LARGE_MTU = 0x0004
    ENCRYPTION = 0x0040


class ContextType(enum.IntEnum):
    PREAUTH_INTEGRITY = 0x0001
    ENCRYPTION = 0x0002
    SIGNING = 0x0008


_SHA512: Final = 0x0001
_CIPHERS: Final = (Cipher.AES_128_GCM, Cipher.AES_256_GCM, Cipher.AES_128_CCM)
"""The fastest first."""
_SIGNING_ALGORITHMS: Final = (
    SigningAlgorithm.AES_GMAC,
    SigningAlgorithm.AES_CMAC,
    SigningAlgorithm.HMAC_SHA256,
)


class NegotiateRequest(NamedTuple):
    security_mode: int
    capabilities: int
    client_guid: bytes
    dialects: tuple[int, ...]
    contexts: tuple[tuple[int, memoryview], ...] = ()
    """Type and data of each negotiate context."""


def parse_negotiate(message: memoryview) -> NegotiateRequest:
    """Parses a request, from its header on."""
    body = message[HEADER_BYTES:]
    if len(body) < _REQUEST.size:
        raise SmbError(NtStatus.INVALID_PARAMETER)
    size, count, mode, _, capabilities, guid, context_offset, context_count, _ = (
        _REQUEST.unpack_from(body)
    )
    if size != NEGOTIATE_STRUCTURE_SIZE or not 1 <= count <= _DIALECTS_MAX:
        raise SmbError(NtStatus.INVALID_PARAMETER)
    dialects = _uint16s(body, _REQUEST.size, count)
    contexts: tuple[tuple[int, memoryview], ...] = ()
    if DIALECT_3_1_1 in dialects:
        contexts = tuple(_contexts(message, context_offset, context_count))
    return NegotiateRequest(mode, capabilities, guid, dialects, contexts)


def _uint16s(data: memoryview, offset: int, count: int) -> tuple[int, ...]:
    if offset + 2 * count > len(data):
        raise SmbError(NtStatus.INVALID_PARAMETER)
    return struct.unpack_from(f"<{count}H", data, offset)


def _contexts(message: memoryview, offset: int, count: int) -> Iterator[tuple[int, memoryview]]:
    if count > _CONTEXTS_MAX or offset < HEADER_BYTES:
        raise SmbError(NtStatus.INVALID_PARAMETER)
    for _ in range(count):
        if offset + _CONTEXT.size > len(message):
            raise SmbError(NtStatus.INVALID_PARAMETER)
        kind, length, _ = _CONTEXT.unpack_from(message, offset)
        start = offset + _CONTEXT.size
        if start + length > len(message):
            raise SmbError(NtStatus.INVALID_PARAMETER)
        yield kind, message[start : start + length]
        offset = start + (length + 7 & ~7)


def security_mode(*, requires_signing: bool) -> int:
    """Returns the security mode of the server."""
    required = SecurityMode.SIGNING_REQUIRED if requires_signing else 0
    return SecurityMode.SIGNING_ENABLED | required


def negotiate(request: NegotiateRequest, *, requires_signing: bool) -> Negotiated:
    """Chooses the dialect and the algorithms of a connection."""
    dialect = next((one for one in DIALECTS if one in request.dialects), None)
    if dialect is None:
        raise SmbError(NtStatus.NOT_SUPPORTED)
    cipher: int | None = None
    signing = SigningAlgorithm.HMAC_SHA256 if dialect < DIALECT_3_0 else SigningAlgorithm.AES_CMAC
    if dialect == DIALECT_3_1_1:
        found = _by_type(request.contexts)
        _check_preauth_integrity(found.get(ContextType.PREAUTH_INTEGRITY))
        cipher = _choose(found.get(ContextType.ENCRYPTION), _CIPHERS)
        chosen = _choose(found.get(ContextType.SIGNING), _SIGNING_ALGORITHMS)
        signing = signing if chosen is None else SigningAlgorithm(chosen)
    elif dialect >= DIALECT_3_0 and request.capabilities & Capability.ENCRYPTION:
        cipher = Cipher.AES_128_CCM
    capabilities = Capability.LEASING | Capability.LARGE_MTU
    if cipher is not None and dialect != DIALECT_3_1_1:
        capabilities |= Capability.ENCRYPTION
    return Negotiated(
        dialect,
        request.client_guid,
        request.security_mode,
        request.capabilities,
        request.dialects,
        security_mode(requires_signing=requires_signing),
        int(capabilities),
        cipher,
        int(signing),
    )


def _by_type(contexts: Sequence[tuple[int, memoryview]]) -> dict[int, memoryview]:
    """Returns the contexts that the server knows. No type may occur twice."""
    known = {kind: data for kind, data in contexts if kind in ContextType.__members__.values()}
    if len(known) < sum(kind in known for kind, _ in contexts):
        raise SmbError(NtStatus.INVALID_PARAMETER)
    return known


def _check_preauth_integrity(data: memoryview | None) -> None:
    if data is None or len(data) < 4:
        raise SmbError(NtStatus.INVALID_PARAMETER)
    count, _salt_length = struct.unpack_from("<HH", data)
    if not 1 <= count <= _ALGORITHMS_MAX:
        raise SmbError(NtStatus.INVALID_PARAMETER)
    if _SHA512 not in _uint16s(data, 4, count):
        raise SmbError(NtStatus.NO_PREAUTH_INTEGRITY_HASH_OVERLAP)


def _choose(data: memoryview | None, preferred: Sequence[int]) -> int | None:
    """Returns the preferred one of the algorithms in a context; None if there is none."""
    if data is None:
        return None
    if len(data) < 2:
        raise SmbError(NtStatus.INVALID_PARAMETER)
    (count,) = struct.unpack_from("<H", data)
    if not 1 <= count <= _ALGORITHMS_MAX:
        raise SmbError(NtStatus.INVALID_PARAMETER)
    offered = _uint16s(data, 2, count)
    return next((one for one in preferred if one in offered), None)


def negotiate_response(
    negotiated: Negotiated,
    asked: Collection[int],
    *,
    server_guid: bytes,
    now: int,
    token: bytes,
    salt: bytes,
) -> bytes:
    """Returns the body of the response. `asked` are the types of the client's contexts; `now` is in
    ticks since 1970; `token` is the first message of the authentication; `salt` is random."""
    contexts: list[bytes] = []
    if negotiated.dialect == DIALECT_3_1_1:
        contexts = _response_contexts(negotiated, asked, salt)
    token_offset = HEADER_BYTES + _RESPONSE.size
    tail = token
    context_offset = 0
    if contexts:
        tail += bytes(-(token_offset + len(token)) % 8)
        context_offset = token_offset + len(tail)
        tail += b"".join(contexts)
    fixed = _RESPONSE.pack(
        _RESPONSE_STRUCTURE_SIZE,
        negotiated.security_mode,
        negotiated.dialect,
        len(contexts),
        server_guid,
        negotiated.capabilities,
        IO_BYTES_MAX,
        IO_BYTES_MAX,
        IO_BYTES_MAX,
        to_filetime(now),
        0,  # the start of the server, which clients must not use
        token_offset,
        len(token),
        context_offset,
    )
    return fixed + tail


def _response_contexts(negotiated: Negotiated, asked: Collection[int], salt: bytes) -> list[bytes]:
    contexts = [(ContextType.PREAUTH_INTEGRITY, struct.pack("<HHH", 1, len(salt), _SHA512) + salt)]
    if ContextType.ENCRYPTION in asked:
        # 0: no cipher in common.
        contexts.append((ContextType.ENCRYPTION, struct.pack("<HH", 1, negotiated.cipher or 0)))
    if ContextType.SIGNING in asked:
        algorithm = struct.pack("<HH", 1, negotiated.signing_algorithm)
        contexts.append((ContextType.SIGNING, algorithm))
    packed = [_CONTEXT.pack(kind, len(data), 0) + data for kind, data in contexts]
    return [one + bytes(-len(one) % 8) for one in packed[:-1]] + packed[-1:]


def validate_negotiate(negotiated: Negotiated, server_guid: bytes, data: memoryview) -> bytes:
    """Returns the output of FSCTL_VALIDATE_NEGOTIATE_INFO ([MS-SMB2] 3.3.5.15.12). Raises
    `Disconnect` if somebody has changed the client's NEGOTIATE request on its way."""
    if len(data) < _VALIDATE_REQUEST.size:
        raise Disconnect("the data that validate the negotiation are too short")
    capabilities, guid, mode, count = _VALIDATE_REQUEST.unpack_from(data)
    if len(data) < _VALIDATE_REQUEST.size + 2 * count or negotiated.dialect == DIALECT_3_1_1:
        raise Disconnect("the validation of the negotiation is malformed")
    client = (
        capabilities,
        bytes(guid),
        mode,
        struct.unpack_from(f"<{count}H", data, _VALIDATE_REQUEST.size),
    )
    seen = (
        negotiated.client_capabilities,
        negotiated.client_guid,
        negotiated.client_security_mode,
        negotiated.client_dialects,
    )
    if client != seen:
        raise Disconnect("the negotiation was changed between client and server")
    return _VALIDATE_RESPONSE.pack(
        negotiated.capabilities, server_guid, negotiated.security_mode, negotiated.dialect
    )


# SMB1


_SMB1_HEADER_BYTES: Final = 32
_SMB1_NEGOTIATE: Final = 0x72
SMB1_PROTOCOL_ID: Final = b"\xffSMB"
_SMB1_WILDCARD: Final = b"SMB 2.???"
_SMB1_DIALECT_BYTES_MAX: Final = 4_096


def offers_smb2(message: memoryview) -> bool:
    """Returns whether an SMB1 message is a NEGOTIATE request of a client that also speaks SMB2.1 or
    later ([MS-SMB2] 3.3.5.3.1)."""
    if len(message) < _SMB1_HEADER_BYTES + 3 or message[4] != _SMB1_NEGOTIATE:
        return False
    words = message[_SMB1_HEADER_BYTES]
    start = _SMB1_HEADER_BYTES + 1 + 2 * words + 2
    dialects = bytes(message[start : start + _SMB1_DIALECT_BYTES_MAX])
    # Each is the byte 2, a text, and the byte 0.
    return b"\x02" + _SMB1_WILDCARD in dialects.split(b"\0")
