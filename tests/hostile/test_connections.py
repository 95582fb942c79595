"""Many connections: they are spread evenly, and idle ones do not block new ones."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.hostile.sockets import connections_by_process
from tests.probes.client import Client, Request, shared_key
from tests.server import ACCOUNT, KEY, Server, eventually, served, unique

pytestmark = pytest.mark.alone

_sign = shared_key(ACCOUNT, KEY)
SILENT = 2_600
DESCRIPTORS = 1_024


@contextlib.contextmanager
def connected(port: int, count: int) -> Iterator[list[socket.socket]]:
    """Opens so many connections at once."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for one in sockets:
            one.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                one.connect(("127.0.0.1", port))
        yield sockets
    finally:
        for one in sockets:
            one.close()


def port_of(server: Server, service: str = "blob") -> int:
    return int(server.endpoints[service].rpartition(":")[2])


def spread(server: Server, port: int, count: int) -> list[int]:
    """Returns how many of the connections each front end got."""
    with connected(port, count):
        eventually(
            lambda: sum(connections_by_process(server, port).values()) == count,
            "all connections to be accepted",
        )
        shares = connections_by_process(server, port).values()
    eventually(
        lambda: not any(connections_by_process(server, port).values()), "the end of connections"
    )
    return sorted(share for share in shares if share)


@pytest.mark.parametrize("service", ["blob", "table"])
def test_simultaneous_connections_are_spread_evenly(tmp_path: Path, service: str) -> None:
    with served(tmp_path / "data", "--workers", "2") as server:
        spreads = [spread(server, port_of(server, service), 16) for _ in range(8)]
    assert all(least >= 6 and most <= 10 for least, most in spreads), spreads


def test_an_unresponsive_front_end_gets_no_connections(tmp_path: Path) -> None:
    with served(tmp_path / "data", "--workers", "2") as server:
        stopped = server.front_end()
        os.kill(stopped, signal.SIGSTOP)
        try:
            for _ in range(16):
                began = time.monotonic()
                with Client(server.endpoints["blob"]) as client:
                    assert client.ask(_sign(list_containers())).status == 200
                assert time.monotonic() - began < 1.0
        finally:
            os.kill(stopped, signal.SIGCONT)
        # It gets its share again.
        assert min(spread(server, port_of(server), 16)) >= 6


def test_a_dead_front_end_leaves_no_connections(tmp_path: Path) -> None:
    with served(tmp_path / "data", "--workers", "2") as server:
        others = {server.children()[0], server.file_front_end()}
        for _ in range(3):
            with connected(port_of(server), 16):
                front_end = [pid for pid in server.children() if pid not in others][-1]
                os.kill(front_end, signal.SIGKILL)
                for _ in range(4):
                    with Client(server.endpoints["blob"]) as client:
                        assert client.ask(_sign(list_containers())).status == 200
        eventually(lambda: len(server.children()) == 4, "the front end to be started again")
        eventually(lambda: min(spread(server, port_of(server), 16)) >= 6, "an even spread")


def list_containers() -> Request:
    return Request("GET", f"/{ACCOUNT}", (("comp", "list"),))


class ExistingClients:
    """Clients that connected earlier, each with a connection that it keeps using."""

    def __init__(self, server: Server, count: int) -> None:
        self._server = server
        self._stop = threading.Event()
        self.failures: list[BaseException] = []
        self.asked = 0
        self._threads = [threading.Thread(target=self._ask, args=(n,)) for n in range(count)]
        self._container = f"/{ACCOUNT}/{unique()}"

    def __enter__(self) -> ExistingClients:
        with Client(self._server.endpoints["blob"]) as client:
            created = client.ask(
                _sign(Request("PUT", self._container, (("restype", "container"),)))
            )
            assert created.status == 201
        for thread in self._threads:
            thread.start()
        eventually(lambda: self.asked >= 2 * len(self._threads), "the clients to be established")
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _ask(self, number: int) -> None:
        path = f"{self._container}/{number}"
        headers = (("x-ms-blob-type", "BlockBlob"),)
        body = bytes(200_000)
        try:
            with Client(self._server.endpoints["blob"]) as client:
                client.ask(_sign(Request("PUT", path, (), headers, body)))
                first = client._socket
                while not self._stop.is_set():
                    put = client.ask(_sign(Request("PUT", path, (), headers, body)))
                    got = client.ask(_sign(Request("GET", path)))
                    assert (put.status, got.status) == (201, 200)
                    assert got.body == body
                    assert client._socket is first
                    self.asked += 1
                    time.sleep(0.02)
        except BaseException as error:
            self.failures.append(error)


@pytest.mark.parametrize("workers", [1, 2])
def test_idle_connections_do_not_block_new_ones(tmp_path: Path, workers: int) -> None:
    """With far fewer descriptors than connections."""
    _need_descriptors(SILENT + 200)
    prefix = ("prlimit", f"--nofile={DESCRIPTORS}:{DESCRIPTORS}")
    flags = ("--workers", str(workers))
    with (
        served(tmp_path / "data", *flags, command_prefix=prefix) as server,
        ExistingClients(server, 6) as established,
        connected(port_of(server), SILENT),
    ):
        for _ in range(40):
            began = time.monotonic()
            with Client(server.endpoints["blob"]) as client:
                assert client.ask(_sign(list_containers())).status == 200
            assert time.monotonic() - began < 2.0
            time.sleep(0.05)
        asked = established.asked
        eventually(lambda: established.asked > asked + 20, "established clients to go on")
        assert not established.failures, established.failures
        assert "Too many open files" not in server.log()


def test_the_limit_of_descriptors_is_raised(tmp_path: Path) -> None:
    prefix = ("prlimit", "--nofile=200:900")
    with served(tmp_path / "data", command_prefix=prefix) as server:
        limits = {resource.prlimit(pid, resource.RLIMIT_NOFILE) for pid in server.children()}
    assert limits == {(900, 900)}


def _need_descriptors(count: int) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < count:
        pytest.skip(f"needs {count} descriptors")
    if soft < count:
        resource.setrlimit(resource.RLIMIT_NOFILE, (count, hard))
