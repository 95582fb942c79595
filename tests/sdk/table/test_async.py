"""The asynchronous client: the main operations."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final

import pytest
from azure.core import MatchConditions
from azure.data.tables import EdmType, TableAccessPolicy, TableTransactionError, UpdateMode
from azure.data.tables.aio import TableClient

from tests.sdk.harness import HOUR, error_code, now, refused
from tests.sdk.table.clients import async_table_service, unique_table
from tests.server import Server

ADA: Final[dict[str, Any]] = {"PartitionKey": "Lovelace", "RowKey": "Ada", "Age": 36}


def run(server: Server, test: Callable[[TableClient], Awaitable[None]]) -> None:
    async def main() -> None:
        async with async_table_service(server) as service:
            table = await service.create_table(unique_table("Async"))
            await test(table)
            await table.delete_table()

    asyncio.run(main())


def test_tables(server: Server) -> None:
    async def test(table: TableClient) -> None:
        with refused(409, "TableAlreadyExists"):
            await table.create_table()
        policy = TableAccessPolicy(permission="r", expiry=now() + HOUR, start=now())
        await table.set_table_access_policy({"it": policy})
        assert list(await table.get_table_access_policy()) == ["it"]
        async with async_table_service(server) as service:
            found = service.query_tables(f"TableName eq '{table.table_name}'")
            assert [each.name async for each in found] == [table.table_name]
        await table.delete_table()
        with refused(404, "TableNotFound"):
            await table.get_entity("p", "r")
        await table.create_table()

    run(server, test)


def test_entities(server: Server) -> None:
    async def test(table: TableClient) -> None:
        etag = (await table.create_entity({**ADA, "Long": (2**40, EdmType.INT64)}))["etag"]
        entity = await table.get_entity("Lovelace", "Ada")
        assert (entity["Age"], entity["Long"].value) == (36, 2**40)
        assert entity.metadata["etag"] == etag
        await table.update_entity({**ADA, "Age": 37}, mode=UpdateMode.MERGE)
        with refused(412, "UpdateConditionNotSatisfied"):
            await table.delete_entity(ADA, etag=etag, match_condition=MatchConditions.IfNotModified)
        await table.upsert_entity({**ADA, "Age": 38}, mode=UpdateMode.REPLACE)
        assert "Long" not in await table.get_entity("Lovelace", "Ada")
        await table.delete_entity("Lovelace", "Ada")
        with refused(404, "ResourceNotFound"):
            await table.get_entity("Lovelace", "Ada")

    run(server, test)


def test_queries(server: Server) -> None:
    async def test(table: TableClient) -> None:
        row_keys = [f"{number:03}" for number in range(90)]
        await table.submit_transaction(
            [
                ("create", {"PartitionKey": "p", "RowKey": row, "Number": int(row)})
                for row in row_keys
            ]
        )
        found = table.query_entities(
            "Number ge @low", parameters={"low": 40}, results_per_page=7, select=["RowKey"]
        )
        assert [entity["RowKey"] async for entity in found] == row_keys[40:]
        sizes = [
            len([entity async for entity in page])
            async for page in table.list_entities(results_per_page=40).by_page()
        ]
        assert sizes == [40, 40, 10]

    run(server, test)


def test_transactions(server: Server) -> None:
    async def test(table: TableClient) -> None:
        result = await table.submit_transaction(
            [("create", ADA), ("upsert", {**ADA, "RowKey": "B"})]
        )
        assert len({each["etag"] for each in result}) >= 1
        with pytest.raises(TableTransactionError) as caught:
            await table.submit_transaction([("delete", ADA), ("create", {**ADA, "RowKey": "B"})])
        assert (error_code(caught.value), caught.value.index) == ("EntityAlreadyExists", 1)
        assert (await table.get_entity("Lovelace", "Ada"))["Age"] == 36

    run(server, test)


def test_concurrent_requests(server: Server) -> None:
    async def test(table: TableClient) -> None:
        entities = [{"PartitionKey": "p", "RowKey": f"{row:02}"} for row in range(50)]
        etags = await asyncio.gather(*map(table.create_entity, entities))
        assert len({each["etag"] for each in etags}) == 50
        found = [entity["RowKey"] async for entity in table.list_entities()]
        assert found == [entity["RowKey"] for entity in entities]

    run(server, test)
