"""Servers killed under load: everything acknowledged is there afterwards."""

from __future__ import annotations

import random
import threading
from pathlib import Path

import pytest
from azure.core.exceptions import AzureError
from azure.storage.blob import BlobLeaseClient, ContainerClient

from tests.sdk.blob.clients import blob_service
from tests.sdk.harness import refused
from tests.server import Server, check, eventually, served

NAME = "survivor"
CLIENTS = 3
SIZES = (0, 10, 1_000, 33_000, 200_000, 1_500_000)


def content_of(seed: int) -> bytes:
    source = random.Random(seed)
    return source.randbytes(source.choice(SIZES))


class Load:
    """A client that writes and deletes its own blobs, and records what was acknowledged.

    It knows the possible contents of each blob: one, or two while the outcome of the last write is
    unknown. None means that the blob does not exist."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.known: dict[str, set[int | None]] = {}
        self.acknowledged = 0
        self._random = random.Random(number)

    def run(self, server: Server, stop: threading.Event) -> None:
        """Runs until the server is gone."""
        with blob_service(server, connection_timeout=5, read_timeout=20) as service:
            container = service.get_container_client(NAME)
            while not stop.is_set():
                try:
                    self._step(container)
                except AzureError:
                    return

    def _step(self, container: ContainerClient) -> None:
        name = f"{self.number}/{self._random.randrange(40)}"
        states = self.known.setdefault(name, {None})
        blob = container.get_blob_client(name)
        if states != {None} and None not in states and self._random.random() < 0.2:
            states.add(None)
            blob.delete_blob()
            self.known[name] = {None}
        else:
            seed = self._random.getrandbits(60)
            states.add(seed)
            blob.upload_blob(content_of(seed), overwrite=True)
            self.known[name] = {seed}
        self.acknowledged += 1

    def verify(self, container: ContainerClient) -> None:
        """Checks that the blobs have an acknowledged content, which is then known again."""
        there = set(container.list_blob_names(name_starts_with=f"{self.number}/"))
        assert there <= self.known.keys()
        for name, states in self.known.items():
            if name not in there:
                assert None in states, f"{name} is lost"
                self.known[name] = {None}
                continue
            found = container.download_blob(name).readall()
            seeds = [seed for seed in states if seed is not None and content_of(seed) == found]
            assert seeds, f"{name} holds something else"
            self.known[name] = {seeds[0]}


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


def verify(server: Server, loads: list[Load], lease_id: str) -> None:
    with blob_service(server) as service:
        container = service.get_container_client(NAME)
        for load in loads:
            load.verify(container)
        shown = container.get_container_properties()
        assert shown.lease.state == "leased"
        assert shown.metadata == {"Kept": "yes"}
        with refused(412, "LeaseIdMissing"):
            container.delete_container()
        BlobLeaseClient(container, lease_id).renew()


def survive(directory: Path, rounds: int) -> None:
    loads = [Load(number) for number in range(CLIENTS)]
    with served(directory) as server:
        with blob_service(server) as service:
            lease_id = service.create_container(NAME, {"Kept": "yes"}).acquire_lease().id
        for number in range(rounds):
            crash(server, loads, random.Random(number).uniform(0.3, 1.2))
            server.start()
            verify(server, loads, lease_id)
        assert server.stop() == 0
    found = check(directory)
    assert found.returncode == 0, found.stdout + found.stderr


def test_killed_under_load(tmp_path: Path) -> None:
    survive(tmp_path / "data", 3)


@pytest.mark.long
def test_killed_under_load_often(tmp_path: Path) -> None:
    survive(tmp_path / "data", 50)


def test_stop_and_restart(tmp_path: Path) -> None:
    with served(tmp_path / "data") as server:
        with blob_service(server) as service:
            blob = service.create_container(NAME).upload_blob("blob", b"content")
            etag = blob.get_blob_properties().etag
        assert server.stop() == 0
        server.start()
        with blob_service(server) as service:
            blob = service.get_blob_client(NAME, "blob")
            assert blob.get_blob_properties().etag == etag
            assert blob.download_blob().readall() == b"content"
            assert blob.upload_blob(b"new", overwrite=True)["etag"] != etag


def test_stopping_lets_requests_finish(tmp_path: Path) -> None:
    with served(tmp_path / "data") as server:
        load = Load(0)
        with blob_service(server) as service:
            service.create_container(NAME)
        thread = threading.Thread(target=load.run, args=(server, threading.Event()))
        thread.start()
        eventually(lambda: load.acknowledged >= 20, "acknowledged requests")
        assert server.stop() == 0
        thread.join()
        server.start()
        with blob_service(server) as service:
            load.verify(service.get_container_client(NAME))
        assert server.stop() == 0
    assert check(tmp_path / "data").returncode == 0
