"""Clients that write counters to all services, and the counters that a restored store has.

Each client writes 1, 2, 3, … and writes each number to a blob, a queue, a table and a file, in this
order. A state of the store between two of its requests has numbers that differ by one at most.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple

from azure.data.tables import TableClient
from azure.storage.blob import BlobClient
from azure.storage.fileshare import ShareFileClient
from azure.storage.queue import QueueClient

from tests.sdk.blob.clients import blob_service
from tests.sdk.file.clients import file_service
from tests.sdk.queue.clients import queue_service
from tests.sdk.table.clients import table_service
from tests.server import Server

_NAME: Final = "counters"
_BODY_BYTES: Final = 48 << 10
"""More than is stored in the ledger."""


class Counters(NamedTuple):
    """The last number that each service has."""

    blob: int
    message: int
    entity: int
    file: int


class Span(NamedTuple):
    """What a client had written when a backup began, and had tried to write when it had ended."""

    first: Counters
    last: Counters

    def check(self, found: Counters) -> None:
        """Fails unless these counters are a state in between, at one instant."""
        for low, number, high in zip(self.first, found, self.last, strict=True):
            assert low <= number <= high, (self, found)
        numbers = list(found)
        assert numbers == sorted(numbers, reverse=True), found
        assert numbers[0] - numbers[-1] <= 1, found


class CountingClient:
    """One client, and the objects that it writes to."""

    def __init__(self, server: Server, number: int) -> None:
        name = f"{_NAME}-{number}"
        self._number = number
        self._blob: BlobClient = blob_service(server).get_blob_client(_NAME, name)
        self._queue: QueueClient = queue_service(server).get_queue_client(name)
        self._table: TableClient = table_service(server).get_table_client(_NAME)
        self._file: ShareFileClient = (
            file_service(server).get_share_client(_NAME).get_file_client(name)
        )
        self.acknowledged = [0, 0, 0, 0]
        self.tried = [0, 0, 0, 0]

    def create(self) -> None:
        self._queue.create_queue()
        self._file.create_file(_BODY_BYTES)

    def write(self, count: int) -> None:
        writes = (self._write_blob, self._write_message, self._write_entity, self._write_file)
        for at, write in enumerate(writes):
            self.tried[at] = count
            write(count)
            self.acknowledged[at] = count

    def _write_blob(self, count: int) -> None:
        self._blob.upload_blob(_body(count), overwrite=True)

    def _write_message(self, count: int) -> None:
        self._queue.send_message(str(count))

    def _write_entity(self, count: int) -> None:
        row = {"PartitionKey": "p", "RowKey": str(self._number), "Count": count}
        self._table.upsert_entity(row)

    def _write_file(self, count: int) -> None:
        self._file.upload_range(_body(count), 0, _BODY_BYTES)

    def read(self) -> Counters:
        blob = _count(self._blob.download_blob().readall())
        file = _count(self._file.download_file().readall())
        messages: set[int] = set()
        for page in self._queue.receive_messages(messages_per_page=32).by_page():
            messages |= {int(message.content) for message in page}
        assert messages == set(range(1, len(messages) + 1))
        entity = self._table.get_entity("p", str(self._number))
        return Counters(blob, len(messages), int(entity["Count"]), file)


def _body(count: int) -> bytes:
    return b"%016d" % count * (_BODY_BYTES // 16)


def _count(body: bytes) -> int:
    count = int(body[:16])
    assert body == _body(count)
    return count


class Load:
    """Clients that write all the time."""

    def __init__(self, server: Server, clients: int) -> None:
        blob_service(server).create_container(_NAME)
        table_service(server).create_table(_NAME)
        file_service(server).create_share(_NAME)
        self.clients = [CountingClient(server, number) for number in range(clients)]
        for client in self.clients:
            client.create()
            client.write(1)
        self._stopped = threading.Event()
        self._failures: list[BaseException] = []

    @contextmanager
    def running(self) -> Iterator[None]:
        threads = [threading.Thread(target=self._run, args=(one,)) for one in self.clients]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self._stopped.set()
            for thread in threads:
                thread.join()
        assert not self._failures, self._failures

    def _run(self, client: CountingClient) -> None:
        try:
            count = client.acknowledged[0]
            while not self._stopped.is_set():
                count += 1
                client.write(count)
        except BaseException as failure:
            self._failures.append(failure)

    def acknowledged(self) -> list[Counters]:
        return [Counters(*client.acknowledged) for client in self.clients]

    def tried(self) -> list[Counters]:
        return [Counters(*client.tried) for client in self.clients]


def read(server: Server, clients: int) -> list[Counters]:
    """Returns the counters in a restored store."""
    return [CountingClient(server, number).read() for number in range(clients)]
