"""SESSION_SETUP and LOGOFF ([MS-SMB2] 2.2.5 to 2.2.8, 3.3.5.5 and 3.3.5.6)."""

from __future__ import annotations

import asyncio
import enum
import logging
import os
import struct
from typing import TYPE_CHECKING, Final, NamedTuple

from etagere.model.service import SmbSettings
from etagere.nt_status import NtStatus
from etagere.operations.service import get_service_properties
from etagere.protocol.smb.dialects import DIALECT_3_0
from etagere.protocol.smb.encryption import Cipher, Sealer
from etagere.protocol.smb.keys import derive_keys, extend_preauth_hash
from etagere.protocol.smb.limits import FAILED_LOGONS_MAX, SESSIONS_PER_CONNECTION_MAX
from etagere.protocol.smb.logons import is_permitted
from etagere.protocol.smb.negotiation import SecurityMode
from etagere.protocol.smb.requests import Reply
from etagere.protocol.smb.responses import EMPTY_REPLY
from etagere.protocol.smb.signing import SigningAlgorithm, signer
from etagere.protocol.smb.spnego import Acceptor, Logon, LogonFailed
from etagere.protocol.smb.state import Session
from etagere.protocol.smb.status import Disconnect, SmbError
from etagere.protocol.smb.trees import close_tree

if TYPE_CHECKING:
    from etagere.protocol.smb.connection import Connection
    from etagere.protocol.smb.exchanges import ServerRequest

logger = logging.getLogger(__name__)

_REQUEST: Final = struct.Struct("<HBBIIHHQ")
_RESPONSE: Final = struct.Struct("<HHHH")
_RESPONSE_STRUCTURE_SIZE: Final = 9
_BUFFER_OFFSET: Final = 72
_CHALLENGE_BYTES: Final = 8
_CLIENT_NAME_CHARACTERS_MAX: Final = 255


class RequestFlag(enum.IntFlag):
    BINDING = 0x01


class SessionFlag(enum.IntFlag):
    ENCRYPT_DATA = 0x0004


class SessionSetup(NamedTuple):
    """A SESSION_SETUP request."""

    flags: int
    security_mode: int
    previous_session_id: int
    token: bytes


def parse_session_setup(message: memoryview, body: memoryview) -> SessionSetup:
    """Parses a request; `message` begins with its header."""
    if len(body) < _REQUEST.size:
        raise SmbError(NtStatus.INVALID_PARAMETER)
    _, flags, mode, _, _, offset, length, previous = _REQUEST.unpack_from(body)
    if offset + length > len(message):
        raise SmbError(NtStatus.INVALID_PARAMETER)
    return SessionSetup(flags, mode, previous, bytes(message[offset : offset + length]))


async def session_setup(request: ServerRequest) -> Reply:
    """Takes a step of a logon: of a new session, or of one that is authenticated again."""
    began = asyncio.get_running_loop().time()
    connection = request.connection
    setup = parse_session_setup(request.message, request.body)
    if setup.flags & RequestFlag.BINDING:
        raise SmbError(_refuse_binding(request))
    session = _session(request)
    is_new = not session.is_authenticated
    if is_new:
        session.preauth_hash = extend_preauth_hash(session.preauth_hash, request.message)
    if session.acceptor is None:
        challenge = os.urandom(_CHALLENGE_BYTES)
        server = connection.server
        session.acceptor = Acceptor(challenge, server.name, server.clock.wall())
    try:
        step = await session.acceptor.accept(setup.token, connection.passwords_of)
    except (LogonFailed, SmbError) as error:
        # The text contains nothing that the client sent.
        logger.info("refused a logon of SMB client %s: %s", connection.client, error)
        # Before anything is awaited: another logon must know of it.
        ends_at = began + connection.count_failed_logon(session.acceptor.user)
        await _end_failed(connection, session, ends_at)
        if isinstance(error, SmbError):
            raise
        raise SmbError(NtStatus.LOGON_FAILURE) from None
    if step.logon is None:
        return _reply(session, step.token, NtStatus.MORE_PROCESSING_REQUIRED)
    account = step.logon.user.lower()
    connection.forget_failed_logons(account)
    properties = await connection.server.engine.read(get_service_properties, (account, "file"))
    drains = connection.server.drains
    is_moving = drains is not None and await drains.is_moving(account)
    # Not before: until then another request finds a logon that has ended, and is refused.
    session.acceptor = None
    if session.is_ended:
        raise SmbError(NtStatus.USER_SESSION_DELETED)
    try:
        if drains is not None and (is_moving or drains.is_closed(account)):
            logger.info("refused a logon of SMB client %s: the account moves", connection.client)
            raise SmbError(NtStatus.SERVER_UNAVAILABLE)
        if is_new:
            settings = properties.protocol_settings.smb
            _authenticate(connection, session, setup, step.logon, settings)
        elif account != session.account:
            raise SmbError(NtStatus.ACCESS_DENIED)
    except SmbError:
        await end_session(connection, session)
        raise
    session.password = step.logon.password
    request.must_sign = True
    if is_new and setup.previous_session_id not in (0, session.id):
        await _end_previous(connection, session, setup.previous_session_id)
    return _reply(session, step.token)


def _refuse_binding(request: ServerRequest) -> NtStatus:
    """Returns how a request to add a connection to a session is refused: the server does not
    support multiple channels. The statuses are those of other servers, which tests expect."""
    other = _find_elsewhere(request, is_binding=True)
    if other is None:
        is_known = request.connection.session_table.find(request.header.session_id) is not None
        return NtStatus.ACCESS_DENIED if is_known else NtStatus.USER_SESSION_DELETED
    negotiated, theirs = request.negotiated, other.negotiated
    if negotiated.signing_algorithm != theirs.signing_algorithm:
        if theirs.signing_algorithm == SigningAlgorithm.AES_GMAC:
            return NtStatus.REQUEST_OUT_OF_SEQUENCE
        if negotiated.signing_algorithm == SigningAlgorithm.AES_GMAC:
            return NtStatus.NOT_SUPPORTED
    if negotiated.dialect < DIALECT_3_0:
        return NtStatus.REQUEST_NOT_ACCEPTED
    if (negotiated.dialect, negotiated.cipher) != (theirs.dialect, theirs.cipher):
        return NtStatus.INVALID_PARAMETER
    return NtStatus.REQUEST_NOT_ACCEPTED


def _find_elsewhere(request: ServerRequest, *, is_binding: bool) -> Connection | None:
    """Returns the connection of the session of a request, if the session has signed it. The
    response is signed then: clients do not accept it otherwise.

    A request that was recorded in the other connection and is repeated here must not get a response
    with an AES-GMAC signature: its nonce is that of the first response, and with two messages of
    one nonce anybody can forge signatures. Clients that bind a connection take that risk.
    """
    found = request.connection.session_table.find(request.header.session_id)
    if found is None:
        return None
    session, connection = found
    if session.signer is None or not session.signer.verify(request.message):
        return None
    if is_binding or connection.negotiated.signing_algorithm != SigningAlgorithm.AES_GMAC:
        request.found_session = session
        request.must_sign = True
    return connection


def _session(request: ServerRequest) -> Session:
    connection = request.connection
    session_id = request.header.session_id
    if not session_id:
        if len(connection.sessions) >= SESSIONS_PER_CONNECTION_MAX:
            raise SmbError(NtStatus.INSUFFICIENT_RESOURCES)
        session = connection.add_session()
    else:
        found = connection.sessions.get(session_id)
        if found is None:
            _find_elsewhere(request, is_binding=False)
            raise SmbError(NtStatus.USER_SESSION_DELETED)
        session = found
    request.use_session(session)
    return session


def _authenticate(
    connection: Connection,
    session: Session,
    setup: SessionSetup,
    logon: Logon,
    settings: SmbSettings,
) -> None:
    """Makes the keys of a session whose user is known. `settings` are those of the account."""
    negotiated = connection.negotiated
    cipher = negotiated.cipher
    requires_encryption = connection.requires_encryption or bool(settings.encryption_required)
    if not is_permitted(negotiated, settings) or (requires_encryption and cipher is None):
        raise SmbError(NtStatus.ACCESS_DENIED)
    keys = derive_keys(negotiated.dialect, logon.session_key, session.preauth_hash, cipher)
    session.preauth_hash = b""
    session.account = logon.user.lower()
    session.client_name = _shown_name(logon.workstation)
    if cipher is not None:
        session.sealer = Sealer(Cipher(cipher), keys.encryption, keys.decryption)
    session.requires_encryption = session.is_encrypted = requires_encryption
    modes = setup.security_mode | negotiated.client_security_mode | negotiated.security_mode
    session.requires_signing = bool(modes & SecurityMode.SIGNING_REQUIRED)
    session.signer = signer(SigningAlgorithm(negotiated.signing_algorithm), keys.signing)
    connection.on_authenticated()


def _shown_name(workstation: str) -> str:
    """Returns the name that a client gives itself, in a form that fits into an XML document."""
    return "".join(filter(str.isprintable, workstation[:_CLIENT_NAME_CHARACTERS_MAX]))


def _reply(session: Session, token: bytes, status: NtStatus = NtStatus.SUCCESS) -> Reply:
    flags = 0
    if session.requires_encryption:
        flags |= SessionFlag.ENCRYPT_DATA
    fixed = _RESPONSE.pack(_RESPONSE_STRUCTURE_SIZE, flags, _BUFFER_OFFSET, len(token))
    return Reply(fixed + token, status)


async def _end_failed(connection: Connection, session: Session, ends_at: float) -> None:
    """Ends a session whose client does not know the password, and makes the client wait.

    The delay counts from the request on: how long it took to refuse it may depend on the user.
    """
    await end_session(connection, session)
    connection.failed_logons += 1
    await asyncio.sleep(ends_at - asyncio.get_running_loop().time())
    # Other users of the connection must not suffer from somebody who forgot the password.
    if connection.failed_logons > FAILED_LOGONS_MAX and not connection.has_authenticated_session:
        raise Disconnect("too many failed logons")


async def _end_previous(connection: Connection, session: Session, previous_id: int) -> None:
    """Ends the session that a client had before it reconnected ([MS-SMB2] 3.3.5.5.3)."""
    found = connection.session_table.find(previous_id)
    if found is not None and found[0].account == session.account:
        previous, its_connection = found
        await end_session(its_connection, previous)


async def logoff(request: ServerRequest) -> Reply:
    await end_session(request.connection, request.session)
    return EMPTY_REPLY


async def end_session(connection: Connection, session: Session) -> None:
    """Ends a session: its requests, its trees and their opens."""
    session.is_ended = True
    connection.forget_session(session)
    trees = list(session.trees.values())
    session.trees.clear()
    await connection.end_requests(lambda one: one.has_tree_of(session))
    for tree in trees:
        await close_tree(tree)
