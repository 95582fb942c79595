"""smbclient with each dialect, signature and cipher, and with users and passwords."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from azure.storage.fileshare import ShareClient

from tests.server import ACCOUNT, KEY, SECOND_ACCOUNT, SECOND_KEYS, WRONG_KEY, Server

pytestmark = pytest.mark.skipif(shutil.which("smbclient") is None, reason="smbclient is missing")

SIGN, ENCRYPT = "--client-protection=sign", "--client-protection=encrypt"
SIGNATURES = "--option=client smb3 signing algorithms="
CIPHERS = "--option=client smb3 encryption algorithms="
LARGE_BYTES = 3_000_001
"""More than one request."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with an account that has two keys."""
    account = ":".join((SECOND_ACCOUNT, *SECOND_KEYS))
    server = Server(tmp_path_factory.mktemp("server") / "data", "--account", account)
    server.start()
    yield server
    assert server.stop() == 0
    assert "Traceback" not in server.log()


def smbclient(
    server: Server, *arguments: str, user: str = ACCOUNT, password: str = KEY
) -> subprocess.CompletedProcess[str]:
    port = urlsplit(server.endpoints["smb"]).port
    logon = (f"--port={port}", f"--user={user}%{password}")
    return subprocess.run(
        ["smbclient", "--configfile=/dev/null", *logon, *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize(
    ("dialect", "options"),
    [
        ("SMB2_10", [SIGN]),
        ("SMB3_00", [SIGN]),
        ("SMB3_00", [ENCRYPT]),
        ("SMB3_02", [SIGN]),
        ("SMB3_02", [ENCRYPT]),
        ("SMB3_11", ["--client-protection=off"]),
        ("SMB3_11", [SIGN, SIGNATURES + "hmac-sha256"]),
        ("SMB3_11", [SIGN, SIGNATURES + "aes-128-cmac"]),
        ("SMB3_11", [SIGN, SIGNATURES + "aes-128-gmac"]),
        ("SMB3_11", [ENCRYPT, CIPHERS + "aes-128-gcm"]),
        ("SMB3_11", [ENCRYPT, CIPHERS + "aes-256-gcm"]),
        ("SMB3_11", [ENCRYPT, CIPHERS + "aes-128-ccm"]),
    ],
)
def test_a_file(
    server: Server, share: ShareClient, tmp_path: Path, dialect: str, options: list[str]
) -> None:
    (tmp_path / "sent").write_bytes(os.urandom(LARGE_BYTES))
    done = smbclient(
        server,
        f"--max-protocol={dialect}",
        f"--option=client min protocol={dialect}",
        *options,
        f"//127.0.0.1/{share.share_name}",
        "-c",
        f"put {tmp_path}/sent file; get file {tmp_path}/received; ls",
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert str(LARGE_BYTES) in done.stdout
    sent = (tmp_path / "sent").read_bytes()
    assert (tmp_path / "received").read_bytes() == sent
    assert share.get_file_client("file").download_file().readall() == sent


@pytest.mark.parametrize(
    ("user", "password"),
    [
        (ACCOUNT, KEY),
        (ACCOUNT.upper(), KEY),
        (f"AZURE/{ACCOUNT}", KEY),
        (f"127.0.0.1/{ACCOUNT}", KEY),
        (SECOND_ACCOUNT, SECOND_KEYS[0]),
        (SECOND_ACCOUNT, SECOND_KEYS[1]),
    ],
)
def test_users(server: Server, user: str, password: str) -> None:
    done = smbclient(server, "-g", "-L", "127.0.0.1", user=user, password=password)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "IPC|IPC$" in done.stdout


# Few, because each failure delays the answer to the next one.
@pytest.mark.parametrize(("user", "password"), [(ACCOUNT, WRONG_KEY), ("nobody", KEY), ("", "")])
def test_refused_users(server: Server, user: str, password: str) -> None:
    done = smbclient(server, "-g", "-L", "127.0.0.1", user=user, password=password)
    assert "NT_STATUS_LOGON_FAILURE" in done.stdout
    assert done.returncode == 1


def test_shares_of_another_account(server: Server, share: ShareClient) -> None:
    done = smbclient(
        server,
        f"//127.0.0.1/{share.share_name}",
        "-c",
        "ls",
        user=SECOND_ACCOUNT,
        password=SECOND_KEYS[0],
    )
    assert "NT_STATUS_BAD_NETWORK_NAME" in done.stdout
