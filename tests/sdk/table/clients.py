"""Clients of the public SDK for the table service of a server."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import pytest
from azure.core.credentials import AzureNamedKeyCredential, AzureSasCredential
from azure.core.exceptions import HttpResponseError
from azure.data.tables import (
    AccountSasPermissions,
    ResourceTypes,
    TableClient,
    TableServiceClient,
    generate_account_sas,
    generate_table_sas,
)
from azure.data.tables.aio import TableServiceClient as AsyncTableServiceClient

from tests.server import ACCOUNT, KEY, Server

HOUR: Final = timedelta(hours=1)
OWNER: Final = AzureNamedKeyCredential(ACCOUNT, KEY)

_numbers = itertools.count(1)


def unique(prefix: str = "Table") -> str:
    """Letters and digits only, as in the names of tables."""
    return f"{prefix}{os.getpid()}x{next(_numbers)}"


def now() -> datetime:
    return datetime.now(UTC)


def url(server: Server, account: str = ACCOUNT) -> str:
    return f"{server.endpoints['table']}/{account}"


def table_service(
    server: Server, account: str = ACCOUNT, key: str = KEY, **options: Any
) -> TableServiceClient:
    """Without retries: every answer counts."""
    credential = AzureNamedKeyCredential(account, key)
    return TableServiceClient(url(server, account), credential=credential, retry_total=0, **options)


def async_table_service(server: Server) -> AsyncTableServiceClient:
    return AsyncTableServiceClient(url(server), credential=OWNER, retry_total=0)


def holder(server: Server, table: str, token: str) -> TableClient:
    """A table for whoever has this token and nothing else."""
    return TableClient(url(server), table, credential=AzureSasCredential(token), retry_total=0)


def table_token(table: str, **options: Any) -> str:
    options = {"permission": "raud", "expiry": now() + HOUR, **options}
    return generate_table_sas(options.pop("credential", OWNER), table, **options)


def account_token(letters: str, types: str, **options: Any) -> str:
    return generate_account_sas(
        options.pop("credential", OWNER),
        ResourceTypes.from_string(types),
        AccountSasPermissions.from_string(letters),
        options.pop("expiry", now() + HOUR),
        **options,
    )


def rows(table: TableClient, query: str | None = None, **options: Any) -> list[str]:
    """The rows that are found, on however many pages."""
    found = table.query_entities(query, **options) if query else table.list_entities(**options)
    return [entity["RowKey"] for entity in found]


@contextlib.contextmanager
def refused(status: int, code: str) -> Iterator[None]:
    """The SDK raises just this. Of what it does not translate, only the answer names the code."""
    with pytest.raises(HttpResponseError) as caught:
        yield
    assert (caught.value.status_code, code_of(caught.value)) == (status, code), caught.value


def code_of(error: HttpResponseError) -> str:
    answer: Any = error.response
    found = getattr(error, "error_code", None) or answer.headers.get("x-ms-error-code")
    found = found or json.loads(answer.text())["odata.error"]["code"]
    return str(getattr(found, "value", found))
