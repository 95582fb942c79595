"""smbclient, as a user runs it."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from azure.storage.fileshare import ShareClient

from tests.sdk.file.clients import file_service
from tests.server import ACCOUNT, KEY, Server, unique

pytestmark = pytest.mark.skipif(shutil.which("smbclient") is None, reason="smbclient is missing")


def _smbclient(server: Server, *arguments: str) -> str:
    port = server.endpoints["smb"].rpartition(":")[2]
    result = subprocess.run(
        ["smbclient", *arguments, "-p", port, "-U", f"{ACCOUNT}%{KEY}", "-m", "SMB3"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


def test_list_of_shares(server: Server) -> None:
    names = [unique("listed") for _ in range(3)]
    for name in names:
        file_service(server).create_share(name)
    shown = _smbclient(server, "-L", "127.0.0.1")
    assert all(name in shown for name in names)
    assert "IPC$" in shown


def test_tree_of_files(server: Server, share: ShareClient, tmp_path: Path) -> None:
    source = tmp_path / "source"
    for number in range(3):
        directory = source / f"directory {number}" / "below"
        directory.mkdir(parents=True)
        (directory / "file.bin").write_bytes(bytes([number]) * 70_000)
        (directory.parent / "leer.txt").write_bytes(b"")
    target = tmp_path / "target"
    target.mkdir()
    address = f"//127.0.0.1/{share.share_name}"

    def run(commands: str, directory: Path) -> str:
        return _smbclient(server, address, "-c", f"lcd {directory}; {commands}")

    run("prompt off; recurse on; mput *", source)
    shown = run("ls", source)
    assert all(f"directory {number}" in shown for number in range(3))
    assert "blocks available" in shown
    run("prompt off; recurse on; mget *", target)
    for path in source.rglob("*"):
        copied = target / path.relative_to(source)
        assert copied.is_dir() if path.is_dir() else copied.read_bytes() == path.read_bytes()
    run(r'rename "directory 0\leer.txt" "new.txt"; del new.txt; deltree "directory 1"', source)
    left = sorted(entry.name for entry in share.list_directories_and_files())
    assert left == ["directory 0", "directory 2"]
    # There are no 8.3 names, and smbclient shows nothing without.
    assert "OBJECT_NAME_NOT_FOUND getting alt name" in run(
        r'allinfo "directory 2\leer.txt"', source
    )
    assert "below" in run(r'cd "directory 2"; ls b*', source)
