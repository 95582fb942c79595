"""Memory use with clients that send many large documents at once."""

from __future__ import annotations

import collections
import contextlib
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, cast
from xml.etree import ElementTree

import pytest

from tests.hostile.bystanders import bystanders
from tests.hostile.tables import table_probe
from tests.probes.client import Answer, Client, Request, read_answer, shared_key
from tests.server import ACCOUNT, KEY, Server, eventually, served, unique

pytestmark = pytest.mark.alone

_sign = shared_key(ACCOUNT, KEY)
KIB, MIB = 1 << 10, 1 << 20
TREE_BYTES_MAX = 768 * MIB
DOCUMENT_BYTES = 16 * MIB


def resident_bytes(server: Server) -> int:
    """Returns the resident memory of all processes; shared pages count once per process."""
    total = 0
    for pid in (server.pid, *server.children()):
        status = Path(f"/proc/{pid}/status").read_text("ascii")
        total += int(status.partition("VmRSS:")[2].split()[0]) * 1024
    return total


def block_list() -> bytes:
    """Returns a block list of maximum length, of unknown blocks."""
    rows = b"".join(b"<Latest>%s</Latest>" % (b"QUFB" * 78) for _ in range(49_000))
    return (b"<BlockList>" + rows + b"</BlockList>").ljust(DOCUMENT_BYTES - 1)


class Senders:
    """Clients that send one request each, all at the same time."""

    def __init__(self, server: Server, raw: bytes, count: int) -> None:
        self._address = "127.0.0.1", int(server.endpoints["blob"].rpartition(":")[2])
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
        """Returns the peak memory of the server meanwhile."""
        self._go.set()
        peak = 0
        while any(thread.is_alive() for thread in self._threads):
            peak = max(peak, resident_bytes(server))
            time.sleep(0.02)
        return peak


def assert_bounded(tmp_path: Path, count: int) -> None:
    with served(tmp_path / "data", "--workers", "2") as server:
        container = f"/{ACCOUNT}/{unique()}"
        with Client(server.endpoints["blob"]) as client:
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
        assert others.waits_seconds  # all of them got a response
        eventually(
            lambda: resident_bytes(server) < before + 64 * MIB, "the memory to be given back"
        )


def test_concurrent_documents_take_bounded_memory(tmp_path: Path) -> None:
    assert_bounded(tmp_path, 24)


@contextlib.contextmanager
def memory_used_up(server: Server) -> Iterator[None]:
    """Connects clients that have sent all but the last byte of a document, each of which counts as
    four times its length, until no large one is accepted any more."""
    path = f"/{ACCOUNT}/{unique()}"
    address = "127.0.0.1", int(server.endpoints["blob"].rpartition(":")[2])
    with Client(server.endpoints["blob"]) as client, contextlib.ExitStack() as stack:
        client.ask(_sign(Request("PUT", path, (("restype", "container"),))))
        for length in (16 * MIB, 16 * MIB, 9 * MIB, 768 * KIB, *[16 * KIB] * 17):
            framed = (("Content-Length", str(length)),)
            most = b"<".ljust(length - 1)
            begun = Request("PUT", f"{path}/blob", (("comp", "blocklist"),), framed, most)
            sender = stack.enter_context(socket.create_connection(address))
            sender.sendall(_sign(begun).raw())
            time.sleep(0.1)  # in this order, the smallest fill the rest
        yield


def once_refused(ask: Callable[[], Answer]) -> Answer:
    """Returns the first refusal; some documents may still be arriving."""
    answers = [ask()]

    def is_refused() -> bool:
        answers.append(ask())
        return answers[-1].status != 200

    eventually(is_refused, "a refusal")
    return answers[-1]


def test_get_messages_succeeds_without_memory_for_its_response(
    tmp_path: Path,
) -> None:
    """Getting messages hides them, so the response must be sent. Peeking does not."""
    text = b"<QueueMessage><MessageText>%s</MessageText></QueueMessage>" % (b"x" * 60_000)
    messages, few = f"/{ACCOUNT}/queue/messages", (("numofmessages", "4"),)
    with (
        served(tmp_path / "data", "--workers", "1") as server,
        Client(server.endpoints["queue"]) as client,
    ):
        assert client.ask(_sign(Request("PUT", f"/{ACCOUNT}/queue"))).status == 201
        for _ in range(8):
            assert client.ask(_sign(Request("POST", messages, (), (), text))).status == 201
        with memory_used_up(server):
            peek = Request("GET", messages, (*few, ("peekonly", "true")))
            peeked = once_refused(lambda: client.ask(_sign(peek)))
            assert (peeked.status, peeked.code) == (503, "ServerBusy")
            assert ElementTree.fromstring(peeked.body).findtext("Code") == "ServerBusy"
            answer = client.ask(_sign(Request("GET", messages, few)))
        assert answer.status == 200
        assert len(ElementTree.fromstring(answer.body)) == 4


def test_a_page_of_entities_beyond_the_memory_limit(tmp_path: Path) -> None:
    with (
        served(tmp_path / "data", "--workers", "1") as server,
        table_probe(server) as probe,
    ):
        for key in "abc":
            row = {"PartitionKey": "p", "RowKey": key, "s": "x" * 30_000}
            assert probe.insert(row).status == 201
        with memory_used_up(server):
            refused = once_refused(probe.query)
        assert (refused.status, refused.code) == (503, "ServerBusy")
        assert json.loads(refused.body)["odata.error"]["code"] == "ServerBusy"
        assert refused.headers["x-ms-request-id"]


@pytest.mark.long
def test_a_gibibyte_and_a_half_of_documents(tmp_path: Path) -> None:
    assert_bounded(tmp_path, 96)
