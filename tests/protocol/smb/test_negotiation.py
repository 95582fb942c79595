"""NEGOTIATE: dialects, contexts, SMB1 and the validation."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Sequence

import pytest

from etagere.nt_status import NtStatus
from etagere.protocol.smb.header import Command
from etagere.protocol.smb.negotiation import (
    NegotiateRequest,
    negotiate,
    negotiate_response,
    offers_smb2,
    parse_negotiate,
    validate_negotiate,
)
from etagere.protocol.smb.state import Negotiated
from etagere.protocol.smb.status import Disconnect, SmbError
from tests.protocol.smb.frames import (
    CLIENT_GUID,
    LOCAL,
    REMOTE,
    SERVER_GUID,
    SmbFixture,
    negotiate_body,
)

PREAUTH = (1, bytes.fromhex("0100 0400 0100") + b"salt")


def test_response_bytes() -> None:
    asked = NegotiateRequest(1, 0x44, CLIENT_GUID, (0x311,), ())
    chosen = Negotiated(0x311, CLIENT_GUID, 1, 0x44, (0x311,), 1, 0x06, 2, 2)
    body = negotiate_response(
        chosen, (1, 2, 8), server_guid=SERVER_GUID, now=0, token=b"token", salt=b"s" * 32
    )
    assert asked.dialects == chosen.client_dialects
    assert body == b"".join(
        [
            struct.pack("<H", 65),  # StructureSize
            struct.pack("<H", 1),  # SecurityMode: signing enabled
            struct.pack("<H", 0x311),  # DialectRevision
            struct.pack("<H", 3),  # NegotiateContextCount
            SERVER_GUID,
            struct.pack("<I", 0x06),  # Capabilities: leasing, large MTU
            struct.pack("<I", 1 << 20),  # MaxTransactSize
            struct.pack("<I", 1 << 20),  # MaxReadSize
            struct.pack("<I", 1 << 20),  # MaxWriteSize
            struct.pack("<Q", 116_444_736_000_000_000),  # SystemTime: 1970
            struct.pack("<Q", 0),  # ServerStartTime
            struct.pack("<H", 128),  # SecurityBufferOffset
            struct.pack("<H", 5),  # SecurityBufferLength
            struct.pack("<I", 136),  # NegotiateContextOffset
            b"token",
            bytes(3),
            struct.pack("<HHI", 1, 38, 0),  # preauthentication integrity
            struct.pack("<HHH", 1, 32, 1) + b"s" * 32,  # SHA-512, the salt
            bytes(2),
            struct.pack("<HHI", 2, 4, 0),  # encryption
            struct.pack("<HH", 1, 2),  # AES-128-GCM
            bytes(4),
            struct.pack("<HHI", 8, 4, 0),  # signing
            struct.pack("<HH", 1, 2),  # AES-GMAC
        ]
    )


def chosen(
    dialects: Sequence[int],
    *,
    capabilities: int = 0x40,
    ciphers: Sequence[int] = (1, 2),
    signing: Sequence[int] = (0, 1, 2),
    contexts: Sequence[tuple[int, bytes]] | None = None,
) -> Negotiated:
    body = negotiate_body(dialects, 1, capabilities, ciphers, signing, contexts)
    return negotiate(parse_negotiate(memoryview(bytes(64) + body)), requires_signing=False)


@pytest.mark.parametrize(
    ("dialects", "dialect"),
    [
        ((0x202, 0x210), 0x210),
        ((0x202, 0x210, 0x300), 0x300),
        ((0x210, 0x300, 0x302), 0x302),
        ((0x202, 0x210, 0x300, 0x302, 0x311), 0x311),
        ((0x311,), 0x311),
        ((0x311, 0x999), 0x311),
    ],
)
def test_best_dialect(dialects: Sequence[int], dialect: int) -> None:
    assert chosen(dialects).dialect == dialect


@pytest.mark.parametrize(
    ("dialect", "options", "cipher", "algorithm", "capabilities"),
    [
        (0x210, {}, None, 0, 0x06),
        (0x300, {}, 1, 1, 0x46),
        (0x302, {"capabilities": 0}, None, 1, 0x06),
        (0x311, {}, 2, 2, 0x06),
        (0x311, {"ciphers": (1, 4)}, 4, 2, 0x06),
        (0x311, {"ciphers": (3,)}, None, 2, 0x06),
        (0x311, {"ciphers": ()}, None, 2, 0x06),
        (0x311, {"signing": (1, 0)}, 2, 1, 0x06),
        (0x311, {"signing": (0,)}, 2, 0, 0x06),
        (0x311, {"signing": ()}, 2, 1, 0x06),
        (0x311, {"signing": (7,)}, 2, 1, 0x06),
    ],
)
def test_algorithms(
    dialect: int,
    options: dict[str, tuple[int, ...]],
    cipher: int | None,
    algorithm: int,
    capabilities: int,
) -> None:
    found = chosen([dialect], **options)  # type: ignore[arg-type]
    assert (found.cipher, found.signing_algorithm) == (cipher, algorithm)
    assert found.capabilities == capabilities


@pytest.mark.parametrize(
    ("contexts", "status"),
    [
        ([], NtStatus.INVALID_PARAMETER),
        ([PREAUTH, PREAUTH], NtStatus.INVALID_PARAMETER),
        ([(1, b"")], NtStatus.INVALID_PARAMETER),
        ([(1, struct.pack("<HH", 0, 0))], NtStatus.INVALID_PARAMETER),
        ([(1, struct.pack("<HHH", 2, 0, 1))], NtStatus.INVALID_PARAMETER),
        ([(1, struct.pack("<HHH", 1, 0, 7))], NtStatus.NO_PREAUTH_INTEGRITY_HASH_OVERLAP),
        ([PREAUTH, (2, b"")], NtStatus.INVALID_PARAMETER),
        ([PREAUTH, (2, struct.pack("<H", 0))], NtStatus.INVALID_PARAMETER),
        ([PREAUTH, (2, struct.pack("<HH", 9, 2))], NtStatus.INVALID_PARAMETER),
        ([PREAUTH, (8, b"\0")], NtStatus.INVALID_PARAMETER),
    ],
)
def test_invalid_contexts(contexts: Sequence[tuple[int, bytes]], status: NtStatus) -> None:
    with pytest.raises(SmbError) as raised:
        chosen([0x311], contexts=contexts)
    assert raised.value.status == status


def test_every_cut_of_a_request_is_refused() -> None:
    body = negotiate_body([0x210, 0x311], 1, 0, (2,), (2,), None)
    parse_negotiate(memoryview(bytes(64) + body))
    for length in range(len(body)):
        with pytest.raises(SmbError):
            parse_negotiate(memoryview(bytes(64) + body[:length]))


def test_no_common_dialect() -> None:
    with pytest.raises(SmbError) as raised:
        chosen([0x202])
    assert raised.value.status == NtStatus.NOT_SUPPORTED


SEEN = Negotiated(0x302, CLIENT_GUID, 1, 0x44, (0x300, 0x302), 3, 0x46, 1, 1)


def test_validation() -> None:
    data = struct.pack("<I16sHHHH", 0x44, CLIENT_GUID, 1, 2, 0x300, 0x302)
    answer = validate_negotiate(SEEN, SERVER_GUID, memoryview(data))
    assert answer == struct.pack("<I16sHH", 0x46, SERVER_GUID, 3, 0x302)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        struct.pack("<I16sHH", 0x44, CLIENT_GUID, 1, 2),
        struct.pack("<I16sHHHH", 0x04, CLIENT_GUID, 1, 2, 0x300, 0x302),
        struct.pack("<I16sHHHH", 0x44, SERVER_GUID, 1, 2, 0x300, 0x302),
        struct.pack("<I16sHHHH", 0x44, CLIENT_GUID, 3, 2, 0x300, 0x302),
        struct.pack("<I16sHHHHH", 0x44, CLIENT_GUID, 1, 3, 0x300, 0x302, 0x311),
    ],
)
def test_validation_of_another_request_disconnects(data: bytes) -> None:
    with pytest.raises(Disconnect):
        validate_negotiate(SEEN, SERVER_GUID, memoryview(data))


# On a connection


def smb1_message(*dialects: bytes) -> bytes:
    text = b"".join(b"\x02" + dialect + b"\0" for dialect in dialects)
    return b"\xffSMB\x72" + bytes(27) + b"\0" + struct.pack("<H", len(text)) + text


@pytest.mark.parametrize(
    ("message", "offers"),
    [
        (smb1_message(b"NT LM 0.12", b"SMB 2.002", b"SMB 2.???"), True),
        (smb1_message(b"NT LM 0.12", b"SMB 2.002"), False),
        (smb1_message(b"NT LM 0.12"), False),
        (b"\xffSMB\x72", False),
        (b"\xffSMB\x73" + smb1_message(b"SMB 2.???")[5:], False),
    ],
)
def test_smb1_clients(message: bytes, offers: bool) -> None:
    assert offers_smb2(memoryview(message)) == offers


def test_smb1_negotiation_is_repeated_with_smb2() -> None:
    async def run() -> None:
        client = SmbFixture().connect()
        client.give(smb1_message(b"NT LM 0.12", b"SMB 2.???"))
        ((response,),) = await client.settle()
        assert struct.unpack_from("<H", response.body, 4) == (0x2FF,)
        assert response.header.credits == 1
        client.message_id = 1
        assert (await client.negotiate([0x210, 0x311])).status == NtStatus.SUCCESS
        assert client.dialect == 0x311
        client.give(smb1_message(b"SMB 2.???"))
        assert client.is_aborted

    asyncio.run(run())


def test_smb1_alone_is_refused() -> None:
    async def run() -> None:
        client = SmbFixture().connect()
        client.give(smb1_message(b"NT LM 0.12"))
        assert client.is_aborted

    asyncio.run(run())


@pytest.mark.parametrize(("address", "mode"), [(LOCAL, 1), ("[::1]:5", 1), (REMOTE, 3)])
def test_other_machines_have_to_sign(address: str, mode: int) -> None:
    async def run() -> None:
        client = SmbFixture().connect(address)
        response = await client.negotiate([0x311])
        assert struct.unpack_from("<H", response.body, 2) == (mode,)

    asyncio.run(run())


def test_second_negotiation_disconnects() -> None:
    async def run() -> None:
        client = SmbFixture().connect()
        await client.negotiate([0x311])
        body = negotiate_body([0x311], 1, 0, (2,), (2,), None)
        client.give(client.message(Command.NEGOTIATE, body))
        assert await client.settle() == []
        assert client.is_aborted

    asyncio.run(run())


def test_failed_negotiation_can_be_repeated() -> None:
    async def run() -> None:
        client = SmbFixture().connect()
        assert (await client.negotiate([0x202])).status == NtStatus.NOT_SUPPORTED
        assert (await client.negotiate([0x210])).status == NtStatus.SUCCESS

    asyncio.run(run())


@pytest.mark.parametrize("command", [1, 3, 5, 13, 99])
def test_nothing_is_served_before_the_negotiation(command: int) -> None:
    async def run() -> None:
        client = SmbFixture().connect()
        client.give(client.message(command, bytes(60)))
        assert await client.settle() == []
        assert client.is_aborted

    asyncio.run(run())
