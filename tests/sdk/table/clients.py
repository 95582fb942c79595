"""SDK clients and SAS tokens for the table service of a test server."""

from __future__ import annotations

from typing import Any, Final

from azure.core.credentials import AzureNamedKeyCredential, AzureSasCredential
from azure.data.tables import (
    AccountSasPermissions,
    ResourceTypes,
    TableClient,
    TableServiceClient,
    generate_account_sas,
    generate_table_sas,
)
from azure.data.tables.aio import TableServiceClient as AsyncTableServiceClient

from tests.sdk.harness import HOUR, now
from tests.server import ACCOUNT, KEY, Server, unique

OWNER: Final = AzureNamedKeyCredential(ACCOUNT, KEY)


def unique_table(prefix: str = "Table") -> str:
    """Returns a unique table name; these have only letters and digits."""
    return unique(prefix).replace("-", "x")


def table_service(
    server: Server, account: str = ACCOUNT, key: str = KEY, **options: Any
) -> TableServiceClient:
    """Returns a client without retries, so that a test sees every response."""
    credential = AzureNamedKeyCredential(account, key)
    return TableServiceClient(
        server.url("table", account), credential=credential, retry_total=0, **options
    )


def async_table_service(server: Server) -> AsyncTableServiceClient:
    return AsyncTableServiceClient(server.url("table"), credential=OWNER, retry_total=0)


def sas_client(server: Server, table: str, token: str) -> TableClient:
    """Returns a client for a table that has only a SAS token."""
    return TableClient(
        server.url("table"), table, credential=AzureSasCredential(token), retry_total=0
    )


def account_token(permission: str, types: str, **options: Any) -> str:
    return generate_account_sas(
        options.pop("credential", OWNER),
        ResourceTypes.from_string(types),
        AccountSasPermissions.from_string(permission),
        options.pop("expiry", now() + HOUR),
        **options,
    )


def table_token(table: str, **options: Any) -> str:
    options = {"permission": "raud", "expiry": now() + HOUR, **options}
    return generate_table_sas(options.pop("credential", OWNER), table, **options)


def row_keys(table: TableClient, query: str | None = None, **options: Any) -> list[str]:
    """Returns the row keys of the entities that a query finds, over all its pages."""
    found = table.query_entities(query, **options) if query else table.list_entities(**options)
    return [entity["RowKey"] for entity in found]
