"""An SMB client of a history, which keeps the files open that it uses."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from smbprotocol.exceptions import SMBException, SMBResponseException
from smbprotocol.open import Open

from etagere.nt_status import NtStatus
from tests.history.events import Refused, Unknown
from tests.history.file.contents import content_of, token_in
from tests.history.file.events import Done, FileSeen, Request, Verb
from tests.history.file.workloads import WORKLOADS
from tests.history.service import RECONNECT_SECONDS, credential, read_addresses
from tests.smb.client import READ, WRITE, SmbClient

_FAILURES: Final = (SMBException, OSError, ValueError)
"""What the client raises if the connection is lost, also in the middle of a message."""


def _write(opened: Open, request: Request, *, through: bool = False) -> Done:
    content = content_of(request.token, WORKLOADS[request.share].file_bytes)
    opened.write(content, 0, write_through=through)
    return Done()


def _write_through(opened: Open, request: Request) -> Done:
    return _write(opened, request, through=True)


def _flush(opened: Open, request: Request) -> Done:
    del request
    opened.flush()
    return Done()


def _read(opened: Open, request: Request) -> Done:
    content = opened.read(0, WORKLOADS[request.share].file_bytes)
    return Done(file=FileSeen(token_in(bytes(content))))


_VERBS: Final[dict[Verb, Callable[[Open, Request], Done]]] = {
    Verb.SMB_WRITE: _write,
    Verb.SMB_WRITE_THROUGH: _write_through,
    Verb.SMB_FLUSH: _flush,
    Verb.SMB_READ: _read,
}


class SmbConnection:
    """An SMB client that reads the ports of the servers from a file: they change with each restart.
    It uses the last server, and another one whenever that fails."""

    def __init__(self, address: Path) -> None:
        self._address = address
        self._failures = 0
        self._clients: dict[str, SmbClient] = {}
        """By share."""
        self._opens: dict[tuple[str, str], Open] = {}
        """By share and path."""

    def ask(self, request: Request) -> Done | Refused | Unknown | None:
        """Returns the outcome of the request, or None if it was never sent."""
        try:
            opened = self._opened(request.share, request.path)
        except SMBResponseException as error:
            if error.status == NtStatus.OBJECT_NAME_NOT_FOUND:
                return Refused("ResourceNotFound")
            return self._give_up(None)
        except _FAILURES:
            return self._give_up(None)
        try:
            return _VERBS[request.verb](opened, request)
        except SMBResponseException as error:
            return self._give_up(Unknown(hex(error.status)))
        except _FAILURES as error:
            return self._give_up(Unknown(type(error).__name__))

    def _connected(self, share: str) -> SmbClient:
        addresses = read_addresses(self._address)
        rest_url, _, smb_url = addresses[-1 - self._failures % len(addresses)].partition(" ")
        port = int(smb_url.rpartition(":")[2])
        return SmbClient(port, share, account=credential(rest_url)["account_name"])

    def _opened(self, share: str, path: str) -> Open:
        if share not in self._clients:
            self._clients[share] = self._connected(share)
        key = share, path
        if key not in self._opens:
            self._opens[key] = self._clients[share].open(path, READ | WRITE)
        return self._opens[key]

    def _give_up(self, outcome: Unknown | None) -> Unknown | None:
        """Connects again the next time, to another server if there is one."""
        self._failures += 1
        time.sleep(RECONNECT_SECONDS)
        self.close()
        return outcome

    def close(self) -> None:
        clients, self._clients = self._clients, {}
        self._opens.clear()
        for client in clients.values():
            with contextlib.suppress(*_FAILURES):
                client.connection.disconnect(close=False)
