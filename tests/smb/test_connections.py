"""Connections of real clients: dialects, signatures, encryption, logons, and how they end."""

from __future__ import annotations

import contextlib
import shutil
import signal
import socket
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from azure.core.exceptions import ResourceNotFoundError
from azure.storage.fileshare import ShareClient
from smbprotocol.connection import Connection, Dialects
from smbprotocol.exceptions import AccessDenied, LogonFailure
from smbprotocol.session import Session
from smbprotocol.tree import TreeConnect

from tests.sdk.file.clients import file_service
from tests.server import (
    ACCOUNT,
    KEY,
    SECOND_ACCOUNT,
    SECOND_KEYS,
    WRONG_KEY,
    Server,
    eventually,
    served,
    unique,
)
from tests.smb.client import CREATE, DELETE_ON_CLOSE, READ, SmbClient, read, smb_client

needs_smbclient = pytest.mark.skipif(
    shutil.which("smbclient") is None, reason="smbclient is missing"
)
DATA = bytes(range(256)) * 5_000


def port_of(server: Server) -> int:
    return int(server.endpoints["smb"].rpartition(":")[2])


def copy_there_and_back(
    server: Server, share: str, folder: Path, *options: str, user: str = f"{ACCOUNT}%{KEY}"
) -> str:
    """Copies a file with smbclient; returns an error, if any."""
    source, target = folder / "source", folder / f"target-{unique()}"
    source.write_bytes(DATA)
    name = unique("file")
    done = subprocess.run(
        [
            "smbclient",
            f"//127.0.0.1/{share}",
            f"--port={port_of(server)}",
            f"--user={user}",
            *options,
            f"--command=put {source} {name}; get {name} {target}",
        ],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    if done.returncode:
        return done.stdout + done.stderr
    assert target.read_bytes() == DATA
    return ""


def dialect(name: str) -> tuple[str, ...]:
    return (f"--option=client min protocol={name}", f"--option=client max protocol={name}")


COMBINATIONS = [
    *(
        (*dialect(name), f"--client-protection={protection}")
        for name in ("SMB2_10", "SMB3_00", "SMB3_02", "SMB3_11")
        for protection in ("off", "sign", "encrypt")
        if (name, protection) != ("SMB2_10", "encrypt")
    ),
    *(
        ("--client-protection=sign", f"--option=client smb3 signing algorithms={algorithm}")
        for algorithm in ("AES-128-GMAC", "AES-128-CMAC", "HMAC-SHA256")
    ),
    *(
        ("--client-protection=encrypt", f"--option=client smb3 encryption algorithms={cipher}")
        for cipher in ("AES-128-GCM", "AES-256-GCM", "AES-128-CCM")
    ),
    # A client that begins with SMB1.
    ("--option=client min protocol=NT1",),
]


@needs_smbclient
@pytest.mark.parametrize("options", COMBINATIONS, ids=" ".join)
def test_dialects_and_protection(
    server: Server, share: ShareClient, tmp_path: Path, options: tuple[str, ...]
) -> None:
    assert copy_there_and_back(server, share.share_name, tmp_path, *options) == ""


@needs_smbclient
@pytest.mark.parametrize("name", ["SMB2_02", "NT1"])
def test_old_dialects(server: Server, share: ShareClient, tmp_path: Path, name: str) -> None:
    assert "failed" in copy_there_and_back(server, share.share_name, tmp_path, *dialect(name))


@needs_smbclient
@pytest.mark.parametrize(
    "user", [f"{ACCOUNT.upper()}%{KEY}", f"AZURE\\{ACCOUNT}%{KEY}", f"localhost\\{ACCOUNT}%{KEY}"]
)
def test_users(server: Server, share: ShareClient, tmp_path: Path, user: str) -> None:
    assert copy_there_and_back(server, share.share_name, tmp_path, user=user) == ""


@needs_smbclient
@pytest.mark.parametrize("user", [f"{ACCOUNT}%{WRONG_KEY}", f"nobody%{KEY}", "%"])
def test_failed_logons(server: Server, share: ShareClient, tmp_path: Path, user: str) -> None:
    shown = copy_there_and_back(server, share.share_name, tmp_path, user=user)
    assert "NT_STATUS_LOGON_FAILURE" in shown


@contextlib.contextmanager
def session(
    server: Server,
    dialect: int = Dialects.SMB_3_1_1,
    user: str = ACCOUNT,
    key: str = KEY,
    *,
    encrypts: bool = False,
    signs: bool = False,
) -> Iterator[Session]:
    connection = Connection(uuid.uuid4(), "127.0.0.1", port_of(server), require_signing=signs)
    connection.connect(dialect)
    try:
        opened = Session(connection, user, key, require_encryption=encrypts)
        opened.connect()
        yield opened
    finally:
        connection.disconnect()


def can_connect(server: Server, share: str, dialect: int, *, encrypts: bool) -> bool:
    try:
        with session(server, dialect, encrypts=encrypts) as opened:
            tree = TreeConnect(opened, rf"\\127.0.0.1\{share}")
            tree.connect()
            return True
    except AccessDenied:
        return False


@pytest.mark.parametrize("mode", ["auto", "required", "off"])
def test_required_encryption(tmp_path: Path, mode: str) -> None:
    with served(tmp_path / "data", "--workers", "1", "--smb-encryption", mode) as server:
        share = file_service(server).create_share("box").share_name
        is_required = mode == "required"
        for version in (Dialects.SMB_2_1_0, Dialects.SMB_3_0_0, Dialects.SMB_3_1_1):
            can_encrypt = version != Dialects.SMB_2_1_0
            assert can_connect(server, share, version, encrypts=False) == (
                can_encrypt or not is_required
            )
        with session(server) as opened:
            assert opened.encrypt_data == is_required
        assert server.stop() == 0
        assert "Traceback" not in server.log()


def test_keys_of_configured_accounts(tmp_path: Path) -> None:
    account = f"{SECOND_ACCOUNT}:{':'.join(SECOND_KEYS)}"
    with served(tmp_path / "data", "--workers", "1", "--account", account) as server:
        for key in SECOND_KEYS:
            with session(server, user=SECOND_ACCOUNT, key=key) as opened:
                assert opened.session_id
        with pytest.raises(LogonFailure), session(server, user=SECOND_ACCOUNT, key=KEY):
            pass


@pytest.mark.parametrize("signs", [False, True])
@pytest.mark.parametrize("encrypts", [False, True])
@pytest.mark.parametrize("version", [Dialects.SMB_3_0_2, Dialects.SMB_3_1_1])
def test_large_transfers(
    server: Server, share: ShareClient, version: int, encrypts: bool, signs: bool
) -> None:
    with session(server, version, encrypts=encrypts, signs=signs) as opened:
        client = SmbClient.__new__(SmbClient)
        client.tree = TreeConnect(opened, rf"\\127.0.0.1\{share.share_name}")
        client.tree.connect()
        file = client.open("large", disposition=CREATE)
        data = DATA[: 1 << 20]
        file.write(data)
        assert read(file) == data
        file.close()


# The end of connections


def test_end_of_a_connection_closes_its_handles(server: Server, share: ShareClient) -> None:
    with smb_client(server, share.share_name) as client:
        client.write_file("kept", b"data")
        client.open("kept", READ)
        client.open("gone", disposition=CREATE, options=DELETE_ON_CLOSE)
        assert len(list(share.get_directory_client().list_handles(recursive=True))) == 2
        # Without a word, as if the client had crashed.
        client.connection.transport._sock.shutdown(socket.SHUT_RDWR)
    directory = share.get_directory_client()
    eventually(lambda: not list(directory.list_handles(recursive=True)), "handles to be closed")
    eventually(lambda: not exists(share, "gone"), "the file to be deleted")
    assert exists(share, "kept")


def exists(share: ShareClient, name: str) -> bool:
    try:
        share.get_file_client(name).get_file_properties()
    except ResourceNotFoundError:
        return False
    except Exception as error:  # a file that is being deleted is refused
        assert getattr(error, "status_code", 0) == 409, error
    return True


def test_orderly_stop(tmp_path: Path) -> None:
    server = Server(tmp_path / "data", "--workers", "1")
    server.start()
    try:
        share = file_service(server).create_share("box")
        with smb_client(server, share.share_name) as client:
            client.write_file("file", DATA[: 1 << 20])
            client.open("gone", disposition=CREATE, options=DELETE_ON_CLOSE)
            assert server.stop() == 0
        assert "Traceback" not in server.log()
        server.start()
        share = file_service(server).get_share_client("box")
        assert [entry.name for entry in share.list_directories_and_files()] == ["file"]
        assert share.get_file_client("file").download_file().readall() == DATA[: 1 << 20]
    finally:
        server.kill()


def test_file_process_that_was_killed_serves_again(tmp_path: Path) -> None:
    with served(tmp_path / "data", "--workers", "1") as server:
        share = file_service(server).create_share("box").share_name
        with smb_client(server, share) as client:
            client.write_file("file", b"data")
        pid = server.file_front_end()
        subprocess.run(["kill", f"-{signal.SIGKILL.value}", str(pid)], check=True)
        eventually(lambda: server.file_front_end() != pid, "another process")

        def is_read() -> bool:
            try:
                with smb_client(server, share) as client:
                    return client.read_file("file") == b"data"
            except Exception:
                return False

        eventually(is_read, "the file to be read again")
