"""The blob service, as live runs and the command line need it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, Final

from azure.storage.blob import BlobServiceClient

from tests.history.blob.actions import ACTIONS
from tests.history.blob.checker import Finding, check_history
from tests.history.blob.events import LOG, Done, History, Operation, Request, Verb
from tests.history.blob.workloads import WORKLOADS, BlobChooser
from tests.history.service import (
    ANSWER_SECONDS_MAX,
    RESOURCE,
    Clients,
    HistoryService,
    SdkConnection,
    credential,
)

SNAPSHOTS_READ_MAX: Final = 20
"""How many of the last snapshots are read in the end."""


class BlobConnection(SdkConnection):
    """A client of the blob service."""

    def connect(self, url: str) -> BlobServiceClient:
        return BlobServiceClient(
            url,
            credential(url),
            retry_total=0,
            connection_timeout=ANSWER_SECONDS_MAX,
            read_timeout=ANSWER_SECONDS_MAX,
        )

    def execute(self, client: Any, request: Request) -> Done:
        blob = client.get_blob_client(RESOURCE, request.blob, request.snapshot or None)
        return Done(ACTIONS[request.verb](blob, request))


class BlobHistoryService(HistoryService[Operation]):
    """Clients that read and write one blob for each workload."""

    name: ClassVar[str] = "blob"
    log = LOG
    clients = Clients(permanent=5)
    workloads = tuple(WORKLOADS)

    def create_resource(self, url: str) -> None:
        with BlobServiceClient(url, credential(url)) as service:
            service.create_container(RESOURCE)

    def connect(self, address: Path) -> BlobConnection:
        return BlobConnection(address)

    def chooser(self, seed: int, client: int, workloads: Sequence[str]) -> BlobChooser:
        return BlobChooser(seed, client, {name: WORKLOADS[name] for name in workloads})

    def final_operations(
        self, address: Path, workloads: Sequence[str], operations: Sequence[Operation]
    ) -> list[Operation]:
        requests = [Request(Verb.GET, blob) for blob in workloads]
        requests += _last_snapshots(operations)
        connection = self.connect(address)
        found = [self.perform(connection, self.clients.total, request) for request in requests]
        connection.close()
        return found

    def check(self, history: History) -> list[Finding]:
        return check_history(history)


def _last_snapshots(operations: Sequence[Operation]) -> list[Request]:
    snapshots = [
        Request(Verb.GET_SNAPSHOT, each.request.blob, snapshot=each.outcome.seen.snapshot)
        for each in sorted(operations, key=lambda each: each.ended)
        if isinstance(each.outcome, Done) and each.outcome.seen.snapshot
    ]
    return snapshots[-SNAPSHOTS_READ_MAX:]


SERVICE: Final = BlobHistoryService()
