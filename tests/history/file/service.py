"""The file service, as live runs and the command line need it."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar, Final

from azure.storage.fileshare import (
    ShareClient,
    ShareFileClient,
    ShareLeaseClient,
    ShareServiceClient,
)

from tests.history.events import Refused, Unknown
from tests.history.file.checker import Finding, check_history
from tests.history.file.contents import content_of, token_in
from tests.history.file.events import (
    LEASE_ACTIONS,
    LOG,
    OVER_SMB,
    ROOT,
    Done,
    FileSeen,
    History,
    Operation,
    Request,
    Verb,
)
from tests.history.file.smb import SmbConnection
from tests.history.file.workloads import WORKLOADS, FileChooser
from tests.history.service import (
    ANSWER_SECONDS_MAX,
    Clients,
    HistoryService,
    Listening,
    SdkConnection,
    credential,
)
from tests.server import ACCOUNT, Server

METADATA_NAME: Final = "token"
SNAPSHOTS_READ_MAX: Final = 10
"""How many of the last snapshots are read in the end."""
_LEASES: Final = uuid.UUID("8e4dbb6d-6a4b-4f0c-9a52-2b1d9bd0f6c1")


def _lease_id(token: str) -> str | None:
    return str(uuid.uuid5(_LEASES, token)) if token else None


# The verbs as calls of the SDK


def _create(file: ShareFileClient, request: Request) -> Done:
    length = WORKLOADS[request.share].file_bytes
    metadata = {METADATA_NAME: request.token}
    answer = file.create_file(length, metadata=metadata, lease=_lease_id(request.lease))
    return Done(answer["etag"])


def _put(file: ShareFileClient, request: Request) -> Done:
    content = content_of(request.token, WORKLOADS[request.share].file_bytes)
    answer = file.upload_range(content, 0, len(content), lease=_lease_id(request.lease))
    return Done(answer["etag"])


def _clear(file: ShareFileClient, request: Request) -> Done:
    length = WORKLOADS[request.share].file_bytes
    return Done(file.clear_range(0, length, lease=_lease_id(request.lease))["etag"])


def _set_metadata(file: ShareFileClient, request: Request) -> Done:
    metadata = {METADATA_NAME: request.token}
    return Done(file.set_file_metadata(metadata, lease=_lease_id(request.lease))["etag"])


def _get(file: ShareFileClient, request: Request) -> Done:
    del request
    found = file.download_file()
    content = token_in(found.readall())
    metadata: str = found.properties.metadata[METADATA_NAME]
    return Done(found.properties.etag, FileSeen(content, metadata))


def _delete(file: ShareFileClient, request: Request) -> Done:
    file.delete_file(lease=_lease_id(request.lease))
    return Done()


def _rename(file: ShareFileClient, request: Request) -> Done:
    file.rename_file(
        request.target,
        overwrite=request.replace,
        source_lease=_lease_id(request.lease),
        destination_lease=_lease_id(request.target_lease),
    )
    return Done()


def _act_on_lease(file: ShareFileClient, request: Request) -> Done:
    proposed = _lease_id(request.token)
    if request.verb is Verb.ACQUIRE:
        file.acquire_lease(proposed)
        return Done()
    lease = ShareLeaseClient(file, _lease_id(request.lease))
    if request.verb is Verb.CHANGE:
        assert proposed is not None
        lease.change(proposed)
    elif request.verb is Verb.RELEASE:
        lease.release()
    else:
        lease.break_lease()
    return Done()


_OF_FILES: Final[dict[Verb, Callable[[ShareFileClient, Request], Done]]] = {
    Verb.CREATE: _create,
    Verb.PUT: _put,
    Verb.CLEAR: _clear,
    Verb.SET_METADATA: _set_metadata,
    Verb.GET: _get,
    Verb.DELETE: _delete,
    Verb.RENAME: _rename,
    **dict.fromkeys(LEASE_ACTIONS, _act_on_lease),
}


def _list(share: ShareClient, request: Request) -> Done:
    pages = share.get_directory_client(request.path).list_directories_and_files().by_page()
    # One page is one request. The SDK puts the directories first.
    return Done(names=tuple(sorted(each.name for each in next(pages, ()))))


def _create_directory(share: ShareClient, request: Request) -> Done:
    share.get_directory_client(request.path).create_directory()
    return Done()


def _delete_directory(share: ShareClient, request: Request) -> Done:
    share.get_directory_client(request.path).delete_directory()
    return Done()


def _rename_directory(share: ShareClient, request: Request) -> Done:
    share.get_directory_client(request.path).rename_directory(request.target)
    return Done()


def _snapshot(share: ShareClient, request: Request) -> Done:
    del request
    return Done(snapshot=share.create_snapshot()["snapshot"])


def _delete_snapshot(share: ShareClient, request: Request) -> Done:
    del request
    share.delete_share()
    return Done()


_OF_SHARES: Final[dict[Verb, Callable[[ShareClient, Request], Done]]] = {
    Verb.LIST: _list,
    Verb.CREATE_DIRECTORY: _create_directory,
    Verb.DELETE_DIRECTORY: _delete_directory,
    Verb.RENAME_DIRECTORY: _rename_directory,
    Verb.SNAPSHOT: _snapshot,
    Verb.DELETE_SNAPSHOT: _delete_snapshot,
}


def rest_url(address: str) -> str:
    """Returns the URL in the address of a server, which also has that for SMB clients."""
    return address.partition(" ")[0]


class FileConnection(SdkConnection):
    """A client of the file service, by REST and by SMB."""

    def __init__(self, address: Path) -> None:
        super().__init__(address)
        self._smb = SmbConnection(address)

    def ask(self, request: Request) -> Done | Refused | Unknown | None:
        if request.verb in OVER_SMB:
            return self._smb.ask(request)
        outcome: Done | Refused | Unknown | None = super().ask(request)
        return outcome

    def close(self) -> None:
        self._smb.close()
        super().close()

    def connect(self, url: str) -> ShareServiceClient:
        return ShareServiceClient(
            rest_url(url),
            credential(rest_url(url)),
            retry_total=0,
            connection_timeout=ANSWER_SECONDS_MAX,
            read_timeout=ANSWER_SECONDS_MAX,
        )

    def execute(self, client: Any, request: Request) -> Done:
        share = client.get_share_client(request.share, request.snapshot or None)
        if request.verb in _OF_SHARES:
            return _OF_SHARES[request.verb](share, request)
        return _OF_FILES[request.verb](share.get_file_client(request.path), request)


class FileHistoryService(HistoryService[Operation]):
    """Clients that change one share for each workload; some are killed."""

    name: ClassVar[str] = "file"
    log = LOG
    clients = Clients(permanent=4, replaced=1)
    workloads = tuple(WORKLOADS)

    def processes(self, server: Server) -> list[int]:
        """Returns the writer and the front end; those of the other services do not matter here."""
        running = server.children()
        found = [server.pid_of("writer"), server.pid_of("file front end")]
        return [pid for pid in found if pid in running] or running

    def forgets(self, server: Server, pid: int) -> bool:
        return pid == server.pid_of("file front end")

    def url(self, server: Listening, account: str = ACCOUNT) -> str:
        return f"{super().url(server, account)} {server.endpoints['smb']}"

    def create_resource(self, url: str) -> None:
        with ShareServiceClient(rest_url(url), credential(rest_url(url))) as service:
            for share in WORKLOADS:
                service.create_share(share)

    def connect(self, address: Path) -> FileConnection:
        return FileConnection(address)

    def chooser(self, seed: int, client: int, workloads: Sequence[str]) -> FileChooser:
        return FileChooser(seed, client, {name: WORKLOADS[name] for name in workloads})

    def final_operations(
        self, address: Path, workloads: Sequence[str], operations: Sequence[Operation]
    ) -> list[Operation]:
        requests = [each for share in workloads for each in _reads_of(share)]
        for share, snapshot in _last_snapshots(operations):
            requests += _reads_of(share, snapshot)
        connection = self.connect(address)
        found = [self.perform(connection, -1, request) for request in requests]
        connection.close()
        return found

    def check(self, history: History) -> list[Finding]:
        return check_history(history)


def _reads_of(share: str, snapshot: str = "") -> list[Request]:
    """Returns requests that show everything in a share."""
    workload = WORKLOADS[share]
    lists = (
        Request(Verb.LIST, share, path, snapshot=snapshot) for path in (ROOT, *workload.directories)
    )
    reads = (Request(Verb.GET, share, path, snapshot=snapshot) for path in workload.files)
    return [*lists, *reads]


def _last_snapshots(operations: Sequence[Operation]) -> list[tuple[str, str]]:
    taken = [
        (each.request.share, each.outcome.snapshot)
        for each in sorted(operations, key=lambda each: each.ended)
        if isinstance(each.outcome, Done) and each.outcome.snapshot
    ]
    return taken[-SNAPSHOTS_READ_MAX:]


SERVICE: Final = FileHistoryService()
