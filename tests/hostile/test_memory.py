"""Memory beside clients that send many large documents at once."""

from __future__ import annotations

import collections
import socket
import threading
import time
from pathlib import Path
from typing import BinaryIO, cast

import pytest

from tests.hostile.bystanders import bystanders
from tests.probes.client import Client, Request, read_answer, shared_key
from tests.sdk.server import ACCOUNT, KEY, Server, eventually, served, unique

_sign = shared_key(ACCOUNT, KEY)
MIB = 1 << 20
TREE_BYTES_MAX = 768 * MIB
DOCUMENT_BYTES = 16 * MIB


def resident_bytes(server: Server) -> int:
    """Of all processes; what they share counts for each."""
    total = 0
    for pid in (server.pid, *server.children()):
        status = Path(f"/proc/{pid}/status").read_text("ascii")
        total += int(status.partition("VmRSS:")[2].split()[0]) * 1024
    return total


def block_list() -> bytes:
    """As long as one may be, of names that nobody has sent."""
    rows = b"".join(b"<Latest>%s</Latest>" % (b"QUFB" * 78) for _ in range(49_000))
    return (b"<BlockList>" + rows + b"</BlockList>").ljust(DOCUMENT_BYTES - 1)


class Senders:
    """Clients that send one request each, all at the same time."""

    def __init__(self, server: Server, raw: bytes, count: int) -> None:
        self._address = "127.0.0.1", int(server.endpoint.rpartition(":")[2])
        self._raw = raw
        self._go = threading.Event()
        self.answers: collections.Counter[tuple[int, str]] = collections.Counter()
        self._threads = [threading.Thread(target=self._send) for _ in range(count)]
        for thread in self._threads:
            thread.start()

    def _send(self) -> None:
        with socket.create_connection(self._address, 60) as connection:
            self._go.wait()
            connection.sendall(self._raw)
            with connection.makefile("rb") as stream:
                answer = read_answer(cast("BinaryIO", stream), "PUT")
            assert answer is not None
            self.answers[(answer.status, answer.code)] += 1

    def run(self, server: Server) -> int:
        """Returns the most memory that the server took meanwhile."""
        self._go.set()
        peak = 0
        while any(thread.is_alive() for thread in self._threads):
            peak = max(peak, resident_bytes(server))
            time.sleep(0.02)
        return peak


def assert_bounded(tmp_path: Path, count: int) -> None:
    with served(tmp_path / "data", "--workers", "2") as server:
        container = f"/{ACCOUNT}/{unique()}"
        with Client(server.endpoint) as client:
            client.ask(_sign(Request("PUT", container, (("restype", "container"),))))
        before = resident_bytes(server)
        query = (("comp", "blocklist"),)
        raw = _sign(Request("PUT", f"{container}/blob", query, (), block_list())).raw()
        senders = Senders(server, raw, count)
        with bystanders(server) as others:
            peak = senders.run(server)
        assert peak < TREE_BYTES_MAX, f"{peak // MIB} MiB"
        assert sum(senders.answers.values()) == count
        assert senders.answers[(503, "ServerBusy")] > 0, senders.answers
        assert {status for status, _ in senders.answers} == {503, 400}, senders.answers
        assert others.waits_seconds  # all of them were answered
        eventually(
            lambda: resident_bytes(server) < before + 64 * MIB, "the memory to be given back"
        )


def test_documents_sent_at_once_take_a_bounded_amount_of_memory(tmp_path: Path) -> None:
    assert_bounded(tmp_path, 24)


@pytest.mark.long
def test_a_gibibyte_and_a_half_of_documents(tmp_path: Path) -> None:
    assert_bounded(tmp_path, 96)
