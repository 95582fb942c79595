"""Encrypted messages ([MS-SMB2] 2.2.41 and 3.1.4.3).

An encrypted message is a transform header followed by the ciphertext of one message, or of a
compound.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Sequence
from typing import Final, NamedTuple

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import ciphers
from cryptography.hazmat.primitives.ciphers import algorithms, modes
from cryptography.hazmat.primitives.ciphers.aead import AESCCM, AESGCM

from etagere.protocol.smb.buffers import COPY_BYTES_MAX, Buffer

TRANSFORM_PROTOCOL_ID: Final = b"\xfdSMB"
TRANSFORM_HEADER_BYTES: Final = 52

_HEADER: Final = struct.Struct("<4s16s16sIHHQ")
_PREFIX: Final = struct.Struct("<4s16s")
_AUTHENTICATED: Final = struct.Struct("<16sIHHQ")
"""The part of the header that the tag covers: all that follows the tag."""
_AUTHENTICATED_AT: Final = 20
_ENCRYPTED: Final = 0x0001
_TAG_BYTES: Final = 16


class Cipher(enum.IntEnum):
    """[MS-SMB2] 2.2.3.1.2. 3.0 and 3.0.2 have only AES-128-CCM."""

    AES_128_CCM = 1
    AES_128_GCM = 2
    AES_256_CCM = 3
    AES_256_GCM = 4


_WITH_CCM: Final = frozenset({Cipher.AES_128_CCM, Cipher.AES_256_CCM})
_WITH_256_BITS: Final = frozenset({Cipher.AES_256_CCM, Cipher.AES_256_GCM})
_CCM_NONCE_BYTES: Final = 11
_GCM_NONCE_BYTES: Final = 12


class DecryptionFailed(Exception):
    """A message that was not encrypted with the key of its session, or is malformed."""


def key_bytes(cipher: Cipher) -> int:
    return 32 if cipher in _WITH_256_BITS else 16


class TransformHeader(NamedTuple):
    """The header of an encrypted message."""

    tag: bytes
    nonce: bytes
    message_bytes: int
    """The length of the message."""
    flags: int
    session_id: int


def parse_transform_header(message: Buffer) -> TransformHeader | None:
    """Returns the header at the start of an encrypted message; None: it is not one, or its length
    is wrong."""
    if len(message) < TRANSFORM_HEADER_BYTES:
        return None
    protocol, tag, nonce, length, _, flags, session_id = _HEADER.unpack_from(message)
    if protocol != TRANSFORM_PROTOCOL_ID or flags != _ENCRYPTED:
        return None
    if length != len(message) - TRANSFORM_HEADER_BYTES:
        return None
    return TransformHeader(tag, nonce, length, flags, session_id)


class Sealer:
    """Encrypts the messages to a client, and decrypts those of the client.

    Nonces are counted: no other sealer may have the same encryption key.
    """

    def __init__(self, cipher: Cipher, encryption_key: bytes, decryption_key: bytes) -> None:
        self._cipher: _Ccm | _Gcm
        self._decipher: _Ccm | _Gcm
        if cipher in _WITH_CCM:
            self._cipher, self._decipher = _Ccm(encryption_key), _Ccm(decryption_key)
        else:
            self._cipher, self._decipher = _Gcm(encryption_key), _Gcm(decryption_key)
        self._nonces = 0

    def seal(self, buffers: Sequence[Buffer], session_id: int) -> list[Buffer]:
        """Returns the encrypted form of the message in `buffers`."""
        self._nonces += 1
        nonce = self._nonces.to_bytes(16, "little")
        length = sum(map(len, buffers))
        authenticated = _AUTHENTICATED.pack(nonce, length, 0, _ENCRYPTED, session_id)
        ciphertext, tag = self._cipher.encrypt(nonce, buffers, length, authenticated)
        return [_PREFIX.pack(TRANSFORM_PROTOCOL_ID, tag) + authenticated, *ciphertext]

    def open(self, message: Buffer) -> bytes:
        """Returns the decrypted form of a message; raises `DecryptionFailed`."""
        header = parse_transform_header(message)
        if header is None:
            raise DecryptionFailed
        view = memoryview(message)
        try:
            return self._decipher.decrypt(
                header.nonce,
                view[TRANSFORM_HEADER_BYTES:],
                header.tag,
                view[_AUTHENTICATED_AT:TRANSFORM_HEADER_BYTES],
            )
        except InvalidTag:
            raise DecryptionFailed from None


class _Ccm:
    """AES-CCM, which takes a message in one piece."""

    def __init__(self, key: bytes) -> None:
        self._prepared = AESCCM(key, tag_length=_TAG_BYTES)

    def encrypt(
        self, nonce: bytes, buffers: Sequence[Buffer], _length: int, authenticated: bytes
    ) -> tuple[list[Buffer], Buffer]:
        message = buffers[0] if len(buffers) == 1 else b"".join(buffers)
        sealed = memoryview(
            self._prepared.encrypt(nonce[:_CCM_NONCE_BYTES], message, authenticated)
        )
        return [sealed[:-_TAG_BYTES]], bytes(sealed[-_TAG_BYTES:])

    def decrypt(
        self, nonce: bytes, ciphertext: memoryview, tag: bytes, authenticated: memoryview
    ) -> bytes:
        return self._prepared.decrypt(
            nonce[:_CCM_NONCE_BYTES], b"".join((ciphertext, tag)), authenticated
        )


class _Gcm:
    """AES-GCM, which takes large messages in several pieces."""

    def __init__(self, key: bytes) -> None:
        self._prepared = AESGCM(key)
        self._algorithm = algorithms.AES(key)

    def encrypt(
        self, nonce: bytes, buffers: Sequence[Buffer], length: int, authenticated: bytes
    ) -> tuple[list[Buffer], Buffer]:
        nonce = nonce[:_GCM_NONCE_BYTES]
        if length <= COPY_BYTES_MAX:
            sealed = self._prepared.encrypt(nonce, b"".join(buffers), authenticated)
            return [memoryview(sealed)[:-_TAG_BYTES]], sealed[-_TAG_BYTES:]
        encryptor = ciphers.Cipher(self._algorithm, modes.GCM(nonce)).encryptor()
        encryptor.authenticate_additional_data(authenticated)
        ciphertext: list[Buffer] = [encryptor.update(part) for part in buffers]
        encryptor.finalize()
        return ciphertext, encryptor.tag

    def decrypt(
        self, nonce: bytes, ciphertext: memoryview, tag: bytes, authenticated: memoryview
    ) -> bytes:
        nonce = nonce[:_GCM_NONCE_BYTES]
        if len(ciphertext) <= COPY_BYTES_MAX:
            return self._prepared.decrypt(nonce, b"".join((ciphertext, tag)), authenticated)
        decryptor = ciphers.Cipher(self._algorithm, modes.GCM(nonce, tag)).decryptor()
        decryptor.authenticate_additional_data(authenticated)
        message = decryptor.update(ciphertext)
        decryptor.finalize()
        return message
