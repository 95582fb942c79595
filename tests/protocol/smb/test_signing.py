"""Signatures of messages."""

from __future__ import annotations

import os
from types import SimpleNamespace

import pytest
from smbprotocol.connection import Connection, Dialects

from etagere.protocol.smb.header import Command, Flags, Header
from etagere.protocol.smb.signing import SigningAlgorithm, signer
from tests.protocol.smb import windows_messages as windows

KEY = bytes(range(16))
SIGNATURE = slice(48, 64)

LARGE = 1 << 20


def message_of(size: int, command: int = Command.READ, flags: int = Flags.RESPONSE) -> bytearray:
    header = Header(command, flags=flags, message_id=0x1122334455667788, session_id=7)
    return bytearray(header.pack() + os.urandom(size))


def signature_by_client(algorithm: SigningAlgorithm, message: bytes) -> bytes:
    """Returns what an independent client computes."""
    connection = SimpleNamespace(dialect=Dialects.SMB_3_1_1, signing_algorithm_id=algorithm)
    signature = Connection._generate_signature(
        connection,
        message,
        KEY,
        int.from_bytes(message[24:32], "little"),
        bool(message[16] & Flags.RESPONSE),
        int.from_bytes(message[12:14], "little"),
    )
    assert isinstance(signature, bytes)
    return signature


def test_signature_of_windows() -> None:
    """The response that ends a logon with SMB 3.1.1, signed with AES-CMAC."""
    windows_signer = signer(SigningAlgorithm.AES_CMAC, windows.SIGNING_KEY)
    assert windows_signer.verify(windows.LAST_SESSION_SETUP_RESPONSE)
    message = bytearray(windows.LAST_SESSION_SETUP_RESPONSE)
    message[SIGNATURE] = b"old old old old "
    windows_signer.sign(message)
    assert message == windows.LAST_SESSION_SETUP_RESPONSE


@pytest.mark.parametrize("algorithm", SigningAlgorithm)
@pytest.mark.parametrize("size", [0, 1, 86, 20_000, LARGE])
def test_agrees_with_a_client(algorithm: SigningAlgorithm, size: int) -> None:
    message = message_of(size)
    signer(algorithm, KEY).sign(message)
    assert message[16] & Flags.SIGNED
    assert message[SIGNATURE] == signature_by_client(algorithm, bytes(message))
    assert signer(algorithm, KEY).verify(memoryview(message))


@pytest.mark.parametrize("algorithm", SigningAlgorithm)
@pytest.mark.parametrize("size", [0, 100, LARGE])
def test_a_message_in_several_buffers(algorithm: SigningAlgorithm, size: int) -> None:
    message, payload, padding = message_of(16), memoryview(os.urandom(size)), bytes(4)
    signer(algorithm, KEY).sign(message, payload, padding)
    whole = bytes(message) + payload + padding
    assert signer(algorithm, KEY).verify(whole)
    assert message[SIGNATURE] == signature_by_client(algorithm, whole)


@pytest.mark.parametrize("algorithm", SigningAlgorithm)
@pytest.mark.parametrize("size", [16, LARGE])
def test_any_changed_byte_is_noticed(algorithm: SigningAlgorithm, size: int) -> None:
    message = message_of(size)
    checked = signer(algorithm, KEY)
    checked.sign(message)
    for position in [*range(64), 64, len(message) - 1]:
        message[position] ^= 1
        assert not checked.verify(message), position
        message[position] ^= 1
    assert checked.verify(message)
    assert not checked.verify(message[:-1])
    assert not signer(algorithm, bytes(16)).verify(message)


@pytest.mark.parametrize("algorithm", SigningAlgorithm)
def test_a_message_without_a_header(algorithm: SigningAlgorithm) -> None:
    for size in (0, 12, 48, 63):
        assert not signer(algorithm, KEY).verify(bytes(size))


def test_a_cancel_request_has_another_nonce() -> None:
    """It has the message ID of the request that it cancels."""
    for command in (Command.READ, Command.CANCEL):
        for flags in (0, Flags.RESPONSE):
            message = message_of(4, command, flags)
            signer(SigningAlgorithm.AES_GMAC, KEY).sign(message)
            expected = signature_by_client(SigningAlgorithm.AES_GMAC, bytes(message))
            assert message[SIGNATURE] == expected
