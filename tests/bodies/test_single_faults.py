"""Any single call to the disk fails: nothing acknowledged is lost, the counts stay right, and space
is reclaimed once the disk works again."""

from __future__ import annotations

import asyncio
import errno
import logging
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest

from etagere.bodies.collector import Collector
from etagere.bodies.segment_files import segment_path
from etagere.bodies.store import BodyCorrupt
from etagere.engine.interface import Fault, Unknown
from etagere.model.bodies import SegmentState
from tests.model.disks import FaultyDisk
from tests.model.front_ends import SMALL, StoreCluster, noise

PIECE, SEGMENT = SMALL.piece_bytes_max, SMALL.segment_bytes_max
SIZES = {"small": 700, "piece": PIECE, "long": 3 * PIECE + 5, "longer": SEGMENT + 3 * PIECE}
TROUBLES = (Fault, Unknown, OSError)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[StoreCluster]:
    with StoreCluster(tmp_path, others=0, disk=FaultyDisk()) as opened:
        yield opened


class Client:
    """Keeps track of what was acknowledged."""

    def __init__(self, cluster: StoreCluster) -> None:
        self._cluster = cluster
        self.objects: dict[str, bytes] = {}
        self._number = 0

    def put(self, name: str, size: int) -> None:
        self._number += 1
        data = noise(self._number, size)
        if self._done("put", name, data):
            self.objects[name] = data

    def put_together(self, names: tuple[str, ...], size: int) -> None:
        """Runs uploads that share their syncs."""
        front_end = self._cluster.local.front_end
        self._number += len(names)
        bodies = {name: noise(self._number + at, size) for at, name in enumerate(names)}

        async def all_at_once() -> list[object]:
            puts: list[Coroutine[Any, Any, int]] = [front_end.put(n, bodies[n]) for n in names]
            outcomes: list[object] = await asyncio.gather(*puts, return_exceptions=True)
            return outcomes

        for name, outcome in zip(names, self._cluster.run(all_at_once()), strict=True):
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
            self._cluster.local.call(method, *arguments)
        except TROUBLES:
            return False
        return True

    def read_all(self) -> None:
        """Checks that a read during a fault is correct or fails."""
        for name, data in self.objects.items():
            try:
                assert self._cluster.local.call("get", name) == data
            except (*TROUBLES, BodyCorrupt):
                continue

    def require_all(self) -> None:
        for name, data in self.objects.items():
            assert self._cluster.local.call("get", name) == data


def exercise(client: Client) -> None:
    """Uploads alone and together, overwrites, deletes, reads and moves."""
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


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        *((call, errno.EIO) for call in FaultyDisk.CALLS),
        *((call, errno.ENOSPC) for call in ("create", "write", "allocate", "sync")),
    ],
    ids=lambda value: errno.errorcode[value] if isinstance(value, int) else value,
)
def test_any_single_call_may_fail(
    cluster: StoreCluster, call: str, reason: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL, "etagere")  # there are hundreds
    client = Client(cluster)
    number = 0
    while True:
        number += 1
        disk = cluster.local.front_end.disk
        assert isinstance(disk, FaultyDisk)
        disk.strike(call, number, reason)
        exercise(client)
        struck = disk.has_struck
        disk.strike("", 0, 0)
        client.require_all()
        cluster.reopen_local()
        for _ in range(3):
            cluster.local.call("tidy")
        client.require_all()
        cluster.require_balanced()
        cluster.require_clean()
        alive = sum(map(len, client.objects.values()))
        assert cluster.segment_bytes() <= 1.25 * alive + SEGMENT, f"after fault {number}"
        assert len(cluster.segment_files()) <= len(cluster.segments())
        if not struck:
            break
    assert number > 1 or call in ("allocate", "read")


# Removing files


def retire_one(cluster: StoreCluster) -> int:
    cluster.local.call("put", "a", noise(1, SEGMENT))
    cluster.local.call("put", "a", noise(2, SEGMENT))
    cluster.local.call("maintain")
    (number,) = {
        number for number, s in cluster.segments().items() if s.state is SegmentState.SEALED
    }
    return number


def test_a_segment_record_is_removed_after_its_file(cluster: StoreCluster) -> None:
    number = retire_one(cluster)
    disk = cluster.local.front_end.disk
    assert isinstance(disk, FaultyDisk)
    disk.strike("sync_directory", 1, errno.EIO)
    with pytest.raises(OSError, match="Input/output error"):
        cluster.local.call("collect")
    # After a crash now, the file may exist again.
    assert cluster.segments()[number].state is SegmentState.RETIRED
    segment_path(cluster.directory, number).touch()
    assert cluster.local.call("collect").segments_removed == 1
    assert number not in cluster.segments() and number not in cluster.segment_files()


def test_a_file_that_cannot_be_removed_does_not_block_the_others(cluster: StoreCluster) -> None:
    for name in ("a", "b", "c"):
        cluster.local.call("put", name, noise(1, SEGMENT))
    for name in ("a", "b", "c"):
        cluster.local.call("delete", name)
    cluster.reopen_local()
    disk = cluster.local.front_end.disk
    assert isinstance(disk, FaultyDisk)
    disk.strike("unlink", 1, errno.EIO)
    assert cluster.local.call("collect").segments_removed == 2
    assert cluster.local.call("collect").segments_removed == 1
    assert cluster.segment_files() == set()


def test_files_without_a_record_are_removed(cluster: StoreCluster) -> None:
    """A crash may bring a file back after its record was removed."""
    number = retire_one(cluster)
    cluster.local.call("collect")
    assert number not in cluster.segments()
    brought_back = segment_path(cluster.directory, number)
    brought_back.write_bytes(b"x" * 100)
    never_given_out = segment_path(cluster.directory, 1_000_000)
    never_given_out.write_bytes(b"x")
    not_ours = brought_back.with_name("notes.txt")
    not_ours.write_bytes(b"x")
    cluster.reopen_local()
    cluster.local.call("collect")
    assert not brought_back.exists()
    assert never_given_out.exists() and not_ours.exists()
    never_given_out.unlink()
    not_ours.unlink()
    assert cluster.local.call("get", "a") == noise(2, SEGMENT)


def test_a_file_without_a_record_that_cannot_be_removed_does_not_block_the_others(
    cluster: StoreCluster,
) -> None:
    number = retire_one(cluster)
    cluster.local.call("collect")
    brought_back = segment_path(cluster.directory, number)
    brought_back.write_bytes(b"x" * 100)
    cluster.reopen_local()
    disk = cluster.local.front_end.disk
    assert isinstance(disk, FaultyDisk)
    disk.strike("unlink", 1, errno.EPERM)
    cluster.local.call("delete", "a")
    assert cluster.local.call("collect").segments_removed == 1
    assert brought_back.exists()
    cluster.reopen_local()
    cluster.local.call("collect")
    assert not brought_back.exists()


def test_a_temporarily_unreadable_segment_is_collected_later(
    cluster: StoreCluster,
) -> None:
    cluster.put_sparse("a", noise(1, 6 * PIECE))
    disk = cluster.local.front_end.disk
    assert isinstance(disk, FaultyDisk)
    disk.strike("read", 2, errno.EIO)
    moved = cluster.local.call("collect").extents_moved
    assert disk.has_struck and moved < 6
    front_end = cluster.local.front_end
    assert isinstance(front_end.collector, Collector)
    front_end.collector._damaged = dict.fromkeys(
        front_end.collector._damaged, 0.0
    )  # ten minutes later
    assert cluster.local.call("collect").extents_moved == 6 - moved
    assert cluster.local.call("get", "a") == noise(1, 6 * PIECE)
