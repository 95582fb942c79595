"""The RADOS driver on a Ceph cluster that fails."""

from __future__ import annotations

import asyncio
import re
import socket
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from etagere.bodies.objects.interface import ObjectExists
from etagere.bodies.objects.names import object_name, segment_prefix
from etagere.bodies.objects.rados import RadosObjectStore
from etagere.bodies.objects.rados_connection import (
    TIMEOUTS,
    RadosAddress,
    Timeouts,
    parse_rados_url,
)
from etagere.engine.interface import Fault, FaultReason
from tests.clusters.ceph import OSDS, POOL, CephCluster
from tests.server import eventually, unique

pytestmark = pytest.mark.long

BODY = bytes(range(256)) * 256
LOAD_OBJECTS = 1_000
OPERATION_SECONDS = 4
SHORT = Timeouts(2, OPERATION_SECONDS)


def run(
    url: str,
    scenario: Callable[[RadosObjectStore], Awaitable[None]],
    timeouts: Timeouts = TIMEOUTS,
) -> None:
    async def within() -> None:
        store = RadosObjectStore(parse_rados_url(url), timeouts)
        try:
            await scenario(store)
        finally:
            await store.close()

    asyncio.run(asyncio.wait_for(within(), 180))


def test_an_osd_is_killed_under_load(ceph: CephCluster) -> None:
    """No call fails, and nothing that was stored is lost."""

    async def scenario(store: RadosObjectStore) -> None:
        longest = 0.0
        numbers = iter(range(LOAD_OBJECTS))

        async def use() -> None:
            nonlocal longest
            for number in numbers:
                name = object_name(1, number << 32)
                began = time.monotonic()
                await store.put(name, [BODY, name.encode()])
                assert await store.get(name, len(BODY), 100) == name.encode()
                longest = max(longest, time.monotonic() - began)
                if number == LOAD_OBJECTS // 4:
                    ceph.kill_osd(0)

        await asyncio.gather(*(use() for _ in range(16)))
        sizes = {entry.name: entry.size async for entry in store.list(segment_prefix(1))}
        assert len(sizes) == LOAD_OBJECTS
        assert all(size == len(BODY) + len(name) for name, size in sizes.items())
        await store.delete(sizes)
        assert [name async for name in store.names("")] == []
        assert longest < 30

    try:
        run(ceph.url(unique("killed")), scenario)
    finally:
        ceph.start_osd(0)
        ceph.await_osds()
        ceph.await_healthy()


def test_a_cluster_that_hangs(ceph: CephCluster) -> None:
    """Calls end in time, and succeed again when the cluster does."""

    async def names_of(store: RadosObjectStore) -> list[str]:
        return [name async for name in store.names("")]

    async def scenario(store: RadosObjectStore) -> None:
        await store.put("a", [BODY])
        for osd in ceph.osds:
            ceph.pause_osd(osd)
        began = time.monotonic()
        outcomes = await asyncio.gather(
            store.put("b", [BODY]),
            store.get("a", 0, 10),
            store.delete(["c"]),
            names_of(store),
            return_exceptions=True,
        )
        assert time.monotonic() - began < 3 * OPERATION_SECONDS
        faults = [outcome for outcome in outcomes if isinstance(outcome, Fault)]
        assert [fault.reason for fault in faults] == [FaultReason.UNAVAILABLE] * 4, outcomes
        for osd in ceph.osds:
            ceph.resume_osd(osd)
        await asyncio.to_thread(ceph.await_osds)
        await asyncio.to_thread(ceph.await_healthy)
        assert await store.get("a", 0, len(BODY)) == BODY
        assert "a" in await names_of(store)

    try:
        run(ceph.url(unique("hung")), scenario, SHORT)
    finally:
        for osd in range(OSDS):
            ceph.resume_osd(osd)
        ceph.await_osds()
        ceph.await_healthy()


def test_monitors_that_do_not_answer(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        path = tmp_path / "ceph.conf"
        place = f"v2:127.0.0.1:{listener.getsockname()[1]}/0"
        path.write_text(
            f"[global]\nmon_host = [{place}]\nauth_client_required = none\nlog_file = /dev/null\n"
        )

        async def scenario(store: RadosObjectStore) -> None:
            began = time.monotonic()
            with pytest.raises(Fault, match="connect") as raised:
                await store.put("a", [b"x"])
            assert raised.value.reason is FaultReason.UNAVAILABLE
            assert time.monotonic() - began < 10

        run(f"rados://{POOL}?conf={path}", scenario, SHORT)


def test_a_pool_that_does_not_exist(ceph: CephCluster) -> None:
    async def scenario(store: RadosObjectStore) -> None:
        with pytest.raises(Fault, match="open the pool") as raised:
            await store.put("a", [b"x"])
        assert raised.value.reason is FaultReason.FAILED

    run(ceph.url("").replace(f"//{POOL}", "//none"), scenario)


def test_namespaces(ceph: CephCluster) -> None:
    prefix = unique("prefix")

    async def scenario(store: RadosObjectStore) -> None:
        await store.put("a", [b"x"])
        assert [entry async for entry in store.list("")] == [("a", 1)]

    for namespace in ("one", "two"):
        run(f"{ceph.url(prefix)}&namespace={namespace}", scenario)
    with pytest.raises(ObjectExists):
        run(f"{ceph.url(prefix)}&namespace=one", scenario)


def is_full(ceph: CephCluster) -> bool:
    return "pool_full" in ceph.ceph("health", "detail").lower()


def test_a_full_pool(ceph: CephCluster) -> None:
    """Puts are refused at once, and deletions are not."""

    async def scenario(store: RadosObjectStore) -> None:
        await store.put("a", [BODY])
        ceph.ceph("osd", "pool", "set-quota", POOL, "max_bytes", "4096")
        await asyncio.to_thread(eventually, lambda: is_full(ceph), "a full pool", 60)
        began = time.monotonic()
        with pytest.raises(Fault) as raised:
            while True:
                await store.put(unique("b"), [BODY])
                await asyncio.sleep(0.1)
        assert raised.value.reason is FaultReason.DISK_FULL
        assert time.monotonic() - began < 20
        assert await store.get("a", 0, len(BODY)) == BODY
        await store.delete(["a"])

    try:
        run(ceph.url(unique("full")), scenario)
    finally:
        ceph.ceph("osd", "pool", "set-quota", POOL, "max_bytes", "0")
        eventually(lambda: not is_full(ceph), "a pool that is not full", 60)


def test_a_client_that_the_cluster_does_not_accept_any_more(ceph: CephCluster) -> None:
    async def scenario(store: RadosObjectStore) -> None:
        await store.put("a", [b"x"])
        connection = store._connection
        assert connection is not None
        place = re.findall(r"[0-9.]+:[0-9]+/[0-9]+", connection.cluster.get_addrs())[0]
        ceph.ceph("osd", "blocklist", "add", place)
        with pytest.raises(Fault) as raised:
            while True:
                await store.get("a", 0, 1)
        assert raised.value.reason is FaultReason.UNAVAILABLE
        assert await store.get("a", 0, 1) == b"x"

    run(ceph.url(unique("blocklisted")), scenario)


def test_an_unknown_user(ceph: CephCluster) -> None:
    """With the authentication that real clusters have, and without a key."""
    path = ceph.directory / "cephx.conf"
    text = ceph.configuration.read_text("utf-8")
    path.write_text(text.replace("client_required = none", "client_required = cephx"), "utf-8")
    address = RadosAddress(POOL, "", path, "nobody")

    async def scenario() -> None:
        store = RadosObjectStore(address)
        with pytest.raises(Fault, match="connect"):
            await store.put("a", [b"x"])
        await store.close()

    asyncio.run(asyncio.wait_for(scenario(), 60))
