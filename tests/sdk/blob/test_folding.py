"""Many small appended blocks: they are stored in the ledger and folded into segments while others
append, read and copy, and while the server is killed."""

from __future__ import annotations

import itertools
import random
import threading
import time
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from azure.core.exceptions import AzureError
from azure.storage.blob import BlobClient, ContainerClient, generate_blob_sas

from tests.sdk.blob.clients import blob_service
from tests.sdk.blob.test_append_blobs import THREADS, content
from tests.sdk.harness import run_in_threads
from tests.server import ACCOUNT, KEY, Server, check, eventually, served, unique

KIB = 1024
BLOCK_BYTES = 4 * KIB
INLINE_BYTES_MAX = 32 * KIB
FOLDED_FROM = 256 * KIB
BLOCKS_BEFORE_KILL = FOLDED_FROM // BLOCK_BYTES


@pytest.fixture
def log(container: ContainerClient) -> BlobClient:
    made = container.get_blob_client("log")
    made.create_append_blob()
    return made


def block_of(writer: int, number: int) -> bytes:
    return random.Random(1_000 * writer + number).randbytes(BLOCK_BYTES)


def segment_bytes(server: Server) -> int:
    return sum(path.stat().st_size for path in server.directory.glob("segments/*.seg"))


def test_blocks_of_all_sizes(log: BlobClient) -> None:
    expected = b""
    for length in (1, 100, INLINE_BYTES_MAX, INLINE_BYTES_MAX + 1, 7, 300 * KIB, 5):
        data = random.randbytes(length)
        result = log.append_block(data, validate_content=True)
        assert int(str(result["blob_append_offset"])) == len(expected)
        expected += data
        assert content(log) == expected
    assert log.download_blob(validate_content=True).readall() == expected
    choose = random.Random(1)
    for _ in range(20):
        start = choose.randrange(len(expected))
        length = choose.randrange(1, len(expected) - start + 1)
        for validated in (False, True):
            found = log.download_blob(start, length, validate_content=validated).readall()
            assert found == expected[start : start + length]


def test_copies_are_independent_of_their_source(
    log: BlobClient, container: ContainerClient
) -> None:
    blocks = [block_of(0, number) for number in range(30)]
    for block in blocks:
        log.append_block(block)
    moment = str(log.create_snapshot()["snapshot"])
    copy = container.get_blob_client("copy")
    copy.start_copy_from_url(container.get_blob_client("log", snapshot=moment).url)
    expected = b"".join(blocks)
    for number in range(70):
        log.append_block(block_of(1, number))
        copy.append_block(block_of(2, number))
    kept = container.get_blob_client("log", snapshot=moment)
    assert content(kept) == expected
    assert content(log) == expected + b"".join(block_of(1, number) for number in range(70))
    assert content(copy) == expected + b"".join(block_of(2, number) for number in range(70))
    block_blob = container.get_blob_client("block")
    token = generate_blob_sas(
        ACCOUNT,
        log.container_name,
        log.blob_name,
        account_key=KEY,
        permission="r",
        expiry=datetime.now(UTC) + timedelta(hours=1),
    )
    block_blob.upload_blob_from_url(f"{log.url}?{token}")
    assert content(block_blob) == content(log)


def test_concurrent_folding_neither_loses_nor_repeats_bytes(tmp_path: Path) -> None:
    with served(tmp_path / "data") as server, blob_service(server) as service:
        shelf = service.create_container(unique())
        log = shelf.get_blob_client("log")
        log.create_append_blob()
        seen: list[bytes] = []
        ended = threading.Event()

        def look() -> None:
            while not ended.is_set():
                seen.append(content(log))
                log.create_snapshot()
                time.sleep(0.05)

        def work(writer: int) -> None:
            for number in range(60):
                log.append_block(block_of(writer, number))

        reader = threading.Thread(target=look)
        reader.start()
        try:
            run_in_threads(THREADS, work)
        finally:
            ended.set()
            reader.join()
        found = content(log)
        blocks = [found[at : at + BLOCK_BYTES] for at in range(0, len(found), BLOCK_BYTES)]
        expected = [block_of(writer, number) for writer in range(8) for number in range(60)]
        assert Counter(blocks) == Counter(expected)
        assert seen
        assert all(found.startswith(data) for data in seen)
        for snapshot in shelf.list_blobs(include=["snapshots"]):
            if snapshot.snapshot:
                kept = content(shelf.get_blob_client("log", snapshot=snapshot.snapshot))
                assert len(kept) == snapshot.size
                assert found.startswith(kept)
        folded = len(found) - 2 * FOLDED_FROM
        eventually(lambda: segment_bytes(server) >= folded, "folded blocks")
        assert content(log) == found
        assert check(server.directory).returncode == 0


def kill_later(server: Server, enough: threading.Event, seconds: float) -> None:
    """Kills a server some time after enough blocks were appended."""
    enough.wait()
    time.sleep(seconds)
    server.kill()


def test_acknowledged_blocks_survive_a_crash_during_folding(tmp_path: Path) -> None:
    with served(tmp_path / "data") as server:
        name, number = unique(), itertools.count()
        with blob_service(server) as service:
            service.create_container(name)
            service.get_blob_client(name, "log").create_append_blob()
        expected = b""
        for round_ in range(3):
            with blob_service(server) as service:
                log = service.get_blob_client(name, "log")
                enough = threading.Event()
                killer = threading.Thread(target=kill_later, args=(server, enough, 0.13 * round_))
                killer.start()
                appended, sent = 0, b""
                try:
                    while True:
                        sent = block_of(9, next(number))
                        log.append_block(sent)
                        expected += sent
                        appended += 1
                        if appended == BLOCKS_BEFORE_KILL:
                            enough.set()
                except AzureError:
                    assert enough.is_set()
                finally:
                    enough.set()
                    killer.join()
            server.start()
            with blob_service(server) as service:
                found = content(service.get_blob_client(name, "log"))
            # The last one may have been added without a response.
            assert found in (expected, expected + sent)
            expected = found
            assert check(server.directory).returncode == 0
        assert len(expected) > FOLDED_FROM
        eventually(lambda: segment_bytes(server) > 0, "folded blocks")
