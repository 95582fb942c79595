"""Files are readable only by their owner, whatever the umask and earlier modes."""

from __future__ import annotations

import contextlib
import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.sdk.blob.clients import blob_service
from tests.server import environment, served, unique

NOBODY_ELSE = 0o077


@pytest.fixture(params=[0o022, 0o000], ids=["umask 022", "umask 000"])
def open_directory(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """An existing directory that everyone can read."""
    before = os.umask(request.param)
    directory = tmp_path / "data"
    directory.mkdir(mode=0o755)
    yield directory
    os.umask(before)


def modes(directory: Path) -> dict[str, int]:
    found: dict[str, int] = {}
    for path in sorted(directory.rglob("*")):
        # Files of processes that have ended may be removed meanwhile.
        with contextlib.suppress(FileNotFoundError):
            found[str(path.relative_to(directory))] = stat.S_IMODE(path.stat().st_mode)
    return found


def require_private(directory: Path, *expected: str) -> None:
    found = modes(directory)
    assert found.keys() >= set(expected)
    assert {name: oct(mode) for name, mode in found.items() if mode & NOBODY_ELSE} == {}


def etagere(*arguments: str) -> str:
    command = [sys.executable, "-m", "etagere", *arguments]
    done = subprocess.run(
        command, env=environment(), capture_output=True, text=True, timeout=60, check=True
    )
    return done.stdout + done.stderr


def test_files_of_a_server_are_private(open_directory: Path) -> None:
    with served(open_directory) as server:
        container = blob_service(server).create_container(unique())
        container.upload_blob("large", bytes(200_000))
        require_private(
            open_directory,
            "ledger.sqlite3",
            "ledger.sqlite3-wal",
            "ledger.sqlite3-shm",
            "lock",
            "reserve",
            "segments",
            "segments/00000001.seg",
            "writer.lock",
            "writer.sock",
        )
        assert f"other users can access {open_directory}" in server.log()


def test_an_open_directory_is_made_private_and_a_private_one_causes_no_warning(
    tmp_path: Path,
) -> None:
    directory = tmp_path / "data"
    with served(directory) as server:
        container = blob_service(server).create_container(unique())
        container.upload_blob("large", bytes(200_000))
        assert "other users can access" not in server.log()
    assert modes(tmp_path)["data"] == 0o700
    not_ours = directory / "notes.txt"
    not_ours.write_text("", "utf-8")
    for path in directory.rglob("*"):
        path.chmod(0o777 if path.is_dir() else 0o666)
    with served(directory):
        not_ours.unlink()
        require_private(directory, "ledger.sqlite3", "segments/00000001.seg")
    for path in directory.rglob("*"):
        path.chmod(0o777 if path.is_dir() else 0o666)
    etagere("check", "--repair", "--data", str(directory))
    require_private(directory, "ledger.sqlite3", "segments/00000001.seg")


def test_files_of_other_commands_are_private(open_directory: Path) -> None:
    etagere("account", "add", "--data", str(open_directory), "mine")
    require_private(open_directory, "ledger.sqlite3", "lock")
    etagere("check", "--repair", "--data", str(open_directory))
    etagere("check", "--data", str(open_directory))
    require_private(open_directory, "ledger.sqlite3", "lock")
