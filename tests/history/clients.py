"""Clients of the public SDK, each a process that records what it asked for and what it was told."""

from __future__ import annotations

import os
import time
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

from azure.core.exceptions import AzureError, HttpResponseError
from azure.storage.blob import BlobServiceClient
from urllib3.exceptions import NewConnectionError

from tests.history.actions import ACTIONS
from tests.history.events import Done, Operation, Refused, Request, Unknown, write_lines
from tests.history.workloads import Chooser, Workload
from tests.server import ACCOUNT, KEY

CONTAINER: Final = "history"
ANSWER_SECONDS_MAX: Final = 10
PAUSE_SECONDS: Final = 0.02


class Asker:
    """Asks the server whose address is in a file: it has another one after each restart."""

    def __init__(self, address: Path, client: int) -> None:
        self._address = address
        self._client = client
        self._service = self._connect()

    def _connect(self) -> BlobServiceClient:
        """Without retries, which would make of one operation several."""
        return BlobServiceClient(
            self._address.read_text("ascii"),
            {"account_name": ACCOUNT, "account_key": KEY},
            retry_total=0,
            connection_timeout=ANSWER_SECONDS_MAX,
            read_timeout=ANSWER_SECONDS_MAX,
        )

    def close(self) -> None:
        self._service.close()

    def ask(self, request: Request) -> Operation | None:
        """What came of it; None if it was never sent."""
        blob = self._service.get_blob_client(CONTAINER, request.blob, request.snapshot or None)
        outcome: Done | Refused | Unknown
        began = time.monotonic_ns()
        try:
            outcome = Done(ACTIONS[request.verb](blob, request))
        except AzureError as error:
            if _never_sent(error):
                self._connect_again()
                return None
            outcome = _outcome_of(error)
        ended = time.monotonic_ns()
        if isinstance(outcome, Unknown):
            self._connect_again()
        return Operation(self._client, request, began, ended, outcome)

    def _connect_again(self) -> None:
        time.sleep(PAUSE_SECONDS)
        self._service.close()
        self._service = self._connect()


def _never_sent(error: AzureError) -> bool:
    """Nobody listened."""
    return isinstance(error.inner_exception, NewConnectionError)


def _outcome_of(error: AzureError) -> Refused | Unknown:
    """A server that answers 503 says that nothing happened; other failures say nothing."""
    status = error.status_code if isinstance(error, HttpResponseError) else None
    if status is None or (status >= 500 and status != 503):
        return Unknown(f"{status or type(error).__name__}")
    code = getattr(error, "error_code", None) or f"status {status}"
    return Refused(str(getattr(code, "value", code)))


# The processes


class Assignment(NamedTuple):
    """What the clients of a run have to know."""

    directory: Path
    """Where the address is, and where each puts its record, empty at first."""
    seed: int
    clients: int
    until: int
    """They stop when they are told to, or then: nobody may be left who could tell them."""

    @property
    def address(self) -> Path:
        return self.directory / "address"

    @property
    def stop(self) -> Path:
        """There as soon as they are to stop."""
        return self.directory / "stop"

    @property
    def records(self) -> list[Path]:
        return [self.directory / f"client-{client}.jsonl" for client in range(self.clients)]


def work(assignment: Assignment, client: int, workloads: Mapping[str, Workload]) -> None:
    """One client, until it is time to stop."""
    chooser = Chooser(assignment.seed, client, workloads)
    asker = Asker(assignment.address, client)
    operations: list[Operation] = []
    assignment.records[client].touch()
    while time.monotonic_ns() < assignment.until and not assignment.stop.exists():
        operation = asker.ask(chooser.choose())
        if operation is not None:
            operations.append(operation)
            chooser.learn(operation)
    asker.close()
    write_lines(assignment.records[client], operations)


def work_all(assignment: Assignment, workloads: Mapping[str, Workload]) -> int:
    """All clients, forked from this process so that the SDK is imported once. Returns how many
    failed."""
    pids = [_fork(assignment, client, workloads) for client in range(assignment.clients)]
    return sum(os.waitpid(pid, 0)[1] != 0 for pid in pids)


def _fork(assignment: Assignment, client: int, workloads: Mapping[str, Workload]) -> int:
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            work(assignment, client, workloads)
            status = 0
        except Exception:
            traceback.print_exc()
        finally:
            os._exit(status)
    return pid
