"""A server survives any single I/O error: nothing acknowledged is lost.

`strace` makes one system call on one of the server's files fail, wherever it comes from."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from etagere.engine.ledger import DATABASE_NAME
from tests.probes.client import Client, NotHttp, Pairs, Request, shared_key
from tests.server import ACCOUNT, KEY, check, eventually, served
from tests.simulation import syscalls
from tests.simulation.injection import InjectedError, broken_server

DATABASE: Final = DATABASE_NAME
LOG: Final = f"{DATABASE_NAME}-wal"
SEGMENT: Final = "segments/00000001.seg"
_CLIENTS: Final = 4
_SECONDS_AFTER_ERROR: Final = 0.8
"""How long the clients go on after the error."""
# Small bodies are stored in the ledger, large ones in segments.
_SIZES: Final = (30_000, 100_000)

_sign = shared_key(ACCOUNT, KEY)

pytestmark = pytest.mark.skipif(bool(syscalls.why_not()), reason=syscalls.why_not())


# Not the first calls of a process: a restarted one would meet the error again.
ERRORS: Final = [
    InjectedError("fdatasync", LOG, nth=20),
    InjectedError("fdatasync", LOG, nth=60),
    InjectedError("pwrite64", LOG, nth=100),
    InjectedError("pwrite64", LOG, "ENOSPC", nth=100),
    InjectedError("fdatasync", DATABASE, nth=2),
    InjectedError("ftruncate", DATABASE, nth=2),
    InjectedError("fdatasync", SEGMENT, nth=1),
    InjectedError("fdatasync", SEGMENT, nth=3),
    InjectedError("pwritev2", SEGMENT, nth=1),
    InjectedError("pwritev2", SEGMENT, "ENOSPC", nth=2),
    InjectedError("fsync", "segments", nth=1),
    InjectedError("openat", SEGMENT, nth=1),
]
ERRORS_WITH_FILES: Final = [
    InjectedError("fdatasync", LOG, nth=60),
    InjectedError("fdatasync", SEGMENT, nth=3),
    InjectedError("pwritev2", SEGMENT, "ENOSPC", nth=2),
]
"""Those that are tried with files in every run of the tests."""


class Target(NamedTuple):
    """Where the clients write: blobs in a container, or files in a share."""

    service: str
    root: str
    create: Pairs
    """The query of the request that creates the container or share."""

    def puts(self, name: str, content: bytes) -> list[Request]:
        """Returns the requests that store a content; it is acknowledged with the last of them."""
        path = f"{self.root}/{name}"
        if self.service == "blob":
            return [Request("PUT", path, (), (("x-ms-blob-type", "BlockBlob"),), content)]
        length = ("x-ms-content-length", str(len(content)))
        span = ("x-ms-range", f"bytes=0-{len(content) - 1}")
        return [
            Request("PUT", path, (), (("x-ms-type", "file"), length)),
            Request("PUT", path, (("comp", "range"),), (("x-ms-write", "update"), span), content),
        ]


BLOBS: Final = Target("blob", f"/{ACCOUNT}/container", (("restype", "container"),))
FILES: Final = Target("file", f"/{ACCOUNT}/share", (("restype", "share"),))


def _put_until(
    stop: threading.Event,
    target: Target,
    endpoint: str,
    number: int,
    acknowledged: dict[str, bytes],
) -> None:
    count = 0
    client = Client(endpoint)
    while not stop.is_set():
        name, content = f"{number}-{count}", bytes([count % 251]) * _SIZES[count % 2]
        count += 1
        try:
            statuses = [client.ask(_sign(each)).status for each in target.puts(name, content)]
        except (OSError, NotHttp):
            client.close()
            time.sleep(0.02)
            continue
        if set(statuses) == {201}:
            acknowledged[name] = content
    client.close()


def _create_root(endpoint: str, target: Target) -> bool:
    request = Request("PUT", target.root, target.create)
    try:
        with Client(endpoint) as client:
            return client.ask(_sign(request)).status in (201, 409)
    except (OSError, NotHttp):
        return False


@pytest.mark.parametrize("error", ERRORS, ids=str)
def test_nothing_acknowledged_is_lost(tmp_path: Path, error: InjectedError) -> None:
    _require_nothing_lost(tmp_path, error, BLOBS)


@pytest.mark.parametrize("error", ERRORS_WITH_FILES, ids=str)
def test_no_acknowledged_range_is_lost(tmp_path: Path, error: InjectedError) -> None:
    _require_nothing_lost(tmp_path, error, FILES)


@pytest.mark.long
@pytest.mark.parametrize(
    "error", [error for error in ERRORS if error not in ERRORS_WITH_FILES], ids=str
)
def test_no_acknowledged_range_is_lost_with_any_error(tmp_path: Path, error: InjectedError) -> None:
    _require_nothing_lost(tmp_path, error, FILES)


def _require_nothing_lost(tmp_path: Path, error: InjectedError, target: Target) -> None:
    directory = tmp_path / "data"
    with served(directory, "--workers", "1") as server:
        assert _create_root(server.endpoints[target.service], target)
        server.stop()
    acknowledged: dict[str, bytes] = {}
    trace = tmp_path / "broken.trace"
    with broken_server(directory, error, tmp_path / "broken.log", target.service) as endpoint:
        stop = threading.Event()
        clients = [
            threading.Thread(target=_put_until, args=(stop, target, endpoint, number, acknowledged))
            for number in range(_CLIENTS)
        ]
        for client in clients:
            client.start()
        try:
            eventually(lambda: b"INJECTED" in trace.read_bytes(), "the error")
            time.sleep(_SECONDS_AFTER_ERROR)
        finally:
            stop.set()
            for client in clients:
                client.join()
        # The error has passed: the server works again.
        before = len(acknowledged)
        eventually(lambda: _puts(target, endpoint, acknowledged), "an acknowledged put")
    assert before > 0 or error.nth == 1
    with served(directory, "--workers", "1") as server:
        with Client(server.endpoints[target.service]) as reader:
            for name, content in acknowledged.items():
                answer = reader.ask(_sign(Request("GET", f"{target.root}/{name}")))
                assert (answer.status, answer.body) == (200, content), name
        assert server.stop() == 0
    checked = check(directory)
    assert checked.returncode == 0, checked.stdout


def _puts(target: Target, endpoint: str, acknowledged: dict[str, bytes]) -> bool:
    stop = threading.Event()
    timer = threading.Timer(0.3, stop.set)
    timer.start()
    _put_until(stop, target, endpoint, 99, acknowledged)
    timer.join()
    return any(name.startswith("99-") for name in acknowledged)
