"""Connections are bounded, closed when they are idle, and go to heartbeats first."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import psycopg
import pytest

from etagere.engine.interface import Fault, FaultReason, ReadTxn, Steps
from etagere.engine.postgres import snapshot_pool, validator
from etagere.engine.postgres.connecting import Database
from etagere.engine.postgres.engine import PostgresEngine, ReadConnections
from tests.clusters.postgresql import PostgresServer
from tests.coordination.postgres import PATIENT_TIMING, joining
from tests.engine import samples
from tests.engine.postgres.ledgers import RawLedger, raw_ledger
from tests.engine.samples import ITEMS, Item, Scan
from tests.server import unique

_SECONDS_MAX = 30.0
_DIRECTORY = Path("/nonexistent")
"""Of the writer's socket, which is not used."""


class LimitedRole(NamedTuple):
    """A role of PostgreSQL with a limit on its connections."""

    name: str
    dsn: str
    administrator: psycopg.Connection

    def connections(self) -> int:
        query = "SELECT count(*) FROM pg_stat_activity WHERE usename = %s"
        row = self.administrator.execute(query, (self.name,)).fetchone()
        assert row is not None
        return int(row[0])

    def terminate_all(self) -> None:
        query = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = %s"
        self.administrator.execute(query, (self.name,))


@contextlib.contextmanager
def limited_role(server: PostgresServer, schema: str, limit: int) -> Iterator[LimitedRole]:
    name = unique("role").replace("-", "_")
    database = psycopg.conninfo.conninfo_to_dict(server.dsn)["dbname"]
    with psycopg.connect(server.superuser_dsn, dbname=database, autocommit=True) as administrator:
        for statement in (
            f"CREATE ROLE {name} LOGIN PASSWORD 'x' CONNECTION LIMIT {limit}",
            f"GRANT ALL ON SCHEMA {schema} TO {name}",
            f"GRANT ALL ON ALL TABLES IN SCHEMA {schema} TO {name}",
        ):
            administrator.execute(statement.encode())
        dsn = psycopg.conninfo.make_conninfo(server.dsn, user=name, password="x")
        try:
            yield LimitedRole(name, dsn, administrator)
        finally:
            administrator.execute(f"DROP OWNED BY {name}".encode())
            administrator.execute(f"DROP ROLE {name}".encode())


@pytest.fixture
def ledger(postgresql_dsn: str, postgresql_schema: str) -> Iterator[RawLedger]:
    with raw_ledger(postgresql_dsn, postgresql_schema) as made:
        made.commit({"a": Item("x", 1)})
        yield made


async def _eventually(condition: Callable[[], bool], what: str) -> None:
    async with asyncio.timeout(_SECONDS_MAX):
        while not condition():
            await asyncio.sleep(0.02)
    assert condition(), what


def _get_in_steps(txn: ReadTxn, key: str) -> Steps[Item | None]:
    yield
    return txn.get(ITEMS, (key,))


def _reads(engine: PostgresEngine, count: int) -> list[Awaitable[object]]:
    """Returns reads of all kinds."""
    scan = Scan(ITEMS.all())
    return [
        read
        for _ in range(count)
        for read in (
            engine.read(samples.get_item, "a"),
            engine.read(samples.scan_items, scan),
            engine.read_in_thread(samples.get_item, "a"),
            engine.read_in_steps(_get_in_steps, "a"),
        )
    ]


def test_connections_are_bounded_and_closed_when_idle(
    ledger: RawLedger,
    postgresql_server: PostgresServer,
    postgresql_schema: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    limit = sum(ReadConnections())
    monkeypatch.setattr(snapshot_pool, "IDLE_SECONDS_MAX", 0.2)
    monkeypatch.setattr(validator, "IDLE_SECONDS_MAX", 0.2)

    async def main() -> None:
        engine = PostgresEngine(_DIRECTORY, Database(role.dsn, postgresql_schema))
        try:
            for _ in range(3):
                await asyncio.gather(*_reads(engine, 40))
                assert 1 < role.connections() <= limit
            await _eventually(lambda: role.connections() == 1, "idle connections to be closed")
            await asyncio.gather(*_reads(engine, 1))
        finally:
            await engine.close()
        await _eventually(lambda: role.connections() == 0, "all to be closed")

    with limited_role(postgresql_server, postgresql_schema, limit) as role:
        asyncio.run(main())


def test_heartbeats_come_first(
    ledger: RawLedger, postgresql_server: PostgresServer, postgresql_schema: str
) -> None:
    """A process that cannot open all the connections it wants stays alive: reads wait, or fail as
    unavailable."""
    lost: list[str] = []

    async def read(engine: PostgresEngine, stop: asyncio.Event) -> int:
        answered = 0
        while not stop.is_set():
            for outcome in await asyncio.gather(*_reads(engine, 2), return_exceptions=True):
                if isinstance(outcome, BaseException):
                    assert isinstance(outcome, Fault)
                    assert outcome.reason is FaultReason.UNAVAILABLE
                else:
                    answered += 1
        return answered

    async def main() -> None:
        coordinator = await asyncio.to_thread(
            joining(
                role.dsn,
                postgresql_schema,
                timing=PATIENT_TIMING,
                on_declared_dead=lambda: lost.append("process"),
            )
        )
        engine = PostgresEngine(
            _DIRECTORY,
            Database(role.dsn, postgresql_schema),
            may_connect=coordinator.is_connected,
        )
        stop = asyncio.Event()
        reading = [asyncio.create_task(read(engine, stop)) for _ in range(4)]
        for _ in range(5):
            await asyncio.sleep(0.8)
            role.terminate_all()
        # Longer than a process lives without heartbeats.
        await asyncio.sleep(PATIENT_TIMING.lifetime_seconds + 2.0)
        stop.set()
        assert sum(await asyncio.gather(*reading)) > 0
        assert await coordinator.is_alive(coordinator.process_id)
        await engine.close()
        await asyncio.to_thread(coordinator.close)

    # Another process finds those whose membership has expired.
    other = joining(postgresql_server.dsn, postgresql_schema, timing=PATIENT_TIMING)()
    try:
        with limited_role(postgresql_server, postgresql_schema, 3) as role:
            asyncio.run(asyncio.wait_for(main(), 60))
    finally:
        other.close()
    assert not lost
