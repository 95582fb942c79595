"""The server's side of NTLMv2 ([MS-NLMP]).

A logon takes three messages: NEGOTIATE from the client, CHALLENGE, and AUTHENTICATE with the proof
that the client knows the password. NTLMv1, LM and anonymous logons are refused, and so are clients
without Unicode or extended session security, which every client since Windows 2000 has.
"""

from __future__ import annotations

import hashlib
import hmac
import struct
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from cryptography.hazmat.decrepit.ciphers.algorithms import ARC4
from cryptography.hazmat.primitives.ciphers import Cipher

from etagere.protocol.smb.filetimes import to_filetime
from etagere.protocol.smb.md4 import md4

SIGNATURE: Final = b"NTLMSSP\0"

# [MS-NLMP] 2.2.2.5
NEGOTIATE_UNICODE: Final = 0x0000_0001
REQUEST_TARGET: Final = 0x0000_0004
NEGOTIATE_SIGN: Final = 0x0000_0010
NEGOTIATE_SEAL: Final = 0x0000_0020
NEGOTIATE_NTLM: Final = 0x0000_0200
NEGOTIATE_ALWAYS_SIGN: Final = 0x0000_8000
TARGET_TYPE_SERVER: Final = 0x0002_0000
NEGOTIATE_EXTENDED_SESSION_SECURITY: Final = 0x0008_0000
NEGOTIATE_TARGET_INFO: Final = 0x0080_0000
NEGOTIATE_VERSION: Final = 0x0200_0000
NEGOTIATE_128: Final = 0x2000_0000
NEGOTIATE_KEY_EXCH: Final = 0x4000_0000
NEGOTIATE_56: Final = 0x8000_0000

_REQUIRED: Final = NEGOTIATE_UNICODE | NEGOTIATE_EXTENDED_SESSION_SECURITY
_ACCEPTED: Final = (
    NEGOTIATE_SIGN
    | NEGOTIATE_SEAL
    | NEGOTIATE_ALWAYS_SIGN
    | NEGOTIATE_VERSION
    | NEGOTIATE_128
    | NEGOTIATE_KEY_EXCH
    | NEGOTIATE_56
)
"""What the server does if the client asks for it."""
_ALWAYS: Final = (
    _REQUIRED | REQUEST_TARGET | NEGOTIATE_NTLM | TARGET_TYPE_SERVER | NEGOTIATE_TARGET_INFO
)

# [MS-NLMP] 2.2.2.1
_AV_END: Final = 0
_AV_NETBIOS_COMPUTER_NAME: Final = 1
_AV_NETBIOS_DOMAIN_NAME: Final = 2
_AV_DNS_COMPUTER_NAME: Final = 3
_AV_DNS_DOMAIN_NAME: Final = 4
_AV_FLAGS: Final = 6
_AV_TIMESTAMP: Final = 7
_AV_FLAG_HAS_MIC: Final = 0x0000_0002

_NEGOTIATE: Final = struct.Struct("<8sII")
_CHALLENGE: Final = struct.Struct("<8sIHHII8s8xHHI8s")
_AUTHENTICATE: Final = struct.Struct("<8sI48xI")
_FIELD: Final = struct.Struct("<HHI")
_AV_PAIR: Final = struct.Struct("<HH")
_FLAGS: Final = struct.Struct("<I")
_TIMESTAMP: Final = struct.Struct("<Q")
_MAC: Final = struct.Struct("<I8sI")

_NT_RESPONSE_AT: Final = 20
_DOMAIN_AT: Final = 28
_USER_AT: Final = 36
_WORKSTATION_AT: Final = 44
_SESSION_KEY_AT: Final = 52
_MIC: Final = slice(72, 88)

# A version as Windows 10 sends it: clients only log it ([MS-NLMP] 2.2.2.10).
_VERSION: Final = b"\x0a\x00\x00\x00\x00\x00\x00\x0f"

CHALLENGE_BYTES: Final = 8
KEY_BYTES: Final = 16
_PROOF_BYTES: Final = 16
_BLOB_HEAD_BYTES: Final = 28
"""What precedes the AV pairs in an NTLMv2_CLIENT_CHALLENGE ([MS-NLMP] 2.2.2.7)."""

NEGOTIATE_BYTES_MAX: Final = 2048
"""The NEGOTIATE message is kept until the client has authenticated."""
NAME_CHARACTERS_MAX: Final = 256


class LogonFailed(Exception):
    """A logon that is refused. The text is for the log; the client learns nothing."""


class Logon(NamedTuple):
    """A logon that has succeeded."""

    user: str
    """In lower case, as account names are."""
    workstation: str
    """What the client calls itself; printable characters only."""
    password: str
    """The one of the passwords that the client knows."""
    session_key: bytes


class MessageAuthenticator:
    """Message authentication codes with a session key ([MS-NLMP] 3.4.4.2)."""

    def __init__(self, session_key: bytes, flags: int) -> None:
        self._incoming = _Direction(session_key, flags, b"client-to-server")
        self._outgoing = _Direction(session_key, flags, b"server-to-client")

    def verify(self, message: bytes, code: bytes) -> bool:
        """Returns whether a code of the client is right for its next message."""
        return hmac.compare_digest(self._incoming.code(message), code)

    def sign(self, message: bytes) -> bytes:
        """Returns the code for the next message of the server."""
        return self._outgoing.code(message)


class _Direction:
    """The keys and the sequence number of one direction."""

    def __init__(self, session_key: bytes, flags: int, name: bytes) -> None:
        weakened = session_key
        if not flags & NEGOTIATE_128:
            weakened = session_key[: 7 if flags & NEGOTIATE_56 else 5]
        purpose = b"session key to " + name + b" %s key magic constant\0"
        self._signing_key = _md5(session_key + purpose % b"signing")
        sealing_key = _md5(weakened + purpose % b"sealing")
        self._cipher = Cipher(ARC4(sealing_key), mode=None).encryptor()
        self._seals = bool(flags & NEGOTIATE_KEY_EXCH)
        self._sequence = 0

    def code(self, message: bytes) -> bytes:
        numbered = _FLAGS.pack(self._sequence) + message
        checksum = _hmac_md5(self._signing_key, numbered)[:8]
        if self._seals:
            checksum = self._cipher.update(checksum)
        code = _MAC.pack(1, checksum, self._sequence)
        self._sequence += 1
        return code


class AuthenticateMessage(NamedTuple):
    """What the server reads in an AUTHENTICATE message ([MS-NLMP] 2.2.1.3)."""

    raw: bytes
    flags: int
    nt_response: bytes
    domain: str
    user: str
    workstation: str
    encrypted_session_key: bytes


class NtlmAcceptor:
    """One logon: `challenge`, then `parse` and `check`."""

    def __init__(self, challenge: bytes, target_name: str, now: int | None) -> None:
        """`challenge` is random. `now` is the time in ticks since 1970; clients that get it protect
        the three messages with a MIC."""
        if len(challenge) != CHALLENGE_BYTES:
            raise ValueError(f"a challenge has {CHALLENGE_BYTES} bytes")
        self._challenge = challenge
        self._target_name = target_name
        self._now = now
        self._negotiate_message = b""
        self._challenge_message = b""
        self._flags = 0

    def challenge(self, negotiate: bytes) -> bytes:
        """Returns the CHALLENGE message for a NEGOTIATE message ([MS-NLMP] 2.2.1.2)."""
        flags = _parse_negotiate(negotiate)
        self._flags = _ALWAYS | flags & _ACCEPTED
        name = self._target_name.encode("utf-16-le")
        info = _target_info(self._target_name, self._now)
        at = _CHALLENGE.size
        self._negotiate_message = negotiate
        self._challenge_message = (
            _CHALLENGE.pack(
                SIGNATURE,
                2,
                len(name),
                len(name),
                at,
                self._flags,
                self._challenge,
                len(info),
                len(info),
                at + len(name),
                _VERSION,
            )
            + name
            + info
        )
        return self._challenge_message

    def check(
        self, message: AuthenticateMessage, passwords: Sequence[str]
    ) -> tuple[Logon, MessageAuthenticator]:
        """Returns the logon if the client knows one of the passwords; otherwise raises
        `LogonFailed`."""
        password, base_key = self._session_base_key(message, passwords)
        flags = self._flags & message.flags
        session_key = base_key
        if flags & NEGOTIATE_KEY_EXCH and message.encrypted_session_key:
            session_key = _rc4(base_key, message.encrypted_session_key)
        self._check_mic(message, session_key)
        workstation = "".join(c if c.isprintable() else "?" for c in message.workstation)
        logon = Logon(message.user.lower(), workstation, password, session_key)
        return logon, MessageAuthenticator(session_key, flags)

    def _session_base_key(
        self, message: AuthenticateMessage, passwords: Sequence[str]
    ) -> tuple[str, bytes]:
        """Checks the proof against each password ([MS-NLMP] 3.3.2); returns the right one, and the
        key."""
        proof = message.nt_response[:_PROOF_BYTES]
        # The proof covers the bytes as they were sent: clients differ in how they end the AV pairs.
        proven = self._challenge + message.nt_response[_PROOF_BYTES:]
        identity = (message.user.upper() + message.domain).encode("utf-16-le")
        found = None
        for password in passwords:
            response_key = _hmac_md5(md4(password.encode("utf-16-le")), identity)
            if hmac.compare_digest(_hmac_md5(response_key, proven), proof):
                found = password, _hmac_md5(response_key, proof)
        if found is None:
            raise LogonFailed("the user or the password is wrong")
        return found

    def _check_mic(self, message: AuthenticateMessage, session_key: bytes) -> None:
        """Checks that nobody has changed the messages ([MS-NLMP] 3.2.5.1.2).

        The client says that it sends a MIC in the part of its message that the proof covers.
        """
        blob = message.nt_response[_PROOF_BYTES:]
        flags = 0
        for kind, value in _av_pairs(blob[_BLOB_HEAD_BYTES:]):
            if kind == _AV_FLAGS and len(value) == _FLAGS.size:
                (flags,) = _FLAGS.unpack(value)
        if not flags & _AV_FLAG_HAS_MIC:
            return
        if len(message.raw) < _MIC.stop:
            raise LogonFailed("the MIC is missing")
        without_mic = message.raw[: _MIC.start] + bytes(16) + message.raw[_MIC.stop :]
        exchanged = self._negotiate_message + self._challenge_message + without_mic
        if not hmac.compare_digest(_hmac_md5(session_key, exchanged), message.raw[_MIC]):
            raise LogonFailed("the MIC is wrong")


def parse_authenticate(message: bytes) -> AuthenticateMessage:
    """Returns the fields of an AUTHENTICATE message with an NTLMv2 response."""
    if len(message) < _AUTHENTICATE.size:
        raise LogonFailed("the AUTHENTICATE message is too short")
    signature, kind, flags = _AUTHENTICATE.unpack_from(message)
    if signature != SIGNATURE or kind != 3:
        raise LogonFailed("not an AUTHENTICATE message")
    if flags & _REQUIRED != _REQUIRED:
        raise LogonFailed("the client has no Unicode or extended session security")
    nt_response = _field(message, _NT_RESPONSE_AT)
    user = _text(message, _USER_AT)
    if not user:
        raise LogonFailed("anonymous logons are not allowed")
    if len(nt_response) < _PROOF_BYTES + _BLOB_HEAD_BYTES:
        raise LogonFailed("not an NTLMv2 response")
    if nt_response[_PROOF_BYTES : _PROOF_BYTES + 2] != b"\x01\x01":
        raise LogonFailed("unknown version of the NTLMv2 response")
    session_key = _field(message, _SESSION_KEY_AT)
    if len(session_key) not in {0, KEY_BYTES}:
        raise LogonFailed("the session key has the wrong length")
    return AuthenticateMessage(
        message,
        flags,
        nt_response,
        _text(message, _DOMAIN_AT),
        user,
        _text(message, _WORKSTATION_AT),
        session_key,
    )


def _parse_negotiate(message: bytes) -> int:
    """Returns the flags of a NEGOTIATE message ([MS-NLMP] 2.2.1.1)."""
    if not _NEGOTIATE.size <= len(message) <= NEGOTIATE_BYTES_MAX:
        raise LogonFailed("the NEGOTIATE message is too short or too long")
    signature, kind, flags = _NEGOTIATE.unpack_from(message)
    if signature != SIGNATURE or kind != 1:
        raise LogonFailed("not a NEGOTIATE message")
    if flags & _REQUIRED != _REQUIRED:
        raise LogonFailed("the client has no Unicode or extended session security")
    assert isinstance(flags, int)
    return flags


def _target_info(name: str, now: int | None) -> bytes:
    """Returns the AV pairs of the CHALLENGE message."""
    short = name.upper().encode("utf-16-le")
    long = name.lower().encode("utf-16-le")
    pairs = [
        (_AV_NETBIOS_DOMAIN_NAME, short),
        (_AV_NETBIOS_COMPUTER_NAME, short),
        (_AV_DNS_DOMAIN_NAME, long),
        (_AV_DNS_COMPUTER_NAME, long),
    ]
    if now is not None:
        pairs.append((_AV_TIMESTAMP, _TIMESTAMP.pack(to_filetime(now))))
    pairs.append((_AV_END, b""))
    return b"".join(_AV_PAIR.pack(kind, len(value)) + value for kind, value in pairs)


def _av_pairs(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yields the AV pairs of a client up to their end, or the end of the data."""
    at = 0
    while at + _AV_PAIR.size <= len(data):
        kind, length = _AV_PAIR.unpack_from(data, at)
        at += _AV_PAIR.size
        if kind == _AV_END:
            return
        if at + length > len(data):
            raise LogonFailed("an AV pair is longer than the message")
        yield kind, data[at : at + length]
        at += length


def _field(message: bytes, at: int) -> bytes:
    """Returns the bytes that a field of the head of a message refers to."""
    length, _, offset = _FIELD.unpack_from(message, at)
    if offset + length > len(message):
        raise LogonFailed("a field lies outside the message")
    return message[offset : offset + length]


def _text(message: bytes, at: int) -> str:
    try:
        text = _field(message, at).decode("utf-16-le")
    except UnicodeDecodeError:
        raise LogonFailed("a name is not valid UTF-16") from None
    if len(text) > NAME_CHARACTERS_MAX:
        raise LogonFailed("a name is too long")
    return text


def _md5(data: bytes) -> bytes:
    return hashlib.md5(data, usedforsecurity=False).digest()


def _hmac_md5(key: bytes, data: bytes) -> bytes:
    return hmac.digest(key, data, "md5")


def _rc4(key: bytes, data: bytes) -> bytes:
    return Cipher(ARC4(key), mode=None).encryptor().update(data)
