"""Reads of the PostgreSQL engine on a real server."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

from etagere.engine.interface import Fault, FaultReason, ReadTxn, Refused
from etagere.engine.keys import KEY_BYTES_MAX
from etagere.engine.postgres import validation_connection, validation_statement
from etagere.engine.postgres.engine import PostgresEngine
from etagere.engine.postgres.validation_connection import Batch, ValidationConnection
from etagere.engine.records import UINT_MAX
from etagere.metrics.snapshots import Snapshot
from etagere.telemetry.context import CLIENT
from tests.engine import samples
from tests.engine.postgres.ledgers import RawLedger, opened, raw_ledger
from tests.engine.samples import ITEMS, LARGE, CountItems, FilterSpan, Item, Large, Scan

Body = Callable[[PostgresEngine], Awaitable[None]]


@pytest.fixture
def ledger(postgresql_dsn: str, ledger_schema: str) -> Iterator[RawLedger]:
    with raw_ledger(postgresql_dsn, ledger_schema) as made:
        yield made


def _run(ledger: RawLedger, body: Body) -> None:
    async def main() -> None:
        async with opened(ledger.database) as engine:
            await body(engine)

    asyncio.run(asyncio.wait_for(main(), 60))


def test_a_change_by_another_process_is_seen(ledger: RawLedger) -> None:
    async def body(engine: PostgresEngine) -> None:
        for number in range(50):
            ledger.commit({"a": Item("x", number)})
            assert await engine.read(samples.get_item, "a") == Item("x", number)
            assert await engine.read(samples.get_item, "a") == Item("x", number)
            if number % 5 == 0:
                ledger.commit({"a": None})
                assert await engine.read(samples.get_item, "a") is None
                assert await engine.read(samples.get_item, "a") is None

    _run(ledger, body)


def test_keys_and_records_of_any_length(ledger: RawLedger) -> None:
    keys = ["", "a" * 1_999, "a" * 2_000, "a" * 2_001, "x" * (KEY_BYTES_MAX - 1), "é" * 1_024]
    ledger.commit({key: Item(key) for key in keys})
    sizes = (0, 1, 100_000, 3 << 20)
    ledger.commit_packed({LARGE.pack((b"%d" % n,)): Large(bytes(n)) for n in sizes}, LARGE)

    async def body(engine: PostgresEngine) -> None:
        for _ in range(2):
            for key in keys:
                assert await engine.read(samples.get_item, key) == Item(key)
            assert await engine.read(samples.get_items, [*keys, "no"]) == [*map(Item, keys), None]
            for size in sizes:
                assert await engine.read(samples.get_large, b"%d" % size) == Large(bytes(size))
        assert await engine.read(samples.scan_items, Scan(ITEMS.all())) == sorted(keys)

    _run(ledger, body)


def test_scans_filters_and_counts(ledger: RawLedger) -> None:
    numbers = range(2_500)
    ledger.commit({f"{n:05}": Item("x" * (n % 50), n) for n in numbers})

    async def body(engine: PostgresEngine) -> None:
        everything = ITEMS.all()
        keys = [f"{n:05}" for n in numbers]
        assert await engine.read(samples.scan_items, Scan(everything, 5_000)) == keys
        reverse = Scan(everything, 7, reverse=True)
        assert await engine.read(samples.scan_items, reverse) == keys[: -7 - 1 : -1]
        assert await engine.read(samples.scan_items, Scan(everything, 0)) == []
        counted = await engine.read(samples.count_items, CountItems(everything, 2_000))
        assert counted.records == 2_000
        assert counted.rest is not None
        rest = await engine.read(samples.count_items, CountItems(counted.rest, 2_000))
        assert rest == (500, None)
        found = await engine.read(samples.filter_items, FilterSpan(everything, 2_500, "x" * 49))
        assert [key for (key,), _ in found.rows] == [f"{n:05}" for n in numbers if n % 50 == 49]
        assert found.seen == 2_500
        assert found.sizes == [len(ITEMS.encode(record)) for _, record in found.rows]
        keys_found = await engine.read(
            samples.filter_item_keys, samples.FilterKeys(["00049", "00050", "none"], "x" * 49)
        )
        assert keys_found.seen == 2
        assert [key for key, _ in keys_found.rows] == [("00049",)]

    _run(ledger, body)


@pytest.mark.parametrize("bytes_max", [1, 1_000, 300_000, 1 << 20])
def test_a_scan_stops_at_its_limit_in_bytes(ledger: RawLedger, bytes_max: int) -> None:
    ledger.commit({f"{n:04}": Item("x" * 1_000, n) for n in range(700)})

    async def body(engine: PostgresEngine) -> None:
        span, keys = ITEMS.all(), []
        while True:
            found = await engine.read(samples.filter_items, FilterSpan(span, 5_000, "x", bytes_max))
            keys += [key for (key,), _ in found.rows]
            assert found.seen_bytes == sum(found.sizes)
            assert found.seen_bytes < bytes_max + 1_100
            if found.rest is None or (len(keys) > 100 and bytes_max < 10_000):
                break
            assert found.seen_bytes >= bytes_max
            span = found.rest
        assert keys == [f"{n:04}" for n in range(len(keys))]
        assert len(keys) == 700 or bytes_max < 10_000

    _run(ledger, body)


def test_refusals_and_bugs_are_those_of_a_snapshot(
    ledger: RawLedger, caplog: pytest.LogCaptureFixture
) -> None:
    async def body(engine: PostgresEngine) -> None:
        with pytest.raises(Refused):
            await engine.read(samples.read_and_refuse, "name")
        ledger.commit({"name": Item("", 0)})
        assert await engine.read(samples.read_and_refuse, "name") == 1
        with pytest.raises(Fault) as fault:
            await engine.read(samples.read_badly, "name")
        assert fault.value.reason is FaultReason.FAILED
        caplog.clear()
        ledger.commit({"name": Item("", 1)})
        assert await engine.read(samples.read_badly, "name") == 1
        assert not caplog.records, "the failure on cached records is not logged"

    _run(ledger, body)


def test_concurrent_reads_share_statements(
    ledger: RawLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[int] = []
    send = ValidationConnection.send

    def count(connection: ValidationConnection, batch: Batch) -> None:
        sent.append(len(batch.entries))
        send(connection, batch)

    monkeypatch.setattr(ValidationConnection, "send", count)
    ledger.commit({f"{n}": Item("x", n) for n in range(100)})

    async def body(engine: PostgresEngine) -> None:
        await engine.read(samples.get_item, "0")
        for _ in range(2):
            sent.clear()
            reads = [engine.read(samples.get_item, f"{n % 100}") for n in range(200)]
            found = await asyncio.gather(*reads)
            assert [item.number for item in found if item] == [*range(100), *range(100)]
            assert sent == [100]

    _run(ledger, body)


def test_what_is_known_is_not_sent_again(
    ledger: RawLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    received: list[int] = []
    changed = validation_statement.changed_rows

    def note(*arguments: Any) -> Any:
        for row in changed(*arguments):
            received.append(len(row.value or b""))
            yield row

    monkeypatch.setattr(validation_statement, "changed_rows", note)
    key = b"large"
    ledger.commit_packed({LARGE.pack((key,)): Large(bytes(30_000))}, LARGE)

    async def body(engine: PostgresEngine) -> None:
        for _ in range(5):
            assert await engine.read(samples.get_large, key) == Large(bytes(30_000))
        assert len(received) == 1
        ledger.commit_packed({LARGE.pack((key,)): Large(bytes(20_000))}, LARGE)
        assert await engine.read(samples.get_large, key) == Large(bytes(20_000))
        assert len(received) == 2

    _run(ledger, body)


def test_many_sets_of_collections(ledger: RawLedger, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond a limit, one statement serves all of them."""
    monkeypatch.setattr(validation_connection, "STATEMENTS_MAX", 2)

    async def body(engine: PostgresEngine) -> None:
        for _ in range(2):
            assert await engine.read(samples.get_item, "a") is None
            assert await engine.read(samples.get_large, b"a") is None
            assert await engine.read(samples.get_stamped, "a") is None
            assert await engine.read(samples.get_named, (bytes(16), "a")) is None

    _run(ledger, body)


def test_a_record_that_cannot_be_decoded_affects_only_who_reads_it(ledger: RawLedger) -> None:
    ledger.commit({"bad": Item("x"), "good": Item("y")})
    ledger.execute("UPDATE test_items SET value = 'z' WHERE key = 'bad'::bytea || '\\x00'")

    async def body(engine: PostgresEngine) -> None:
        bad = [engine.read(samples.get_item, "bad") for _ in range(3)]
        good = [engine.read(samples.get_item, "good") for _ in range(3)]
        results = await asyncio.gather(*bad, *good, return_exceptions=True)
        for result in results[:3]:
            assert isinstance(result, Fault)
            assert result.reason is FaultReason.FAILED
        assert results[3:] == [Item("y")] * 3

    _run(ledger, body)


def test_reads_that_are_cancelled_disturb_no_others(ledger: RawLedger) -> None:
    ledger.commit({"a": Item("x")})

    async def body(engine: PostgresEngine) -> None:
        for _ in range(20):
            reads = [asyncio.create_task(engine.read(samples.get_item, "a")) for _ in range(20)]
            await asyncio.sleep(0)
            for read in reads[::2]:
                read.cancel()
            results = await asyncio.gather(*reads, return_exceptions=True)
            assert all(isinstance(each, asyncio.CancelledError) for each in results[::2])
            assert results[1::2] == [Item("x")] * 10

    _run(ledger, body)


def test_versions_are_compared_exactly(ledger: RawLedger) -> None:
    """Versions may be as large as a stamp can be, and older than one that is cached."""

    async def body(engine: PostgresEngine) -> None:
        for version in (UINT_MAX, 1, 2**40, 2):
            ledger.commit({"a": Item("x", version)}, version=version)
            assert await engine.read(samples.get_item, "a") == Item("x", version)

    _run(ledger, body)


def test_a_closed_engine_reads_nothing(ledger: RawLedger) -> None:
    async def main() -> None:
        async with opened(ledger.database) as engine:
            await engine.read(samples.get_item, "a")
            waiting = asyncio.create_task(engine.read(samples.get_item, "b"))
            await asyncio.sleep(0)
        for read in (
            waiting,
            engine.read(samples.get_item, "a"),
            engine.read_in_thread(samples.get_item, "a"),
        ):
            with pytest.raises(Fault) as fault:
                await read
            assert fault.value.reason is FaultReason.UNAVAILABLE

    asyncio.run(main())


def _read_after_scanning(txn: ReadTxn, key: str) -> object:
    txn.get(ITEMS, (key,))
    txn.scan(ITEMS, ITEMS.all(), 1)
    return txn.now, txn.get(ITEMS, (key,)), txn.steady_now


def test_time_in_snapshots_and_of_validations_is_one(ledger: RawLedger) -> None:
    async def body(engine: PostgresEngine) -> None:
        last = 0
        for _ in range(20):
            short = await engine.read(samples.read_now, None)
            scanned: Any = await engine.read(_read_after_scanning, "a")
            threaded = await engine.read_in_thread(samples.read_now, None)
            assert last <= short <= scanned[0] <= threaded
            last = threaded

    _run(ledger, body)


def test_reads_and_statements_are_counted(ledger: RawLedger) -> None:
    async def body(engine: PostgresEngine) -> None:
        for _ in range(3):
            await engine.read(samples.get_item, "a")
        await engine.read(samples.scan_items, Scan(ITEMS.all()))
        with pytest.raises(Refused):
            await engine.read(samples.read_and_refuse, "name")
        snapshot = Snapshot()
        engine.report(snapshot)
        counted = {(value.metric, *value.labels): value.value for value in snapshot.values}
        assert counted["database_reads", "validated"] == 4
        assert counted["database_reads", "transaction"] == 1
        assert counted["database_validations",] == 4
        assert counted["database_validation_misses",] == 2
        assert counted["database_connections_lost",] == 0

    _run(ledger, body)


def test_a_client_with_many_scans_does_not_keep_others_from_reading(ledger: RawLedger) -> None:
    """More scans than may wait, each of which is repeated as soon as it ends."""
    ledger.commit({"a": Item()})
    ended = asyncio.Event()

    async def flood(engine: PostgresEngine) -> None:
        CLIENT.set("one")
        while not ended.is_set():
            try:
                await engine.read(samples.scan_items, Scan(ITEMS.all()))
            except Fault as fault:
                assert fault.reason is FaultReason.CONTENTION
                await asyncio.sleep(0.01)

    async def read(engine: PostgresEngine) -> None:
        CLIENT.set("two")
        for _ in range(20):
            assert await engine.read(samples.scan_items, Scan(ITEMS.all())) == ["a"]
            assert await engine.read_in_thread(samples.scan_items, Scan(ITEMS.all())) == ["a"]

    async def body(engine: PostgresEngine) -> None:
        floods = [asyncio.create_task(flood(engine)) for _ in range(200)]
        await asyncio.sleep(0.2)
        try:
            await asyncio.create_task(read(engine))
        finally:
            ended.set()
            await asyncio.gather(*floods)

    _run(ledger, body)
