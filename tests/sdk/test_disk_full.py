"""A full disk: uploads are refused, everything else works."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from azure.core.exceptions import HttpResponseError
from azure.storage.blob import ContainerClient
from azure.storage.fileshare import ShareClient

from tests.sdk.blob.clients import blob_service
from tests.sdk.file.clients import file_service
from tests.sdk.harness import refused
from tests.server import check, eventually, served

MIB = 1024 * 1024
DISK_BYTES = 220 * MIB
BLOB_BYTES = 8 * MIB
SMALL_DISK_BYTES = 155 * MIB
RANGE_BYTES = 4 * MIB


@contextlib.contextmanager
def small_disk(place: Path, size: int = DISK_BYTES) -> Iterator[Path]:
    place.mkdir()
    options = f"size={size}"
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


def test_a_full_disk_and_files(tmp_path: Path) -> None:
    """Writes of files are refused and change nothing; deletes make space for others."""
    with small_disk(tmp_path / "disk", SMALL_DISK_BYTES) as disk:
        with served(disk / "data") as server:
            with file_service(server) as service:
                share = service.create_share("share")
                known = write_until_full(share)
                with refused(503, "ServerBusy"):
                    share.get_file_client("00").upload_range(b"n" * RANGE_BYTES, 0, RANGE_BYTES)
                require_contents(share, known)
                filler = disk / "filler"
                fill(filler)
                eventually(lambda: creation_is_refused(share), "no space for records")
                require_contents(share, known)
                # Deletes use the reserve.
                for name in list(known)[:-1]:
                    eventually(partial(file_deleted, share, name), "a delete")
                    del known[name]
                require_contents(share, known)
                filler.unlink()
                eventually(lambda: file_written(share, "again"), "space that was freed is used")
                known["again"] = b"a" * RANGE_BYTES
                require_contents(share, known)
            front_end = server.pid_of("file front end")
            eventually(lambda: not has_removed_segments(front_end), "removed segments are closed")
            server.kill()
            server.start()
            with file_service(server) as service:
                require_contents(service.get_share_client("share"), known)
            assert server.stop() == 0
        found = check(disk / "data")
        assert found.returncode == 0, found.stdout


def has_removed_segments(pid: int) -> bool:
    """Whether a process has segments open that were removed, so that their space is not free."""
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # closed meanwhile
            if str(descriptor.readlink()).endswith(".seg (deleted)"):
                return True
    return False


def write_until_full(share: ShareClient) -> dict[str, bytes]:
    """Writes files until the disk is full; returns their contents. The last one has only zeros."""
    known: dict[str, bytes] = {}
    for number in range(DISK_BYTES // RANGE_BYTES):
        name = f"{number:02}"
        share.get_file_client(name).create_file(RANGE_BYTES)
        if not file_written(share, name):
            return {**known, name: bytes(RANGE_BYTES)}
        known[name] = name[:1].encode() * RANGE_BYTES
    raise AssertionError("the disk does not fill up")


def file_written(share: ShareClient, name: str) -> bool:
    file = share.get_file_client(name)
    try:
        if not file.exists():
            file.create_file(RANGE_BYTES)
        file.upload_range(name[:1].encode() * RANGE_BYTES, 0, RANGE_BYTES)
    except HttpResponseError as error:
        require_busy(error)
        return False
    return True


def creation_is_refused(share: ShareClient) -> bool:
    """Whether there is no space for another record, after some at most."""
    try:
        for number in range(20):
            share.get_file_client(f"new-{number}").create_file(10, metadata={"a": "b" * 4_000})
    except HttpResponseError as error:
        require_busy(error)
        return True
    return False


def file_deleted(share: ShareClient, name: str) -> bool:
    try:
        share.get_file_client(name).delete_file()
    except HttpResponseError as error:
        return error.status_code == 404
    return True


def require_busy(error: HttpResponseError) -> None:
    assert (error.status_code, error.error_code) == (503, "ServerBusy"), error  # type: ignore[attr-defined]


def require_contents(share: ShareClient, known: dict[str, bytes]) -> None:
    listed = {each.name for each in share.list_directories_and_files()}
    assert {name for name in listed if not name.startswith("new-")} == set(known)
    for name, content in known.items():
        assert share.get_file_client(name).download_file().readall() == content, name


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
