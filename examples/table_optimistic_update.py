"""Optimistic concurrency: several writers change one entity, and no change is lost.

Nobody locks anything. Each writer reads the entity, changes what it has read, and writes it back
under the condition that the entity is still the version that was read. If it is not, the server
refuses with 412, nothing is overwritten, and the writer begins again with what is there now.
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
    """Takes one piece out of the stock; returns how many races were lost before that."""
    lost = 0
    while True:
        # The ETag names the version. It comes with the properties, so both belong together.
        tea = table.get_entity("goods", "tea")
        version = tea.metadata["etag"]

        # When an answer is lost on its way, the SDK sends the request again, and the condition
        # fails because of our own first attempt. What we wrote tells us that it was there.
        sales = tea["sales"].split()
        if sale in sales:
            return lost

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
            # Somebody was faster. A random pause that grows keeps the losers from running into
            # each other again.
            lost += 1
            time.sleep(random.uniform(0, 0.005 * 2 ** min(lost, 6)))
        else:
            return lost


def main() -> None:
    with TableServiceClient.from_connection_string(CONNECTION) as service:
        table = service.create_table(f"example{uuid.uuid4().hex}")
        try:
            goods = {"PartitionKey": "goods", "RowKey": "tea", "stock": STOCK, "sales": ""}
            table.create_entity(goods)
            lost: list[int] = []

            def stand_at_the_counter(writer: int) -> None:
                for number in range(SALES_PER_WRITER):
                    lost.append(sell(table, f"{writer}.{number}"))

            writers = [
                threading.Thread(target=stand_at_the_counter, args=(n,)) for n in range(WRITERS)
            ]
            for writer in writers:
                writer.start()
            for writer in writers:
                writer.join()

            tea = table.get_entity("goods", "tea")
            print(f"{WRITERS} writers sold {WRITERS * SALES_PER_WRITER} of {STOCK}.")
            print(f"{tea['stock']} are left, and {len(tea['sales'].split())} sales are known.")
            print(f"Races lost and run again: {sum(lost)}.")
        finally:
            service.delete_table(table.table_name)


if __name__ == "__main__":
    main()
