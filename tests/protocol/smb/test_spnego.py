"""Logons by SPNEGO, with pyspnego as the client."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence

import pytest
import spnego
from hypothesis import given, settings
from hypothesis import strategies as st
from spnego._context import GSSMech
from spnego._spnego import (
    NegState,
    NegTokenInit,
    NegTokenResp,
    pack_mech_type_list,
    unpack_token,
)

from etagere.protocol.smb.spnego import OFFER, Acceptor, LogonFailed, Step
from tests.protocol.smb import windows_messages as windows
from tests.protocol.smb.test_ntlm import NEGOTIATE, authenticate_message

NOW = 17_000_000_000_000_000
CHALLENGE = bytes.fromhex("0123456789abcdef")
PASSWORDS = {"devstoreaccount1": ["primary key==", "secondary key=="], "user": ["Password"]}


def run(step: Awaitable[Step]) -> Step:
    async def wait() -> Step:
        return await step

    return asyncio.run(wait())


async def passwords_of(user: str) -> Sequence[str]:
    return PASSWORDS.get(user, [])


def accept(acceptor: Acceptor, token: bytes) -> Step:
    return run(acceptor.accept(token, passwords_of))


def client_of(
    user: str = "devstoreaccount1", password: str = "primary key==", protocol: str = "ntlm"
) -> spnego.ContextProxy:
    options = spnego.NegotiateOptions.use_ntlm
    if protocol == "negotiate":
        options = spnego.NegotiateOptions.use_negotiate
    return spnego.client(
        user, password, hostname="server", service="cifs", protocol=protocol, options=options
    )


def log_on(client: spnego.ContextProxy, acceptor: Acceptor) -> Step:
    """Exchanges tokens until the server has logged the client on."""
    token = client.step()
    while True:
        assert token is not None
        step = accept(acceptor, token)
        if step.logon is not None:
            if step.token:
                assert client.step(step.token) is None
            assert client.complete
            return step
        token = client.step(step.token)


@pytest.mark.parametrize("protocol", ["negotiate", "ntlm"])
@pytest.mark.parametrize("password", ["primary key==", "secondary key=="])
@pytest.mark.parametrize(
    "user",
    ["devstoreaccount1", "DevStoreAccount1", "AZURE\\devstoreaccount1", "x\\DEVSTOREACCOUNT1"],
)
@pytest.mark.parametrize("now", [NOW, None])
def test_logon(protocol: str, password: str, user: str, now: int | None) -> None:
    client = client_of(user, password, protocol)
    step = log_on(client, Acceptor(CHALLENGE, "ETAGERE", now))
    assert step.logon is not None
    assert step.logon.user == "devstoreaccount1"
    assert step.logon.session_key == client.session_key


@pytest.mark.parametrize("protocol", ["negotiate", "ntlm"])
@pytest.mark.parametrize(
    ("user", "password"),
    [("devstoreaccount1", "Primary key=="), ("nobody", "primary key=="), ("user", "primary key==")],
)
def test_refused_logon(protocol: str, user: str, password: str) -> None:
    client = client_of(user, password, protocol)
    acceptor = Acceptor(CHALLENGE, "ETAGERE", NOW)
    challenge = accept(acceptor, client.step() or b"").token
    last = client.step(challenge) or b""
    with pytest.raises(LogonFailed):
        accept(acceptor, last)
    with pytest.raises(LogonFailed, match="ended"):
        accept(acceptor, last)


MECHANISMS = [GSSMech._ms_kerberos.value, GSSMech.kerberos.value, GSSMech.ntlm.value]


def log_on_after_kerberos(*, mic: Callable[[spnego.ContextProxy], bytes | None]) -> NegTokenResp:
    """Logs on as a client that would have liked Kerberos better, and returns the last answer."""
    acceptor = Acceptor(CHALLENGE, "ETAGERE", NOW)
    answer = accept(acceptor, NegTokenInit(MECHANISMS, mech_token=b"a ticket").pack())
    asked = unpack_token(answer.token)
    assert isinstance(asked, NegTokenResp)
    assert asked.neg_state == NegState.request_mic
    assert asked.supported_mech == GSSMech.ntlm.value
    assert asked.response_token is None

    client = client_of()
    answer = accept(acceptor, NegTokenResp(response_token=client.step()).pack())
    challenge = unpack_token(answer.token)
    assert isinstance(challenge, NegTokenResp)
    assert challenge.neg_state == NegState.accept_incomplete
    message = client.step(challenge.response_token)
    response = NegTokenResp(response_token=message, mech_list_mic=mic(client))
    step = accept(acceptor, response.pack())
    assert step.logon is not None
    assert step.logon.session_key == client.session_key
    last = unpack_token(step.token)
    assert isinstance(last, NegTokenResp)
    assert last.neg_state == NegState.accept_complete
    if last.mech_list_mic is not None:
        client.verify(pack_mech_type_list(MECHANISMS), last.mech_list_mic)
    return last


def test_kerberos_first() -> None:
    last = log_on_after_kerberos(mic=lambda client: client.sign(pack_mech_type_list(MECHANISMS)))
    assert last.mech_list_mic is not None


def test_a_client_that_does_not_sign_its_list() -> None:
    assert log_on_after_kerberos(mic=lambda client: None).mech_list_mic is None


def test_a_list_that_was_changed() -> None:
    with pytest.raises(LogonFailed, match="list of mechanisms"):
        log_on_after_kerberos(mic=lambda client: client.sign(pack_mech_type_list(MECHANISMS[1:])))


def test_ntlm_without_a_first_message() -> None:
    acceptor = Acceptor(CHALLENGE, "ETAGERE", NOW)
    accept(acceptor, NegTokenInit([GSSMech.ntlm.value]).pack())
    answer = accept(acceptor, NegTokenResp(response_token=client_of().step()).pack())
    assert b"NTLMSSP\0\x02" in answer.token


def test_tokens_of_windows() -> None:
    acceptor = Acceptor(windows.CHALLENGE, "SUT311", NOW)
    assert b"NTLMSSP\0\x02" in accept(acceptor, windows.FIRST_TOKEN).token
    users = []

    async def ask(user: str) -> Sequence[str]:
        users.append(user)
        return []

    with pytest.raises(LogonFailed, match="the user or the password"):
        run(acceptor.accept(windows.SECOND_TOKEN, ask))
    assert users == ["administrator"]


def test_offer() -> None:
    offer = unpack_token(OFFER)
    assert isinstance(offer, NegTokenInit)
    assert offer.mech_types == [GSSMech.ntlm.value]
    assert OFFER.hex() == (
        "6048" "06062b0601050502"
        "a03e" "303c"
        "a00e" "300c" "060a2b06010401823702020a"
        "a32a" "3028" "a026" "1b24" + b"not_defined_in_RFC4178@please_ignore".hex()
    )  # fmt: skip


INIT = NegTokenInit([GSSMech.ntlm.value], mech_token=NEGOTIATE).pack()
RESPONSE = NegTokenResp(response_token=authenticate_message()).pack()


@pytest.mark.parametrize(
    "token",
    [
        b"",
        b"\0",
        b"\x60",
        b"\x60\x00",
        b"\x60\x80",
        b"\x60\xff" + b"\xff" * 127,
        b"\x60\x84\x00\x00\x00\x02\x30\x00",
        b"NTLMSSP",
        b"NTLMSSP\0",
        INIT + b"\0",
        INIT[:-1],
        RESPONSE,
        NegTokenInit([]).pack(),
        NegTokenInit(MECHANISMS[:2], mech_token=b"a ticket").pack(),
        NegTokenInit([GSSMech.ntlm.value] * 100, mech_token=NEGOTIATE).pack(),
        INIT.replace(bytes.fromhex("2b0601050502"), bytes.fromhex("2b0601050503")),
        b"\x60\x82\xff\xff" + bytes(65_535),
        b"\x60\x80" * 32_000,
        b"\x30\x80" * 32_000,
    ],
)
def test_invalid_first_tokens(token: bytes) -> None:
    with pytest.raises(LogonFailed):
        accept(Acceptor(CHALLENGE, "ETAGERE", NOW), token)


@pytest.mark.parametrize(
    "token",
    [
        b"",
        INIT,
        authenticate_message(),  # without SPNEGO, which the client has begun with
        NegTokenResp(neg_state=NegState.accept_incomplete).pack(),
        NegTokenResp(neg_state=NegState.reject, response_token=authenticate_message()).pack(),
        NegTokenResp(response_token=authenticate_message(), mech_list_mic=b"short").pack(),
        NegTokenResp(response_token=authenticate_message(), mech_list_mic=bytes(16)).pack(),
        NegTokenResp(response_token=NEGOTIATE).pack(),
        bytes.fromhex("a10c 300a a2030401 00 a2030401 00"),
    ],
)
def test_invalid_second_tokens(token: bytes) -> None:
    acceptor = Acceptor(CHALLENGE, "ETAGERE", NOW)
    accept(acceptor, INIT)
    with pytest.raises(LogonFailed):
        accept(acceptor, token)


@st.composite
def damaged(draw: st.DrawFn, *tokens: bytes) -> bytes:
    """A token with a few bytes changed, inserted or removed."""
    token = bytearray(draw(st.sampled_from(tokens)))
    for _ in range(draw(st.integers(1, 4))):
        position = draw(st.integers(0, len(token)))
        removed = draw(st.integers(0, 3))
        token[position : position + removed] = draw(st.binary(max_size=3))
    return bytes(token)


FIRST_TOKENS = (
    INIT,
    NEGOTIATE,
    windows.FIRST_TOKEN,
    NegTokenInit(MECHANISMS, mech_token=b"a ticket").pack(),
)
SECOND_TOKENS = (
    RESPONSE,
    authenticate_message(),
    windows.SECOND_TOKEN,
    NegTokenResp(response_token=authenticate_message(), mech_list_mic=bytes(16)).pack(),
)


@settings(max_examples=300)
@given(damaged(*FIRST_TOKENS) | st.binary(max_size=100))
def test_damaged_first_tokens(token: bytes) -> None:
    with contextlib.suppress(LogonFailed):
        accept(Acceptor(CHALLENGE, "ETAGERE", NOW), token)


@settings(max_examples=300)
@given(st.sampled_from(FIRST_TOKENS), damaged(*SECOND_TOKENS) | st.binary(max_size=100))
def test_damaged_second_tokens(first: bytes, second: bytes) -> None:
    acceptor = Acceptor(CHALLENGE, "ETAGERE", NOW)
    accept(acceptor, first)
    with contextlib.suppress(LogonFailed):
        accept(acceptor, second)
