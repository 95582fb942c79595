"""Encrypted messages."""

from __future__ import annotations

import os
from types import SimpleNamespace

import pytest
from smbprotocol.connection import Connection, Dialects, SMB2TransformHeader

from etagere.protocol.smb.buffers import Buffer
from etagere.protocol.smb.encryption import (
    TRANSFORM_HEADER_BYTES,
    Cipher,
    DecryptionFailed,
    Sealer,
    key_bytes,
    parse_transform_header,
)
from tests.protocol.smb import windows_messages as windows

SESSION_ID = 0x1122334455667788
LARGE = 1 << 20


def sealers(cipher: Cipher) -> tuple[Sealer, Sealer]:
    """Returns those of a server and of its client."""
    ours, theirs = os.urandom(key_bytes(cipher)), os.urandom(key_bytes(cipher))
    return Sealer(cipher, ours, theirs), Sealer(cipher, theirs, ours)


def join(buffers: list[Buffer]) -> bytes:
    return b"".join(buffers)


@pytest.mark.parametrize(
    ("cipher", "keys", "encrypted", "message"),
    [
        (
            Cipher.AES_128_CCM,
            (windows.CCM_KEY_OF_SERVER, windows.CCM_KEY_OF_CLIENT),
            windows.CCM_ENCRYPTED_REQUEST,
            windows.CCM_REQUEST,
        ),
        (
            Cipher.AES_128_CCM,
            (windows.CCM_KEY_OF_CLIENT, windows.CCM_KEY_OF_SERVER),
            windows.CCM_ENCRYPTED_RESPONSE,
            windows.CCM_RESPONSE,
        ),
        (
            Cipher.AES_128_GCM,
            (windows.GCM_KEY_OF_SERVER, windows.GCM_KEY_OF_CLIENT),
            windows.GCM_ENCRYPTED_REQUEST,
            windows.GCM_REQUEST,
        ),
        (
            Cipher.AES_128_GCM,
            (windows.GCM_KEY_OF_CLIENT, windows.GCM_KEY_OF_SERVER),
            windows.GCM_ENCRYPTED_RESPONSE,
            windows.GCM_RESPONSE,
        ),
    ],
)
def test_messages_of_windows(
    cipher: Cipher, keys: tuple[bytes, bytes], encrypted: bytes, message: bytes
) -> None:
    assert Sealer(cipher, *keys).open(encrypted) == message


def test_transform_header() -> None:
    header = parse_transform_header(windows.GCM_ENCRYPTED_REQUEST)
    assert header is not None
    assert header.tag.hex().upper() == "BD73D97D2BC9001BCAFAC0FDFF5FEEBC"
    assert header.nonce.hex().upper() == "C7D6822D269CAF48904C664C00000000"
    assert header.message_bytes == len(windows.GCM_REQUEST)
    assert header.flags == 1
    assert header.session_id == windows.GCM_SESSION_ID


@pytest.mark.parametrize("cipher", Cipher)
@pytest.mark.parametrize("sizes", [(0,), (64,), (64, 1), (64, 16, 20_000), (80, LARGE), (LARGE,)])
def test_round_trip(cipher: Cipher, sizes: tuple[int, ...]) -> None:
    server, client = sealers(cipher)
    buffers: list[Buffer] = [bytearray(os.urandom(size)) for size in sizes]
    encrypted = join(server.seal(buffers, SESSION_ID))
    assert client.open(memoryview(bytearray(encrypted))) == join(buffers)
    assert len(encrypted) == TRANSFORM_HEADER_BYTES + sum(sizes)


@pytest.mark.parametrize("cipher", Cipher)
@pytest.mark.parametrize("size", [100, LARGE])
def test_agrees_with_a_client(cipher: Cipher, size: int) -> None:
    ours, theirs = os.urandom(key_bytes(cipher)), os.urandom(key_bytes(cipher))
    server = Sealer(cipher, ours, theirs)
    session = SimpleNamespace(session_id=SESSION_ID, encryption_key=theirs, decryption_key=ours)
    connection = SimpleNamespace(
        dialect=Dialects.SMB_3_1_1, cipher_id=cipher, session_table={SESSION_ID: session}
    )
    message = os.urandom(size)

    header = SMB2TransformHeader()
    header.unpack(join(server.seal([message], SESSION_ID)))
    assert Connection._decrypt(connection, header) == message

    sent = Connection._encrypt(connection, message, session).pack()
    assert server.open(sent) == message


@pytest.mark.parametrize("cipher", Cipher)
@pytest.mark.parametrize("size", [100, LARGE])
def test_any_changed_byte_is_noticed(cipher: Cipher, size: int) -> None:
    server, client = sealers(cipher)
    encrypted = bytearray(join(server.seal([os.urandom(size)], SESSION_ID)))
    # CCM takes 11 bytes of the nonce, and GCM 12, but the header covers all 16.
    for position in [*range(TRANSFORM_HEADER_BYTES), 60, len(encrypted) - 1]:
        encrypted[position] ^= 1
        with pytest.raises(DecryptionFailed):
            client.open(encrypted)
        encrypted[position] ^= 1
    assert len(client.open(encrypted)) == size
    with pytest.raises(DecryptionFailed):
        server.open(encrypted)  # the key of the other direction


@pytest.mark.parametrize("cipher", Cipher)
def test_cut_messages(cipher: Cipher) -> None:
    server, client = sealers(cipher)
    encrypted = join(server.seal([os.urandom(100)], SESSION_ID))
    for size in range(len(encrypted)):
        with pytest.raises(DecryptionFailed):
            client.open(encrypted[:size])
    with pytest.raises(DecryptionFailed):
        client.open(encrypted + b"\0")


@pytest.mark.parametrize("cipher", Cipher)
def test_nonces_are_never_repeated(cipher: Cipher) -> None:
    server, client = sealers(cipher)
    nonces = set()
    for size in [10, 20_000] * 50:
        encrypted = join(server.seal([bytes(size)], SESSION_ID))
        header = parse_transform_header(encrypted)
        assert header is not None
        nonces.add(header.nonce[:11])
        assert header.nonce[11:] == bytes(5)
        assert client.open(encrypted) == bytes(size)
    assert len(nonces) == 100
