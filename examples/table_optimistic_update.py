"""Optimistic concurrency: several writers change one entity, and no update is lost.

There are no locks. Each writer reads the entity, changes it, and writes it back with the condition
that the entity is still the version that was read. If it is not, the server refuses the write with
412, nothing is overwritten, and the writer starts again with the current version.
"""

from __future__ import annotations

import os
import random
import threading
import time
import uuid

from azure.core import MatchConditions
from azure.core.exceptions import ResourceModifiedError
from azure.data.tables import TableClient, TableServiceClient, UpdateMode

CONNECTION = os.environ.get("AZURE_STORAGE_CONNECTION_STRING", "UseDevelopmentStorage=true")
WRITERS = 4
SALES_PER_WRITER = 5
STOCK = 100


def sell(table: TableClient, sale: str) -> int:
    """Takes one item out of the stock; returns the number of failed attempts."""
    conflicts = 0
    while True:
        # The ETag identifies the version. It comes from the same response as the properties.
        tea = table.get_entity("goods", "tea")
        version = tea.metadata["etag"]

        # If a response is lost, the SDK repeats the request, and the condition fails because of
        # our own first attempt. Finding our own change shows that it succeeded.
        sales = tea["sales"].split()
        if sale in sales:
            return conflicts

        tea["stock"] -= 1
        tea["sales"] = " ".join([*sales, sale])
        try:
            table.update_entity(
                tea,
                UpdateMode.REPLACE,
                etag=version,
                match_condition=MatchConditions.IfNotModified,  # If-Match
            )
        except ResourceModifiedError:
            # Another writer was faster. Random exponential backoff reduces further conflicts.
            conflicts += 1
            time.sleep(random.uniform(0, 0.005 * 2 ** min(conflicts, 6)))
        else:
            return conflicts


def main() -> None:
    with TableServiceClient.from_connection_string(CONNECTION) as service:
        table = service.create_table(f"example{uuid.uuid4().hex}")
        try:
            goods = {"PartitionKey": "goods", "RowKey": "tea", "stock": STOCK, "sales": ""}
            table.create_entity(goods)
            conflicts: list[int] = []

            def stand_at_the_counter(writer: int) -> None:
                for number in range(SALES_PER_WRITER):
                    conflicts.append(sell(table, f"{writer}.{number}"))

            writers = [
                threading.Thread(target=stand_at_the_counter, args=(n,)) for n in range(WRITERS)
            ]
            for writer in writers:
                writer.start()
            for writer in writers:
                writer.join()

            tea = table.get_entity("goods", "tea")
            print(f"{WRITERS} writers sold {WRITERS * SALES_PER_WRITER} of {STOCK}.")
            print(f"{tea['stock']} are left, and {len(tea['sales'].split())} sales are recorded.")
            print(f"Conflicts that were retried: {sum(conflicts)}.")
        finally:
            service.delete_table(table.table_name)


if __name__ == "__main__":
    main()
