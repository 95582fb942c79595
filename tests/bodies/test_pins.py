"""Pins of readers: they keep the segments of their plans and nothing else, in any process."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from etagere.coordination import local
from etagere.coordination.interface import PinnedSegments
from etagere.coordination.local import LocalCoordinator, pinned
from tests.model.disks import WatchedDisk
from tests.model.front_ends import SMALL, LocalFrontEnd, StoreCluster, noise
from tests.model.processes import HelperProcess

PIECE, SEGMENT = SMALL.piece_bytes_max, SMALL.segment_bytes_max
LONG = noise(1, 4 * SEGMENT)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[StoreCluster]:
    with StoreCluster(tmp_path, disk=WatchedDisk()) as opened:
        yield opened


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path


# The table


def test_a_narrowed_pin_names_its_segments(directory: Path) -> None:
    mine, other = LocalCoordinator(directory), LocalCoordinator(directory)
    with mine.pin() as pin, other.pin() as beside:
        since = pinned(directory).since
        assert since is not None and since <= time.monotonic_ns()
        pin.narrow([3, 4, 3])
        beside.narrow([4, 5])
        assert pinned(directory) == PinnedSegments(None, frozenset({3, 4, 5}))
        pin.release(3)
        pin.release(3)
        pin.release(7)
        assert pinned(directory) == PinnedSegments(None, frozenset({4, 5}))
        with mine.pin() as again:
            again.narrow([4])
        assert pinned(directory) == PinnedSegments(None, frozenset({4, 5}))
    assert pinned(directory) == PinnedSegments(None, frozenset())
    mine.close()
    other.close()


def test_the_oldest_wide_pin_decides(directory: Path) -> None:
    mine = LocalCoordinator(directory)
    first = mine.pin()
    began = pinned(directory).since
    second = mine.pin()
    assert pinned(directory).since == began
    first.narrow([9])
    later = pinned(directory).since
    assert began is not None and later is not None and later > began
    assert pinned(directory).keeps(9, began)
    assert not pinned(directory).keeps(8, began)
    assert pinned(directory).keeps(8, later)
    second.close()
    first.close()
    assert pinned(directory) == PinnedSegments(None, frozenset())
    mine.close()


def test_the_table_grows_and_reuses_slots(directory: Path) -> None:
    mine = LocalCoordinator(directory)
    (path,) = (directory / local.DIRECTORY_NAME).iterdir()
    many = set(range(1, 5_000))
    with mine.pin() as one, mine.pin() as two:
        one.narrow([10_000])
        two.narrow(many)
        assert pinned(directory).segments == many | {10_000}
    size = path.stat().st_size
    for _ in range(3):
        with mine.pin() as pin:
            pin.narrow(many)
            assert pinned(directory).segments == many
    assert path.stat().st_size == size
    assert path.stat().st_blocks * 512 >= size
    mine.close()


def test_on_a_full_disk_a_pin_stays_wide(
    directory: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    mine = LocalCoordinator(directory)

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "no space left on device")

    with mine.pin() as pin:
        since = pinned(directory).since
        monkeypatch.setattr(os, "posix_fallocate", full)
        pin.narrow(range(1, 5_000))
        assert pinned(directory) == PinnedSegments(since, frozenset())
        pin.release(1)
        assert "its pin table cannot grow" in caplog.text
        with mine.pin() as short:
            short.narrow([1, 2])
            assert pinned(directory) == PinnedSegments(since, frozenset({1, 2}))
    assert pinned(directory) == PinnedSegments(None, frozenset())
    mine.close()


def test_pins_end_with_their_process(directory: Path) -> None:
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        pin = LocalCoordinator(directory).pin()
        pin.narrow([1, 2, 3])
        os.write(writer, b"!")
        time.sleep(60)
        os._exit(0)
    try:
        os.read(reader, 1)
        assert pinned(directory).segments == {1, 2, 3}
    finally:
        os.kill(pid, 9)
        os.waitpid(pid, 0)
        os.close(reader)
        os.close(writer)
    assert pinned(directory) == PinnedSegments(None, frozenset())
    assert list((directory / local.DIRECTORY_NAME).iterdir()) == []


def test_narrowing_a_pin_is_atomic(directory: Path) -> None:
    """One process pins and narrows in a loop while another reads the pins. Each pin is for a
    segment that is announced before narrowing and withdrawn after the release."""
    reader, writer = os.pipe()
    stop, stopped = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(stopped)
        _pin_again_and_again(directory, writer, stop)
    try:
        os.read(reader, 1)
        wanted = directory / "wanted"
        looks = 0
        began = time.monotonic()
        # A busy machine needs longer for enough rounds.
        while (took := time.monotonic() - began) < 2 or (looks <= 100 and took < 20):
            before = wanted.read_bytes()
            now = time.monotonic_ns()
            found = pinned(directory)
            # Announced before and after: it was pinned in between.
            if before and before == wanted.read_bytes():
                looks += 1
                assert found.keeps(int(before), now)
        assert looks > 100
    finally:
        os.close(stopped)
        os.waitpid(pid, 0)
        for descriptor in (reader, writer, stop):
            os.close(descriptor)


def _pin_again_and_again(directory: Path, tell: int, stop: int) -> None:
    try:
        own = LocalCoordinator(directory)
        wanted = os.open(directory / "wanted", os.O_RDWR | os.O_CREAT)
        segment = 0
        os.set_blocking(stop, False)
        os.write(tell, b"!")
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            segment += 1
            with own.pin() as pin:
                os.pwrite(wanted, b"%010d" % segment, 0)
                pin.narrow([segment])
                with own.pin() as other:
                    other.narrow([segment, segment + 1])
                os.ftruncate(wanted, 0)
            try:
                if not os.read(stop, 1):
                    break
            except BlockingIOError:
                continue
    finally:
        os._exit(0)


# The collector


def put_many(cluster: StoreCluster, rounds: int) -> None:
    for number in range(rounds):
        for name in ("b", "c", "d"):
            cluster.local.call("put", name, noise(number, SEGMENT))
        cluster.local.call("tidy")


def front_end_of(cluster: StoreCluster, side: str) -> LocalFrontEnd | HelperProcess:
    return cluster.local if side == "local" else cluster.remote


@pytest.mark.parametrize("side", ["local", "remote"])
def test_one_slow_reader_keeps_its_own_segments_only(cluster: StoreCluster, side: str) -> None:
    cluster.local.call("put", "a", LONG)
    front_end = front_end_of(cluster, side)
    handle = front_end.call("begin_read", "a")
    own = cluster.segment_files()
    cluster.local.call("delete", "a")
    put_many(cluster, 10)
    cluster.local.call("tidy")
    # Ten rounds of three segments; the last round is alive.
    assert cluster.segment_files() >= own
    assert cluster.segment_bytes() < len(LONG) + 8 * SEGMENT
    assert front_end.call("finish_read", handle) == LONG
    cluster.local.call("tidy")
    assert not cluster.segment_files() & own
    cluster.require_balanced()
    cluster.require_clean()


@pytest.mark.parametrize("side", ["local", "remote"])
def test_finished_readers_release_their_segments(cluster: StoreCluster, side: str) -> None:
    cluster.local.call("put", "a", LONG)
    front_end = front_end_of(cluster, side)
    handle = front_end.call("begin_read", "a")
    first = min(cluster.segment_files())
    last = max(cluster.segment_files())
    cluster.local.call("delete", "a")
    cluster.reopen_local() if side == "remote" else cluster.local.call("tidy")
    cluster.local.call("tidy")
    assert first in cluster.segment_files()
    read = b""
    while len(read) < 2 * SEGMENT:
        read += front_end.call("step_read", handle)
    cluster.local.call("tidy")
    assert first not in cluster.segment_files()
    assert last in cluster.segment_files()
    assert read + front_end.call("finish_read", handle) == LONG
    cluster.local.call("tidy")
    cluster.require_clean()


def test_a_killed_reader_releases_its_segments(cluster: StoreCluster) -> None:
    cluster.local.call("put", "a", LONG)
    handle = cluster.remote.call("begin_read", "a")
    cluster.remote.call("step_read", handle)
    cluster.local.call("delete", "a")
    cluster.reopen_local()
    cluster.local.call("tidy")
    assert cluster.segment_bytes() >= len(LONG) - SEGMENT
    cluster.remote.kill()
    cluster.local.call("tidy")
    assert cluster.segment_files() == set()


def test_readers_finish_beside_a_collector(tmp_path: Path) -> None:
    """Two processes read while a third overwrites, deletes and collects."""
    with StoreCluster(tmp_path, others=2) as cluster:
        for name in ("a", "b", "c"):
            cluster.local.call("put", name, labelled(0))
        for helper in cluster.helpers:
            helper.send("read_for", 4.0, ("a", "b", "c"))
        deadline = time.monotonic() + 4.0
        removed = number = 0
        while time.monotonic() < deadline:
            for name in ("a", "b", "c"):
                number += 1
                cluster.local.call("put", name, labelled(number))
            removed += cluster.local.call("tidy").segments_removed
        counts = [helper.receive() for helper in cluster.helpers]
        assert removed > 10 and min(counts) > 10
        for _ in range(2):
            cluster.local.call("tidy")
        cluster.require_balanced()
        cluster.require_clean()


def labelled(number: int) -> bytes:
    """Returns bytes in which every block names its version."""
    return b"%016x" % number * (3 * SEGMENT // 16)
