"""NTLMv2, compared with the example of [MS-NLMP] 4.2.4 and with a logon of Windows."""

from __future__ import annotations

import struct

import pytest

from etagere.protocol.smb import ntlm
from etagere.protocol.smb.ntlm import (
    LogonFailed,
    MessageAuthenticator,
    NtlmAcceptor,
    parse_authenticate,
)
from tests.protocol.smb import windows_messages as windows

# [MS-NLMP] 4.2.1 and 4.2.4
CHALLENGE = bytes.fromhex("0123456789abcdef")
FLAGS = 0xE2888235
PROOF = bytes.fromhex("68cd0ab851e51c96aabc927bebef6a1c")
BLOB = bytes.fromhex(
    "01010000000000000000000000000000aaaaaaaaaaaaaaaa0000000002000c0044006f006d006100"
    "69006e0001000c005300650072007600650072000000000000000000"
)
SESSION_BASE_KEY = bytes.fromhex("8de40ccadbc14a82f15cb0ad0de95ca3")
ENCRYPTED_SESSION_KEY = bytes.fromhex("c5dad2544fc9799094ce1ce90bc9d03e")
SESSION_KEY = b"\x55" * 16

NEGOTIATE = struct.pack("<8sII16x", ntlm.SIGNATURE, 1, FLAGS)


def authenticate_message(
    nt_response: bytes = PROOF + BLOB,
    user: str = "User",
    domain: str = "Domain",
    workstation: str = "COMPUTER",
    session_key: bytes = ENCRYPTED_SESSION_KEY,
    flags: int = FLAGS,
) -> bytes:
    """Returns an AUTHENTICATE message without a MIC."""
    head, payload = b"", b""
    for field in (
        bytes(24),
        nt_response,
        domain.encode("utf-16-le"),
        user.encode("utf-16-le"),
        workstation.encode("utf-16-le"),
        session_key,
    ):
        head += struct.pack("<HHI", len(field), len(field), 72 + len(payload))
        payload += field
    return struct.pack("<8sI", ntlm.SIGNATURE, 3) + head + struct.pack("<I8x", flags) + payload


def logon(message: bytes, *passwords: str, flags: int = FLAGS) -> ntlm.Logon:
    acceptor = NtlmAcceptor(CHALLENGE, "SERVER", None)
    acceptor.challenge(struct.pack("<8sII16x", ntlm.SIGNATURE, 1, flags))
    return acceptor.check(parse_authenticate(message), passwords)[0]


def test_example_of_the_specification() -> None:
    found = logon(authenticate_message(), "Password")
    assert found == ntlm.Logon("user", "COMPUTER", "Password", SESSION_KEY)


def test_without_key_exchange() -> None:
    flags = FLAGS & ~ntlm.NEGOTIATE_KEY_EXCH
    message = authenticate_message(session_key=b"", flags=flags)
    assert logon(message, "Password").session_key == SESSION_BASE_KEY
    # A key that was not negotiated is not used.
    message = authenticate_message(flags=flags)
    assert logon(message, "Password").session_key == SESSION_BASE_KEY
    message = authenticate_message()
    assert logon(message, "Password", flags=flags).session_key == SESSION_BASE_KEY


@pytest.mark.parametrize(
    "passwords",
    [("Password",), ("Password", "other"), ("other", "Password"), ("Password", "Password")],
)
def test_any_password_of_the_user(passwords: tuple[str, ...]) -> None:
    assert logon(authenticate_message(), *passwords).session_key == SESSION_KEY


@pytest.mark.parametrize("user", ["user", "USER", "uSeR"])
def test_the_case_of_the_user_does_not_matter(user: str) -> None:
    assert logon(authenticate_message(user=user), "Password").user == "user"


@pytest.mark.parametrize(
    ("message", "passwords"),
    [
        (authenticate_message(), ()),
        (authenticate_message(), ("password",)),
        (authenticate_message(), ("other", "")),
        (authenticate_message(user="Other"), ("Password",)),
        (authenticate_message(domain="domain"), ("Password",)),
        (authenticate_message(bytes(16) + BLOB), ("Password",)),
        (authenticate_message(PROOF + BLOB + b"\0"), ("Password",)),
        (authenticate_message(PROOF + BLOB[:-4]), ("Password",)),
    ],
)
def test_a_wrong_proof(message: bytes, passwords: tuple[str, ...]) -> None:
    with pytest.raises(LogonFailed):
        logon(message, *passwords)


def test_another_challenge() -> None:
    acceptor = NtlmAcceptor(b"another!", "SERVER", None)
    acceptor.challenge(NEGOTIATE)
    with pytest.raises(LogonFailed):
        acceptor.check(parse_authenticate(authenticate_message()), ["Password"])


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (authenticate_message(b"", user=""), "anonymous"),
        (authenticate_message(user=""), "anonymous"),
        (authenticate_message(b""), "not an NTLMv2"),
        (authenticate_message(bytes(24)), "not an NTLMv2"),
        (authenticate_message(PROOF + BLOB[:27]), "not an NTLMv2"),
        (authenticate_message(PROOF + b"\x02\x02" + BLOB[2:]), "version"),
        (authenticate_message(session_key=bytes(15)), "session key"),
        (authenticate_message(flags=FLAGS & ~ntlm.NEGOTIATE_UNICODE), "Unicode"),
        (authenticate_message(user="u" * 257), "too long"),
        (authenticate_message(workstation="w" * 257), "too long"),
        (authenticate_message().replace(b"U\0s\0e\0r\0", b"\0\xd8s\0e\0r\0", 1), "UTF-16"),
        (authenticate_message()[:-1], "outside"),
        (authenticate_message()[:63], "too short"),
        (NEGOTIATE + bytes(64), "not an AUTHENTICATE"),
    ],
)
def test_invalid_authenticate_messages(message: bytes, reason: str) -> None:
    with pytest.raises(LogonFailed, match=reason):
        parse_authenticate(message)


@pytest.mark.parametrize(
    "message",
    [
        b"",
        NEGOTIATE[:15],
        b"X" + NEGOTIATE[1:],
        NEGOTIATE + bytes(2048),
        struct.pack("<8sII16x", ntlm.SIGNATURE, 3, FLAGS),
        struct.pack("<8sII16x", ntlm.SIGNATURE, 1, FLAGS & ~ntlm.NEGOTIATE_UNICODE),
        struct.pack("<8sII16x", ntlm.SIGNATURE, 1, 0x00000207),
    ],
)
def test_invalid_negotiate_messages(message: bytes) -> None:
    with pytest.raises(LogonFailed):
        NtlmAcceptor(CHALLENGE, "SERVER", None).challenge(message)


def test_challenge_message() -> None:
    ticks_since_1970 = 0x01D0AECBADF5A1A1 - 116_444_736_000_000_000
    acceptor = NtlmAcceptor(windows.CHALLENGE, "sut311", ticks_since_1970)
    message = acceptor.challenge(b"NTLMSSP\0" + bytes.fromhex("01000000978208E2") + bytes(24))
    name, short = "sut311".encode("utf-16-le"), "SUT311".encode("utf-16-le")
    assert message == b"".join(
        (
            b"NTLMSSP\0",
            bytes.fromhex("02000000"),
            bytes.fromhex("0c00 0c00 38000000"),  # the name
            bytes.fromhex("15828ae2"),  # the flags that Windows answers the same client with
            windows.CHALLENGE,
            bytes(8),
            bytes.fromhex("5000 5000 44000000"),  # the AV pairs
            bytes.fromhex("0a0000000000000f"),  # the version
            name,
            bytes.fromhex("0200 0c00") + short,
            bytes.fromhex("0100 0c00") + short,
            bytes.fromhex("0400 0c00") + name,
            bytes.fromhex("0300 0c00") + name,
            bytes.fromhex("0700 0800 a1a1f5adcbaed001"),
            bytes.fromhex("0000 0000"),
        )
    )


def test_without_a_time_there_is_no_timestamp() -> None:
    message = NtlmAcceptor(CHALLENGE, "S", None).challenge(NEGOTIATE)
    assert bytes.fromhex("0700 0800") not in message


def windows_acceptor() -> NtlmAcceptor:
    """Returns an acceptor that has sent the challenge of Windows."""
    acceptor = NtlmAcceptor(windows.CHALLENGE, "SUT311", None)
    acceptor.challenge(windows.FIRST_TOKEN[-40:])
    acceptor._challenge_message = windows.CHALLENGE_MESSAGE
    return acceptor


def test_mic_of_windows() -> None:
    """The password is not published, but the session key that the MIC is made with."""
    message = parse_authenticate(windows.AUTHENTICATE_MESSAGE)
    assert (message.user, message.domain, message.workstation) == (
        "administrator",
        "SUT311",
        "DRIVER311",
    )
    windows_acceptor()._check_mic(message, windows.SESSION_KEY)


@pytest.mark.parametrize("position", [72, 87, 88, 64])
def test_a_wrong_mic(position: int) -> None:
    changed = bytearray(windows.AUTHENTICATE_MESSAGE)
    changed[position] ^= 1
    with pytest.raises(LogonFailed, match="MIC"):
        windows_acceptor()._check_mic(parse_authenticate(bytes(changed)), windows.SESSION_KEY)


def test_mic_covers_the_other_messages() -> None:
    acceptor = NtlmAcceptor(windows.CHALLENGE, "SUT311", None)
    acceptor.challenge(windows.FIRST_TOKEN[-40:])  # Windows has sent other AV pairs
    with pytest.raises(LogonFailed, match="MIC"):
        acceptor._check_mic(parse_authenticate(windows.AUTHENTICATE_MESSAGE), windows.SESSION_KEY)


def test_codes_of_windows() -> None:
    flags = 0xE2888215
    authenticator = MessageAuthenticator(windows.SESSION_KEY, flags)
    assert authenticator.verify(windows.MECHANISM_LIST, windows.MECHANISM_LIST_MIC_OF_CLIENT)
    assert authenticator.sign(windows.MECHANISM_LIST) == windows.MECHANISM_LIST_MIC_OF_SERVER


def test_codes_are_numbered() -> None:
    authenticator = MessageAuthenticator(windows.SESSION_KEY, 0xE2888215)
    assert authenticator.sign(b"x")[12:] == bytes(4)
    assert authenticator.sign(b"x")[12:] == b"\x01\0\0\0"
    assert not authenticator.verify(b"x", windows.MECHANISM_LIST_MIC_OF_CLIENT)
    assert not authenticator.verify(
        windows.MECHANISM_LIST, windows.MECHANISM_LIST_MIC_OF_CLIENT
    )  # its number has been used


def test_code_of_the_specification() -> None:
    """[MS-NLMP] 4.2.4.4, where the cipher has encrypted the message before."""
    direction = ntlm._Direction(SESSION_KEY, FLAGS, b"client-to-server")
    message = "Plaintext".encode("utf-16-le")
    assert direction._cipher.update(message).hex() == "54e50165bf1936dc996020c1811b0f06fb5f"
    assert direction.code(message).hex() == "010000007fb38ec5c55d497600000000"


def test_workstation_is_printable() -> None:
    found = logon(authenticate_message(workstation="a\r\nb\x00c\u202e"), "Password")
    assert found.workstation == "a??b?c?"


def test_challenge_has_eight_bytes() -> None:
    with pytest.raises(ValueError, match="8 bytes"):
        NtlmAcceptor(b"short", "S", None)
