"""A server on file systems that are really full."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import threading
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from etagere.bodies.audit.snapshot import CannotCheck
from etagere.bodies.audit.walk import check
from etagere.bodies.collector import Collector
from etagere.config import KIB, MIB, Config
from etagere.engine import ledger, snapshots
from etagere.engine.copy_lock import copying
from etagere.engine.interface import Fault, FaultReason
from etagere.engine.reserve import free_bytes
from etagere.engine.snapshots import LogTooLong
from tests.bodies.objects import delete_object, download, upload
from tests.engine.readers import foreign_reader
from tests.engine.samples import PutItem, PutLarge, get_large, put_item, put_large
from tests.simulation.servers import (
    FrontEnd,
    Server,
    ending_of,
    eventually,
    front_end,
    require_clean,
    run,
    served,
)

SIZE_BYTES = 100 * MIB
CONFIG = Config(
    inline_bytes_max=4 * KIB,
    piece_bytes_max=1 * MIB,
    segment_bytes_max=8 * MIB,
    # The reserve is larger than the log, as in the default configuration.
    reserve_bytes=4 * MIB,
    checkpoint_pages=50,
    log_restart_pages=200,
    log_bytes_kept=1 * MIB,
)
OBJECT_BYTES = 1 * MIB


@contextlib.contextmanager
def mounted(kind: str, tmp_path: Path) -> Iterator[Path]:
    """Mounts a new file system of minimum size."""
    place = tmp_path / "mount"
    place.mkdir()
    if kind == "tmpfs":
        command = ["mount", "-t", "tmpfs", "-o", f"size={SIZE_BYTES}", "tmpfs", str(place)]
    else:
        image = tmp_path / "image"
        with image.open("wb") as file:
            file.truncate(SIZE_BYTES)
        _require_possible(["mkfs.ext4", "-q", "-m", "0", str(image)])
        command = ["mount", "-o", "loop", str(image), str(place)]
    _require_possible(command)
    try:
        yield place
    finally:
        subprocess.run(["umount", str(place)], check=True)


def _require_possible(command: list[str]) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError as error:
        pytest.skip(f"no small file system can be made here: {error}")
    if done.returncode:
        pytest.skip(f"no small file system can be made here: {done.stderr.strip()}")


@pytest.fixture(params=["tmpfs", "ext4"])
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Server]:
    """A server on a small file system; its data must pass the check afterwards."""
    with mounted(request.param, tmp_path) as place:
        with served(place / "data", CONFIG, log_path=tmp_path / "server.log") as server:
            yield server
            if server.pid:
                assert server.stop() == 0
        (place / "junk").unlink(missing_ok=True)
        require_clean(server.directory)


def data_of(name: str) -> bytes:
    return (name.encode() * OBJECT_BYTES)[:OBJECT_BYTES]


async def repeat_until_full(call: Callable[[int], Awaitable[object]]) -> int:
    """Repeats an action until the disk is full; returns the number of repetitions."""
    for number in range(10_000):
        ending = await ending_of(call(number))
        if ending.kind != "done":
            assert ending.reason is FaultReason.DISK_FULL, ending
            return number
    raise AssertionError("the disk does not fill up")


async def fill(front: FrontEnd) -> tuple[int, int]:
    """Fills the disk with objects up to the reserve, and with records completely."""

    async def put(number: int) -> None:
        await upload(front.engine, front.store, f"object-{number}", data_of(f"object-{number}"))

    async def record(number: int) -> None:
        await front.engine.write(put_large, PutLarge(b"%d" % number, b"r" * 256 * KIB))

    objects = await repeat_until_full(put)
    records = await repeat_until_full(record)
    return objects, records


async def require_full(front: FrontEnd) -> None:
    """Checks that neither uploads nor new records succeed."""
    large = await ending_of(upload(front.engine, front.store, "large", data_of("large")))
    small = await ending_of(upload(front.engine, front.store, "small", b"small"))
    record = await ending_of(front.engine.write(put_item, PutItem("record")))
    reasons = [ending.reason for ending in (large, small, record)]
    assert reasons == [FaultReason.DISK_FULL] * 3


async def require_room(server: Server, front: FrontEnd, seconds: float = 10.0) -> None:
    """Checks that a collection frees space, after which everything works again."""
    collector = Collector(front.engine, front.store, CONFIG)

    async def collect_and_upload() -> None:
        await front.store.maintain()
        await collector.collect()
        await front.engine.write(put_item, PutItem("record"))
        await upload(front.engine, front.store, "large", data_of("large"))
        await upload(front.engine, front.store, "small", b"small")

    await eventually(collect_and_upload, seconds)


async def require_intact(front: FrontEnd, kept: list[str], records: int) -> None:
    for name in kept:
        assert await download(front.engine, front.store, name) == data_of(name), name
    for number in range(records):
        found = await front.engine.read(get_large, b"%d" % number)
        assert found is not None and found.data == b"r" * 256 * KIB


def test_deletes_free_a_full_disk(server: Server) -> None:
    async def work() -> tuple[list[str], int]:
        async with front_end(server) as front:
            objects, records = await fill(front)
            await require_full(front)
            for number in range(objects // 2):
                await front.engine.write(delete_object, f"object-{number}")
            await require_room(server, front)
            kept = [f"object-{number}" for number in range(objects // 2, objects)]
            await require_intact(front, kept, records)
            return kept, records

    async def look() -> None:
        async with front_end(server) as front:
            await require_intact(front, kept, records)

    kept, records = run(work())
    server.crash_and_restart()
    run(look())


def test_a_full_disk_whose_first_segment_is_in_use(server: Server) -> None:
    """A segment that cannot be rewritten for lack of space does not block the removal of dead
    ones."""

    async def work() -> None:
        async with front_end(server) as front:
            objects, records = await fill(front)
            await require_full(front)
            for number in range(1, objects):
                await front.engine.write(delete_object, f"object-{number}")
            await require_room(server, front)
            await require_intact(front, ["object-0"], records)

    run(work())


def test_a_full_disk_with_live_bytes_in_every_segment(server: Server) -> None:
    async def work() -> None:
        async with front_end(server) as front:
            objects, records = await fill(front)
            await require_full(front)
            kept = [f"object-{number}" for number in range(0, objects, 4)]
            for number in range(objects):
                if number % 4:
                    await front.engine.write(delete_object, f"object-{number}")
            await require_room(server, front, seconds=20.0)
            await require_intact(front, kept, records)

    run(work())


def test_a_server_starts_on_a_full_disk(server: Server) -> None:
    """With its front ends, because deletes are needed most then."""

    async def until_full() -> tuple[int, int]:
        async with front_end(server) as front:
            filled = await fill(front)
            await require_full(front)
            return filled

    async def empty() -> None:
        async with front_end(server) as front:
            await download(front.engine, front.store, "object-0")
            for number in range(objects):
                await eventually(partial(front.engine.write, delete_object, f"object-{number}"))
            await require_room(server, front)
            await require_intact(front, [], records)

    objects, records = run(until_full())
    server.kill_all()
    _fill_with_junk(server.directory.parent / "junk")
    server.start()
    status = _in_child(empty)
    assert status == 0, f"the front end ended with {status}"


def test_a_server_starts_on_a_disk_that_others_have_filled(server: Server) -> None:
    """It starts with the reserve, which exists for this."""

    async def put_some() -> None:
        async with front_end(server) as front:
            for number in range(20):
                await upload(front.engine, front.store, f"object-{number}", data_of("object"))

    async def empty() -> None:
        async with front_end(server) as front:
            for number in range(20):
                await eventually(partial(front.engine.write, delete_object, f"object-{number}"))
            await require_room(server, front)

    run(put_some())
    assert server.stop() == 0
    _fill_with_junk(server.directory.parent / "junk")
    server.start()
    status = _in_child(empty)
    assert status == 0, f"the front end ended with {status}"


def test_a_disk_that_fills_up_while_the_ledger_is_copied(server: Server) -> None:
    """The log outgrows the reserve. When the copy ends, it can be checkpointed nevertheless, and
    deletes free space."""

    async def work() -> None:
        async with front_end(server) as front:
            for number in range(20):
                await upload(front.engine, front.store, f"object-{number}", data_of("object"))
            with copying(server.directory), foreign_reader(server.directory):
                records = await repeat_until_full(partial(_record, front))
                log_bytes = ledger.log_bytes(server.directory)
                await require_full(front)
            assert log_bytes > 2 * CONFIG.reserve_bytes, "there is nothing to be seen"
            for number in range(20):
                await eventually(partial(front.engine.write, delete_object, f"object-{number}"))
            await require_room(server, front)
            await require_intact(front, [], records)
            await eventually(partial(_require_log, server, CONFIG.reserve_bytes))

    run(work())


async def _require_log(server: Server, bytes_max: int) -> None:
    found = ledger.log_bytes(server.directory)
    if found > bytes_max:
        raise Fault(FaultReason.FAILED, f"the log has {found} bytes")


async def _record(front: FrontEnd, number: int) -> None:
    await front.engine.write(put_large, PutLarge(b"%d" % number, b"r" * 256 * KIB))


@pytest.mark.parametrize("server", ["tmpfs"], indirect=True)
@pytest.mark.parametrize("copies", ["backup", "check"])
def test_a_copy_is_abandoned_before_the_disk_is_full(
    server: Server, tmp_path: Path, copies: str
) -> None:
    """Writes are not refused because of it."""
    begun, go_on = threading.Event(), threading.Event()

    def wait(_phase: str, _done: int, _total: int) -> None:
        begun.set()
        assert go_on.wait(20.0)

    def copy() -> None:
        if copies == "backup":
            snapshots.copy_ledger(server.directory, tmp_path / "copy", CONFIG, wait)
        else:
            check(server.directory, CONFIG, progress=wait)

    async def work() -> None:
        async with front_end(server) as front:
            # More than one step of a copy.
            for number in range(20):
                await _record(front, number)
            copying = asyncio.get_running_loop().run_in_executor(None, copy)
            await asyncio.to_thread(begun.wait, 20.0)
            number = 20
            while ledger.log_bytes(server.directory) + CONFIG.reserve_bytes < free_bytes(
                server.directory
            ):
                await _record(front, number)
                number += 1
            go_on.set()
            with pytest.raises((LogTooLong, CannotCheck), match="nearly full"):
                await copying
            for _ in range(10):
                await _record(front, number)
                number += 1
            await require_intact(front, [], number)

    run(work())


def _fill_with_junk(path: Path) -> None:
    """Takes the space that the crash released."""
    with path.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(64 * KIB))
    with path.open("ab", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(b"j")


def _in_child(work: Callable[[], Awaitable[None]]) -> int:
    """Runs work in its own process, which may die; returns its exit status."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            signal.alarm(60)
            asyncio.run(asyncio.wait_for(work(), 50))
            status = 0
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
