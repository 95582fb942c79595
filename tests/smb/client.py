"""An SMB client for tests: smbprotocol with names that are short enough for tables of cases."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterator
from typing import Any, Final

from smbprotocol.connection import Connection, Dialects
from smbprotocol.connection import Request as SentRequest
from smbprotocol.exceptions import SMBConnectionClosed, SMBResponseException
from smbprotocol.header import SMB2HeaderRequest
from smbprotocol.open import LockFlags, Open, SMB2LockElement
from smbprotocol.session import Session
from smbprotocol.tree import TreeConnect

from etagere.nt_status import NtStatus
from tests.server import ACCOUNT, KEY, SECONDS_MAX, Server

READ, WRITE, DELETE, ALL, MAXIMUM = 0x0012_0089, 0x0012_0116, 0x0001_0000, 0x001F_01FF, 0x0200_0000
SHARE_READ, SHARE_WRITE, SHARE_DELETE, SHARE_ALL = 1, 2, 4, 7
SUPERSEDE, OPEN, CREATE, OPEN_IF, OVERWRITE, OVERWRITE_IF = range(6)
DIRECTORY, WRITE_THROUGH, NON_DIRECTORY, DELETE_ON_CLOSE = 0x1, 0x2, 0x40, 0x1000
SUPERSEDED, OPENED, CREATED, OVERWRITTEN = range(4)
READ_ONLY, HIDDEN, SYSTEM, ARCHIVE = 0x1, 0x2, 0x4, 0x20
NO_OPLOCK, LEVEL_II, EXCLUSIVE, BATCH = 0x00, 0x01, 0x08, 0x09

_NO_MESSAGE_ID: Final = 0xFFFF_FFFF_FFFF_FFFF
_IMPERSONATION: Final = 2


def smb_port(server: Server) -> int:
    return int(server.endpoints["smb"].rpartition(":")[2])


class SmbClient:
    """A connection with a session that is connected to a share."""

    def __init__(
        self,
        server: Server | int,
        share: str,
        dialect: int = Dialects.SMB_3_1_1,
        *,
        account: str = ACCOUNT,
        key: str = KEY,
    ) -> None:
        """`server` may be given as its port."""
        port = server if isinstance(server, int) else smb_port(server)
        self.connection = Connection(uuid.uuid4(), "127.0.0.1", port, require_signing=True)
        self.connection.connect(dialect)
        self.session = Session(self.connection, account, key, require_encryption=False)
        self.session.connect()
        self.tree = TreeConnect(self.session, rf"\\127.0.0.1\{share}")
        self.tree.connect()

    def close(self) -> None:
        try:
            self.connection.disconnect()
        except (OSError, SMBConnectionClosed):
            # The test or the server ended the connection, and the client notices only now.
            self.connection.disconnect(close=False)

    def open(
        self,
        name: str,
        access: int = ALL,
        *,
        share: int = SHARE_ALL,
        disposition: int = OPEN,
        options: int = 0,
        attributes: int = 0,
        oplock: int = NO_OPLOCK,
        contexts: list[Any] | None = None,
    ) -> Open:
        opened = Open(self.tree, name)
        opened.contexts = opened.create(
            _IMPERSONATION,
            access,
            attributes,
            share,
            disposition,
            options,
            create_contexts=contexts,
            oplock_level=oplock,
        )
        return opened

    def write_file(self, name: str, data: bytes, attributes: int = 0) -> None:
        opened = self.open(name, disposition=OVERWRITE_IF, attributes=attributes)
        if data:
            opened.write(data)
        opened.close()

    def read_file(self, name: str) -> bytes:
        opened = self.open(name, READ)
        try:
            return read(opened)
        finally:
            opened.close()


@contextlib.contextmanager
def smb_client(server: Server, share: str, **options: Any) -> Iterator[SmbClient]:
    client = SmbClient(server, share, **options)
    try:
        yield client
    finally:
        client.close()


def read(opened: Open, offset: int = 0, length: int = 1 << 20) -> bytes:
    data: bytes = opened.read(offset, length)
    return data


def lock(opened: Open, start: int, length: int, flags: int, *, waits: bool = False) -> None:
    element = SMB2LockElement()
    element["offset"], element["length"] = start, length
    element["flags"] = flags if waits else flags | LockFlags.SMB2_LOCKFLAG_FAIL_IMMEDIATELY
    opened.lock([element])


def unlock(opened: Open, start: int, length: int) -> None:
    element = SMB2LockElement()
    element["offset"], element["length"] = start, length
    element["flags"] = LockFlags.SMB2_LOCKFLAG_UNLOCK
    opened.lock([element])


@contextlib.contextmanager
def refused(status: NtStatus) -> Iterator[None]:
    """Expects a request to be refused."""
    try:
        yield
    except SMBResponseException as error:
        assert error.status == status, hex(error.status)
    else:
        raise AssertionError(f"the request was not refused with {status.name}")


class Breaks:
    """The break notifications that a client gets."""

    def __init__(self, client: SmbClient) -> None:
        # The client looks up the request of each message that it receives.
        self._request = SentRequest(SMB2HeaderRequest(), object, client.connection)
        client.connection.outstanding_requests[_NO_MESSAGE_ID] = self._request

    def wait(self, seconds_max: float = SECONDS_MAX) -> bytes:
        """Returns the body of the next notification."""
        event = self._request.response_event
        assert event.wait(seconds_max), "there was no break"
        event.clear()
        body: bytes = self._request.response["data"].get_value()
        return body

    def is_told(self) -> bool:
        """Returns whether there is a notification that was not waited for."""
        return bool(self._request.response_event.is_set())
