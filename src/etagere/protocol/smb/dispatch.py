"""The commands of SMB2 and the functions that execute them ([MS-SMB2] 3.3.5)."""

from __future__ import annotations

import asyncio
import logging
import struct
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from etagere.engine.interface import Fault, FaultReason, Refused, Unknown
from etagere.nt_status import NtStatus
from etagere.protocol.smb.commands.breaks import oplock_break
from etagere.protocol.smb.commands.close import close
from etagere.protocol.smb.commands.create import create
from etagere.protocol.smb.commands.directories import query_directory
from etagere.protocol.smb.commands.ioctl import ioctl
from etagere.protocol.smb.commands.locks import lock
from etagere.protocol.smb.commands.notify import change_notify
from etagere.protocol.smb.commands.query_info import query_info
from etagere.protocol.smb.commands.read_write import flush, read, write
from etagere.protocol.smb.commands.set_info import set_info
from etagere.protocol.smb.compounds import error_reply
from etagere.protocol.smb.credits import needed_charge, payload_bytes
from etagere.protocol.smb.dialects import DIALECT_3_1_1
from etagere.protocol.smb.header import Command, Flags
from etagere.protocol.smb.limits import IO_BYTES_MAX, OPENS_PER_ADDRESS_MAX, OPENS_PER_SESSION_MAX
from etagere.protocol.smb.requests import Reply
from etagere.protocol.smb.responses import EMPTY_REPLY
from etagere.protocol.smb.sessions import logoff, session_setup
from etagere.protocol.smb.state import Session
from etagere.protocol.smb.status import Disconnect, SmbError, status_of
from etagere.protocol.smb.trees import tree_connect, tree_disconnect
from etagere.telemetry.context import ACCOUNT, CLIENT, REQUEST_ID
from etagere.telemetry.formats import fields

if TYPE_CHECKING:
    from etagere.protocol.smb.exchanges import ServerRequest

logger = logging.getLogger(__name__)

_UINT16: Final = struct.Struct("<H")
_FIXED_BYTES_MAX: Final = 1_024
"""More than a message has besides its payload. WRITE may have a gap before its data."""

_WAITING: Final = frozenset({Command.CHANGE_NOTIFY, Command.LOCK, Command.SESSION_SETUP})
"""Commands that take as long as other clients want, or as a failed logon is delayed."""

_Handler = Callable[["ServerRequest"], Awaitable[Reply]]


class CommandRow(NamedTuple):
    """A command."""

    handler: _Handler
    structure_size: int
    """The structure size that the body of a request begins with; 0: the handler checks it."""
    needs_session: bool = True
    needs_tree: bool = True


async def _negotiate(request: ServerRequest) -> Reply:
    return request.connection.negotiate(request)


async def _echo(_request: ServerRequest) -> Reply:
    return EMPTY_REPLY


COMMANDS: Final[Mapping[int, CommandRow]] = {
    Command.NEGOTIATE: CommandRow(_negotiate, 36, needs_session=False, needs_tree=False),
    Command.SESSION_SETUP: CommandRow(session_setup, 25, needs_session=False, needs_tree=False),
    Command.LOGOFF: CommandRow(logoff, 4, needs_tree=False),
    Command.TREE_CONNECT: CommandRow(tree_connect, 9, needs_tree=False),
    Command.TREE_DISCONNECT: CommandRow(tree_disconnect, 4),
    Command.CREATE: CommandRow(create, 57),
    Command.CLOSE: CommandRow(close, 24),
    Command.FLUSH: CommandRow(flush, 24),
    Command.READ: CommandRow(read, 49),
    Command.WRITE: CommandRow(write, 49),
    Command.LOCK: CommandRow(lock, 48),
    Command.IOCTL: CommandRow(ioctl, 57),
    Command.ECHO: CommandRow(_echo, 4, needs_session=False, needs_tree=False),
    Command.QUERY_DIRECTORY: CommandRow(query_directory, 33),
    Command.CHANGE_NOTIFY: CommandRow(change_notify, 32),
    Command.QUERY_INFO: CommandRow(query_info, 41),
    Command.SET_INFO: CommandRow(set_info, 33),
    # The acknowledgement of an oplock has 24 bytes, that of a lease 36.
    Command.OPLOCK_BREAK: CommandRow(oplock_break, 0),
}
"""All commands but CANCEL, which has no response."""


async def execute(request: ServerRequest) -> Reply:
    """Executes a request. Raises `Disconnect` if the client breaks the protocol."""
    data = b""
    began = time.monotonic()
    REQUEST_ID.set(request.log_id)
    CLIENT.set(request.connection.client_host)
    try:
        return await _dispatch(request)
    except SmbError as error:
        status, data = error.status, error.data
    except Refused as refused:
        status = status_of(refused.refusal)
    except (Fault, Unknown) as fault:
        is_full = isinstance(fault, Fault) and fault.reason is FaultReason.DISK_FULL
        status = NtStatus.DISK_FULL if is_full else NtStatus.UNEXPECTED_IO_ERROR
        logger.error("an SMB request failed: %s", fault, extra=_log_fields(request))
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if not request.is_cancelled or task is None:
            raise
        task.uncancel()
        status = request.cancel_status
    except Disconnect:
        raise
    except Exception:
        logger.exception("could not execute an SMB request", extra=_log_fields(request))
        status = NtStatus.INTERNAL_ERROR
    finally:
        _log_if_slow(request, time.monotonic() - began)
    if request.header.command == Command.CREATE:
        request.frame.context.create_status = status
    with_contexts = bool(data) and request.negotiated.dialect == DIALECT_3_1_1
    return error_reply(status, data, with_contexts=with_contexts)


def _log_if_slow(request: ServerRequest, seconds: float) -> None:
    if seconds > request.server.slow_seconds and request.header.command not in _WAITING:
        logger.warning("an SMB request took %.3f s", seconds, extra=_log_fields(request))


def _log_fields(request: ServerRequest) -> dict[str, object]:
    command, session = request.header.command, request.found_session
    return fields(
        operation=Command(command).name.lower() if command in COMMANDS else command,
        client=request.connection.client,
        account=session.account if session is not None else "",
    )


async def _dispatch(request: ServerRequest) -> Reply:
    command = request.header.command
    if command != Command.NEGOTIATE:
        _ = request.negotiated  # raises `Disconnect`
    tree_id = _resolve(request)
    session = request.found_session
    if session is not None:
        ACCOUNT.set(session.account)
        # First, so that responses are signed, whatever is wrong with the request.
        verify(request, session)
    row = COMMANDS.get(command)
    if row is None:
        raise SmbError(NtStatus.INVALID_PARAMETER)
    if row.needs_session:
        if session is None or not session.is_authenticated:
            # Related messages have no session either.
            request.frame.context.is_invalid = True
            raise SmbError(NtStatus.USER_SESSION_DELETED)
        if row.needs_tree:
            tree = session.trees.get(tree_id)
            if tree is None or (tree.is_share_gone and command != Command.TREE_DISCONNECT):
                # The client connects again, perhaps to another share of this name.
                raise SmbError(NtStatus.NETWORK_NAME_DELETED)
            request.use_tree(tree)
    _check_body(request, row.structure_size)
    if command == Command.CREATE:
        _check_opens(request.session)
    return await row.handler(request)


def _check_opens(session: Session) -> None:
    if (
        len(session.opens) >= OPENS_PER_SESSION_MAX
        or session.open_count.value >= OPENS_PER_ADDRESS_MAX
    ):
        raise SmbError(NtStatus.TOO_MANY_OPENED_FILES)


def _resolve(request: ServerRequest) -> int:
    """Finds the session of a request; returns the ID of its tree. A related message has the session
    and the tree of the one before it."""
    header, frame = request.header, request.frame
    context = frame.context
    if not header.flags & Flags.RELATED:
        context.reset(header.session_id, header.tree_id)
    elif context.is_invalid or frame.requests[0] is request:
        context.is_invalid = True
        raise SmbError(NtStatus.INVALID_PARAMETER)
    request.found_session = request.connection.sessions.get(context.session_id)
    return context.tree_id


def verify(request: ServerRequest, session: Session) -> None:
    """Verifies the signature of a request ([MS-SMB2] 3.3.5.2.4), or that it was encrypted for its
    session; raises `SmbError` if it had to be protected and is not.

    [MS-SMB2] 3.3.5.7 demands a signed TREE_CONNECT in 3.1.1. Clients on this machine that never
    sign are accepted nevertheless: all others have to sign everything.
    """
    encrypted_for = request.frame.decrypted_for
    if encrypted_for is not None:
        if encrypted_for is not session:
            raise Disconnect("a message was encrypted for another session")
        return
    if session.signer is None:
        return
    command = request.header.command
    if request.header.flags & Flags.SIGNED:
        if not session.signer.verify(request.message):
            raise SmbError(NtStatus.ACCESS_DENIED)
        request.is_signed = True
    elif session.requires_signing:
        raise SmbError(NtStatus.ACCESS_DENIED)
    if session.requires_encryption and command != Command.SESSION_SETUP:
        raise SmbError(NtStatus.ACCESS_DENIED)


def _check_body(request: ServerRequest, structure_size: int) -> None:
    """Checks the fixed part of a request, and that its credits pay for its payload."""
    body = request.body
    if structure_size:
        # An odd size includes the first byte of the variable part, which may be empty.
        if len(body) < structure_size & ~1 or _UINT16.unpack_from(body)[0] != structure_size:
            raise SmbError(NtStatus.INVALID_PARAMETER)
    elif len(body) < 2:
        raise SmbError(NtStatus.INVALID_PARAMETER)
    header = request.header
    # Fields that hold no lengths count, too: the ranges of LOCK, the contexts of CREATE.
    payload = max(*payload_bytes(header.command, body), len(body) - _FIXED_BYTES_MAX)
    if payload > IO_BYTES_MAX or needed_charge(payload) > (header.credit_charge or 1):
        raise SmbError(NtStatus.INVALID_PARAMETER)
