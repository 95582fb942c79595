"""One suite for all drivers of object stores."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterator
from typing import TYPE_CHECKING

import pytest

from etagere.bodies.objects.interface import (
    NAME_BYTES_MAX,
    ObjectEntry,
    ObjectExists,
    ObjectMissing,
    ObjectStore,
)
from etagere.bodies.objects.names import (
    INDEX_SHIFT,
    OBJECTS_PER_SEGMENT_MAX,
    object_name,
    segment_of,
    segment_prefix,
)
from tests.bodies.object_stores.drivers import (
    DirectoryObjectStore,
    FaultyObjectStore,
    MemoryObjectStore,
)
from tests.server import unique

if TYPE_CHECKING:
    from tests.clusters.ceph import CephCluster
    from tests.clusters.s3 import S3Server

Scenario = Callable[[ObjectStore], Awaitable[None]]
PAGE = 50
"""The entries of a page of a listing, in drivers that have pages."""
Run = Callable[[Scenario], None]


def s3_object_store(server: S3Server) -> ObjectStore:
    """Returns a driver for a prefix of the server that nobody else uses."""
    from etagere.bodies.objects.s3 import S3ObjectStore, parse_s3_url  # noqa: PLC0415

    return S3ObjectStore(parse_s3_url(f"s3://etagere/{unique('prefix')}"), server.environment)


def rados_object_store(cluster: CephCluster) -> ObjectStore:
    """Returns a driver for a prefix of the pool that nobody else uses."""
    from etagere.bodies.objects.rados import RadosObjectStore  # noqa: PLC0415
    from etagere.bodies.objects.rados_connection import parse_rados_url  # noqa: PLC0415

    return RadosObjectStore(parse_rados_url(cluster.url(unique("prefix"))))


@pytest.fixture(
    params=["memory", "directory", "faulty", "s3", pytest.param("rados", marks=pytest.mark.long)]
)
def run(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    """Runs scenarios with a driver of an empty store."""

    def opened() -> ObjectStore:
        if request.param == "directory":
            return DirectoryObjectStore(request.getfixturevalue("tmp_path") / "objects")
        if request.param == "faulty":
            return FaultyObjectStore(MemoryObjectStore())
        if request.param == "s3":
            from etagere.bodies.objects import s3  # noqa: PLC0415

            monkeypatch.setattr(s3, "_ENTRIES_PER_PAGE", PAGE)
            monkeypatch.setattr(s3, "_NAMES_PER_DELETE_MAX", PAGE)
            return s3_object_store(request.getfixturevalue("s3_store"))
        if request.param == "rados":
            monkeypatch.setattr("etagere.bodies.objects.rados._NAMES_PER_PAGE", PAGE)
            return rados_object_store(request.getfixturevalue("ceph"))
        return MemoryObjectStore()

    async def within(scenario: Scenario) -> None:
        store = opened()
        try:
            await asyncio.wait_for(scenario(store), 60)
        finally:
            await store.close()

    yield lambda scenario: asyncio.run(within(scenario))


async def names_of(store: ObjectStore, prefix: str) -> set[ObjectEntry]:
    found = [entry async for entry in store.list(prefix)]
    assert len(found) == len(set(found))
    assert sorted([name async for name in store.names(prefix)]) == sorted(n for n, _ in found)
    return set(found)


def test_an_object_has_the_bytes_of_its_buffers(run: Run) -> None:
    async def scenario(store: ObjectStore) -> None:
        data = random.Random(1).randbytes(100_000)
        view = memoryview(data)
        start = bytearray(data[10:500])
        await store.put("a/b", [data[:10], start, view[500:70_000], b"", view[70_000:]])
        assert await store.get("a/b", 0, len(data)) == data
        assert await store.get("a/b", 0, 1) == data[:1]
        assert await store.get("a/b", 499, 2) == data[499:501]
        assert await store.get("a/b", 99_999, 1) == data[-1:]

    run(scenario)


def test_objects_of_many_buffers(run: Run) -> None:
    async def scenario(store: ObjectStore) -> None:
        buffers = [bytes([number % 251]) * (number % 7) for number in range(5_000)]
        await store.put("many", buffers)
        data = b"".join(buffers)
        assert await store.get("many", 0, len(data)) == data

    run(scenario)


def test_large_objects(run: Run) -> None:
    async def scenario(store: ObjectStore) -> None:
        data = random.Random(2).randbytes(9 << 20)
        await store.put("large", [data])
        assert await store.get("large", 0, len(data)) == data
        assert await store.get("large", 5 << 20, 1 << 20) == data[5 << 20 : 6 << 20]
        assert await names_of(store, "") == {ObjectEntry("large", len(data))}

    run(scenario)


def test_ranges_at_and_behind_the_end(run: Run) -> None:
    async def scenario(store: ObjectStore) -> None:
        await store.put("a", [b"0123456789"])
        assert await store.get("a", 8, 100) == b"89"
        assert await store.get("a", 10, 1) == b""
        assert await store.get("a", 1 << 31, 5) == b""
        assert await store.get("a", 3, 0) == b""

    run(scenario)


def test_missing_objects(run: Run) -> None:
    async def scenario(store: ObjectStore) -> None:
        await store.put("a/b/c", [b"x"])
        for name in ("other", "a", "a/b", "a/b/c/d", "a/b/"):
            with pytest.raises(ObjectMissing):
                await store.get(name.rstrip("/"), 0, 1)
        await store.delete(["other", "a/b"])
        assert await store.get("a/b/c", 0, 1) == b"x"

    run(scenario)


def test_objects_are_not_overwritten(run: Run) -> None:
    async def scenario(store: ObjectStore) -> None:
        await store.put("a", [b"first"])
        with pytest.raises(ObjectExists):
            await store.put("a", [b"second"])
        assert await store.get("a", 0, 10) == b"first"

    run(scenario)


def test_one_of_concurrent_puts_wins(run: Run) -> None:
    async def scenario(store: ObjectStore) -> None:
        datas = [bytes([number]) * 10_000 for number in range(8)]
        puts = (store.put("a", [data]) for data in datas)
        outcomes = await asyncio.gather(*puts, return_exceptions=True)
        winners = [n for n, outcome in enumerate(outcomes) if outcome is None]
        assert len(winners) == 1
        assert all(o is None or isinstance(o, ObjectExists) for o in outcomes)
        assert await store.get("a", 0, 10_000) == datas[winners[0]]

    run(scenario)


def test_deleted_objects_are_gone(run: Run) -> None:
    async def scenario(store: ObjectStore) -> None:
        for name in ("s/1", "s/2", "s/3"):
            await store.put(name, [b"x"])
        await store.delete(["s/1", "s/3", "s/4"])
        assert await names_of(store, "s/") == {ObjectEntry("s/2", 1)}
        with pytest.raises(ObjectMissing):
            await store.get("s/1", 0, 1)
        await store.delete([])
        await store.delete(["s/1"])
        await store.put("s/1", [b"again"])
        assert await store.get("s/1", 0, 9) == b"again"

    run(scenario)


def test_listings_are_limited_to_their_prefix(run: Run) -> None:
    async def scenario(store: ObjectStore) -> None:
        assert await names_of(store, "") == set()
        for name in ("s/1/a", "s/1/b", "s/10/a", "s/2/a", "t/1/a"):
            await store.put(name, [name.encode()])
        assert await names_of(store, "s/1/") == {ObjectEntry("s/1/a", 5), ObjectEntry("s/1/b", 5)}
        assert {name for name, _ in await names_of(store, "s/")} == {
            "s/1/a", "s/1/b", "s/10/a", "s/2/a",
        }  # fmt: skip
        assert len(await names_of(store, "")) == 5
        assert await names_of(store, "u/") == set()

    run(scenario)


def test_listings_of_segments(run: Run) -> None:
    """Drivers may know the names of their objects."""

    async def scenario(store: ObjectStore) -> None:
        last = OBJECTS_PER_SEGMENT_MAX - 1
        offsets = [index << INDEX_SHIFT for index in (0, 1, 100, last)]
        names = {object_name(number, offset) for number in (1, 16) for offset in offsets}
        for name in names:
            await store.put(name, [name.encode()])
        assert {name for name, _ in await names_of(store, "segments/")} == names
        for number in (1, 16):
            found = await names_of(store, segment_prefix(number))
            assert found == {
                ObjectEntry(name, len(name)) for name in names if segment_of(name) == number
            }
        await store.delete([object_name(1, offset) for offset in offsets])
        assert await names_of(store, segment_prefix(1)) == set()
        assert len(await names_of(store, segment_prefix(16))) == len(offsets)

    run(scenario)


def test_more_objects_than_a_page_of_a_listing(run: Run) -> None:
    """Stores list and delete at most a thousand objects per request; here, fewer."""

    async def scenario(store: ObjectStore) -> None:
        names = [f"s/{number:05}" for number in range(2 * PAGE + 20)]
        gate = asyncio.Semaphore(32)

        async def put(name: str) -> None:
            async with gate:
                await store.put(name, [b"x"])

        await asyncio.gather(*map(put, names))
        assert {name for name, _ in await names_of(store, "s/")} == set(names)
        await store.delete(names[1:])
        assert await names_of(store, "") == {ObjectEntry("s/00000", 1)}

    run(scenario)


def test_objects_deleted_during_a_listing(run: Run) -> None:
    async def scenario(store: ObjectStore) -> None:
        names = {f"s/{number}" for number in range(20)}
        for name in names:
            await store.put(name, [b"x"])
        found = set()
        async for name, _ in store.list("s/"):
            found.add(name)
            await store.delete(names - {"s/7"})
        assert "s/7" in found

    run(scenario)


def test_long_names(run: Run) -> None:
    async def scenario(store: ObjectStore) -> None:
        name = "segments/" + "0123456789abcdef-_." * 12
        name = name[:NAME_BYTES_MAX]
        await store.put(name, [b"x"])
        assert await names_of(store, "segments/") == {ObjectEntry(name, 1)}
        assert await store.get(name, 0, 1) == b"x"

    run(scenario)


def test_concurrent_calls(run: Run) -> None:
    async def scenario(store: ObjectStore) -> None:
        async def use(number: int) -> None:
            data = random.Random(number).randbytes(1_000 * number + 1)
            name = f"s/{number}"
            await store.put(name, [data])
            assert await store.get(name, 0, len(data)) == data
            await store.delete([name])

        await asyncio.gather(*map(use, range(40)))
        assert await names_of(store, "") == set()

    run(scenario)


def test_a_cancelled_put_leaves_the_driver_usable(run: Run) -> None:
    async def scenario(store: ObjectStore) -> None:
        task = asyncio.ensure_future(store.put("cancelled", [bytes(1 << 20)]))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        await store.put("a", [b"x"])
        assert await store.get("a", 0, 1) == b"x"

    run(scenario)
