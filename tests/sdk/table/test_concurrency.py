"""Concurrent clients, with one front end and with two: nothing is lost, and groups are atomic."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import pytest
from azure.core import MatchConditions
from azure.core.exceptions import ResourceExistsError, ResourceModifiedError
from azure.data.tables import TableClient, TableTransactionError, UpdateMode
from azure.data.tables.aio import TableClient as AsyncTableClient

from tests.sdk.harness import error_code
from tests.sdk.table.clients import async_table_service, table_service, unique_table
from tests.server import Server, served

WRITERS: Final = 6
INCREMENTS: Final = 15
ACCOUNTS: Final = 8
OPENING: Final = 100
TRANSFERS: Final = 20
IF_SEEN: Final = MatchConditions.IfNotModified


@pytest.fixture(scope="module", params=[1, 2], ids=["one front end", "two front ends"])
def busy_server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    directory: Path = tmp_path_factory.mktemp("busy_server") / "data"
    with served(directory, "--workers", str(request.param)) as server:
        yield server
        assert server.stop() == 0


@pytest.fixture
def name(busy_server: Server) -> str:
    """The name of a new table."""
    with table_service(busy_server) as service:
        return service.create_table(unique_table("Crowded")).table_name


# A counter


def test_conditional_increments_lose_nothing(busy_server: Server, name: str) -> None:
    with table_service(busy_server) as service:
        table = service.get_table_client(name)
        table.create_entity({"PartitionKey": "p", "RowKey": "r", "Count": 0})
        with ThreadPoolExecutor(WRITERS) as threads:
            refusals = sum(threads.map(lambda _: _increment(busy_server, name), range(WRITERS)))
        assert table.get_entity("p", "r")["Count"] == WRITERS * INCREMENTS
    assert refusals > 0, "they were in each other's way"


def _increment(server: Server, name: str) -> int:
    """Increments the counter and returns the number of lost races."""
    refusals = 0
    with table_service(server) as service:
        table = service.get_table_client(name)
        for turn in range(INCREMENTS):
            while True:
                entity = table.get_entity("p", "r")
                changed = {**entity, "Count": entity["Count"] + 1}
                mode = UpdateMode.MERGE if turn % 2 else UpdateMode.REPLACE
                etag = entity.metadata["etag"]
                try:
                    table.update_entity(changed, mode=mode, etag=etag, match_condition=IF_SEEN)
                    break
                except ResourceModifiedError:
                    refusals += 1
    return refusals


def test_one_of_many_inserts_wins(busy_server: Server, name: str) -> None:
    async def main() -> list[int]:
        async with async_table_service(busy_server) as service:
            table = service.get_table_client(name)

            async def insert(racer: int, row: int) -> bool:
                entity = {"PartitionKey": "p", "RowKey": str(row), "Racer": racer}
                try:
                    await table.create_entity(entity)
                except ResourceExistsError:
                    return False
                return True

            won = []
            for row in range(5):
                outcomes = await asyncio.gather(*(insert(racer, row) for racer in range(10)))
                assert sum(outcomes) == 1
                entity = await table.get_entity("p", str(row))
                assert entity["Racer"] == outcomes.index(True)
                won.append(outcomes.index(True))
            return won

    assert len(asyncio.run(main())) == 5


# Transfers in groups: every query sees the same total


def _account(number: int, balance: int) -> dict[str, Any]:
    return {"PartitionKey": "bank", "RowKey": str(number), "Balance": balance}


def _move(table: TableClient, chance: random.Random) -> bool:
    """Reports whether the transfer succeeded, or another one came first."""
    source, target = (
        table.get_entity("bank", str(number)) for number in chance.sample(range(ACCOUNTS), 2)
    )
    amount = chance.randint(0, max(0, source["Balance"]))
    changes = [
        (
            "update",
            _account(int(entity["RowKey"]), entity["Balance"] + change),
            {"mode": "merge", "etag": entity.metadata["etag"], "match_condition": IF_SEEN},
        )
        for entity, change in ((source, -amount), (target, amount))
    ]
    try:
        table.submit_transaction(changes)
    except TableTransactionError as error:
        assert error_code(error) == "UpdateConditionNotSatisfied"
        return False
    return True


def test_the_total_of_all_accounts_is_constant(busy_server: Server, name: str) -> None:
    with table_service(busy_server) as service:
        table = service.get_table_client(name)
        table.submit_transaction(
            [("create", _account(number, OPENING)) for number in range(ACCOUNTS)]
        )
        closed = threading.Event()

        def move(seed: int) -> int:
            with table_service(busy_server) as mine:
                chance = random.Random(seed)
                own = mine.get_table_client(name)
                return sum(_move(own, chance) for _ in range(TRANSFERS))

        def audit() -> int:
            looks = 0
            with table_service(busy_server) as mine:
                own = mine.get_table_client(name)
                while not closed.is_set():
                    found = own.query_entities("PartitionKey eq 'bank' and Balance ge 0")
                    balances = [entity["Balance"] for entity in found]
                    assert (len(balances), sum(balances)) == (ACCOUNTS, ACCOUNTS * OPENING)
                    looks += 1
            return looks

        with ThreadPoolExecutor(5) as threads:
            audits = [threads.submit(audit) for _ in range(2)]
            try:
                moved = sum(threads.map(move, range(3)))
            finally:
                closed.set()
            assert all(each.result() > 0 for each in audits)
        assert moved > 0


# Recreated tables


def test_a_recreated_table_has_no_old_entities(busy_server: Server, name: str) -> None:
    async def main() -> None:
        async with async_table_service(busy_server) as service:
            for generation in range(5):
                table = service.get_table_client(name)
                await asyncio.gather(*(_insert(table, generation, row) for row in range(30)))
                await asyncio.gather(
                    _remake(table), *(_insert(table, generation, row) for row in range(30, 60))
                )
                async for entity in table.list_entities():
                    assert entity["Generation"] == generation
                    assert int(entity["RowKey"]) >= 30
                await _remake(table)
                assert [entity async for entity in table.list_entities()] == []

    asyncio.run(main())


async def _insert(table: AsyncTableClient, generation: int, row: int) -> None:
    entity = {"PartitionKey": "p", "RowKey": f"{row}", "Generation": generation}
    try:
        await table.create_entity(entity)
    except Exception as error:
        # Between two tables of this name there is none.
        if getattr(error, "status_code", 0) != 404:
            raise


async def _remake(table: AsyncTableClient) -> None:
    await table.delete_table()
    await table.create_table()
