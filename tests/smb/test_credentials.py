"""Accounts: what clients of one can do to another, and what happens when keys change."""

from __future__ import annotations

import subprocess
import sys
import uuid
from pathlib import Path

import pytest
from smbprotocol.connection import Connection, Dialects
from smbprotocol.exceptions import LogonFailure, SMBResponseException
from smbprotocol.session import Session
from smbprotocol.tree import TreeConnect

from etagere.nt_status import NtStatus
from tests.sdk.file.clients import file_service
from tests.server import (
    ACCOUNT,
    KEY,
    SECOND_ACCOUNT,
    SECOND_KEYS,
    Server,
    environment,
    eventually,
    served,
)
from tests.smb.client import ALL, CREATE, SmbClient, refused
from tests.smb.leases import Lease, R, W
from tests.smb.test_connections import port_of, session

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
        assert server.stop() == 0
        assert "Traceback" not in server.log()


def test_leases_of_another_account(tmp_path: Path) -> None:
    guid = uuid.uuid4()
    configured = f"{SECOND_ACCOUNT}:{SECOND_KEYS[0]}"

    def connect(server: Server, user: str, key: str) -> SmbClient:
        """Returns a client with a GUID that another one has, too."""
        file_service(server, user, key).create_share("box")
        client = SmbClient.__new__(SmbClient)
        client.connection = Connection(guid, "127.0.0.1", port_of(server), require_signing=True)
        client.connection.connect(Dialects.SMB_3_1_1)
        opened = Session(client.connection, user, key, require_encryption=False)
        opened.connect()
        client.tree = TreeConnect(opened, r"\\127.0.0.1\box")
        client.tree.connect()
        return client

    with served(tmp_path / "data", "--workers", "1", "--account", configured) as server:
        client = connect(server, ACCOUNT, KEY)
        attacker = connect(server, SECOND_ACCOUNT, SECOND_KEYS[0])
        lease = Lease(client, "file")
        lease.open(R | W, ALL, disposition=CREATE)
        stolen = Lease(attacker, "file")
        stolen.key = lease.key
        with refused(NtStatus.OBJECT_NAME_NOT_FOUND):
            stolen.acknowledge(0)
        stolen.open(R | W, ALL, disposition=CREATE)
        assert lease.state() == R | W
        client.close()
        attacker.close()
