"""Listings for many slow readers: memory is bounded and released, and others do not wait."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit
from xml.etree import ElementTree

import pytest

from tests.hostile.bystanders import assert_others_do_not_wait
from tests.probes.client import Answer, Client, Request, shared_key
from tests.server import ACCOUNT, KEY, Server, eventually, served

pytestmark = pytest.mark.alone

_sign = shared_key(ACCOUNT, KEY)
_MIB: Final = 1 << 20
_BLOBS: Final = 1_500
_READERS: Final = 60
_MORE_MIB_MAX: Final = 360
"""The growth while the readers read: two processes, each of which holds 128 MiB of pages that wait
to be sent, and the memory to build them."""
_KEPT_MIB_MAX: Final = 120
_METADATA: Final = tuple((f"x-ms-meta-m{number}", "&" * 1000) for number in range(8))
_PATH: Final = f"/{ACCOUNT}/many"
_LIST: Final = (("restype", "container"), ("comp", "list"), ("include", "metadata"))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    directory: Path = tmp_path_factory.mktemp("listings") / "data"
    with served(directory, "--workers", "2") as started:
        with Client(started.endpoints["blob"]) as client:
            public = (("x-ms-blob-public-access", "container"),)
            created = client.ask(_sign(Request("PUT", _PATH, (("restype", "container"),), public)))
            assert created.status == 201
        with ThreadPoolExecutor(8) as threads:
            list(threads.map(lambda first: _put_blobs(started, first), range(8)))
        yield started


def _put_blobs(server: Server, first: int) -> None:
    headers = (("x-ms-blob-type", "BlockBlob"), *_METADATA)
    with Client(server.endpoints["blob"]) as client:
        for number in range(first, _BLOBS, 8):
            path = f"{_PATH}/folder{number % 300:03}/blob{number:05}"
            assert client.ask(_sign(Request("PUT", path, (), headers, b"x" * 10_000))).status == 201


def _resident_mib(server: Server) -> int:
    """Returns the memory of all processes of the server; shared pages count once."""
    kib = 0
    for pid in (server.pid, *server.children()):
        with contextlib.suppress(FileNotFoundError):
            result = Path(f"/proc/{pid}/smaps_rollup").read_text("ascii")
            kib += sum(
                int(line.split()[1]) for line in result.splitlines() if line.startswith("Pss:")
            )
    return kib // 1024


@contextlib.contextmanager
def _slow_readers(server: Server, request: Request, count: int) -> Iterator[list[socket.socket]]:
    """Opens connections that have sent a request, and read only on demand."""
    split = urlsplit(server.endpoints["blob"])
    with contextlib.ExitStack() as stack:
        readers = []
        for _ in range(count):
            reader = stack.enter_context(socket.socket())
            reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            reader.connect((split.hostname, split.port))
            reader.sendall(request.raw())
            readers.append(reader)
        yield readers


def test_slow_readers_take_little_memory_and_release_it(server: Server) -> None:
    before = _resident_mib(server)
    anonymous = Request("GET", _PATH, _LIST, (("x-ms-version", "2021-12-02"),))
    with _slow_readers(server, anonymous, _READERS) as readers:
        # Each of them has its first bytes, so all pages exist.
        for reader in readers:
            reader.settimeout(10)
            assert reader.recv(256).startswith(b"HTTP/1.1 200")
        assert _resident_mib(server) - before < _MORE_MIB_MAX
    eventually(
        lambda: _resident_mib(server) - before < _KEPT_MIB_MAX, "memory given back to the kernel"
    )


def test_others_do_not_wait_for_long_pages(server: Server) -> None:
    anonymous = Request("GET", _PATH, _LIST, (("x-ms-version", "2021-12-02"),))

    def attack() -> None:
        with _slow_readers(server, anonymous, 20) as readers:
            for reader in readers:
                reader.settimeout(10)
                reader.recv(256)
            time.sleep(0.2)

    assert_others_do_not_wait(server, attack)


@pytest.mark.parametrize(
    "more",
    [
        (),
        (("delimiter", "/"),),
        (("delimiter", "1"),),
        (("include", "snapshots,metadata,uncommittedblobs,copy,tags"),),
    ],
    ids=["flat", "folders", "mixed", "everything"],
)
def test_pages_are_bounded_and_complete(server: Server, more: tuple[tuple[str, str], ...]) -> None:
    parameters = dict((*_LIST, *more))
    names: list[str] = []
    marker = ""
    with Client(server.endpoints["blob"]) as client:
        while True:
            query = tuple({**parameters, "marker": marker}.items())
            answer = client.ask(_sign(Request("GET", _PATH, query)))
            assert answer.status == 200
            assert len(answer.body) <= 8 * _MIB + 4096
            root = ElementTree.fromstring(answer.body)
            names += [name.text or "" for name in root.iter("Name")]
            marker = root.findtext("NextMarker") or ""
            if not marker:
                break
    assert names == sorted(set(names))
    assert len(names) == _expected(parameters.get("delimiter", ""))


def _expected(delimiter: str) -> int:
    every = [f"folder{number % 300:03}/blob{number:05}" for number in range(_BLOBS)]
    if not delimiter:
        return len(every)
    return len({_until(name, delimiter) for name in every})


def _until(name: str, delimiter: str) -> str:
    before, separator, _ = name.partition(delimiter)
    return before + separator


@pytest.mark.parametrize("service", ["blob", "queue"])
def test_pages_of_containers_and_queues(server: Server, service: str) -> None:
    """With the maximum of metadata: a page holds at most 8 MiB."""
    endpoint = server.endpoints[service]
    kind = (("restype", "container"),) if service == "blob" else ()
    count = 250

    def make(first: int) -> None:
        with Client(endpoint) as client:
            for number in range(first, count, 8):
                path = f"/{ACCOUNT}/box-{number:03}"
                answer = client.ask(_sign(Request("PUT", path, kind, _METADATA)))
                assert answer.status == 201

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(make, range(8)))
    pages: list[list[str]] = []
    marker = ""
    with Client(endpoint) as client:
        while not pages or marker:
            query = (("comp", "list"), ("include", "metadata"), ("prefix", "box-"))
            asked = (*query, ("marker", marker)) if marker else query
            answer = client.ask(_sign(Request("GET", f"/{ACCOUNT}", asked)))
            assert answer.status == 200, answer
            pages.append(_names(answer))
            marker = ElementTree.fromstring(answer.body).findtext("NextMarker") or ""
            assert len(answer.body) <= 8 * _MIB + 4096
    assert [name for page in pages for name in page] == [f"box-{n:03}" for n in range(count)]
    assert len(pages) == 2


def _names(answer: Answer) -> list[str]:
    return [name.text or "" for name in ElementTree.fromstring(answer.body).iter("Name")]
