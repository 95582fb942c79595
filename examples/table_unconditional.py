"""No condition at all: the last writer wins, and that is fine where a value is only ever new.

A thermometer reports what it measures now. Whatever was reported before is worth nothing, so there
is nothing to protect, and nobody has to read before writing. Two ways to say so:

- an upsert has no If-Match: it makes the entity if there is none, and else changes it;
- an update or a deletion with `If-Match: *` does the same to any version, but there must be one.

Each is still done as a whole. Half of one report and half of another is not what anybody sees.
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
    # There is no entity yet; an upsert does not mind.
    table.upsert_entity({**KEYS, "degrees": 11, "battery": "full"}, UpdateMode.REPLACE)
    print(f"first report: {shown(table)}")

    # A merge leaves alone what it does not name. This is what to choose if several writers each
    # have properties of their own: they do not get into each other's way at all.
    table.upsert_entity({**KEYS, "degrees": 12}, UpdateMode.MERGE)
    print(f"merged: {shown(table)}")

    # A replacement takes away what it does not name.
    table.upsert_entity({**KEYS, "degrees": 13}, UpdateMode.REPLACE)
    print(f"replaced: {shown(table)}")


def the_last_writer_wins(table: TableClient) -> None:
    # Both have read 13 and add to it. With the ETag of what they read, the second would be refused
    # with 412; without one, what the first did is gone. Where that matters, see
    # table_optimistic_update.py.
    first, second = table.get_entity(*KEYS.values()), table.get_entity(*KEYS.values())
    first["degrees"] += 1
    second["degrees"] += 2
    table.upsert_entity(first)
    table.upsert_entity(second)
    print(f"13, and 1, and 2 more: {shown(table)}")


def any_version_will_do(table: TableClient) -> None:
    # Without an ETag the SDK sends If-Match: * with updates and deletions. That can be said, too,
    # so that nobody takes it for an oversight.
    table.update_entity({**KEYS, "degrees": 9}, match_condition=MatchConditions.Unconditionally)
    print(f"updated: {shown(table)}")
    table.delete_entity(*KEYS.values())
    try:
        table.update_entity({**KEYS, "degrees": 10})
    except ResourceNotFoundError:
        print("an update does not bring back what was deleted")


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
