"""What a service must define so that histories of it can be made and checked."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, Final, Generic, NamedTuple, Protocol

from azure.core.exceptions import AzureError, HttpResponseError
from urllib3.exceptions import NewConnectionError

from tests.history.events import EventLog, OperationT, Refused, Unknown
from tests.server import ACCOUNT, KEY, Server

RESOURCE: Final = "history"
"""The name of the container, queue or table."""
CREDENTIAL: Final = {"account_name": ACCOUNT, "account_key": KEY}
ANSWER_SECONDS_MAX: Final = 10
RECONNECT_SECONDS: Final = 0.02


class Chooser(Protocol):
    """Chooses the requests of one client, with tokens that no other client uses."""

    def choose(self) -> Any: ...

    def learn(self, operation: Any) -> None: ...


class SdkConnection(ABC):
    """A client of the public SDK that reads the server's address from a file.

    The server has another address after each restart.
    """

    def __init__(self, address: Path) -> None:
        self._address = address
        self._client = self.connect(address.read_text("ascii"))

    @abstractmethod
    def connect(self, url: str) -> Any:
        """Creates the client; without retries, which would make several operations of one."""

    @abstractmethod
    def execute(self, client: Any, request: Any) -> Any:
        """Sends the request and returns its `Done`."""

    def close(self) -> None:
        self._client.close()

    def ask(self, request: Any) -> Any:
        """Returns the outcome of the request, or None if it was never sent."""
        try:
            return self.execute(self._client, request)
        except AzureError as error:
            never_sent = isinstance(error.inner_exception, NewConnectionError)
            outcome = None if never_sent else self._outcome_of(error)
        if outcome is None or isinstance(outcome, Unknown):
            time.sleep(RECONNECT_SECONDS)
            self._client.close()
            self._client = self.connect(self._address.read_text("ascii"))
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

    def url(self, server: Server) -> str:
        return f"{server.endpoints[self.name]}/{ACCOUNT}"

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
