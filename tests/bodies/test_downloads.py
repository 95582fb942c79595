"""Downloads over HTTP: bodies in many segments, a running collector, few descriptors, damaged
bytes."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import os
import resource
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import apsw
import pytest

from etagere.bodies import collector
from etagere.bodies.contents import INLINE
from etagere.bodies.files import FileBodyStore
from etagere.bodies.maps import INTERVALS
from etagere.bodies.segment_files import DIRECTORY_NAME
from etagere.config import KIB, MIB, Config
from etagere.coordination.local import sole_worker
from etagere.engine.ledger import database_path
from etagere.engine.records import Collection
from etagere.model.blobs import BlobName, PutBlob
from etagere.model.common import ContentHeaders
from etagere.model.containers import ContainerName, CreateContainer
from etagere.model.ids import new_id
from etagere.operations.blob.blobs import put_blob
from etagere.operations.blob.containers import create_container
from tests.engine.sqlite_harness import SqliteHarness
from tests.model.front_ends import noise
from tests.probes.client import Client, Request, shared_key
from tests.sdk.blob.clients import blob_service
from tests.server import ACCOUNT, KEY, Server, check, eventually, served

CONTAINER = "box"
SEGMENTS_COUNT = 600
SPREAD = Config(
    durable=False, inline_bytes_max=1 * KIB, piece_bytes_max=16 * KIB, segment_bytes_max=16 * KIB
)
"""Like a store of a version with other limits."""
DATA = noise(1, SEGMENTS_COUNT * SPREAD.segment_bytes_max)
PATH = f"/{ACCOUNT}/{CONTAINER}"
sign = shared_key(ACCOUNT, KEY)


def get(name: str, *headers: tuple[str, str]) -> Request:
    return sign(Request("GET", f"{PATH}/{name}", (), headers))


# Many segments


@pytest.fixture(scope="module")
def spread(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data directory with a blob in hundreds of segments."""
    directory = tmp_path_factory.mktemp("spread") / "data"
    harness = SqliteHarness(directory, SPREAD)
    harness.start()
    try:
        asyncio.run(_fill(harness, directory))
    finally:
        harness.stop()
    return directory


async def _fill(harness: SqliteHarness, directory: Path) -> None:
    engine = await harness.open()
    store = FileBodyStore(directory, engine, SPREAD)
    container = ContainerName(ACCOUNT, CONTAINER)
    await engine.write(create_container, CreateContainer(container, new_id()))
    async with store.writer(len(DATA)) as writer:
        await writer.append(DATA)
        body = await writer.seal()
        await engine.write(put_blob, PutBlob(BlobName(container, "a"), body, ContentHeaders(), ()))
    await store.close()
    await engine.close()


@contextlib.contextmanager
def serving_spread(directory: Path, command_prefix: tuple[str, ...] = ()) -> Iterator[Server]:
    """Serves with one front end whose collector does not merge the segments."""
    with (
        sole_worker(directory, collector.TASK) as is_sole,
        served(directory, "--workers", "1", command_prefix=command_prefix) as server,
    ):
        assert is_sole
        yield server


def descriptors(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


def front_end(server: Server) -> int:
    """Returns the process that serves blobs."""
    return server.pid_of("front end 1")


def test_a_body_in_more_segments_than_descriptors(spread: Path) -> None:
    assert len(list((spread / DIRECTORY_NAME).iterdir())) >= SEGMENTS_COUNT
    with serving_spread(spread, ("prlimit", "--nofile=160:160")) as server:
        before = len(server.log())  # other servers have used the directory
        with ThreadPoolExecutor(4) as threads:
            bodies = list(threads.map(lambda _: _downloaded(server), range(8)))
        assert bodies == [DATA] * 8
        assert "Too many open files" not in server.log()[before:]
        assert descriptors(front_end(server)) < 160


def _downloaded(server: Server) -> bytes:
    with Client(server.endpoints["blob"]) as client:
        answer = client.ask(get("a"))
        assert answer.status == 200
        return answer.body


def test_a_download_without_descriptors_is_refused(spread: Path) -> None:
    with serving_spread(spread) as server, Client(server.endpoints["blob"]) as client:
        assert client.ask(get("a", ("x-ms-range", "bytes=0-9"))).status == 206
        pid = front_end(server)
        soft, hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)
        before = descriptors(pid)
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (3, hard))
        # The first segment is still open for the next reader, but is evicted.
        for asked in (("x-ms-range", "bytes=100000-199999"), ("x-ms-range", "bytes=100000-100009")):
            answer = client.ask(get("a", asked))
            assert (answer.status, answer.code) == (503, "ServerBusy")
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (soft, hard))
        # Jobs open files at any time, too.
        eventually(lambda: descriptors(pid) <= before, "the segments to be closed")
        assert client.ask(get("a")).body == DATA


def test_running_out_of_descriptors_closes_the_connection(spread: Path) -> None:
    with serving_spread(spread) as server:
        pid = front_end(server)
        soft, hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)
        with slow_reader(server, "a") as reader:
            received = reader.recv(1000)
            before = descriptors(pid)
            resource.prlimit(pid, resource.RLIMIT_NOFILE, (3, hard))
            while chunk := reader.recv(1 << 20):
                received += chunk
        _, _, body = received.partition(b"\r\n\r\n")
        assert len(body) < len(DATA) and DATA.startswith(body)
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (soft, hard))
        eventually(lambda: descriptors(pid) <= before, "the end of the connection")
        assert _downloaded(server) == DATA
        server.log_with("could not send all of a response; closing the connection")


@contextlib.contextmanager
def slow_reader(server: Server, name: str) -> Iterator[socket.socket]:
    """Returns a connection that has sent its request and receives only on demand."""
    host, _, port = server.endpoints["blob"].removeprefix("http://").partition(":")
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16 * KIB)
        connection.settimeout(20)
        connection.connect((host, int(port)))
        connection.sendall(get(name).having(("Host", f"{host}:{port}")).raw())
        yield connection


# Slow readers


def test_one_slow_reader_does_not_block_the_collector(tmp_path: Path) -> None:
    """It reads a long blob slowly while others are overwritten repeatedly."""
    directory = tmp_path / "data"
    slow, other = noise(2, 100 * MIB), noise(3, 8 * MIB)
    with served(directory, "--workers", "2") as server:
        container = blob_service(server).create_container(CONTAINER)
        container.upload_blob("slow", slow)
        own = segment_files(directory)
        with slow_reader(server, "slow") as reader:
            for number in range(48):
                container.upload_blob(f"{number % 4}", other, overwrite=True)
                assert reader.recv(1)
            container.upload_blob("slow", b"", overwrite=True)
            # Four of the others are alive; some are dead, but not yet worth collecting.
            alive = 4 * len(other) + 64 * MIB
            eventually(
                lambda: sum(size_of(path) for path in segment_files(directory) - own) < alive,
                "space that comes back",
            )
            assert own <= segment_files(directory)
            reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 * MIB)
            received = 0
            while received < len(slow) and (chunk := reader.recv(1 << 20)):
                received += len(chunk)
            assert received >= len(slow) - 100 and slow.endswith(chunk)


def segment_files(directory: Path) -> set[Path]:
    return set((directory / DIRECTORY_NAME).iterdir())


def size_of(path: Path) -> int:
    with contextlib.suppress(FileNotFoundError):
        return path.stat().st_blocks * 512
    return 0


# Damage


def flip_bit(directory: Path, collection: Collection[Any, Any], what: bytes) -> None:
    """Changes a bit of bytes in the ledger, as a faulty disk might."""
    connection = apsw.Connection(str(database_path(directory)))
    try:
        rows = list(connection.execute(f"SELECT key, value FROM {collection.name}"))  # noqa: S608
        (found,) = [(key, value) for key, value in rows if what in value]
        key, value = found
        at = value.index(what) + len(what) // 2
        spoilt = value[:at] + bytes([value[at] ^ 1]) + value[at + 1 :]
        connection.execute(
            f"UPDATE {collection.name} SET value = ? WHERE key = ?",  # noqa: S608
            (spoilt, key),
        )
    finally:
        connection.close()


def require_refused(server: Server, name: str, place: str) -> None:
    with Client(server.endpoints["blob"]) as client:
        for headers in ((), (("x-ms-range", "bytes=0-9"),)):
            answer = client.ask(get(name, *headers))
            assert (answer.status, answer.code) == (500, "InternalError")
        head = client.ask(sign(Request("HEAD", f"{PATH}/{name}")))
        assert head.status == 200
        copied = sign(
            Request(
                "PUT",
                f"{PATH}/copy",
                (("comp", "block"), ("blockid", base64.b64encode(b"1").decode())),
                (("x-ms-copy-source", f"{server.endpoints['blob']}{PATH}/{name}"),),
            )
        )
        assert client.ask(copied).status >= 400
    server.log_with(place)


def test_a_damaged_inline_body_is_not_sent(tmp_path: Path) -> None:
    directory = tmp_path / "data"
    data = noise(3, 5_000)
    with served(directory) as server:
        container = blob_service(server).create_container(CONTAINER, public_access="container")
        container.upload_blob("rotten", data)
        container.upload_blob("fine", b"fine")
        assert server.stop() == 0
        flip_bit(directory, INLINE, data)
        server.start()
        require_refused(server, "rotten", "the bytes of inline content")
        fine = blob_service(server).get_blob_client(CONTAINER, "fine")
        assert fine.download_blob().readall() == b"fine"
        server.stop()
    assert "inline-damaged" in check(directory).stdout


def test_a_damaged_inline_interval_is_not_sent(tmp_path: Path) -> None:
    directory = tmp_path / "data"
    data = noise(4, 3_000)
    with served(directory) as server:
        container = blob_service(server).create_container(CONTAINER, public_access="container")
        blob = container.get_blob_client("rotten")
        blob.create_append_blob()
        for at in range(0, len(data), 1_000):
            blob.append_block(data[at : at + 1_000])
        assert blob.download_blob().readall() == data
        assert server.stop() == 0
        flip_bit(directory, INTERVALS, data[:1_000])
        server.start()
        # An append does not hide the damage.
        with Client(server.endpoints["blob"]) as client:
            more = Request("PUT", f"{PATH}/rotten", (("comp", "appendblock"),), (), b"more")
            assert client.ask(sign(more)).status == 201
        require_refused(server, "rotten", "the inline interval at 0 of map")
        server.stop()
    assert "inline-damaged" in check(directory).stdout


@pytest.mark.parametrize("length", [40_000, 60_000])
def test_a_damaged_short_body_in_a_segment_is_not_sent(tmp_path: Path, length: int) -> None:
    directory = tmp_path / "data"
    with served(directory) as server:
        container = blob_service(server).create_container(CONTAINER)
        container.upload_blob("rotten", noise(5, length))
        (path,) = (directory / DIRECTORY_NAME).iterdir()
        descriptor = os.open(path, os.O_RDWR)
        os.pwrite(descriptor, b"\x00\x01\x02\x03", length // 2)
        os.close(descriptor)
        with Client(server.endpoints["blob"]) as client:
            answer = client.ask(get("rotten"))
            assert (answer.status, answer.code) == (500, "InternalError")
        server.log_with("segment 1 at 0: checksum")
