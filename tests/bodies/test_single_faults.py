"""One call to the disk fails, whichever it is: nothing that was acknowledged is lost, the account
stays right, and space comes back once the disk is well again."""

from __future__ import annotations

import asyncio
import errno
import logging
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest

from etagere.bodies.collector import Collector
from etagere.bodies.files import segment_path
from etagere.bodies.store import BodyCorrupt
from etagere.engine.interface import Fault, Unknown
from etagere.model.bodies import SegmentState
from tests.model.disks import FaultyDisk
from tests.model.fronts import SMALL, Shop, noise

PIECE, SEGMENT = SMALL.piece_bytes_max, SMALL.segment_bytes_max
SIZES = {"small": 700, "piece": PIECE, "long": 3 * PIECE + 5, "longer": SEGMENT + 3 * PIECE}
TROUBLES = (Fault, Unknown, OSError)


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    with Shop(tmp_path, others=0, disk=FaultyDisk()) as opened:
        yield opened


class Client:
    """Knows what was acknowledged."""

    def __init__(self, shop: Shop) -> None:
        self._shop = shop
        self.objects: dict[str, bytes] = {}
        self._number = 0

    def put(self, name: str, size: int) -> None:
        self._number += 1
        data = noise(self._number, size)
        if self._done("put", name, data):
            self.objects[name] = data

    def put_together(self, names: tuple[str, ...], size: int) -> None:
        """Uploads that share their syncs."""
        front = self._shop.here.front
        self._number += len(names)
        bodies = {name: noise(self._number + at, size) for at, name in enumerate(names)}

        async def all_at_once() -> list[object]:
            puts: list[Coroutine[Any, Any, int]] = [front.put(n, bodies[n]) for n in names]
            outcomes: list[object] = await asyncio.gather(*puts, return_exceptions=True)
            return outcomes

        for name, outcome in zip(names, self._shop.run(all_at_once()), strict=True):
            if isinstance(outcome, int):
                self.objects[name] = bodies[name]
            else:
                assert isinstance(outcome, TROUBLES), outcome

    def delete(self, name: str) -> None:
        if name in self.objects and self._done("delete", name):
            del self.objects[name]

    def tidy(self) -> None:
        self._done("tidy")

    def _done(self, method: str, *arguments: object) -> bool:
        try:
            self._shop.here.call(method, *arguments)
        except TROUBLES:
            return False
        return True

    def read_all(self) -> None:
        """What is read while a fault may strike is right, or is no answer."""
        for name, data in self.objects.items():
            try:
                assert self._shop.here.call("get", name) == data
            except (*TROUBLES, BodyCorrupt):
                continue

    def require_all(self) -> None:
        for name, data in self.objects.items():
            assert self._shop.here.call("get", name) == data


def live(client: Client) -> None:
    """Something of everything: uploads alone and together, overwritten, deleted, read, moved."""
    for name, size in SIZES.items():
        client.put(name, size)
    client.put_together(("one", "two", "three"), 900)
    client.tidy()
    for name, size in SIZES.items():
        client.put(name, size)
    client.delete("piece")
    client.put("kept", 2 * PIECE)
    client.put("doomed", 5 * PIECE)
    client.put_together(("one", "two"), 800)
    client.read_all()
    client.delete("doomed")
    client.tidy()
    client.read_all()
    client.tidy()


@pytest.mark.parametrize("reason", [errno.EIO, errno.ENOSPC], ids=["EIO", "ENOSPC"])
@pytest.mark.parametrize("call", FaultyDisk.CALLS)
def test_any_one_call_may_fail(
    shop: Shop, call: str, reason: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL, "etagere")  # there are hundreds
    client = Client(shop)
    number = 0
    while True:
        number += 1
        disk = shop.here.front.disk
        assert isinstance(disk, FaultyDisk)
        disk.strike(call, number, reason)
        live(client)
        struck = disk.has_struck
        disk.strike("", 0, 0)
        client.require_all()
        shop.reopen_here()
        for _ in range(3):
            shop.here.call("tidy")
        client.require_all()
        shop.require_balanced()
        shop.require_clean()
        alive = sum(map(len, client.objects.values()))
        assert shop.segment_bytes() <= 1.25 * alive + SEGMENT, f"after fault {number}"
        assert len(shop.segment_files()) <= len(shop.segments())
        if not struck:
            break
    assert number > 1 or call in ("allocate", "read")


# Files that are removed


def retire_one(shop: Shop) -> int:
    shop.here.call("put", "a", noise(1, SEGMENT))
    shop.here.call("put", "a", noise(2, SEGMENT))
    shop.here.call("maintain")
    (number,) = {number for number, s in shop.segments().items() if s.state is SegmentState.SEALED}
    return number


def test_a_segment_is_forgotten_when_its_removal_is_durable(shop: Shop) -> None:
    number = retire_one(shop)
    disk = shop.here.front.disk
    assert isinstance(disk, FaultyDisk)
    disk.strike("sync_directory", 1, errno.EIO)
    with pytest.raises(OSError, match="Input/output error"):
        shop.here.call("collect")
    # After a crash now, the file may be there again.
    assert shop.segments()[number].state is SegmentState.RETIRED
    segment_path(shop.directory, number).touch()
    assert shop.here.call("collect").segments_removed == 1
    assert number not in shop.segments() and number not in shop.segment_files()


def test_a_file_that_cannot_be_removed_does_not_keep_the_others(shop: Shop) -> None:
    for name in ("a", "b", "c"):
        shop.here.call("put", name, noise(1, SEGMENT))
    for name in ("a", "b", "c"):
        shop.here.call("delete", name)
    shop.reopen_here()
    disk = shop.here.front.disk
    assert isinstance(disk, FaultyDisk)
    disk.strike("unlink", 1, errno.EIO)
    assert shop.here.call("collect").segments_removed == 2
    assert shop.here.call("collect").segments_removed == 1
    assert shop.segment_files() == set()


def test_files_of_forgotten_segments_are_removed(shop: Shop) -> None:
    """A crash may bring a file back after its segment was forgotten."""
    number = retire_one(shop)
    shop.here.call("collect")
    assert number not in shop.segments()
    brought_back = segment_path(shop.directory, number)
    brought_back.write_bytes(b"x" * 100)
    never_given_out = segment_path(shop.directory, 1_000_000)
    never_given_out.write_bytes(b"x")
    not_ours = brought_back.with_name("notes.txt")
    not_ours.write_bytes(b"x")
    shop.reopen_here()
    shop.here.call("collect")
    assert not brought_back.exists()
    assert never_given_out.exists() and not_ours.exists()
    never_given_out.unlink()
    not_ours.unlink()
    assert shop.here.call("get", "a") == noise(2, SEGMENT)


def test_a_forgotten_file_that_cannot_be_removed_keeps_nothing_else(shop: Shop) -> None:
    number = retire_one(shop)
    shop.here.call("collect")
    brought_back = segment_path(shop.directory, number)
    brought_back.write_bytes(b"x" * 100)
    shop.reopen_here()
    disk = shop.here.front.disk
    assert isinstance(disk, FaultyDisk)
    disk.strike("unlink", 1, errno.EPERM)
    shop.here.call("delete", "a")
    assert shop.here.call("collect").segments_removed == 1
    assert brought_back.exists()
    shop.reopen_here()
    shop.here.call("collect")
    assert not brought_back.exists()


def test_a_segment_that_cannot_be_read_for_a_while_is_collected_later(shop: Shop) -> None:
    shop.put_sparse("a", noise(1, 6 * PIECE))
    disk = shop.here.front.disk
    assert isinstance(disk, FaultyDisk)
    disk.strike("read", 2, errno.EIO)
    moved = shop.here.call("collect").extents_moved
    assert disk.has_struck and moved < 6
    front = shop.here.front
    assert isinstance(front.collector, Collector)
    front.collector._damaged = dict.fromkeys(front.collector._damaged, 0.0)  # ten minutes later
    assert shop.here.call("collect").extents_moved == 6 - moved
    assert shop.here.call("get", "a") == noise(1, 6 * PIECE)
