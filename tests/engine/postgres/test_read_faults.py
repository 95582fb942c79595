"""Reads of the PostgreSQL engine beside other writers, lost connections and stale servers."""

from __future__ import annotations

import asyncio
import itertools
import multiprocessing
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from multiprocessing.synchronize import Event
from typing import Any

import pytest

from etagere.clock import SystemClock
from etagere.config import Config
from etagere.engine.interface import Fault, FaultReason, ReadTxn
from etagere.engine.postgres import fence_renewal, snapshot_connection, snapshot_pool, validator
from etagere.engine.postgres.connecting import Database
from etagere.engine.postgres.engine import PostgresEngine
from tests.clusters.postgresql import PostgresServer, postgresql
from tests.engine import samples
from tests.engine.postgres.ledgers import RawLedger, opened, raw_ledger
from tests.engine.samples import ITEMS, Item
from tests.server import unique

_PAIRS = 4
_CHANGES = 40
"""How many changes of a pair a reader waits for."""


def _get_pair(txn: ReadTxn, pair: int) -> tuple[int, int]:
    """Reads one record by way of another, as most operations do."""
    first = txn.get(ITEMS, (f"{pair}-first",))
    if first is None:
        return 0, 0
    second = txn.get(ITEMS, (first.text,))
    return first.number, -1 if second is None else second.number


def _scan_pair(txn: ReadTxn, pair: int) -> tuple[int, int]:
    rows = txn.scan(ITEMS, ITEMS.under((), f"{pair}-"), 10)
    numbers = [item.number for _, item in rows]
    first, second = numbers or (0, 0)
    return first, second


def _write_pairs(database: Database, pairs: list[int], stop: Event) -> None:
    """Changes both records of a pair in one transaction, and sometimes replaces the second."""
    ledger = RawLedger(database)
    number = 0
    while not stop.is_set():
        number += 1
        for pair in pairs:
            name, other = f"{pair}-second-{number // 5}", f"{pair}-second-{number // 5 - 1}"
            ledger.commit(
                {f"{pair}-first": Item(name, number), name: Item("", number), other: None},
                version=1_000 * number + pair,
            )
    ledger.close()


@contextmanager
def _writers(database: Database) -> Iterator[None]:
    """Two processes that change pairs."""
    spawn = multiprocessing.get_context("spawn")
    stop = spawn.Event()
    halves = list(range(_PAIRS // 2)), list(range(_PAIRS // 2, _PAIRS))
    processes = [spawn.Process(target=_write_pairs, args=(database, h, stop)) for h in halves]
    for process in processes:
        process.start()
    try:
        yield
    finally:
        stop.set()
        for process in processes:
            process.join(30)
    assert [process.exitcode for process in processes] == [0, 0]


@pytest.fixture
def ledger(postgresql_dsn: str, ledger_schema: str) -> Iterator[RawLedger]:
    with raw_ledger(postgresql_dsn, ledger_schema) as made:
        yield made


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PostgresServer]:
    """A server that tests may stop and pause, if they start and resume it."""
    with postgresql(tmp_path_factory.mktemp("server")) as started:
        yield started


async def _watch_pair(engine: PostgresEngine, pair: int) -> None:
    """Reads a pair again and again in all ways. Both records are always from one change, and never
    from an older one than was seen before."""
    last = 0
    while last < _CHANGES:
        for read in (
            engine.read(_get_pair, pair),
            engine.read(_get_pair, pair),
            engine.read(_scan_pair, pair),
            engine.read_in_thread(_get_pair, pair),
        ):
            first, second = await read
            assert first == second
            assert first >= last
            last = first


def test_pairs_are_consistent_and_never_go_backwards(ledger: RawLedger) -> None:
    async def main() -> None:
        async with opened(ledger.database) as one, opened(ledger.database) as other:
            watching = [
                _watch_pair(engine, number % _PAIRS)
                for engine in (one, other)
                for number in range(2 * _PAIRS)
            ]
            await asyncio.gather(*watching)

    with _writers(ledger.database):
        asyncio.run(asyncio.wait_for(main(), 60))


def test_what_one_engine_has_seen_the_other_sees(ledger: RawLedger) -> None:
    """Reads of two processes, one after the other, never go backwards either."""

    async def main() -> None:
        async with opened(ledger.database) as one, opened(ledger.database) as other:

            async def alternate(pair: int) -> None:
                last = 0
                for engine in itertools.cycle((one, other)):
                    first, second = await engine.read(_get_pair, pair)
                    assert first == second
                    assert first >= last
                    last = first
                    if last >= _CHANGES:
                        break

            await asyncio.gather(*(alternate(pair) for pair in range(_PAIRS)))

    with _writers(ledger.database):
        asyncio.run(asyncio.wait_for(main(), 60))


def test_reads_survive_terminated_connections(server: PostgresServer) -> None:
    with _own_ledger(server) as ledger:

        async def main() -> None:
            async with opened(ledger.database) as engine:
                reading = [asyncio.create_task(_read_for(engine, 2.0)) for _ in range(8)]
                for _ in range(8):
                    await asyncio.sleep(0.2)
                    await asyncio.to_thread(ledger.terminate_others)
                assert min(await asyncio.gather(*reading)) > 0

        asyncio.run(main())


async def _read_for(engine: PostgresEngine, seconds: float) -> int:
    """Reads in all ways; returns how often."""
    end = time.monotonic() + seconds
    reads = 0
    while time.monotonic() < end:
        assert await engine.read(samples.get_item, "a") == Item("x", 1)
        assert await engine.read(samples.scan_items, samples.Scan(ITEMS.all())) == ["a"]
        assert await engine.read_in_thread(samples.get_item, "a") == Item("x", 1)
        reads += 3
    return reads


def _restart_at_once(server: PostgresServer) -> None:
    server.kill()
    server.start()


def test_reads_survive_a_restart_of_the_server(server: PostgresServer) -> None:
    with _own_ledger(server) as ledger:

        async def main() -> None:
            async with opened(ledger.database) as engine:
                for restart in (server.restart, partial(_restart_at_once, server)):
                    restarting = asyncio.create_task(asyncio.to_thread(restart))
                    while not restarting.done():
                        await asyncio.gather(*(_read_for(engine, 0.05) for _ in range(4)))
                    await restarting
                    assert await _read_for(engine, 0.05)

        asyncio.run(main())


@contextmanager
def _own_ledger(server: PostgresServer) -> Iterator[RawLedger]:
    """A ledger with one item, on a server of its own."""
    with raw_ledger(server.dsn, unique("cell").replace("-", "_")) as ledger:
        ledger.commit({"a": Item("x", 1)})
        yield ledger


def _shorten_timeouts(monkeypatch: pytest.MonkeyPatch) -> None:
    _shorten_reads(monkeypatch)
    _shorten_answers(monkeypatch)


def _shorten_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(validator, "READ_SECONDS_MAX", 1.0)
    monkeypatch.setattr(snapshot_pool, "READ_SECONDS_MAX", 1.0)


def _shorten_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shortens what connections keep from when they were opened; a read tries again."""
    monkeypatch.setattr(validator, "ANSWER_SECONDS_MAX", 0.4)
    monkeypatch.setattr(validator, "RENEW_SECONDS_MAX", 0.2)
    monkeypatch.setattr(snapshot_connection, "ANSWER_SECONDS_MAX", 0.4)
    monkeypatch.setattr(fence_renewal, "ANSWER_SECONDS_MAX", 0.4)


async def _require_unavailable(engine: PostgresEngine) -> None:
    """Reads fail, all of them in a bounded time."""
    began = time.monotonic()
    reads = [
        engine.read(samples.get_item, "a"),
        engine.read(samples.get_item, "b"),
        engine.read_in_thread(samples.get_item, "a"),
    ]
    results: list[Any] = await asyncio.gather(*reads, return_exceptions=True)
    for result in results:
        assert isinstance(result, Fault)
        assert result.reason is FaultReason.UNAVAILABLE
        assert "password" not in result.detail
    assert time.monotonic() - began < 10


def test_a_server_that_hangs(server: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reads fail in a bounded time, and succeed again when it goes on."""
    _shorten_answers(monkeypatch)
    with _own_ledger(server) as ledger:

        async def main() -> None:
            async with opened(ledger.database) as engine:
                await _read_for(engine, 0.1)
                _shorten_reads(monkeypatch)
                server.pause()
                try:
                    await _require_unavailable(engine)
                    monkeypatch.undo()
                    waiting = asyncio.create_task(engine.read(samples.get_item, "a"))
                    await asyncio.sleep(0.3)
                finally:
                    server.resume()
                assert await waiting == Item("x", 1)
                assert await _read_for(engine, 0.1)

        asyncio.run(main())


def test_a_server_that_is_gone(server: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> None:
    _shorten_answers(monkeypatch)
    with _own_ledger(server) as ledger:

        async def main() -> None:
            async with opened(ledger.database) as engine:
                await _read_for(engine, 0.1)
                _shorten_reads(monkeypatch)
                await asyncio.to_thread(server.kill)
                await _require_unavailable(engine)
                monkeypatch.undo()
                await asyncio.to_thread(server.start)
                assert await _read_for(engine, 0.1)

        asyncio.run(main())


def test_reads_that_wait_for_each_other_fail_in_a_bounded_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Those that cannot reach the database hold all slots while they try again."""
    _shorten_timeouts(monkeypatch)
    nowhere = Database("host=127.0.0.1 port=1")

    async def main() -> None:
        renewer = fence_renewal.OnDemandFenceRenewer(nowhere, SystemClock())
        pool = snapshot_pool.SnapshotPool(nowhere, Config(), renewer, {"short": 3}, lambda: True)
        reads = [pool.run("short", samples.get_item, "a") for _ in range(60)]
        began = time.monotonic()
        outcomes = await asyncio.gather(*reads, return_exceptions=True)
        # Thirty turns of two at a time would take thirty times as long.
        assert time.monotonic() - began < 10 * snapshot_pool.READ_SECONDS_MAX
        assert {type(each) for each in outcomes} == {Fault}
        assert {each.reason for each in outcomes if isinstance(each, Fault)} == {
            FaultReason.UNAVAILABLE
        }
        await pool.close()

    asyncio.run(main())


def test_nothing_is_read_from_a_server_with_an_old_fence(
    postgresql_dsn: str, ledger_schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a former primary, where the fence cannot be renewed."""
    _shorten_timeouts(monkeypatch)
    with raw_ledger(postgresql_dsn, ledger_schema) as ledger:
        ledger.commit({"a": Item("x", 1)})
    database = ledger.database
    ledger = RawLedger(database)
    renew = fence_renewal.OnDemandFenceRenewer.renew

    async def main() -> None:
        async with opened(database) as engine:
            await _read_for(engine, 0.1)
            monkeypatch.setattr(
                fence_renewal.OnDemandFenceRenewer, "renew", lambda _: "no standby answers"
            )
            ledger.execute("UPDATE fence SET at = at - 40000000")
            await _require_unavailable(engine)
            monkeypatch.setattr(fence_renewal.OnDemandFenceRenewer, "renew", renew)
            assert await _read_for(engine, 0.1)

    asyncio.run(main())
    ledger.close()


def test_renewals_that_hang_occupy_one_thread(
    postgresql_dsn: str, ledger_schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While no standby answers, reads give up renewals, which continue to wait. The threads of the
    event loop read bodies, and must not be the ones that wait."""
    _shorten_timeouts(monkeypatch)
    monkeypatch.setattr(validator, "RENEW_SECONDS_MAX", 0.02)
    began, may_end = threading.Semaphore(0), threading.Event()

    def hang(_: object) -> str:
        began.release()
        may_end.wait(20)
        return "no standby answers"

    monkeypatch.setattr(fence_renewal.OnDemandFenceRenewer, "renew", hang)

    async def main() -> None:
        async with opened(Database(postgresql_dsn, ledger_schema)) as engine:
            threads = ThreadPoolExecutor(2)
            asyncio.get_running_loop().set_default_executor(threads)
            try:
                with pytest.raises(Fault):  # nobody has renewed the fence
                    await engine.read(samples.get_item, "a")
                async with asyncio.timeout(10):
                    await asyncio.to_thread(time.monotonic)
                assert began.acquire(blocking=False)
                assert not began.acquire(blocking=False)
            finally:
                may_end.set()

    asyncio.run(main())


def test_nothing_is_read_from_a_new_primary_before_the_fence_is_its_own(
    postgresql_dsn: str, ledger_schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The row of another timeline is not valid, however fresh it is."""
    _shorten_timeouts(monkeypatch)
    with raw_ledger(postgresql_dsn, ledger_schema) as ledger:
        ledger.commit({"a": Item("x", 1)})
    ledger = RawLedger(ledger.database)
    ledger.execute("UPDATE fence SET wal_timeline = '00000009'")

    async def main() -> None:
        async with opened(ledger.database) as engine:
            await _require_unavailable(engine)
            ledger.execute("UPDATE fence SET wal_timeline = '00000001'")
            assert await _read_for(engine, 0.1)

    asyncio.run(main())
    ledger.close()
