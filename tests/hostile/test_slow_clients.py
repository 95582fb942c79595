"""Clients that send or read a body so slowly that it would never end."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.probes.client import Client, Request, shared_key
from tests.server import ACCOUNT, KEY, WRONG_KEY, Server, served, unique

pytestmark = pytest.mark.alone

_sign = shared_key(ACCOUNT, KEY)
MIB = 1 << 20
BLOCK_BLOB = (("x-ms-blob-type", "BlockBlob"),)
SLOW_SECONDS_MAX = 150.0
REFUSED_SECONDS_MAX = 75.0
_GIVEN_UP_SECONDS = 160.0
_ESTABLISHED = 1


def address(server: Server, service: str) -> tuple[str, int]:
    return "127.0.0.1", int(server.endpoints[service].rpartition(":")[2])


def seconds_until_cut(connection: socket.socket, act: Callable[[], None]) -> float:
    """Repeats an action every second until the server closes the connection."""
    began = time.monotonic()
    connection.settimeout(5.0)
    with contextlib.suppress(ConnectionError, StopIteration):
        while time.monotonic() - began < _GIVEN_UP_SECONDS:
            act()
            time.sleep(1.0)
    return time.monotonic() - began


def read_slowly(server: Server, path: str, service: str = "blob") -> float:
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16 * 1024)
        connection.connect(address(server, service))
        connection.sendall(_sign(Request("GET", path)).raw())

        def take() -> None:
            # Buffered bytes could be read long after the server has closed the connection.
            state = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0]
            if not connection.recv(10) or state != _ESTABLISHED:
                raise StopIteration

        return seconds_until_cut(connection, take)


def write_slowly(server: Server, request: Request, service: str = "blob") -> float:
    with socket.create_connection(address(server, service)) as connection:
        connection.sendall(request.raw()[: -len(request.body)])

        def send() -> None:
            connection.sendall(b"0123456789")

        return seconds_until_cut(connection, send)


@pytest.mark.long
def test_slow_clients_are_disconnected(tmp_path: Path) -> None:
    with served(tmp_path / "data") as server:
        container = f"/{ACCOUNT}/{unique()}"
        large = bytes(32 * MIB)
        with Client(server.endpoints["blob"]) as client:
            client.ask(_sign(Request("PUT", container, (("restype", "container"),))))
            put = client.ask(_sign(Request("PUT", f"{container}/large", (), BLOCK_BLOB, large)))
            assert put.status == 201
        share = f"/{ACCOUNT}/{unique()}"
        length = (("x-ms-type", "file"), ("x-ms-content-length", str(32 * MIB)))
        with Client(server.endpoints["file"]) as client:
            client.ask(_sign(Request("PUT", share, (("restype", "share"),))))
            assert client.ask(_sign(Request("PUT", f"{share}/large", (), length))).status == 201
        refused = shared_key(ACCOUNT, WRONG_KEY)
        upload = Request("PUT", f"{container}/slow", (), BLOCK_BLOB, bytes(MIB))
        document = Request("PUT", f"{container}/slow", (("comp", "blocklist"),), (), bytes(MIB))
        update = (("x-ms-write", "update"), ("x-ms-range", f"bytes=0-{MIB - 1}"))
        put_range = Request("PUT", f"{share}/large", (("comp", "range"),), update, bytes(MIB))
        took: dict[str, float] = {}
        actions: dict[str, Callable[[], float]] = {
            "reader": lambda: read_slowly(server, f"{container}/large"),
            "writer": lambda: write_slowly(server, _sign(upload)),
            "sender of a document": lambda: write_slowly(server, _sign(document)),
            "reader of a file": lambda: read_slowly(server, f"{share}/large", "file"),
            "writer of a range": lambda: write_slowly(server, _sign(put_range), "file"),
            "refused": lambda: write_slowly(server, refused(upload)),
        }

        def run(name: str) -> None:
            took[name] = actions[name]()

        threads = [threading.Thread(target=run, args=(name,)) for name in actions]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert took.pop("refused") <= REFUSED_SECONDS_MAX
    assert max(took.values()) <= SLOW_SECONDS_MAX, took
    assert min(took.values()) > 30, took
