"""Bytes received from sockets: all of those that are wanted, and none of those that follow."""

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
from tests.model.fronts import Shop, noise
from tests.model.uploads import WIDE, require_stored, state_of, store_of, write


class Pipe:
    """A socket with bytes in it."""

    def __init__(self) -> None:
        self.sender, receiver = socket.socketpair()
        self.sender.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 * MIB)
        receiver.setblocking(False)
        self.end = OpenFile(receiver.detach())

    def left(self) -> bytes:
        """What nobody has received."""
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
def test_what_is_wanted_and_nothing_after_it(
    pipe: Pipe, file: OpenFile, offset: int, length: int
) -> None:
    data, md5 = noise(length, length), hashlib.md5(usedforsecurity=False)
    pipe.sender.sendall(data + b"the next request")
    received = receive_to_file(Disk(), pipe.end, file, offset, length, md5)
    assert received == (length, crc64nvme(data), None)
    assert md5.digest() == hashlib.md5(data, usedforsecurity=False).digest()
    assert os.pread(file.descriptor, length + 1, offset) == data
    assert pipe.left() == b"the next request"


def test_what_is_not_there_yet_is_not_waited_for(pipe: Pipe, file: OpenFile) -> None:
    assert receive_to_file(Disk(), pipe.end, file, 0, MIB, None) == (0, 0, None)
    pipe.sender.sendall(b"first")
    assert receive_to_file(Disk(), pipe.end, file, 0, MIB, None) == (5, crc64nvme(b"first"), None)
    pipe.sender.sendall(b"last")
    pipe.sender.close()
    assert receive_to_file(Disk(), pipe.end, file, 5, MIB, None) == (4, crc64nvme(b"last"), None)
    assert receive_to_file(Disk(), pipe.end, file, 9, MIB, None) == (0, 0, None)
    assert os.pread(file.descriptor, 9, 0) == b"firstlast"


class Failing(WatchedDisk):
    """Cannot find room, or not for all of it."""

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


def test_nothing_is_drawn_that_there_is_no_room_for(pipe: Pipe, file: OpenFile) -> None:
    pipe.sender.sendall(b"kept")
    received = receive_to_file(Failing(allocate=errno.ENOSPC), pipe.end, file, 0, MIB, None)
    assert received.length == 0 and received.error is not None
    assert received.error.errno == errno.ENOSPC
    assert pipe.left() == b"kept"


def test_what_was_taken_is_told_when_it_cannot_be_written(pipe: Pipe, file: OpenFile) -> None:
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
def test_a_file_system_that_does_not_allocate_is_written_to(
    monkeypatch: pytest.MonkeyPatch, pipe: Pipe, file: OpenFile, reason: int
) -> None:
    refusing(monkeypatch, reason)
    pipe.sender.sendall(b"bytes")
    assert receive_to_file(Disk(), pipe.end, file, 0, 5, None).length == 5
    assert os.pread(file.descriptor, 5, 0) == b"bytes"


def test_a_full_disk_says_so_before_anything_is_taken(
    monkeypatch: pytest.MonkeyPatch, pipe: Pipe, file: OpenFile
) -> None:
    refusing(monkeypatch, errno.ENOSPC)
    pipe.sender.sendall(b"bytes")
    received = receive_to_file(Disk(), pipe.end, file, 0, 5, None)
    assert received.length == 0 and received.error is not None
    assert received.error.errno == errno.ENOSPC


def test_room_is_allocated_for_what_will_be_written(file: OpenFile) -> None:
    Disk().allocate(file.descriptor, 10_000, 3 * MIB)
    status = os.fstat(file.descriptor)
    assert status.st_size == 10_000 + 3 * MIB
    assert status.st_blocks * 512 >= 3 * MIB


# Uploads


class Lent:
    """A lent socket that remembers what was read from it."""

    def __init__(self, arriving: Pouring, length: int) -> None:
        self.file = arriving.pipe.end
        self.length = length
        self.taken: int | None = 0
        self._arriving = arriving

    def __enter__(self) -> Lent:
        return self

    def __exit__(self, *_: object) -> None:
        self._arriving.return_socket(self.taken)


class Pouring:
    """A body that arrives at a socket: every so many bytes are read as a chunk, as many as follow
    wait in a socket."""

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

    def __aiter__(self) -> Pouring:
        return self

    async def __anext__(self) -> bytes:
        if self._read == len(self.data):
            raise StopAsyncIteration
        length = self._steps.pop(0) if self._steps else MIB
        self._arrive(length)
        chunk = os.read(self.pipe.end.descriptor, length)
        self._read += len(chunk)
        return chunk

    def lend_socket(self) -> Lent | None:
        if len(self._steps) % 2:
            return None
        self._arrive(self._steps.pop(0) if self._steps else MIB)
        return Lent(self, len(self.data) - self._read)

    def return_socket(self, taken: int | None) -> None:
        self.returned.append(taken)
        self._read += taken or 0


async def receive(shop: Shop, arriving: Pouring, length: int) -> Body:
    async with store_of(shop).writer(length, md5=True) as writer:
        await writer.append_body(arriving)
        body = await writer.seal()
        assert writer.md5 == hashlib.md5(arriving.data, usedforsecurity=False).digest()
        return body


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    with Shop(tmp_path, WIDE, others=0, disk=WatchedDisk()) as opened:
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
def test_chunks_and_what_is_drawn_become_one_body(shop: Shop, steps: list[int]) -> None:
    """It goes over the ends of pieces and of segments."""
    data = noise(1, 11 * MIB + 17)

    async def upload() -> None:
        arriving = Pouring(data, steps)
        body = await receive(shop, arriving, len(data))
        await require_stored(store_of(shop), body, data)
        assert sum(taken or 0 for taken in arriving.returned) > 5 * MIB
        arriving.pipe.sender.close()

    shop.run(upload())


def test_a_short_rest_is_not_drawn(shop: Shop) -> None:
    async def upload() -> None:
        data = noise(1, receiving.BYTES_MIN - 1)
        arriving = Pouring(data, [])
        await require_stored(store_of(shop), await receive(shop, arriving, len(data)), data)
        assert not arriving.returned
        arriving.pipe.sender.close()

    shop.run(upload())


def test_bodies_that_are_drawn_begin_where_pages_do(shop: Shop) -> None:
    async def upload() -> None:
        for number, length in enumerate((3_001, MIB, 5_000, MIB + 1)):
            arriving = Pouring(noise(number, length), [])
            body = await receive(shop, arriving, length)
            assert length < MIB or body.pieces[0].offset % 4_096 == 0
            await require_stored(store_of(shop), body, noise(number, length))
            arriving.pipe.sender.close()

    shop.run(upload())


def test_a_full_disk_is_told_with_what_was_taken(shop: Shop) -> None:
    shop.here.front.disk = Failing(second_write=errno.ENOSPC)
    shop.reopen_here()

    async def upload() -> None:
        arriving = Pouring(noise(1, 3 * MIB), [])
        with pytest.raises(Fault) as failed:
            await receive(shop, arriving, 3 * MIB)
        assert failed.value.reason is FaultReason.DISK_FULL
        assert len(arriving.returned) == 1 and arriving.returned[0]
        arriving.pipe.sender.close()

    shop.run(upload())
    shop.here.front.disk = WatchedDisk()
    shop.reopen_here()
    shop.here.call("collect")
    assert shop.segments() == {}


def test_a_cancelled_upload_cannot_say_what_was_taken(shop: Shop) -> None:
    """Its thread reads on from a socket that stays open for it, and what it writes lies where
    nobody else's bytes do."""

    async def cancel() -> None:
        disk, store = shop.disk, store_of(shop)
        disk.hold("write")
        arriving = Pouring(b"x" * (3 * MIB), [])
        stuck = asyncio.create_task(receive(shop, arriving, 3 * MIB))
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

    shop.run(cancel())


def test_what_is_drawn_is_not_taken_for_what_goes_into_the_ledger(tmp_path: Path) -> None:
    roomy = replace(WIDE, inline_bytes_max=MIB)
    with Shop(tmp_path, roomy, others=0, disk=WatchedDisk()) as shop:

        async def upload() -> None:
            data = noise(1, 600_000)
            arriving = Pouring(data, [])
            body = await receive(shop, arriving, len(data))
            assert arriving.returned
            await require_stored(store_of(shop), body, data)
            arriving.pipe.sender.close()

        shop.run(upload())


class BrokenOff(Exception):
    pass


async def break_lease(shop: Shop, length: int) -> None:
    """An upload of which a little comes and then no more."""
    arriving = Pouring(noise(1, length), [])
    with contextlib.suppress(BrokenOff):
        async with store_of(shop).writer(length) as writer:
            with arriving.lend_socket() or contextlib.nullcontext() as lent:
                assert lent is not None
                await writer._receive(lent)
            raise BrokenOff
    arriving.pipe.sender.close()


def test_what_broken_off_uploads_leave_is_given_back(shop: Shop) -> None:
    shop.run(break_lease(shop, 3 * MIB))
    assert shop.segment_bytes() >= 3 * MIB
    shop.run(store_of(shop).maintain())
    shop.here.call("collect")
    assert shop.segments() == {} and shop.segment_bytes() == 0


def test_a_full_disk_gives_up_a_segment_with_abandoned_bytes(shop: Shop) -> None:
    """Even if they are few in it."""
    data = noise(2, 4 * MIB)
    body = shop.run(write(store_of(shop), data, len(data)))
    shop.run(break_lease(shop, 100_000))
    number = body.pieces[-1].segment
    shop.run(store_of(shop).maintain())
    assert shop.run(state_of(shop, number)).state is SegmentState.OPEN
    shop.disk.free = WIDE.reserve_bytes
    with pytest.raises(Fault):
        shop.run(write(store_of(shop), data, len(data)))
    shop.run(store_of(shop).maintain())
    assert shop.run(state_of(shop, number)).state is SegmentState.SEALED


def test_each_fault_of_a_lost_segment_is_a_new_one(shop: Shop) -> None:
    """One that is raised again and again would keep all that it came through."""

    class Failing(WatchedDisk):
        def sync(self, descriptor: int) -> None:
            raise OSError(errno.EIO, "the disk is broken")

    shop.here.front.disk = Failing()
    shop.reopen_here()

    async def upload() -> None:
        store = store_of(shop)
        segment, _ = await store.reserve(MIB)
        with pytest.raises(Fault):
            await store.sync(segment)
        faults = []
        for _ in range(3):
            with pytest.raises(Fault) as raised:
                await store.write(segment, 0, [])
            faults.append(raised.value)
        assert len({id(fault) for fault in faults}) == 3
        segment.uploads -= 1

    shop.run(upload())
