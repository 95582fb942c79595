"""Keys of a session ([MS-SMB2] 3.1.4.2 and 3.3.5.5.3), and the hash that they depend on."""

from __future__ import annotations

import hashlib
import hmac
from typing import Final, NamedTuple

from etagere.protocol.smb.dialects import DIALECT_3_0, DIALECT_3_1_1
from etagere.protocol.smb.encryption import Cipher, key_bytes

INITIAL_PREAUTH_HASH: Final = bytes(64)
_SIGNING_KEY_BYTES: Final = 16


class SessionKeys(NamedTuple):
    """The keys of a session. Without a cipher, there is only that for signatures."""

    signing: bytes
    decryption: bytes
    """For what the client sends."""
    encryption: bytes
    """For what the server sends."""


def extend_preauth_hash(previous: bytes, message: bytes | bytearray | memoryview) -> bytes:
    """Returns the preauthentication integrity hash with one more message, which includes its
    header, but not the length before it ([MS-SMB2] 3.3.5.4)."""
    digest = hashlib.sha512(previous)
    digest.update(message)
    return digest.digest()


def derive_keys(
    dialect: int, session_key: bytes, preauth_hash: bytes, cipher: int | None
) -> SessionKeys:
    """Returns the keys for a session key of the authentication.

    `preauth_hash` is that of the session, which only 3.1.1 uses. `cipher` is None if encryption has
    not been negotiated.
    """
    session_key = session_key[:16].ljust(16, b"\0")
    if dialect < DIALECT_3_0:
        return SessionKeys(session_key, b"", b"")
    if dialect < DIALECT_3_1_1:
        signing = derive_key(session_key, b"SMB2AESCMAC\0", b"SmbSign\0", _SIGNING_KEY_BYTES)
        incoming = (b"SMB2AESCCM\0", b"ServerIn \0")
        outgoing = (b"SMB2AESCCM\0", b"ServerOut\0")
    else:
        signing = derive_key(session_key, b"SMBSigningKey\0", preauth_hash, _SIGNING_KEY_BYTES)
        incoming = (b"SMBC2SCipherKey\0", preauth_hash)
        outgoing = (b"SMBS2CCipherKey\0", preauth_hash)
    if cipher is None:
        return SessionKeys(signing, b"", b"")
    length = key_bytes(Cipher(cipher))
    return SessionKeys(
        signing,
        derive_key(session_key, *incoming, length),
        derive_key(session_key, *outgoing, length),
    )


def derive_key(key: bytes, label: bytes, context: bytes, length: int) -> bytes:
    """Returns a derived key of up to 32 bytes: [SP800-108] 5.1 in counter mode with HMAC-SHA256, of
    which SMB needs only the first block. Labels and contexts include their final NUL."""
    bits = (8 * length).to_bytes(4, "big")
    block = hmac.digest(key, b"\0\0\0\1" + label + b"\0" + context + bits, "sha256")
    return block[:length]
