"""What a service must define so that histories of it can be made and checked."""

from __future__ import annotations

import random
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar, Final, Generic, NamedTuple, Protocol

from azure.core.exceptions import AzureError, HttpResponseError
from urllib3.exceptions import NewConnectionError

from tests.history.events import EventLog, OperationT, Refused, Unknown
from tests.server import ACCOUNT, KEY, Server

RESOURCE: Final = "history"
"""The name of the container, queue or table."""
ANSWER_SECONDS_MAX: Final = 10
RECONNECT_SECONDS: Final = 0.02


class Chooser(Protocol):
    """Chooses the requests of one client, with tokens that no other client uses."""

    def choose(self) -> Any: ...

    def learn(self, operation: Any) -> None: ...


class SdkConnection(ABC):
    """A client of the public SDK that reads the addresses of the servers from a file, one in each
    line, and sends its requests to each in turn.

    A server may have another address after each restart.
    """

    def __init__(self, address: Path) -> None:
        self._address = address
        self._clients: dict[str, Any] = {}
        self._turns: Iterator[str] = iter(())
        self._random = random.Random()  # not the one of the process that forked the clients

    @abstractmethod
    def connect(self, url: str) -> Any:
        """Creates the client; without retries, which would make several operations of one."""

    @abstractmethod
    def execute(self, client: Any, request: Any) -> Any:
        """Sends the request and returns its `Done`."""

    def close(self) -> None:
        self._disconnect()

    def _disconnect(self) -> None:
        for client in self._clients.values():
            client.close()
        self._clients.clear()
        self._turns = iter(())

    def _next_client(self) -> Any:
        url = next(self._turns, None)
        if url is None:
            urls = read_addresses(self._address)
            self._random.shuffle(urls)
            self._turns = iter(urls)
            url = next(self._turns)
        if url not in self._clients:
            self._clients[url] = self.connect(url)
        return self._clients[url]

    def ask(self, request: Any) -> Any:
        """Returns the outcome of the request, or None if it was never sent."""
        try:
            return self.execute(self._next_client(), request)
        except AzureError as error:
            never_sent = isinstance(error.inner_exception, NewConnectionError)
            outcome = None if never_sent else self._outcome_of(error)
        if outcome is None or isinstance(outcome, Unknown):
            time.sleep(RECONNECT_SECONDS)
            self._disconnect()
        return outcome

    def error_code(self, error: HttpResponseError) -> str:
        """Returns the error code in the answer."""
        code = getattr(error, "error_code", None) or f"status {error.status_code}"
        return str(getattr(code, "value", code))

    def _outcome_of(self, error: AzureError) -> Refused | Unknown:
        """Status 503 means that nothing was changed; other failures leave the outcome unknown, as
        does a response that ends too early."""
        status = error.status_code if isinstance(error, HttpResponseError) else None
        if not isinstance(error, HttpResponseError) or status is None:
            return Unknown(type(error).__name__)
        if status < 400 or (status >= 500 and status != 503):
            return Unknown(str(status))
        return Refused(self.error_code(error))


def credential(url: str) -> dict[str, str]:
    """Returns the credential for the account that a URL ends with. All have the same key."""
    return {"account_name": url.rpartition("/")[2], "account_key": KEY}


def read_addresses(path: Path) -> list[str]:
    """Returns the addresses of the servers."""
    return path.read_text("ascii").splitlines()


class Listening(Protocol):
    """A server that clients can connect to."""

    endpoints: dict[str, str]


class Clients(NamedTuple):
    """The clients of a live run, by numbers from 0."""

    permanent: int
    """How many are never killed."""
    replaced: int = 0
    """How many others are killed now and then, and replaced by new ones."""

    @property
    def total(self) -> int:
        return self.permanent + self.replaced


class HistoryService(ABC, Generic[OperationT]):
    """A service of which histories are made."""

    name: ClassVar[str]
    log: EventLog[OperationT]
    clients: Clients
    workloads: Sequence[str] = ()
    """Names of the workloads that can be chosen."""

    def url(self, server: Listening, account: str = ACCOUNT) -> str:
        return f"{server.endpoints[self.name]}/{account}"

    def processes(self, server: Server) -> Sequence[int]:
        """Returns the processes that are killed singly."""
        return server.children()

    def forgets(self, server: Server, pid: int) -> bool:
        """Returns whether something that was acknowledged may be lost if a process is killed."""
        del server, pid
        return False

    @abstractmethod
    def create_resource(self, url: str) -> None:
        """Creates the container, queue or table of the run."""

    @abstractmethod
    def connect(self, address: Path) -> SdkConnection:
        """Connects a client."""

    @abstractmethod
    def chooser(self, seed: int, client: int, workloads: Sequence[str]) -> Chooser:
        """Makes the chooser of a client."""

    @abstractmethod
    def final_operations(
        self, address: Path, workloads: Sequence[str], operations: Sequence[OperationT]
    ) -> list[OperationT]:
        """Reads what is left when all clients are done and the server was restarted."""

    @abstractmethod
    def check(self, history: Any) -> Sequence[object]:
        """Returns what is wrong with a history."""

    def pause_seconds(self, operation: OperationT) -> float:
        """How long a client waits after an operation."""
        del operation
        return 0.0

    def perform(self, connection: SdkConnection, client: int, request: Any) -> OperationT:
        """Sends a request while no other client uses the server."""
        began = time.monotonic_ns()
        outcome = connection.ask(request)
        assert outcome is not None, request
        return self.log.operation(client, request, began, time.monotonic_ns(), outcome)
