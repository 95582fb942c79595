"""What happens to the sessions of an account when its keys change."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from smbprotocol.exceptions import LogonFailure, SMBResponseException
from smbprotocol.session import Session
from smbprotocol.tree import TreeConnect

from etagere.nt_status import NtStatus
from tests.server import SECOND_KEYS, Server, environment, eventually, served
from tests.smb.test_connections import session

NAME = "stored"


def account(server: Server, *arguments: str) -> None:
    """Runs `etagere account`."""
    command = [sys.executable, *server.program, "account", *arguments]
    subprocess.run([*command, "--data", str(server.directory)], env=environment(), check=True)


def is_ended(opened: Session) -> bool:
    """Returns whether the server has ended a session."""
    try:
        TreeConnect(opened, r"\\127.0.0.1\IPC$").connect()
    except SMBResponseException as error:
        assert error.status == NtStatus.USER_SESSION_DELETED
        # The client does not log off then.
        opened.connection.session_table.pop(opened.session_id, None)
        return True
    return False


def test_sessions_end_with_their_keys(tmp_path: Path) -> None:
    first, second = SECOND_KEYS
    with served(tmp_path / "data", "--workers", "1") as server:
        account(server, "add", NAME, "--key", first, "--key2", second)
        with (
            session(server) as other,
            session(server, user=NAME, key=first) as by_first,
            session(server, user=NAME, key=second) as by_second,
        ):
            account(server, "rotate", NAME, "1")
            with pytest.raises(LogonFailure), session(server, user=NAME, key=first):
                pass
            eventually(lambda: is_ended(by_first), "the session of the old key to end")
            assert not is_ended(by_second)
            account(server, "remove", NAME)
            eventually(lambda: is_ended(by_second), "the session of the account to end")
            assert not is_ended(other)
        assert "Traceback" not in server.log()
