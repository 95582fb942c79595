"""The server's side of SPNEGO ([RFC 4178], [MS-SPNG]), with NTLM as its only mechanism.

Tokens are DER. They are read element by element without recursion, so that nothing depends on how
deep a client nests them.
"""

from __future__ import annotations

import enum
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, NamedTuple

from etagere.protocol.smb.ntlm import SIGNATURE as NTLM_SIGNATURE
from etagere.protocol.smb.ntlm import (
    Logon,
    LogonFailed,
    MessageAuthenticator,
    NtlmAcceptor,
    parse_authenticate,
)

__all__ = ["OFFER", "Acceptor", "Logon", "LogonFailed", "PasswordsOf", "Step"]

TOKEN_BYTES_MAX: Final = 65_535
"""What fits into the security buffer of a SESSION_SETUP request."""
MECHANISM_LIST_BYTES_MAX: Final = 1024
"""The list is kept until the client has authenticated."""
_LENGTH_BYTES_MAX: Final = 3
"""Of the length of an element: more than a token can have."""

_OID: Final = 0x06
_OCTET_STRING: Final = 0x04
_ENUMERATED: Final = 0x0A
_GENERAL_STRING: Final = 0x1B
_SEQUENCE: Final = 0x30
_APPLICATION: Final = 0x60
_CONTEXT: Final = 0xA0
"""Plus the number of the field."""

# NegTokenInit and NegTokenResp, [RFC 4178] 4.2: the choice, and the numbers of the fields.
_NEG_TOKEN_INIT: Final = _CONTEXT
_NEG_TOKEN_RESP: Final = _CONTEXT + 1
_MECHANISMS: Final = _CONTEXT
_HINTS: Final = _CONTEXT + 3
_STATE: Final = _CONTEXT
_SUPPORTED_MECHANISM: Final = _CONTEXT + 1
_TOKEN: Final = _CONTEXT + 2
_MECHANISM_LIST_MIC: Final = _CONTEXT + 3

_SPNEGO: Final = bytes.fromhex("2b0601050502")
_NTLMSSP: Final = bytes.fromhex("2b06010401823702020a")


class _NegotiationState(enum.IntEnum):
    """negState, [RFC 4178] 4.2.2."""

    ACCEPT_COMPLETED = 0
    ACCEPT_INCOMPLETE = 1
    REJECT = 2
    REQUEST_MIC = 3


class _Stage(enum.Enum):
    """What the next token of the client has to be."""

    FIRST_TOKEN = enum.auto()
    NEGOTIATE = enum.auto()
    AUTHENTICATE = enum.auto()
    NONE = enum.auto()


class Step(NamedTuple):
    """The answer to a token."""

    token: bytes
    logon: Logon | None
    """None: the client has to send another token."""


PasswordsOf = Callable[[str], Awaitable[Sequence[str]]]
"""Returns the passwords of a user, whose name is in lower case."""


class Acceptor:
    """One logon, from the first token of the client to the last."""

    def __init__(self, challenge: bytes, target_name: str, now: int | None = None) -> None:
        """`challenge` is 8 random bytes, `target_name` the name of the server, `now` the time in
        ticks since 1970. Clients that get the time protect the exchange with a MIC."""
        self._ntlm = NtlmAcceptor(challenge, target_name, now)
        self._stage = _Stage.FIRST_TOKEN
        self.user = ""
        """Who the client claims to be; empty: it has not said so yet."""
        self._mechanisms: bytes | None = None
        """The encoded list of the client; None: it sends NTLM messages without SPNEGO."""

    async def accept(self, token: bytes, passwords_of: PasswordsOf) -> Step:
        """Returns the answer to the next token of the client; raises `LogonFailed`."""
        stage, self._stage = self._stage, _Stage.NONE
        if len(token) > TOKEN_BYTES_MAX:
            raise LogonFailed("the token is too long")
        if stage is _Stage.FIRST_TOKEN:
            return self._accept_first(token)
        if stage is _Stage.NONE:
            raise LogonFailed("the logon has ended")
        message, mic = token, None
        if self._mechanisms is not None:
            message, mic = _parse_response(token)
        if stage is _Stage.NEGOTIATE:
            return self._challenge(message)
        authenticate = parse_authenticate(message)
        self.user = authenticate.user.lower()
        passwords = await passwords_of(self.user)
        logon, authenticator = self._ntlm.check(authenticate, passwords)
        return Step(self._complete(mic, authenticator), logon)

    def _accept_first(self, token: bytes) -> Step:
        if token.startswith(NTLM_SIGNATURE):
            return self._challenge(token)
        mechanisms, oids, message = _parse_init(token)
        if _NTLMSSP not in oids:
            raise LogonFailed("the client does not offer NTLM")
        self._mechanisms = mechanisms
        if oids[0] == _NTLMSSP and message is not None:
            return self._challenge(message)
        # The first message, if any, is of the mechanism that the client prefers: Kerberos.
        self._stage = _Stage.NEGOTIATE
        return Step(_encode_response(_NegotiationState.REQUEST_MIC, names_mechanism=True), None)

    def _challenge(self, message: bytes) -> Step:
        challenge = self._ntlm.challenge(message)
        self._stage = _Stage.AUTHENTICATE
        if self._mechanisms is None:
            return Step(challenge, None)
        return Step(
            _encode_response(
                _NegotiationState.ACCEPT_INCOMPLETE, names_mechanism=True, message=challenge
            ),
            None,
        )

    def _complete(self, mic: bytes | None, authenticator: MessageAuthenticator) -> bytes:
        """Returns the last token. A client that protects its list of mechanisms gets the same.

        A list without a MIC is accepted: with one mechanism only, nobody gains by changing it.
        """
        if self._mechanisms is None:
            return b""
        answer = b""
        if mic is not None:
            if not authenticator.verify(self._mechanisms, mic):
                raise LogonFailed("the MIC of the list of mechanisms is wrong")
            answer = authenticator.sign(self._mechanisms)
        return _encode_response(_NegotiationState.ACCEPT_COMPLETED, mic=answer)


# Parsing


def _parse_init(token: bytes) -> tuple[bytes, list[bytes], bytes | None]:
    """Returns the list of mechanisms as it was sent, their OIDs, and the first message."""
    application = _only(memoryview(token), _APPLICATION)
    oid, choice = _first(application, _OID)
    if oid != _SPNEGO:
        raise LogonFailed("the token is not of SPNEGO")
    fields = _fields(_only(choice, _NEG_TOKEN_INIT))
    mechanisms = fields.get(_MECHANISMS)
    if mechanisms is None or len(mechanisms) > MECHANISM_LIST_BYTES_MAX:
        raise LogonFailed("the list of mechanisms is missing or too long")
    rest = _only(mechanisms, _SEQUENCE)
    oids = []
    while rest:
        mechanism, rest = _first(rest, _OID)
        oids.append(bytes(mechanism))
    return bytes(mechanisms), oids, _octets(fields, _TOKEN)


def _parse_response(token: bytes) -> tuple[bytes, bytes | None]:
    """Returns the message and the MIC of the list of mechanisms."""
    fields = _fields(_only(memoryview(token), _NEG_TOKEN_RESP))
    state = fields.get(_STATE)
    if state is not None and bytes(_only(state, _ENUMERATED)) == bytes([_NegotiationState.REJECT]):
        raise LogonFailed("the client has ended the negotiation")
    message = _octets(fields, _TOKEN)
    if message is None:
        raise LogonFailed("the token has no message")
    return message, _octets(fields, _MECHANISM_LIST_MIC)


def _fields(data: memoryview) -> dict[int, memoryview]:
    """Returns the fields of a sequence by their tags."""
    rest = _only(data, _SEQUENCE)
    fields: dict[int, memoryview] = {}
    while rest:
        tag, contents, rest = _element(rest)
        if tag in fields:
            raise LogonFailed("a field of the token is repeated")
        fields[tag] = contents
    return fields


def _octets(fields: dict[int, memoryview], tag: int) -> bytes | None:
    contents = fields.get(tag)
    return None if contents is None else bytes(_only(contents, _OCTET_STRING))


def _only(data: memoryview, tag: int) -> memoryview:
    """Returns the contents of an element that nothing follows."""
    contents, rest = _first(data, tag)
    if rest:
        raise LogonFailed("the token has bytes behind an element")
    return contents


def _first(data: memoryview, expected: int) -> tuple[memoryview, memoryview]:
    """Returns the contents of the first element, and what follows it."""
    tag, contents, rest = _element(data)
    if tag != expected:
        raise LogonFailed("the token has an unexpected element")
    return contents, rest


def _element(data: memoryview) -> tuple[int, memoryview, memoryview]:
    """Returns the tag and the contents of the first element, and what follows it."""
    if len(data) < 2:
        raise LogonFailed("the token is cut short")
    tag, length, at = data[0], data[1], 2
    if length >= 0x80:
        count = length & 0x7F
        if not 1 <= count <= _LENGTH_BYTES_MAX or len(data) < at + count:
            raise LogonFailed("an element of the token has an invalid length")
        length = int.from_bytes(data[at : at + count], "big")
        at += count
    if len(data) - at < length:
        raise LogonFailed("an element is longer than the token")
    return tag, data[at : at + length], data[at + length :]


# Encoding


def _encode(tag: int, *contents: bytes) -> bytes:
    data = b"".join(contents)
    if len(data) < 0x80:
        return bytes((tag, len(data))) + data
    length = len(data).to_bytes((len(data).bit_length() + 7) // 8, "big")
    return bytes((tag, 0x80 | len(length))) + length + data


def _encode_response(
    state: _NegotiationState,
    *,
    names_mechanism: bool = False,
    message: bytes = b"",
    mic: bytes = b"",
) -> bytes:
    """Returns a NegTokenResp."""
    fields = [_encode(_STATE, _encode(_ENUMERATED, bytes([state])))]
    if names_mechanism:
        fields.append(_encode(_SUPPORTED_MECHANISM, _encode(_OID, _NTLMSSP)))
    if message:
        fields.append(_encode(_TOKEN, _encode(_OCTET_STRING, message)))
    if mic:
        fields.append(_encode(_MECHANISM_LIST_MIC, _encode(_OCTET_STRING, mic)))
    return _encode(_NEG_TOKEN_RESP, _encode(_SEQUENCE, *fields))


OFFER: Final = _encode(
    _APPLICATION,
    _encode(_OID, _SPNEGO),
    _encode(
        _NEG_TOKEN_INIT,
        _encode(
            _SEQUENCE,
            _encode(_MECHANISMS, _encode(_SEQUENCE, _encode(_OID, _NTLMSSP))),
            _encode(
                _HINTS,
                _encode(
                    _SEQUENCE,
                    _encode(
                        _CONTEXT,
                        _encode(_GENERAL_STRING, b"not_defined_in_RFC4178@please_ignore"),
                    ),
                ),
            ),
        ),
    ),
)
"""The security buffer of a NEGOTIATE response: the mechanisms of the server (NegTokenInit2,
[MS-SPNG] 2.2.1)."""
