"""A full disk: uploads are refused, everything else works."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from azure.core.exceptions import HttpResponseError
from azure.storage.blob import ContainerClient

from tests.sdk.blob.clients import blob_service
from tests.server import check, eventually, served

MIB = 1024 * 1024
DISK_BYTES = 220 * MIB
BLOB_BYTES = 8 * MIB


@contextlib.contextmanager
def small_disk(place: Path) -> Iterator[Path]:
    place.mkdir()
    options = f"size={DISK_BYTES}"
    command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(place)]
    mounted = subprocess.run(command, capture_output=True, text=True, check=False)
    if mounted.returncode:
        pytest.skip(f"no small file system can be made here: {mounted.stderr.strip()}")
    try:
        yield place
    finally:
        subprocess.run(["umount", str(place)], check=True)


def uploaded(container: ContainerClient, name: str) -> bool:
    try:
        container.upload_blob(name, name.encode()[:1] * BLOB_BYTES)
    except HttpResponseError as error:
        assert error.status_code in (500, 503), error
        return False
    return True


def test_a_full_disk(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk") as disk:
        with served(disk / "data") as server:
            with blob_service(server) as service:
                container = service.create_container("container")
                fill_and_empty(container)
                eventually(lambda: uploaded(container, "again"), "space that was freed is used")
            assert server.stop() == 0
        assert check(disk / "data").returncode == 0


def fill_and_empty(container: ContainerClient) -> None:
    names = [f"{number:02}" for number in range(DISK_BYTES // BLOB_BYTES)]
    kept = [name for name in names if uploaded(container, name)]
    assert 0 < len(kept) < len(names)
    assert list(container.list_blob_names()) == kept
    for name in kept[:3]:
        assert container.download_blob(name).readall() == name.encode()[:1] * BLOB_BYTES
    for name in kept:
        container.delete_blob(name)
    assert list(container.list_blob_names()) == []


def test_a_writer_restarts_on_a_full_disk(tmp_path: Path) -> None:
    """It releases the reserve before it opens the ledger, so that deletes succeed."""
    with small_disk(tmp_path / "disk") as disk, served(disk / "data") as server:
        with blob_service(server) as service:
            container = service.create_container("container")
            container.upload_blob("small", b"x")
            filler = disk / "filler"
            fill(filler)
            os.kill(server.pid_of("writer"), signal.SIGKILL)
            eventually(lambda: server.log().count("started writer") > 1, "another writer")
            eventually(lambda: deleted(container, "small"), "a writer that deletes")
            assert not uploaded(container, "large")
            filler.unlink()
            eventually(lambda: "there is space on the disk again" in server.log(), "the reserve")
            eventually(lambda: uploaded(container, "large"), "space that was freed is used")
        assert server.stop() == 0


def fill(path: Path) -> None:
    """Uses up all remaining space."""
    with path.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(4096))


def deleted(container: ContainerClient, name: str) -> bool:
    try:
        container.delete_blob(name)
    except HttpResponseError as error:
        return error.status_code == 404
    return True
