"""Clients that use an account all the time, and notice if anything is lost or outdated.

Each has something of its own. It writes through one node and reads through another: what it reads
must be what it wrote last.
"""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from itertools import count, cycle
from typing import Any, Final, TypeVar

from azure.core.exceptions import HttpResponseError

from tests.clusters.moving import KEY
from tests.sdk.blob.clients import blob_service
from tests.sdk.file.clients import file_service
from tests.sdk.queue.clients import queue_service
from tests.sdk.table.clients import table_service
from tests.server import Server, eventually

T = TypeVar("T")

_PAUSE_SECONDS: Final = 0.02
_BUSY: Final = 503


class User(ABC):
    """A client in a thread of its own."""

    def __init__(self, nodes: Sequence[Server], account: str) -> None:
        clients = [self.connect(node, account) for node in nodes]
        self._writers, self._readers = cycle(clients), cycle([*clients[1:], clients[0]])
        self._ending = threading.Event()
        self._error: BaseException | None = None
        self.writes = 0
        self.longest_seconds = 0.0
        """The longest time that a write took, with all attempts."""
        self._thread = threading.Thread(target=self._run)

    @abstractmethod
    def connect(self, node: Server, account: str) -> Any:
        """Returns a client of a node."""

    @abstractmethod
    def write(self, client: Any, number: int) -> None: ...

    @abstractmethod
    def read(self, client: Any) -> int:
        """Returns the number that was written last."""

    def start(self) -> None:
        self._thread.start()

    def wait_for_writes(self) -> None:
        """Waits until the client has written something more."""
        before = self.writes
        eventually(lambda: self.writes > before + 1 or self._error is not None, "more writes")

    def stop(self) -> None:
        """Ends the client. Raises what it has noticed."""
        self._ending.set()
        self._thread.join()
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        try:
            for number in count(1):
                if self._ending.is_set():
                    return
                began = time.monotonic()
                _retry(lambda: self.write(next(self._writers), number))  # noqa: B023
                self.longest_seconds = max(self.longest_seconds, time.monotonic() - began)
                self.writes = number
                found = _retry(lambda: self.read(next(self._readers)))
                assert found == number, (type(self).__name__, found, number)
        except BaseException as error:
            self._error = error


def _retry(call: Callable[[], T]) -> T:
    """Tries again what was refused because the account is moving."""
    while True:
        try:
            return call()
        except HttpResponseError as error:
            if error.status_code != _BUSY:
                raise
        time.sleep(_PAUSE_SECONDS)


class BlobUser(User):
    """Overwrites a blob, which is long every other time."""

    def connect(self, node: Server, account: str) -> Any:
        return blob_service(node, account, KEY).get_blob_client("used", "blob")

    def write(self, client: Any, number: int) -> None:
        client.upload_blob(b"%d " % number * (1 if number % 2 else 20_000), overwrite=True)

    def read(self, client: Any) -> int:
        data = client.download_blob().readall()
        assert len(set(data.split())) == 1
        return int(data.split()[0])


class AppendUser(User):
    """Appends to a blob: nothing may be missing, and nothing be there twice."""

    def connect(self, node: Server, account: str) -> Any:
        return blob_service(node, account, KEY).get_blob_client("used", "appended")

    def write(self, client: Any, number: int) -> None:
        client.append_block(b"%08d" % number, appendpos_condition=8 * (number - 1))

    def read(self, client: Any) -> int:
        data = client.download_blob().readall()
        numbers = [int(data[at : at + 8]) for at in range(0, len(data), 8)]
        assert numbers == list(range(1, len(numbers) + 1))
        return len(numbers)


class EntityUser(User):
    """Replaces an entity if its ETag is that of the last write."""

    def connect(self, node: Server, account: str) -> Any:
        return table_service(node, account, KEY).get_table_client("Used")

    def write(self, client: Any, number: int) -> None:
        client.upsert_entity({"PartitionKey": "p", "RowKey": "r", "Number": number})

    def read(self, client: Any) -> int:
        return int(client.get_entity("p", "r")["Number"])


class MessageUser(User):
    """Sends a message and receives it: none may be lost or come twice."""

    def connect(self, node: Server, account: str) -> Any:
        return queue_service(node, account, KEY).get_queue_client("used")

    def write(self, client: Any, number: int) -> None:
        client.send_message(str(number))

    def read(self, client: Any) -> int:
        message = client.receive_message(visibility_timeout=3_600)
        assert message is not None
        _retry(lambda: client.delete_message(message))
        return int(message.content)


class FileUser(User):
    """Writes a range of a file."""

    def connect(self, node: Server, account: str) -> Any:
        return file_service(node, account, KEY).get_share_client("used").get_file_client("file")

    def write(self, client: Any, number: int) -> None:
        client.upload_range(b"%08d" % number, 1_000, 8)

    def read(self, client: Any) -> int:
        return int(client.download_file(1_000, 8).readall())


KINDS: Final = (BlobUser, AppendUser, EntityUser, MessageUser, FileUser)


def prepare(node: Server, account: str) -> None:
    """Creates what the clients use."""
    container = blob_service(node, account, KEY).create_container("used")
    container.get_blob_client("appended").create_append_blob()
    table_service(node, account, KEY).create_table("Used")
    queue_service(node, account, KEY).create_queue("used")
    share = file_service(node, account, KEY).create_share("used")
    share.get_file_client("file").create_file(4_096)
