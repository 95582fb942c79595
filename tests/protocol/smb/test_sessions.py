"""SESSION_SETUP, LOGOFF and TREE_CONNECT on a connection without a socket."""

from __future__ import annotations

import asyncio
import random
import struct
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
import spnego

from etagere.engine.memory import MemoryEngine
from etagere.model.accounts import AddAccount
from etagere.model.service import (
    ProtocolSettings,
    ServicePropertiesChange,
    SmbSettings,
)
from etagere.model.shares import ShareProtocol, ShareSettings
from etagere.nt_status import NtStatus
from etagere.operations.accounts import add_account
from etagere.operations.service import SetServiceProperties, set_service_properties
from etagere.protocol.smb import limits, logons, sessions, trees
from etagere.protocol.smb.header import Command, Flags
from etagere.protocol.smb.logons import LogonDelays
from etagere.protocol.smb.signing import SigningAlgorithm
from etagere.settings import Settings
from etagere.settings.values import ConfiguredAccount, decode_key
from tests.protocol.smb.frames import (
    ECHO,
    REMOTE,
    FrameClient,
    SmbFixture,
    setup_body,
    tree_body,
)
from tests.server import ACCOUNT, KEY, SECOND_ACCOUNT, SECOND_KEYS, WRONG_KEY

Run = Callable[[SmbFixture], Coroutine[Any, Any, None]]
SECOND = ConfiguredAccount(SECOND_ACCOUNT, tuple(map(decode_key, SECOND_KEYS)))
DISCONNECT = struct.pack("<HH", 4, 0)


@pytest.fixture(autouse=True)
def short_delays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logons, "LOGON_DELAY_SECONDS", 0.001)


def run(test: Run, **settings: Any) -> None:
    asyncio.run(test(SmbFixture(Settings(**settings))))


COMBINATIONS = [
    (0x210, {}),
    (0x300, {}),
    (0x302, {}),
    *((0x311, {"ciphers": (cipher,)}) for cipher in (1, 2, 4)),
    *((0x311, {"signing": (algorithm,)}) for algorithm in (0, 1, 2)),
]


@pytest.mark.parametrize(("dialect", "options"), COMBINATIONS)
def test_logon(dialect: int, options: dict[str, Any]) -> None:
    async def test(server: SmbFixture) -> None:
        client = server.connect()
        await client.negotiate([dialect], **options)
        first, last = await client.log_on()
        assert first.status == NtStatus.MORE_PROCESSING_REQUIRED
        assert not first.is_signed
        assert last.status == NtStatus.SUCCESS
        # The client can verify what the server derived its keys from.
        assert last.is_signed
        assert client.signer is not None
        assert client.signer.verify(last.data)
        assert client.is_authenticated
        answer = await client.ask(Command.ECHO, ECHO)
        assert answer.is_signed
        assert client.signer.verify(answer.data)
        if dialect >= 0x300:
            client.seals = True
            answer = await client.ask(Command.ECHO, ECHO)
            assert not answer.is_signed
            assert answer.status == NtStatus.SUCCESS
        await client.connection.close()
        assert not len(server.sessions)

    run(test)


def test_both_keys_of_accounts_are_passwords() -> None:
    async def test(server: SmbFixture) -> None:
        keys = [bytes([number]) * 64 for number in (1, 2)]
        await server.engine.write(add_account, AddAccount("kept", *keys))
        for user in (SECOND_ACCOUNT, SECOND_ACCOUNT.upper(), "kept"):
            for key in SECOND_KEYS:
                client = server.connect(REMOTE)
                await client.negotiate([0x311])
                assert (await client.log_on(user, key))[-1].status == NtStatus.SUCCESS

    run(test, accounts=(SECOND,))


@pytest.mark.parametrize(
    ("user", "password"),
    [(ACCOUNT, WRONG_KEY), (ACCOUNT, ""), ("nobody", KEY), ("no/body", KEY), ("", "")],
)
def test_failed_logon(user: str, password: str) -> None:
    async def test(server: SmbFixture) -> None:
        client = server.connect()
        await client.negotiate([0x311])
        if not user:
            # An anonymous logon.
            body = setup_body(b"NTLMSSP\0")
            answer = await client.ask(Command.SESSION_SETUP, body)
        else:
            answer = (await client.log_on(user, password))[-1]
        assert answer.status == NtStatus.LOGON_FAILURE
        assert not len(server.sessions)
        assert not client.is_authenticated
        client.session_id = 0
        assert (await client.log_on())[-1].status == NtStatus.SUCCESS

    run(test)


def test_development_account_is_local() -> None:
    async def test(server: SmbFixture) -> None:
        client = server.connect(REMOTE)
        await client.negotiate([0x311])
        assert (await client.log_on())[-1].status == NtStatus.ACCESS_DENIED

    run(test)


def test_failures_are_answered_later_and_later() -> None:
    delays = LogonDelays()
    delay = limits.LOGON_DELAY_SECONDS_MAX
    found = [delays.count_failure("a", 0) for _ in range(20)]
    assert found == sorted(found)
    assert found[0] < found[1] < delay == found[-1]
    assert delays.count_failure("b", 0) == found[0]
    assert delays.count_failure("a", limits.LOGON_MEMORY_SECONDS + 1) == found[0]


def test_logons_take_turns_after_many_failures() -> None:
    """Other connections do not help a client that tries passwords."""
    delays, turn = LogonDelays(), limits.LOGON_DELAY_SECONDS_MAX
    for _ in range(limits.FAILED_LOGONS_MAX):
        assert delays.wait_seconds("a", "user", 0) == 0
        delays.count_failure("a", 0, "user")
    waits = [delays.wait_seconds("a", "user", 1) for _ in range(4)]
    assert waits == [0, turn, 2 * turn, None]
    assert delays.wait_seconds("a", "user", 1 + turn) == 2 * turn
    # Others do not wait.
    assert delays.wait_seconds("a", "other", 1) == delays.wait_seconds("b", "user", 1) == 0
    delays.forget_failures("a", "user")
    assert delays.wait_seconds("a", "user", 1) == 0


def test_failures_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logons, "LOGON_ADDRESSES_MAX", 2)
    delays = LogonDelays()
    for _ in range(2 * limits.FAILED_LOGONS_MAX):
        delays.count_failure("a", 0, "user")
    assert delays.wait_seconds("a", "user", 0) == 0
    assert delays.wait_seconds("a", "user", 0) != 0
    assert delays.wait_seconds("a", "user", limits.LOGON_MEMORY_SECONDS + 1) == 0
    for user in ("one", "two"):
        delays.count_failure("a", 0, user)
    assert delays.wait_seconds("a", "user", 0) == 0


def test_reconnecting_does_not_help_to_try_passwords(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logons, "FAILED_LOGONS_MAX", 2)
    monkeypatch.setattr(logons, "LOGON_WAIT_SECONDS_MAX", -1.0)

    async def test(server: SmbFixture) -> None:
        for password in (WRONG_KEY, WRONG_KEY, KEY):
            client = server.connect()
            await client.negotiate([0x311])
            assert (await client.log_on(ACCOUNT, password))[-1].status == NtStatus.LOGON_FAILURE

    run(test)


def test_many_failures_end_the_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "FAILED_LOGONS_MAX", 2)

    async def test(server: SmbFixture) -> None:
        client = server.connect()
        await client.negotiate([0x311])
        for _ in range(2):
            client.session_id = 0
            await client.log_on(ACCOUNT, WRONG_KEY)
        client.session_id = 0
        client.give(client.message(Command.SESSION_SETUP, setup_body(b"garbage")))
        await asyncio.sleep(0.05)
        assert await client.settle() == []
        assert client.is_aborted

    run(test)


def test_failures_do_not_end_the_sessions_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "FAILED_LOGONS_MAX", 2)

    async def test(server: SmbFixture) -> None:
        client = await server.log_on()
        session_id = client.session_id
        for _ in range(5):
            client.session_id = 0
            await client.log_on(ACCOUNT, WRONG_KEY)
        client.session_id = session_id
        assert (await client.connect_tree(r"\\server\IPC$")).status == NtStatus.SUCCESS
        assert not client.is_aborted

    run(test)


def test_unknown_users_have_as_many_passwords_as_others() -> None:
    async def test(server: SmbFixture) -> None:
        await server.engine.write(add_account, AddAccount("stored", b"key 1", b"key 2"))
        passwords = logons.Passwords(server.engine, server.settings)
        found = [await passwords.of(user, "127.0.0.1") for user in ("stored", "nobody", "no/body")]
        assert [len(one) for one in found] == [2, 2, 2]
        other = logons.Passwords(server.engine, server.settings)
        assert await other.of("nobody", "127.0.0.1") != found[1]

    run(test)


def test_delay_counts_from_the_request_on(monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = 3.0
    monkeypatch.setattr(logons, "LOGON_DELAY_SECONDS", seconds)
    find = logons.Passwords.of

    async def find_slowly(*arguments: Any) -> tuple[str, ...]:
        await asyncio.sleep(seconds)
        return await find(*arguments)

    monkeypatch.setattr(logons.Passwords, "of", find_slowly)

    async def test(server: SmbFixture) -> None:
        client = server.connect()
        await client.negotiate([0x311])
        began = asyncio.get_running_loop().time()
        assert (await client.log_on("nobody"))[-1].status == NtStatus.LOGON_FAILURE
        assert seconds <= asyncio.get_running_loop().time() - began < 2 * seconds

    run(test)


# Encryption


@pytest.mark.parametrize(
    ("mode", "address", "is_required"),
    [
        ("auto", "127.0.0.1:1", False),
        ("auto", REMOTE, True),
        ("required", "127.0.0.1:1", True),
        ("required", REMOTE, True),
        ("off", REMOTE, False),
    ],
)
@pytest.mark.parametrize("dialect", [0x210, 0x300, 0x311])
def test_required_encryption(mode: str, address: str, is_required: bool, dialect: int) -> None:
    async def test(server: SmbFixture) -> None:
        client = server.connect(address)
        await client.negotiate([dialect])
        last = (await client.log_on(SECOND_ACCOUNT, SECOND_KEYS[0]))[-1]
        if not is_required:
            assert last.status == NtStatus.SUCCESS
            assert struct.unpack_from("<H", last.body, 2) == (0,)
            assert (await client.ask(Command.ECHO, ECHO)).status == NtStatus.SUCCESS
            return
        if dialect == 0x210:
            assert last.status == NtStatus.ACCESS_DENIED
            assert not len(server.sessions)
            return
        assert last.status == NtStatus.SUCCESS
        assert struct.unpack_from("<H", last.body, 2) == (4,)
        assert last.is_signed
        refused = await client.ask(Command.TREE_CONNECT, tree_body(r"\\server\IPC$"))
        assert refused.status == NtStatus.ACCESS_DENIED
        client.seals = True
        answer = await client.ask(Command.TREE_CONNECT, tree_body(r"\\server\IPC$"))
        assert answer.status == NtStatus.SUCCESS
        assert struct.unpack_from("<I", answer.body, 4) == (0x8000,)

    run(test, accounts=(SECOND,), smb_encryption=mode)


def test_client_without_ciphers_where_encryption_is_required() -> None:
    async def test(server: SmbFixture) -> None:
        client = server.connect()
        await client.negotiate([0x311], ciphers=())
        assert (await client.log_on())[-1].status == NtStatus.ACCESS_DENIED

    run(test, smb_encryption="required")


CHANNEL = {"channel_encryption": ("AES-128-GCM",)}


@pytest.mark.parametrize(
    ("settings", "dialect", "options", "is_admitted"),
    [
        ({}, 0x210, {}, True),
        ({"versions": ("SMB3.0",)}, 0x210, {}, False),
        ({"versions": ("SMB3.0",)}, 0x300, {}, True),
        ({"versions": ("SMB3.0",)}, 0x302, {}, True),
        ({"versions": ("SMB3.0",)}, 0x311, {}, False),
        ({"versions": ("SMB2.1", "SMB3.1.1")}, 0x210, {}, True),
        ({"versions": ("SMB2.1", "SMB3.1.1")}, 0x311, {}, True),
        ({"authentication_methods": ("Kerberos",)}, 0x311, {}, False),
        ({"authentication_methods": ("NTLMv2", "Kerberos")}, 0x311, {}, True),
        (CHANNEL, 0x210, {}, True),
        (CHANNEL, 0x302, {}, False),
        (CHANNEL, 0x311, {"ciphers": (2,)}, True),
        (CHANNEL, 0x311, {"ciphers": (4,)}, False),
        ({"encryption_required": True}, 0x210, {}, False),
        ({"encryption_required": True}, 0x311, {}, True),
        ({"encryption_required": False, "multichannel": False}, 0x210, {}, True),
    ],
)
def test_settings_of_the_account(
    settings: dict[str, Any], dialect: int, options: dict[str, Any], is_admitted: bool
) -> None:
    async def test(server: SmbFixture) -> None:
        change = ServicePropertiesChange(
            protocol_settings=ProtocolSettings(SmbSettings(**settings))
        )
        command = SetServiceProperties(ACCOUNT, "file", change)
        await server.engine.write(set_service_properties, command)
        client = server.connect()
        await client.negotiate([dialect], **options)
        answer = (await client.log_on())[-1]
        assert answer.status == (NtStatus.SUCCESS if is_admitted else NtStatus.ACCESS_DENIED)
        if is_admitted:
            is_required = settings.get("encryption_required", False)
            answer = await client.connect_tree(r"\\server\IPC$")
            assert answer.status == (NtStatus.ACCESS_DENIED if is_required else NtStatus.SUCCESS)
            client.seals = client.sealer is not None
            assert (await client.connect_tree(r"\\server\IPC$")).status == NtStatus.SUCCESS
        else:
            assert not len(server.sessions)

    run(test)


def test_logons_in_one_session_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    read = MemoryEngine.read

    async def read_slowly(*arguments: Any) -> Any:
        await asyncio.sleep(0.01)
        return await read(*arguments)

    monkeypatch.setattr(MemoryEngine, "read", read_slowly)

    async def test(server: SmbFixture) -> None:
        client = server.connect()
        await client.negotiate([0x311])
        context = spnego.client(ACCOUNT, KEY, protocol="ntlm")
        body = setup_body(context.step() or b"")
        answer = await client.ask(Command.SESSION_SETUP, body, credits=10)
        client.session_id = answer.header.session_id
        offset, length = struct.unpack_from("<HH", answer.body, 4)
        token = context.step(answer.data[offset : offset + length]) or b""
        other = spnego.client(SECOND_ACCOUNT, SECOND_KEYS[0], protocol="ntlm")
        for step in (token, other.step() or b""):
            client.give(client.message(Command.SESSION_SETUP, setup_body(step)))
        await asyncio.sleep(0.05)
        statuses = [one.status for (one,) in await client.settle()]
        assert sorted(statuses) == [NtStatus.LOGON_FAILURE, NtStatus.USER_SESSION_DELETED]
        assert not len(server.sessions)

    run(test, accounts=(SECOND,))


def test_encrypted_garbage_disconnects() -> None:
    async def test(server: SmbFixture) -> None:
        for spoil in (40, 60, -1):
            client = await server.log_on()
            assert client.sealer is not None
            message = client.message(Command.ECHO, ECHO, signs=False)
            frame = bytearray(b"".join(client.sealer.seal([message], client.session_id)))
            frame[spoil] ^= 1
            client.give(frame)
            assert client.is_aborted
            assert await client.settle() == []

    run(test)


def test_message_encrypted_for_another_session_disconnects() -> None:
    async def test(server: SmbFixture) -> None:
        client = await server.log_on()
        own, own_signer, own_sealer = client.session_id, client.signer, client.sealer
        client.session_id, client.signer = 0, None
        assert (await client.log_on())[-1].status == NtStatus.SUCCESS
        other = client.session_id
        assert other != own
        client.session_id, client.signer, client.sealer = own, own_signer, own_sealer
        client.seals = True
        client.give(client.message(Command.ECHO, ECHO, session_id=other))
        assert await client.settle() == []
        assert client.is_aborted

    run(test)


# Signatures


@pytest.mark.parametrize("dialect", [0x210, 0x302, 0x311])
def test_wrong_signature(dialect: int) -> None:
    async def test(server: SmbFixture) -> None:
        client = await server.log_on(dialect)
        message = client.message(Command.TREE_CONNECT, tree_body(r"\\server\IPC$"))
        message[-1] ^= 1
        client.give(message)
        ((answer,),) = await client.settle()
        assert answer.status == NtStatus.ACCESS_DENIED
        assert (await client.connect_tree(r"\\server\IPC$")).status == NtStatus.SUCCESS

    run(test)


@pytest.mark.parametrize(
    ("dialect", "mode", "status"),
    [
        (0x210, 1, NtStatus.SUCCESS),
        (0x210, 3, NtStatus.ACCESS_DENIED),
        (0x302, 1, NtStatus.SUCCESS),
        (0x302, 3, NtStatus.ACCESS_DENIED),
        (0x311, 1, NtStatus.SUCCESS),
        (0x311, 3, NtStatus.ACCESS_DENIED),
    ],
)
def test_missing_signature(dialect: int, mode: int, status: NtStatus) -> None:
    async def test(server: SmbFixture) -> None:
        client = server.connect()
        await client.negotiate([dialect], mode=mode)
        await client.log_on()
        client.signs = False
        answer = await client.connect_tree(r"\\server\IPC$")
        assert answer.status == status
        assert answer.is_signed == (mode == 3)

    run(test)


# Sessions


def test_reauthentication_keeps_the_keys() -> None:
    async def test(server: SmbFixture) -> None:
        client = await server.log_on()
        await client.connect_tree(r"\\server\IPC$")
        answers = await client.log_on(keeps_keys=True)
        assert [answer.status for answer in answers] == [
            NtStatus.MORE_PROCESSING_REQUIRED,
            NtStatus.SUCCESS,
        ]
        assert client.signer is not None
        assert client.signer.verify(answers[-1].data)
        answer = await client.ask(Command.TREE_DISCONNECT, DISCONNECT)
        assert answer.status == NtStatus.SUCCESS

    run(test)


@pytest.mark.parametrize(
    ("user", "key", "status"),
    [
        (SECOND_ACCOUNT, SECOND_KEYS[0], NtStatus.ACCESS_DENIED),
        (ACCOUNT, WRONG_KEY, NtStatus.LOGON_FAILURE),
    ],
)
def test_reauthentication_as_somebody_else(user: str, key: str, status: NtStatus) -> None:
    async def test(server: SmbFixture) -> None:
        client = await server.log_on()
        assert (await client.log_on(user, key, keeps_keys=True))[-1].status == status
        answer = await client.connect_tree(r"\\server\IPC$")
        assert answer.status == NtStatus.USER_SESSION_DELETED

    run(test, accounts=(SECOND,))


def test_reauthentication_with_the_other_key() -> None:
    async def test(server: SmbFixture) -> None:
        client = server.connect()
        await client.negotiate([0x311])
        await client.log_on(SECOND_ACCOUNT, SECOND_KEYS[0])
        ((session, _),) = server.sessions.authenticated()
        assert session.password == SECOND_KEYS[0]
        assert SECOND_KEYS[0] not in repr(session)
        await client.log_on(SECOND_ACCOUNT, SECOND_KEYS[1], keeps_keys=True)
        assert session.password == SECOND_KEYS[1]

    run(test, accounts=(SECOND,))


def test_previous_session_is_closed() -> None:
    async def test(server: SmbFixture) -> None:
        await server.create_share()
        old = await server.log_on()
        await old.connect_tree()
        new = server.connect()
        await new.negotiate([0x311])
        assert (await new.log_on(previous=old.session_id))[-1].status == NtStatus.SUCCESS
        answer = await old.ask(Command.TREE_DISCONNECT, DISCONNECT)
        assert answer.status == NtStatus.USER_SESSION_DELETED
        assert len(server.sessions) == 1

    run(test)


def test_previous_session_of_another_account_stays() -> None:
    async def test(server: SmbFixture) -> None:
        old = await server.log_on()
        new = server.connect()
        await new.negotiate([0x311])
        await new.log_on(SECOND_ACCOUNT, SECOND_KEYS[0], previous=old.session_id)
        assert (await old.connect_tree(r"\\server\IPC$")).status == NtStatus.SUCCESS

    run(test, accounts=(SECOND,))


G, C, H = {"signing": (2,)}, {"signing": (1,)}, {"signing": (0,)}


@pytest.mark.parametrize(
    ("first", "second", "status"),
    [
        ((0x210, {}), (0x210, {}), NtStatus.REQUEST_NOT_ACCEPTED),
        ((0x302, {}), (0x210, {}), NtStatus.REQUEST_NOT_ACCEPTED),
        ((0x302, {}), (0x302, {}), NtStatus.REQUEST_NOT_ACCEPTED),
        ((0x311, {}), (0x311, {}), NtStatus.REQUEST_NOT_ACCEPTED),
        ((0x210, {}), (0x302, {}), NtStatus.INVALID_PARAMETER),
        ((0x300, {}), (0x302, {}), NtStatus.INVALID_PARAMETER),
        ((0x311, {}), (0x311, {"ciphers": (1,)}), NtStatus.INVALID_PARAMETER),
        ((0x311, G), (0x311, C), NtStatus.REQUEST_OUT_OF_SEQUENCE),
        ((0x311, G), (0x210, {}), NtStatus.REQUEST_OUT_OF_SEQUENCE),
        ((0x311, H), (0x311, G), NtStatus.NOT_SUPPORTED),
        ((0x311, C), (0x311, H), NtStatus.REQUEST_NOT_ACCEPTED),
    ],
)
def test_binding_is_refused(
    first: tuple[int, dict[str, Any]], second: tuple[int, dict[str, Any]], status: NtStatus
) -> None:
    async def test(server: SmbFixture) -> None:
        one = await server.log_on(first[0], **first[1])
        two = server.connect()
        await two.negotiate([second[0]], **second[1])
        two.session_id, two.signer = one.session_id, one.signer
        answer = await two.ask(Command.SESSION_SETUP, setup_body(b"", flags=1))
        assert answer.status == status
        assert one.signer is not None
        assert one.signer.verify(answer.data)
        answer = await two.ask(Command.SESSION_SETUP, setup_body(b"", flags=1), signs=False)
        assert answer.status == NtStatus.ACCESS_DENIED
        for signs in (True, False):
            answer = await two.ask(Command.SESSION_SETUP, setup_body(b""), signs=signs)
            assert answer.status == NtStatus.USER_SESSION_DELETED
            assert answer.is_signed == (signs and one.algorithm != SigningAlgorithm.AES_GMAC)
        answer = await two.ask(Command.SESSION_SETUP, setup_body(b"", flags=1), session_id=5)
        assert answer.status == NtStatus.USER_SESSION_DELETED
        # The session is still there.
        assert (await one.connect_tree(r"\\s\IPC$")).status == NtStatus.SUCCESS

    run(test)


@pytest.mark.parametrize("algorithm", SigningAlgorithm)
def test_request_that_is_repeated_in_another_connection(algorithm: SigningAlgorithm) -> None:
    async def test(server: SmbFixture) -> None:
        client = await server.log_on(signing=(algorithm,))
        recorded = client.message(Command.SESSION_SETUP, setup_body(b"garbage"))
        attacker = server.connect()
        await attacker.negotiate([0x311])
        while attacker.message_id < client.message_id - 1:
            await attacker.ask(Command.ECHO, ECHO)
        attacker.give(recorded)
        answer = await attacker.answer()
        assert answer.status == NtStatus.USER_SESSION_DELETED
        # The nonce of AES-GMAC is the message ID: it is that of the response to the client.
        assert answer.is_signed == (algorithm != SigningAlgorithm.AES_GMAC)
        client.give(recorded)
        assert (await client.answer()).is_signed

    run(test)


def test_logoff() -> None:
    async def test(server: SmbFixture) -> None:
        await server.create_share()
        client = await server.log_on()
        await client.connect_tree()
        answer = await client.ask(Command.LOGOFF, DISCONNECT)
        assert answer.status == NtStatus.SUCCESS
        assert answer.is_signed
        assert not len(server.sessions)
        answer = await client.ask(Command.LOGOFF, DISCONNECT)
        assert answer.status == NtStatus.USER_SESSION_DELETED

    run(test)


def test_sessions_of_a_connection_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "SESSIONS_PER_CONNECTION_MAX", 2)

    async def test(server: SmbFixture) -> None:
        client = await server.log_on()
        token = b"NTLMSSP\0" + struct.pack("<II16x", 1, 0xE2088297)
        statuses = [
            (await client.ask(Command.SESSION_SETUP, setup_body(token), session_id=0)).status
            for _ in range(2)
        ]
        assert statuses == [NtStatus.MORE_PROCESSING_REQUIRED, NtStatus.INSUFFICIENT_RESOURCES]

    run(test)


@pytest.mark.parametrize("length", [0, 2, 23])
def test_short_session_setup(length: int) -> None:
    async def test(server: SmbFixture) -> None:
        client = server.connect()
        await client.negotiate([0x311])
        body = setup_body(b"")[:length]
        answer = await client.ask(Command.SESSION_SETUP, body)
        assert answer.status == NtStatus.INVALID_PARAMETER

    run(test)


@pytest.mark.parametrize(
    ("name", "shown"),
    [("PC1", "PC1"), ("a\x00b\x1f\ufffe\ud800", "ab"), ("x" * 300, "x" * 255), ("", "")],
)
def test_names_of_clients(name: str, shown: str) -> None:
    assert sessions._shown_name(name) == shown


def test_memory_before_the_logon_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logons, "LOGON_DELAY_SECONDS", 0.1)

    async def test(server: SmbFixture) -> None:
        client = server.connect()
        await client.negotiate([0x311])
        await client.ask(Command.ECHO, ECHO, credits=100)
        given = 0
        while client.connection.accepts_frame():
            client.give(client.message(Command.SESSION_SETUP, setup_body(bytes(30_000))))
            given += 1
        assert given == 3
        await asyncio.sleep(0.6)
        assert client.connection.accepts_frame()

    run(test)


def test_changed_logons(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logons, "LOGON_DELAY_SECONDS_MAX", 0)
    monkeypatch.setattr(sessions, "FAILED_LOGONS_MAX", 1_000_000)
    changes = random.Random(1)

    def changed(body: bytes) -> bytes:
        spoiled = bytearray(body)
        for _ in range(changes.randrange(1, 4)):
            spoiled[changes.randrange(len(spoiled))] = changes.choice((0, 1, 0x7F, 0x80, 0xFF))
        return bytes(spoiled[: changes.choice((None, changes.randrange(2, len(spoiled))))])

    async def test(server: SmbFixture) -> None:
        for protocol in ("ntlm", "negotiate"):
            for _ in range(300):
                client = server.connect()
                await client.negotiate([0x311])
                context = spnego.client(ACCOUNT, KEY, protocol=protocol)
                body = setup_body(context.step() or b"")
                if changes.random() < 0.5:
                    answer = await client.ask(Command.SESSION_SETUP, body)
                    client.session_id = answer.header.session_id
                    offset, length = struct.unpack_from("<HH", answer.body, 4)
                    body = setup_body(context.step(answer.data[offset : offset + length]) or b"")
                client.give(client.message(Command.SESSION_SETUP, changed(body)))
                frames = await client.settle()
                statuses = [one.status for frame in frames for one in frame]
                assert NtStatus.INTERNAL_ERROR not in statuses
                await client.connection.close()

    run(test)


def test_session_that_is_being_authenticated_is_of_no_use() -> None:
    async def test(server: SmbFixture) -> None:
        client = server.connect()
        await client.negotiate([0x311])
        token = b"NTLMSSP\0" + struct.pack("<II16x", 1, 0xE2088297)
        answer = await client.ask(Command.SESSION_SETUP, setup_body(token))
        client.session_id = answer.header.session_id
        assert (await client.connect_tree()).status == NtStatus.USER_SESSION_DELETED

    run(test)


def test_echo_without_a_session() -> None:
    async def test(server: SmbFixture) -> None:
        client = server.connect()
        await client.negotiate([0x311])
        answer = await client.ask(Command.ECHO, ECHO)
        assert (answer.status, answer.body) == (NtStatus.SUCCESS, ECHO)

    run(test)


# Trees


def test_tree_connect_bytes() -> None:
    async def test(server: SmbFixture) -> None:
        await server.create_share()
        client = await server.log_on()
        disk = await client.connect_tree(r"\\ANY\BOX")
        assert disk.body == bytes.fromhex("1000 01 00 00000000 00000000 ff011f00")
        pipes = await client.connect_tree(r"\\any\ipc$")
        assert pipes.body == bytes.fromhex("1000 02 00 00000000 00000000 ff011f00")
        assert pipes.header.tree_id != disk.header.tree_id

    run(test)


@pytest.mark.parametrize(
    ("path", "status"),
    [
        (r"\\server\none", NtStatus.BAD_NETWORK_NAME),
        (r"\\server\no_share", NtStatus.BAD_NETWORK_NAME),
        (r"\\server\box\x", NtStatus.BAD_NETWORK_NAME),
        ("\\\\server\\", NtStatus.BAD_NETWORK_NAME),
        (r"\\server", NtStatus.INVALID_PARAMETER),
        ("box", NtStatus.INVALID_PARAMETER),
        ("", NtStatus.INVALID_PARAMETER),
        (r"\\server" + "\\" + "x" * 2_000, NtStatus.INVALID_PARAMETER),
    ],
)
def test_shares_that_do_not_exist(path: str, status: NtStatus) -> None:
    async def test(server: SmbFixture) -> None:
        await server.create_share()
        client = await server.log_on()
        assert (await client.connect_tree(path)).status == status

    run(test)


def test_nfs_share() -> None:
    async def test(server: SmbFixture) -> None:
        await server.create_share(settings=ShareSettings(protocol=ShareProtocol.NFS))
        client = await server.log_on()
        assert (await client.connect_tree()).status == NtStatus.BAD_NETWORK_NAME

    run(test)


def test_path_outside_the_message() -> None:
    async def test(server: SmbFixture) -> None:
        client = await server.log_on()
        body = struct.pack("<HHHH", 9, 0, 72, 500) + b"\\\0\\\0"
        answer = await client.ask(Command.TREE_CONNECT, body)
        assert answer.status == NtStatus.INVALID_PARAMETER

    run(test)


@pytest.mark.parametrize("limit", ["TREES_PER_SESSION_MAX", "TREES_PER_CONNECTION_MAX"])
def test_trees_are_limited(limit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trees, limit, 2)

    async def test(server: SmbFixture) -> None:
        client = await server.log_on()
        statuses = [(await client.connect_tree(r"\\s\IPC$")).status for _ in range(3)]
        assert statuses == [
            NtStatus.SUCCESS,
            NtStatus.SUCCESS,
            NtStatus.INSUFFICIENT_RESOURCES,
        ]

    run(test)


def test_tree_disconnect() -> None:
    async def test(server: SmbFixture) -> None:
        await server.create_share()
        client = await server.log_on()
        await client.connect_tree()
        assert (await client.ask(Command.TREE_DISCONNECT, DISCONNECT)).status == NtStatus.SUCCESS
        answer = await client.ask(Command.TREE_DISCONNECT, DISCONNECT)
        assert answer.status == NtStatus.NETWORK_NAME_DELETED

    run(test)


def test_end_of_a_connection_leaves_the_shares() -> None:
    async def test(server: SmbFixture) -> None:
        await server.create_share()
        client = await server.log_on()
        await client.connect_tree()
        (session,) = client.connection.sessions.values()
        (tree,) = session.trees.values()
        assert tree.client is not None
        share = tree.client.share
        assert share.clients == 1
        await client.connection.close()
        assert share.clients == 0
        assert not client.connection.accepts_frame()

    run(test)


def test_flags_of_responses() -> None:
    async def test(server: SmbFixture) -> None:
        client: FrameClient = await server.log_on()
        priority = 3 << 4
        answer = await client.ask(Command.ECHO, ECHO, flags=priority)
        assert answer.header.flags == Flags.RESPONSE | Flags.SIGNED | priority

    run(test)
