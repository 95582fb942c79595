"""Writes without conditions: the last writer wins.

This is right if a new value does not depend on the old one. A thermometer reports the current
temperature; earlier reports have no value, and no writer has to read before it writes. There are
two ways:

- an upsert, without If-Match, creates the entity or changes it;
- an update or a delete with `If-Match: *` applies to any version, but the entity must exist.

Each write is still atomic: no reader sees a mixture of two reports.
"""

from __future__ import annotations

import os
import uuid

from azure.core import MatchConditions
from azure.core.exceptions import ResourceNotFoundError
from azure.data.tables import TableClient, TableServiceClient, UpdateMode

CONNECTION = os.environ.get("AZURE_STORAGE_CONNECTION_STRING", "UseDevelopmentStorage=true")
KEYS = {"PartitionKey": "cellar", "RowKey": "thermometer"}


def shown(table: TableClient) -> str:
    return ", ".join(
        f"{name}={value}"
        for name, value in table.get_entity(*KEYS.values()).items()
        if name not in KEYS
    )


def upserts(table: TableClient) -> None:
    # An upsert does not need an existing entity.
    table.upsert_entity({**KEYS, "degrees": 11, "battery": "full"}, UpdateMode.REPLACE)
    print(f"first report: {shown(table)}")

    # A merge leaves other properties unchanged. Use it if each of several writers owns different
    # properties: they do not conflict.
    table.upsert_entity({**KEYS, "degrees": 12}, UpdateMode.MERGE)
    print(f"merged: {shown(table)}")

    # A replacement removes other properties.
    table.upsert_entity({**KEYS, "degrees": 13}, UpdateMode.REPLACE)
    print(f"replaced: {shown(table)}")


def the_last_writer_wins(table: TableClient) -> None:
    # Both have read 13 and add to it. With the ETag that they read, the second write would be
    # refused with 412; without it, the first update is lost. If that matters, see
    # table_optimistic_update.py.
    first, second = table.get_entity(*KEYS.values()), table.get_entity(*KEYS.values())
    first["degrees"] += 1
    second["degrees"] += 2
    table.upsert_entity(first)
    table.upsert_entity(second)
    print(f"13, plus 1 and plus 2: {shown(table)}")


def any_version_will_do(table: TableClient) -> None:
    # Without an ETag, the SDK sends If-Match: * with updates and deletes. State it explicitly, so
    # that readers of the code know that it is intended.
    table.update_entity({**KEYS, "degrees": 9}, match_condition=MatchConditions.Unconditionally)
    print(f"updated: {shown(table)}")
    table.delete_entity(*KEYS.values())
    try:
        table.update_entity({**KEYS, "degrees": 10})
    except ResourceNotFoundError:
        print("an update does not recreate a deleted entity")


def main() -> None:
    with TableServiceClient.from_connection_string(CONNECTION) as service:
        table = service.create_table(f"example{uuid.uuid4().hex}")
        try:
            upserts(table)
            the_last_writer_wins(table)
            any_version_will_do(table)
        finally:
            service.delete_table(table.table_name)


if __name__ == "__main__":
    main()
