"""Signatures of messages ([MS-SMB2] 3.1.4.1).

A signer belongs to a session, and keeps its key prepared. Messages are not copied, except small
ones, for which a copy is cheaper than a cipher that takes several buffers.
"""

from __future__ import annotations

import enum
import hmac
from typing import Final, Protocol

from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.cmac import CMAC

from etagere.protocol.smb.buffers import COPY_BYTES_MAX, Buffer
from etagere.protocol.smb.header import Command, Flags

_SIGNATURE: Final = slice(48, 64)
_SIGNATURE_BYTES: Final = 16
_NO_SIGNATURE: Final = bytes(_SIGNATURE_BYTES)
_COMMAND_AT: Final = 12
_FLAGS_AT: Final = 16
_MESSAGE_ID: Final = slice(24, 32)

# Operations of enumerations are slow.
_SIGNED: Final = Flags.SIGNED
_RESPONSE: Final = Flags.RESPONSE
_CANCEL: Final = int(Command.CANCEL)

_NONCE_FLAGS: Final = tuple(bytes((value, 0, 0, 0)) for value in range(4))
"""The last bytes of a nonce: bit 0 is set in a response, bit 1 in a CANCEL request."""


class SigningAlgorithm(enum.IntEnum):
    """[MS-SMB2] 2.2.3.1.7. 2.1 has only HMAC-SHA256, 3.0 and 3.0.2 only AES-CMAC."""

    HMAC_SHA256 = 0
    AES_CMAC = 1
    AES_GMAC = 2


class Signer(Protocol):
    """Signs the messages of a server to a client, and verifies those of the client.

    An interim response must not be signed ([MS-SMB2] 3.3.4.1.1): the final one has the same message
    ID, and thus the same nonce.
    """

    def sign(self, message: bytearray, *rest: Buffer) -> None:
        """Sets the flag and the signature in the header that `message` starts with. `rest` follows
        `message`."""
        ...

    def verify(self, message: Buffer) -> bool:
        """Returns whether the signature of a message is right."""
        ...


def signer(algorithm: SigningAlgorithm, key: bytes) -> Signer:
    """Returns a signer for a signing key."""
    return _SIGNERS[algorithm](key)


class _Signer:
    """What the algorithms have in common."""

    def sign(self, message: bytearray, *rest: Buffer) -> None:
        message[_FLAGS_AT] |= _SIGNED
        message[_SIGNATURE] = _NO_SIGNATURE
        message[_SIGNATURE] = self._signature(message, *rest)

    def verify(self, message: Buffer) -> bool:
        if len(message) < _SIGNATURE.stop:
            return False
        view = memoryview(message)
        expected = self._signature(view[: _SIGNATURE.start], _NO_SIGNATURE, view[_SIGNATURE.stop :])
        return hmac.compare_digest(expected, view[_SIGNATURE])

    def _signature(self, *message: Buffer) -> bytes:
        """Returns the signature of a message whose signature field is zero. The first buffer has at
        least the header up to that field."""
        raise NotImplementedError


class _HmacSigner(_Signer):
    def __init__(self, key: bytes) -> None:
        self._prepared = hmac.new(key, digestmod="sha256")

    def _signature(self, *message: Buffer) -> bytes:
        code = self._prepared.copy()
        for part in message:
            code.update(part)
        return code.digest()[:_SIGNATURE_BYTES]


class _CmacSigner(_Signer):
    def __init__(self, key: bytes) -> None:
        self._prepared = CMAC(algorithms.AES(key))

    def _signature(self, *message: Buffer) -> bytes:
        code = self._prepared.copy()
        for part in message:
            code.update(part)  # type: ignore[arg-type] # any buffer, whatever the stub says
        return code.finalize()


class _GmacSigner(_Signer):
    def __init__(self, key: bytes) -> None:
        self._prepared = AESGCM(key)
        self._algorithm = algorithms.AES(key)

    def _signature(self, *message: Buffer) -> bytes:
        nonce = _nonce(message[0])
        if len(message) == 1:
            return self._prepared.encrypt(nonce, b"", message[0])
        if sum(map(len, message)) <= COPY_BYTES_MAX:
            return self._prepared.encrypt(nonce, b"", b"".join(message))
        code = Cipher(self._algorithm, modes.GCM(nonce)).encryptor()
        for part in message:
            code.authenticate_additional_data(part)
        code.finalize()
        return code.tag


def _nonce(header: Buffer) -> bytes:
    """Returns the nonce of a message: its ID, who sent it, and whether it is a CANCEL request."""
    flags = header[_FLAGS_AT] & _RESPONSE
    if header[_COMMAND_AT] == _CANCEL:
        flags |= 2
    return bytes(header[_MESSAGE_ID]) + _NONCE_FLAGS[flags]


_SIGNERS: Final = {
    SigningAlgorithm.HMAC_SHA256: _HmacSigner,
    SigningAlgorithm.AES_CMAC: _CmacSigner,
    SigningAlgorithm.AES_GMAC: _GmacSigner,
}
