"""Clients of the public SDK, each a process that records what it asked for and what it was told."""

from __future__ import annotations

import os
import time
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from azure.core import MatchConditions
from azure.core.exceptions import AzureError, HttpResponseError
from azure.storage.blob import (
    BlobBlock,
    BlobClient,
    BlobLeaseClient,
    BlobProperties,
    BlobServiceClient,
)
from urllib3.exceptions import NewConnectionError

from tests.history.contents import part_of, tokens_in
from tests.history.events import (
    ANY,
    Done,
    Operation,
    Refused,
    Request,
    Seen,
    Unknown,
    Verb,
    write_lines,
)
from tests.history.workloads import Chooser, Workload
from tests.sdk.server import ACCOUNT, KEY

CONTAINER: Final = "history"
VERSION: Final = "version"
"""The name under which the metadata of a blob tells the token of its version."""
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
        blob = self._service.get_blob_client(CONTAINER, request.blob)
        outcome: Done | Refused | Unknown
        began = time.monotonic_ns()
        try:
            outcome = Done(_ACTIONS[request.verb](blob, request))
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


# What the verbs are in the SDK


def _options(request: Request) -> dict[str, Any]:
    options: dict[str, Any] = {}
    if request.lease_id is not None:
        options["lease"] = request.lease_id
    if request.if_match == ANY:
        options["match_condition"] = MatchConditions.IfPresent
    elif request.if_match is not None:
        options |= {"etag": request.if_match, "match_condition": MatchConditions.IfNotModified}
    if request.if_none_match == ANY:
        options["match_condition"] = MatchConditions.IfMissing
    elif request.if_none_match is not None:
        options |= {"etag": request.if_none_match, "match_condition": MatchConditions.IfModified}
    return options


def _told(answer: Mapping[str, Any]) -> Seen:
    return Seen(answer["etag"], int(answer["last_modified"].timestamp()))


def _put(blob: BlobClient, request: Request) -> Seen:
    content, described = part_of(request.token), {VERSION: request.token}
    return _told(blob.upload_blob(content, overwrite=True, metadata=described, **_options(request)))


def _stage(blob: BlobClient, request: Request) -> Seen:
    blob.stage_block(request.block, part_of(request.token), **_options(request))
    return Seen()


def _commit(blob: BlobClient, request: Request) -> Seen:
    blocks = [BlobBlock(block) for block in request.blocks]
    described = {VERSION: request.token}
    return _told(blob.commit_block_list(blocks, metadata=described, **_options(request)))


def _describe(blob: BlobClient, request: Request) -> Seen:
    return _told(blob.set_blob_metadata({VERSION: request.token}, **_options(request)))


def _delete(blob: BlobClient, request: Request) -> Seen:
    blob.delete_blob(**_options(request))
    return Seen()


def _get(blob: BlobClient, request: Request) -> Seen:
    downloaded = blob.download_blob(**_options(request))
    return _shown(downloaded.properties, tokens_in(downloaded.readall()))


def _head(blob: BlobClient, request: Request) -> Seen:
    return _shown(blob.get_blob_properties(**_options(request)), None)


def _shown(properties: BlobProperties, content: tuple[str, ...] | None) -> Seen:
    return Seen(
        str(properties.etag),
        int(properties.last_modified.timestamp()),
        properties.metadata[VERSION],
        content,
        str(properties.lease.state),
    )


def _act_on_lease(blob: BlobClient, request: Request) -> Seen:
    lease = BlobLeaseClient(blob, request.lease_id or request.proposed_id)
    if request.verb is Verb.ACQUIRE:
        lease.acquire(-1 if request.seconds is None else request.seconds)
    elif request.verb is Verb.RENEW:
        lease.renew()
    elif request.verb is Verb.CHANGE:
        lease.change(str(request.proposed_id))
    else:
        lease.release()
    return _told({"etag": lease.etag, "last_modified": lease.last_modified})


def _break(blob: BlobClient, request: Request) -> Seen:
    """The SDK keeps the rest of the answer to itself."""
    return Seen(seconds=BlobLeaseClient(blob).break_lease(request.seconds))


_ACTIONS: Final[dict[Verb, Callable[[BlobClient, Request], Seen]]] = {
    **dict.fromkeys(Verb, _act_on_lease),
    Verb.PUT: _put,
    Verb.STAGE: _stage,
    Verb.COMMIT: _commit,
    Verb.DESCRIBE: _describe,
    Verb.DELETE: _delete,
    Verb.GET: _get,
    Verb.HEAD: _head,
    Verb.BREAK: _break,
}


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
