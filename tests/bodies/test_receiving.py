"""Uploads read directly from sockets into segment files: exactly the wanted bytes, and none that
follow."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import errno
import hashlib
import os
import socket
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from awscrt.checksums import crc64nvme

from etagere.bodies import disk as disk_module
from etagere.bodies import receiving
from etagere.bodies.disk import Disk
from etagere.bodies.receiving import receive_to_file
from etagere.config import KIB, MIB
from etagere.descriptors import OpenFile
from etagere.engine.interface import Fault, FaultReason
from etagere.model.bodies import Body, SegmentState
from tests.model.disks import WatchedDisk
from tests.model.front_ends import StoreCluster, noise
from tests.model.uploads import WIDE, require_stored, state_of, store_of, write


class Pipe:
    """A socket with bytes in it."""

    def __init__(self) -> None:
        self.sender, receiver = socket.socketpair()
        self.sender.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 * MIB)
        receiver.setblocking(False)
        self.end = OpenFile(receiver.detach())

    def left(self) -> bytes:
        """Returns the bytes that are still unread."""
        self.sender.shutdown(socket.SHUT_WR)
        return b"".join(iter(lambda: os.read(self.end.descriptor, MIB), b""))


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    opened = Pipe()
    yield opened
    opened.sender.close()


@pytest.fixture
def file(tmp_path: Path) -> OpenFile:
    return OpenFile(os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT))


@pytest.mark.parametrize("offset", [0, 1, 4_096, 512 * KIB - 1, 700_001])
@pytest.mark.parametrize("length", [1, 100_000, 512 * KIB, 1_300_000])
def test_reads_only_the_wanted_bytes(pipe: Pipe, file: OpenFile, offset: int, length: int) -> None:
    data, md5 = noise(length, length), hashlib.md5(usedforsecurity=False)
    pipe.sender.sendall(data + b"the next request")
    received = receive_to_file(Disk(), pipe.end, file, offset, length, md5)
    assert received == (length, crc64nvme(data), None)
    assert md5.digest() == hashlib.md5(data, usedforsecurity=False).digest()
    assert os.pread(file.descriptor, length + 1, offset) == data
    assert pipe.left() == b"the next request"


def test_does_not_wait_for_bytes_that_have_not_arrived(pipe: Pipe, file: OpenFile) -> None:
    assert receive_to_file(Disk(), pipe.end, file, 0, MIB, None) == (0, 0, None)
    pipe.sender.sendall(b"first")
    assert receive_to_file(Disk(), pipe.end, file, 0, MIB, None) == (5, crc64nvme(b"first"), None)
    pipe.sender.sendall(b"last")
    pipe.sender.close()
    assert receive_to_file(Disk(), pipe.end, file, 5, MIB, None) == (4, crc64nvme(b"last"), None)
    assert receive_to_file(Disk(), pipe.end, file, 9, MIB, None) == (0, 0, None)
    assert os.pread(file.descriptor, 9, 0) == b"firstlast"


class Failing(WatchedDisk):
    """A disk that cannot allocate space, or writes only part of the bytes."""

    def __init__(self, *, allocate: int = 0, second_write: int = 0) -> None:
        super().__init__()
        self._allocate = allocate
        self._second_write = second_write

    def allocate(self, descriptor: int, offset: int, length: int) -> None:
        if self._allocate:
            raise OSError(self._allocate, os.strerror(self._allocate))

    def write(self, descriptor: int, buffers: Sequence[bytes | memoryview], offset: int) -> None:
        if self._second_write and self.calls["write"] == 1:
            raise OSError(self._second_write, os.strerror(self._second_write))
        super().write(descriptor, buffers, offset)


def test_nothing_is_read_without_allocated_space(pipe: Pipe, file: OpenFile) -> None:
    pipe.sender.sendall(b"kept")
    received = receive_to_file(Failing(allocate=errno.ENOSPC), pipe.end, file, 0, MIB, None)
    assert received.length == 0 and received.error is not None
    assert received.error.errno == errno.ENOSPC
    assert pipe.left() == b"kept"


def test_a_failed_write_reports_the_bytes_read(pipe: Pipe, file: OpenFile) -> None:
    pipe.sender.sendall(noise(1, MIB) + b"rest")
    received = receive_to_file(Failing(second_write=errno.EIO), pipe.end, file, 0, MIB, None)
    assert received.length == MIB and received.error is not None
    assert received.error.errno == errno.EIO
    assert pipe.left() == b"rest"


def refusing(monkeypatch: pytest.MonkeyPatch, reason: int) -> None:
    def refuse(*_: int) -> int:
        ctypes.set_errno(reason)
        return -1

    monkeypatch.setattr(disk_module, "_fallocate", refuse)


@pytest.mark.parametrize("reason", [errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS])
def test_a_file_system_without_fallocate(
    monkeypatch: pytest.MonkeyPatch, pipe: Pipe, file: OpenFile, reason: int
) -> None:
    refusing(monkeypatch, reason)
    pipe.sender.sendall(b"bytes")
    assert receive_to_file(Disk(), pipe.end, file, 0, 5, None).length == 5
    assert os.pread(file.descriptor, 5, 0) == b"bytes"


def test_a_full_disk_is_reported_before_anything_is_read(
    monkeypatch: pytest.MonkeyPatch, pipe: Pipe, file: OpenFile
) -> None:
    refusing(monkeypatch, errno.ENOSPC)
    pipe.sender.sendall(b"bytes")
    received = receive_to_file(Disk(), pipe.end, file, 0, 5, None)
    assert received.length == 0 and received.error is not None
    assert received.error.errno == errno.ENOSPC


def test_space_is_allocated_for_the_bytes_to_write(file: OpenFile) -> None:
    Disk().allocate(file.descriptor, 10_000, 3 * MIB)
    status = os.fstat(file.descriptor)
    assert status.st_size == 10_000 + 3 * MIB
    assert status.st_blocks * 512 >= 3 * MIB


# Uploads


class FakeLentSocket:
    """A lent socket that records how many bytes were read from it."""

    def __init__(self, arriving: FakeRequestBody, length: int) -> None:
        self.file = arriving.pipe.end
        self.length = length
        self.taken: int | None = 0
        self._arriving = arriving

    def __enter__(self) -> FakeLentSocket:
        return self

    def __exit__(self, *_: object) -> None:
        self._arriving.return_socket(self.taken)


class FakeRequestBody:
    """A request body that arrives at a socket: some bytes are delivered as a chunk, the next ones
    wait in the socket."""

    def __init__(self, data: bytes, steps: Sequence[int]) -> None:
        self.pipe = Pipe()
        self.data = data
        self.returned: list[int | None] = []
        self._steps = list(steps)
        self._sent = 0
        self._read = 0

    def _arrive(self, length: int) -> None:
        if self._sent == self._read:
            self._sent += self.pipe.sender.send(self.data[self._sent : self._sent + length])

    def __aiter__(self) -> FakeRequestBody:
        return self

    async def __anext__(self) -> bytes:
        if self._read == len(self.data):
            raise StopAsyncIteration
        length = self._steps.pop(0) if self._steps else MIB
        self._arrive(length)
        chunk = os.read(self.pipe.end.descriptor, length)
        self._read += len(chunk)
        return chunk

    def lend_socket(self) -> FakeLentSocket | None:
        if len(self._steps) % 2:
            return None
        self._arrive(self._steps.pop(0) if self._steps else MIB)
        return FakeLentSocket(self, len(self.data) - self._read)

    def return_socket(self, taken: int | None) -> None:
        self.returned.append(taken)
        self._read += taken or 0


async def receive(cluster: StoreCluster, arriving: FakeRequestBody, length: int) -> Body:
    async with store_of(cluster).writer(length, md5=True) as writer:
        await writer.append_body(arriving)
        body = await writer.seal()
        assert writer.md5 == hashlib.md5(arriving.data, usedforsecurity=False).digest()
        return body


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[StoreCluster]:
    with StoreCluster(tmp_path, WIDE, others=0, disk=WatchedDisk()) as opened:
        yield opened


@pytest.mark.parametrize(
    "steps",
    [
        [],
        [100_000],
        [100_000, 300_001, 50, 70_000, 2 * MIB],
        [2 * MIB, MIB, 2 * MIB, 1],
    ],
)
def test_chunks_and_socket_reads_form_one_body(cluster: StoreCluster, steps: list[int]) -> None:
    """It spans the ends of pieces and segments."""
    data = noise(1, 11 * MIB + 17)

    async def upload() -> None:
        arriving = FakeRequestBody(data, steps)
        body = await receive(cluster, arriving, len(data))
        await require_stored(store_of(cluster), body, data)
        assert sum(taken or 0 for taken in arriving.returned) > 5 * MIB
        arriving.pipe.sender.close()

    cluster.run(upload())


def test_a_short_rest_is_not_read_from_the_socket(cluster: StoreCluster) -> None:
    async def upload() -> None:
        data = noise(1, receiving.BYTES_MIN - 1)
        arriving = FakeRequestBody(data, [])
        await require_stored(store_of(cluster), await receive(cluster, arriving, len(data)), data)
        assert not arriving.returned
        arriving.pipe.sender.close()

    cluster.run(upload())


def test_bodies_read_from_sockets_are_page_aligned(cluster: StoreCluster) -> None:
    async def upload() -> None:
        for number, length in enumerate((3_001, MIB, 5_000, MIB + 1)):
            arriving = FakeRequestBody(noise(number, length), [])
            body = await receive(cluster, arriving, length)
            assert length < MIB or body.pieces[0].offset % 4_096 == 0
            await require_stored(store_of(cluster), body, noise(number, length))
            arriving.pipe.sender.close()

    cluster.run(upload())


def test_a_full_disk_reports_the_bytes_read(cluster: StoreCluster) -> None:
    cluster.local.front_end.disk = Failing(second_write=errno.ENOSPC)
    cluster.reopen_local()

    async def upload() -> None:
        arriving = FakeRequestBody(noise(1, 3 * MIB), [])
        with pytest.raises(Fault) as failed:
            await receive(cluster, arriving, 3 * MIB)
        assert failed.value.reason is FaultReason.DISK_FULL
        assert len(arriving.returned) == 1 and arriving.returned[0]
        arriving.pipe.sender.close()

    cluster.run(upload())
    cluster.local.front_end.disk = WatchedDisk()
    cluster.reopen_local()
    cluster.local.call("collect")
    assert cluster.segments() == {}


def test_a_cancelled_upload_does_not_return_the_socket(cluster: StoreCluster) -> None:
    """Its thread goes on reading from a socket that stays open for it, and writes where nobody else
    does."""

    async def cancel() -> None:
        disk, store = cluster.disk, store_of(cluster)
        disk.hold("write")
        arriving = FakeRequestBody(b"x" * (3 * MIB), [])
        stuck = asyncio.create_task(receive(cluster, arriving, 3 * MIB))
        assert await asyncio.to_thread(disk.reached, "write")
        stuck.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await stuck
        assert arriving.returned == [None]
        gate = disk.let_others_go("write")
        data = noise(1, MIB)
        async with store.writer(MIB) as writer:
            await writer.append(data)
            body = await writer.seal()
        written = len(disk.sizes)
        gate.set()
        async with asyncio.timeout(10):
            while len(disk.sizes) == written:
                await asyncio.sleep(0.001)
        await require_stored(store, body, data)
        arriving.pipe.sender.close()

    cluster.run(cancel())


def test_bodies_for_the_ledger_are_not_read_from_the_socket(tmp_path: Path) -> None:
    roomy = replace(WIDE, inline_bytes_max=MIB)
    with StoreCluster(tmp_path, roomy, others=0, disk=WatchedDisk()) as cluster:

        async def upload() -> None:
            data = noise(1, 600_000)
            arriving = FakeRequestBody(data, [])
            body = await receive(cluster, arriving, len(data))
            assert arriving.returned
            await require_stored(store_of(cluster), body, data)
            arriving.pipe.sender.close()

        cluster.run(upload())


class UploadAbortedError(Exception):
    pass


async def abort_upload(cluster: StoreCluster, length: int) -> None:
    """Uploads a little, then fails."""
    arriving = FakeRequestBody(noise(1, length), [])
    with contextlib.suppress(UploadAbortedError):
        async with store_of(cluster).writer(length) as writer:
            with arriving.lend_socket() or contextlib.nullcontext() as lent:
                assert lent is not None
                await writer._receive(lent)
            raise UploadAbortedError
    arriving.pipe.sender.close()


def test_space_of_aborted_uploads_is_released(cluster: StoreCluster) -> None:
    cluster.run(abort_upload(cluster, 3 * MIB))
    assert cluster.segment_bytes() >= 3 * MIB
    cluster.run(store_of(cluster).maintain())
    cluster.local.call("collect")
    assert cluster.segments() == {} and cluster.segment_bytes() == 0


def test_a_full_disk_gives_up_a_segment_with_abandoned_bytes(cluster: StoreCluster) -> None:
    """Even if only a few bytes are abandoned."""
    data = noise(2, 4 * MIB)
    body = cluster.run(write(store_of(cluster), data, len(data)))
    cluster.run(abort_upload(cluster, 100_000))
    number = body.pieces[-1].segment
    cluster.run(store_of(cluster).maintain())
    assert cluster.run(state_of(cluster, number)).state is SegmentState.OPEN
    cluster.disk.free = WIDE.reserve_bytes
    with pytest.raises(Fault):
        cluster.run(write(store_of(cluster), data, len(data)))
    cluster.run(store_of(cluster).maintain())
    assert cluster.run(state_of(cluster, number)).state is SegmentState.SEALED


def test_each_error_of_a_lost_segment_is_a_new_exception(cluster: StoreCluster) -> None:
    """An exception that is raised repeatedly would keep every traceback alive."""

    class Failing(WatchedDisk):
        def sync(self, descriptor: int) -> None:
            raise OSError(errno.EIO, "the disk is broken")

    cluster.local.front_end.disk = Failing()
    cluster.reopen_local()

    async def upload() -> None:
        store = store_of(cluster)
        segment, _, _ = await store.reserve(MIB)
        with pytest.raises(Fault):
            await store.sync(segment)
        faults = []
        for _ in range(3):
            with pytest.raises(Fault) as raised:
                await store.write(segment, 0, [])
            faults.append(raised.value)
        assert len({id(fault) for fault in faults}) == 3
        segment.uploads -= 1

    cluster.run(upload())
