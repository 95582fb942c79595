"""What readers keep: the segments of their plans and nothing else, in whatever process they are."""

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
from tests.model.fronts import SMALL, Here, Shop, noise
from tests.model.processes import Helper

PIECE, SEGMENT = SMALL.piece_bytes_max, SMALL.segment_bytes_max
LONG = noise(1, 4 * SEGMENT)


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    with Shop(tmp_path, disk=WatchedDisk()) as opened:
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


def test_the_oldest_wide_pin_counts(directory: Path) -> None:
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


def test_the_table_grows_and_is_used_again(directory: Path) -> None:
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


def test_pins_are_gone_with_their_process(directory: Path) -> None:
    told, tell = os.pipe()
    pid = os.fork()
    if pid == 0:
        pin = LocalCoordinator(directory).pin()
        pin.narrow([1, 2, 3])
        os.write(tell, b"!")
        time.sleep(60)
        os._exit(0)
    try:
        os.read(told, 1)
        assert pinned(directory).segments == {1, 2, 3}
    finally:
        os.kill(pid, 9)
        os.waitpid(pid, 0)
        os.close(told)
        os.close(tell)
    assert pinned(directory) == PinnedSegments(None, frozenset())
    assert list((directory / local.DIRECTORY_NAME).iterdir()) == []


def test_whoever_looks_finds_the_wide_pin_or_the_segment(directory: Path) -> None:
    """A process pins and narrows as fast as it can, while another looks. Each pin is for a
    segment that it announces before it narrows and takes back after it has let go."""
    told, tell = os.pipe()
    stop, stopped = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(stopped)
        _pin_again_and_again(directory, tell, stop)
    try:
        os.read(told, 1)
        wanted = directory / "wanted"
        looks = 0
        began = time.monotonic()
        # A busy machine takes longer for enough of them.
        while (took := time.monotonic() - began) < 2 or (looks <= 100 and took < 20):
            before = wanted.read_bytes()
            now = time.monotonic_ns()
            found = pinned(directory)
            # The same segment before and after: it was wanted all the time between.
            if before and before == wanted.read_bytes():
                looks += 1
                assert found.keeps(int(before), now)
        assert looks > 100
    finally:
        os.close(stopped)
        os.waitpid(pid, 0)
        for descriptor in (told, tell, stop):
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


def put_many(shop: Shop, rounds: int) -> None:
    for number in range(rounds):
        for name in ("b", "c", "d"):
            shop.here.call("put", name, noise(number, SEGMENT))
        shop.here.call("tidy")


def front_of(shop: Shop, side: str) -> Here | Helper:
    return shop.here if side == "here" else shop.there


@pytest.mark.parametrize("side", ["here", "there"])
def test_one_slow_reader_keeps_its_own_segments_only(shop: Shop, side: str) -> None:
    shop.here.call("put", "a", LONG)
    front = front_of(shop, side)
    handle = front.call("begin_read", "a")
    own = shop.segment_files()
    shop.here.call("delete", "a")
    put_many(shop, 10)
    shop.here.call("tidy")
    # Ten rounds of three segments; the last round is alive.
    assert shop.segment_files() >= own
    assert shop.segment_bytes() < len(LONG) + 8 * SEGMENT
    assert front.call("finish_read", handle) == LONG
    shop.here.call("tidy")
    assert not shop.segment_files() & own
    shop.require_balanced()
    shop.require_clean()


@pytest.mark.parametrize("side", ["here", "there"])
def test_what_was_read_is_let_go(shop: Shop, side: str) -> None:
    shop.here.call("put", "a", LONG)
    front = front_of(shop, side)
    handle = front.call("begin_read", "a")
    first = min(shop.segment_files())
    last = max(shop.segment_files())
    shop.here.call("delete", "a")
    shop.reopen_here() if side == "there" else shop.here.call("tidy")
    shop.here.call("tidy")
    assert first in shop.segment_files()
    read = b""
    while len(read) < 2 * SEGMENT:
        read += front.call("step_read", handle)
    shop.here.call("tidy")
    assert first not in shop.segment_files()
    assert last in shop.segment_files()
    assert read + front.call("finish_read", handle) == LONG
    shop.here.call("tidy")
    shop.require_clean()


def test_a_killed_reader_lets_go_of_its_segments(shop: Shop) -> None:
    shop.here.call("put", "a", LONG)
    handle = shop.there.call("begin_read", "a")
    shop.there.call("step_read", handle)
    shop.here.call("delete", "a")
    shop.reopen_here()
    shop.here.call("tidy")
    assert shop.segment_bytes() >= len(LONG) - SEGMENT
    shop.there.kill()
    shop.here.call("tidy")
    assert shop.segment_files() == set()


def test_readers_finish_with_their_version_beside_a_collector(tmp_path: Path) -> None:
    """Two processes read what a third overwrites, deletes and collects as fast as it can."""
    with Shop(tmp_path, others=2) as shop:
        for name in ("a", "b", "c"):
            shop.here.call("put", name, signed(0))
        for helper in shop.helpers:
            helper.send("read_for", 4.0, ("a", "b", "c"))
        deadline = time.monotonic() + 4.0
        removed = number = 0
        while time.monotonic() < deadline:
            for name in ("a", "b", "c"):
                number += 1
                shop.here.call("put", name, signed(number))
            removed += shop.here.call("tidy").segments_removed
        counts = [helper.receive() for helper in shop.helpers]
        assert removed > 10 and min(counts) > 10
        for _ in range(2):
            shop.here.call("tidy")
        shop.require_balanced()
        shop.require_clean()


def signed(number: int) -> bytes:
    """Bytes of which every block says whose they are."""
    return b"%016x" % number * (3 * SEGMENT // 16)
