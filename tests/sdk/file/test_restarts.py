"""Servers killed while ranges are written: what was acknowledged is there, and no write is half
done."""

from __future__ import annotations

import random
import threading
from pathlib import Path

import pytest
from azure.core.exceptions import AzureError
from azure.storage.fileshare import ShareClient, ShareFileClient

from tests.sdk.file.clients import file_service
from tests.server import Server, check, eventually, served

SHARE = "survivor"
CLIENTS = 3
FILE_BYTES = 1 << 20
SIZES = (1, 100, 4_096, 70_000, 300_000, 900_000)


class Load:
    """A client that writes and clears ranges of its own file, which overlap, and records what was
    acknowledged. The outcome of the last request may be unknown."""

    def __init__(self, number: int) -> None:
        self.name = f"file-{number}"
        self.acknowledged = 0
        self._known = bytes(FILE_BYTES)
        self._pending: bytes | None = None
        self._random = random.Random(number)

    def create(self, share: ShareClient) -> None:
        share.get_file_client(self.name).create_file(FILE_BYTES)

    def run(self, server: Server, stop: threading.Event) -> None:
        """Runs until the server is gone."""
        with file_service(server, connection_timeout=5, read_timeout=20) as service:
            file = service.get_share_client(SHARE).get_file_client(self.name)
            while not stop.is_set():
                try:
                    self._step(file)
                except AzureError:
                    return

    def _step(self, file: ShareFileClient) -> None:
        if self._random.random() < 0.2:
            start = 512 * self._random.randrange(FILE_BYTES // 512)
            written = bytes(512 * self._random.randint(1, (FILE_BYTES - start) // 512))
            self._pending = self._with(start, written)
            file.clear_range(start, len(written))
        else:
            start = self._random.randrange(FILE_BYTES)
            length = min(self._random.choice(SIZES), FILE_BYTES - start)
            written = self._random.randbytes(length)
            self._pending = self._with(start, written)
            file.upload_range(written, start, length)
        self._known, self._pending = self._pending, None
        self.acknowledged += 1

    def _with(self, start: int, written: bytes) -> bytes:
        return self._known[:start] + written + self._known[start + len(written) :]

    def verify(self, share: ShareClient) -> None:
        """Checks that the last request was executed as a whole or not at all, which is then
        known."""
        found = share.get_file_client(self.name).download_file().readall()
        assert found in (self._known, self._pending), self.name
        self._known, self._pending = found, None


def acknowledged(loads: list[Load]) -> int:
    return sum(load.acknowledged for load in loads)


def crash(server: Server, loads: list[Load], seconds: float) -> None:
    """Kills the server some time after it has acknowledged a request of this load."""
    stop = threading.Event()
    before = acknowledged(loads)
    threads = [threading.Thread(target=load.run, args=(server, stop)) for load in loads]
    for thread in threads:
        thread.start()
    try:
        eventually(lambda: acknowledged(loads) > before, "an acknowledged request")
        stop.wait(seconds)
        server.kill()
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def survive(directory: Path, rounds: int) -> None:
    loads = [Load(number) for number in range(CLIENTS)]
    with served(directory) as server:
        with file_service(server) as service:
            share = service.create_share(SHARE)
            for load in loads:
                load.create(share)
        crash(server, loads, 0.5)
        server.start()
        verify(server, loads)
        with file_service(server) as service:
            # From now on, writes keep what the snapshot shows.
            taken = service.get_share_client(SHARE).create_snapshot()["snapshot"]
        expected = contents(server, loads, taken)
        for number in range(rounds):
            crash(server, loads, random.Random(number).uniform(0.3, 1.2))
            server.start()
            verify(server, loads)
        assert contents(server, loads, taken) == expected
        assert server.stop() == 0
    found = check(directory)
    assert found.returncode == 0, found.stdout + found.stderr


def verify(server: Server, loads: list[Load]) -> None:
    with file_service(server) as service:
        share = service.get_share_client(SHARE)
        for load in loads:
            load.verify(share)


def contents(server: Server, loads: list[Load], snapshot: str) -> list[bytes]:
    """Returns the files of all clients as a snapshot shows them."""
    with file_service(server) as service:
        share = service.get_share_client(SHARE, snapshot=snapshot)
        return [share.get_file_client(load.name).download_file().readall() for load in loads]


def test_killed_under_load(tmp_path: Path) -> None:
    survive(tmp_path / "data", 3)


@pytest.mark.long
def test_killed_under_load_often(tmp_path: Path) -> None:
    survive(tmp_path / "data", 50)
