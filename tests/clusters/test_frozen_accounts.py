"""An account that is frozen under load, on two nodes: what was acknowledged is stored, and what is
written later is refused."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Mapping

import pytest
from azure.core.exceptions import HttpResponseError
from azure.data.tables import TableServiceClient
from azure.storage.blob import BlobServiceClient
from azure.storage.fileshare import ShareServiceClient
from azure.storage.queue import QueueServiceClient
from smbprotocol.exceptions import SMBResponseException

from etagere.bodies import contents, maps
from etagere.coordination.postgres import PostgresCoordinator
from etagere.engine import tasks
from etagere.engine.account_moves import ACCOUNT_MOVES
from etagere.engine.postgres.connecting import Database
from etagere.engine.postgres.copying import open_snapshot
from etagere.engine.postgres.running_transactions import wait_for_running_transactions
from etagere.engine.records import COLLECTIONS, Collection
from etagere.jobs.moves import task_of
from etagere.model.cells import BeginMove, CancelMove, MoveState
from etagere.nt_status import NtStatus
from etagere.operations import all_collections
from etagere.operations.account_moves import begin_move, cancel_move
from tests.clusters.postgresql import PostgresServer, temporary_database
from tests.clusters.running import Cluster
from tests.engine.postgres.writers import TestWriter
from tests.server import KEY, Server, eventually, unique
from tests.smb.client import DELETE_ON_CLOSE, OVERWRITE_IF, SmbClient, refused

SECONDS_MAX = 20.0
LOAD_SECONDS = 2.0
WRITES_MIN = 10
MOVE = b"m" * 16
SMB_BYTES = 1_000
CONTAINER = "frozen"
# Uploads write bodies before they are refused, and jobs delete those.
NOT_COMPARED = {
    value
    for module in (contents, maps, tasks)
    for value in vars(module).values()
    if isinstance(value, Collection)
}
assert all_collections.DECLARED_IN


class FreezableCluster:
    """Nodes that expect other cells, and their ledger."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.nodes = cluster.nodes
        self.database = Database(cluster.dsn)
        self.writer = TestWriter(cluster.dsn, self.database.schema)
        self._coordinator = PostgresCoordinator(cluster.dsn, name="test")
        self._loop = asyncio.Runner()
        self._tasks = contextlib.AsyncExitStack()

    def add_account(self) -> str:
        name = unique("a").replace("-", "")
        done = self.cluster.command("account", "add", name, "--key", KEY)
        assert done.returncode == 0, done.stderr
        return name

    def close(self) -> None:
        self._loop.run(self._tasks.aclose())
        self._loop.close()
        self._coordinator.close()
        self.writer.close()

    def freeze(self, account: str) -> None:
        # Without a command that has this task, the nodes would cancel the move.
        lock = self._coordinator.sole_worker(task_of(account))
        assert self._loop.run(self._tasks.enter_async_context(lock)) is not None
        self.writer.write(begin_move, BeginMove(account, "west", MOVE))
        eventually(lambda: self.state_of(account) is MoveState.FROZEN, "the freeze", SECONDS_MAX)
        wait_for_running_transactions(self.database, SECONDS_MAX)

    def state_of(self, account: str) -> MoveState | None:
        with open_snapshot(self.database) as snapshot:
            moves = {key: ACCOUNT_MOVES.decode(row) for key, row in snapshot.rows(ACCOUNT_MOVES)}
        move = moves.get(ACCOUNT_MOVES.pack((account,)))
        return None if move is None else move.state

    def cancel(self, account: str) -> None:
        assert self.writer.write(cancel_move, CancelMove(account, MOVE))

    def records(self) -> Mapping[str, list[tuple[bytes, bytes]]]:
        with open_snapshot(self.database) as snapshot:
            compared = [one for one in COLLECTIONS.values() if one not in NOT_COMPARED]
            return {one.name: list(snapshot.rows(one)) for one in compared}


@pytest.fixture(scope="module")
def running(
    postgresql_server: PostgresServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[FreezableCluster]:
    directory = tmp_path_factory.mktemp("cell")
    with temporary_database(postgresql_server) as dsn:
        variables = {"ETAGERE_ACCOUNT_MAP": dsn, "ETAGERE_CELL": "east"}
        cluster = Cluster(directory, dsn, str(directory / "bodies"), variables)
        with contextlib.ExitStack() as held:
            held.callback(cluster.kill)
            for _ in range(2):
                cluster.node().start()
            made = FreezableCluster(cluster)
            held.callback(made.close)
            yield made
            for node in cluster.nodes:
                assert "Traceback" not in node.log()


class Clients:
    """The clients of one node that use an account, and do not retry."""

    def __init__(self, node: Server, account: str) -> None:
        def connection_string(service: str) -> str:
            return (
                f"DefaultEndpointsProtocol=http;AccountName={account};AccountKey={KEY};"
                f"{service.title()}Endpoint={node.url(service, account)}"
            )

        self.node, self.account = node, account
        blobs = BlobServiceClient.from_connection_string(connection_string("blob"), retry_total=0)
        queues = QueueServiceClient.from_connection_string(
            connection_string("queue"), retry_total=0
        )
        tables = TableServiceClient.from_connection_string(
            connection_string("table"), retry_total=0
        )
        shares = ShareServiceClient.from_connection_string(connection_string("file"), retry_total=0)
        self.container = blobs.get_container_client(CONTAINER)
        self.queue = queues.get_queue_client(CONTAINER)
        self.table = tables.get_table_client(CONTAINER)
        self.share = shares.get_share_client(CONTAINER)

    def create(self) -> None:
        self.container.create_container()
        self.queue.create_queue()
        self.table.create_table()
        self.share.create_share()

    def rest_writes(self) -> dict[str, Callable[[str], object]]:
        """Returns a write of each service, which stores a name."""
        return {
            "blob": lambda name: self.container.upload_blob(name, name.encode() * 1_000),
            "queue": self.queue.send_message,
            "table": lambda name: self.table.create_entity({"PartitionKey": "", "RowKey": name}),
            "file": lambda name: self.share.get_file_client(name).create_file(0),
        }

    def stored(self) -> dict[str, set[str]]:
        """Returns what those have stored. Messages are counted, since to get them is a write."""
        files = [one["name"] for one in self.share.list_directories_and_files()]
        count = self.queue.get_queue_properties().approximate_message_count or 0
        return {
            "blob": set(self.container.list_blob_names()),
            "queue": {str(number) for number in range(count)},
            "table": {entity["RowKey"] for entity in self.table.list_entities()},
            "file": {name for name in files if not name.startswith("smb")},
        }

    @contextlib.contextmanager
    def smb(self) -> Iterator[SmbClient]:
        client = SmbClient(self.node, CONTAINER, account=self.account)
        try:
            yield client
        finally:
            # Without a logoff: the session may have been ended.
            client.connection.disconnect(close=False)


class Load(threading.Thread):
    """Writes that follow each other until it is stopped."""

    def __init__(self, service: str, prefix: str, write: Callable[[str], object]) -> None:
        super().__init__(name=f"{service} {prefix}")
        self.service = service
        self.acknowledged: list[str] = []
        self.refused: list[int | None] = []
        self.failure: BaseException | None = None
        self._prefix = prefix
        self._write = write
        self._stopping = threading.Event()

    def run(self) -> None:
        try:
            for number in range(1_000_000):
                if self._stopping.is_set():
                    return
                self._write_once(f"{self._prefix}{number}")
        except BaseException as error:
            self.failure = error

    def _write_once(self, name: str) -> None:
        try:
            self._write(name)
        except HttpResponseError as error:
            self.refused.append(error.status_code)
            time.sleep(0.01)
        else:
            self.acknowledged.append(name)

    def stop(self) -> None:
        self._stopping.set()
        self.join(SECONDS_MAX)
        assert not self.is_alive()
        if self.failure is not None:
            raise self.failure


class SmbLoad(Load):
    """Appends to a file over SMB, without a flush, until its session ends."""

    def __init__(self, clients: Clients, prefix: str) -> None:
        super().__init__("smb", prefix, lambda _: None)
        self._clients = clients
        self.file = f"smb{prefix}"
        self.status: int | None = None

    def run(self) -> None:
        try:
            with self._clients.smb() as client:
                opened = client.open(self.file, disposition=OVERWRITE_IF)
                while not self._stopping.is_set():
                    opened.write(bytes(SMB_BYTES), len(self.acknowledged) * SMB_BYTES)
                    self.acknowledged.append(self.file)
        except SMBResponseException as error:
            self.status = error.status
        except BaseException as error:
            self.failure = error


def start_loads(clients: list[Clients]) -> list[Load]:
    loads: list[Load] = []
    for number, one in enumerate(clients):
        prefix = f"n{number}x"
        loads += [Load(service, prefix, write) for service, write in one.rest_writes().items()]
        loads.append(SmbLoad(one, prefix))
    for load in loads:
        load.start()
    return loads


@pytest.mark.long
def test_nothing_is_written_to_a_frozen_account(running: FreezableCluster) -> None:
    account = running.add_account()
    clients = [Clients(node, account) for node in running.nodes]
    clients[0].create()
    loads = start_loads(clients)
    try:
        eventually(
            lambda: all(len(load.acknowledged) >= WRITES_MIN for load in loads), "writes", 60.0
        )
        running.freeze(account)
        refused_before = [len(load.refused) for load in loads]
        before = running.records()
        time.sleep(LOAD_SECONDS)
        # Nothing has changed, though clients kept trying.
        assert running.records() == before
        for load, count in zip(loads, refused_before, strict=True):
            assert isinstance(load, SmbLoad) or len(load.refused) > count, load.name
        # The account can be read on both nodes, and has everything that was acknowledged.
        for one in clients:
            stored = one.stored()
            for service in stored:
                written = {
                    name for load in loads if load.service == service for name in load.acknowledged
                }
                if service == "queue":
                    assert len(stored[service]) == len(written)
                else:
                    assert stored[service] == written, service
            for load in loads:
                if isinstance(load, SmbLoad):
                    length = one.share.get_file_client(load.file).get_file_properties().size
                    assert length >= len(load.acknowledged) * SMB_BYTES
    finally:
        for load in loads:
            load.stop()
    for load in loads:
        assert set(load.refused) <= {503}, load.name
        if isinstance(load, SmbLoad):
            assert load.status == NtStatus.USER_SESSION_DELETED


def test_smb_sessions_end_before_an_account_is_frozen(running: FreezableCluster) -> None:
    account, other_account = running.add_account(), running.add_account()
    clients = [Clients(node, account) for node in running.nodes]
    others = Clients(running.nodes[0], other_account)
    clients[0].create()
    others.create()
    data = b"written" * 1_000
    with clients[0].smb() as one, clients[1].smb() as two, others.smb() as other:
        written = one.open("written", disposition=OVERWRITE_IF)
        written.write(data)
        deleted = two.open("deleted", disposition=OVERWRITE_IF, options=DELETE_ON_CLOSE)
        kept = other.open("kept", disposition=OVERWRITE_IF)
        running.freeze(account)
        for ended in (written, deleted):
            with refused(NtStatus.USER_SESSION_DELETED):
                ended.write(b"late")
        for client in clients:
            with refused(NtStatus.SERVER_UNAVAILABLE), client.smb():
                pass
        kept.write(b"kept")
        kept.close()
    for client in clients:
        assert client.share.get_file_client("written").download_file().readall() == data
        names = [entry["name"] for entry in client.share.list_directories_and_files()]
        assert names == ["written"]
        for service, write in client.rest_writes().items():
            with pytest.raises(HttpResponseError) as failure:
                write("late")
            assert failure.value.status_code == 503, service
    running.cancel(account)
    for number, client in enumerate(clients):
        for write in client.rest_writes().values():
            write(f"after{number}")

    def logs_on() -> bool:
        try:
            with clients[0].smb() as again:
                return again.read_file("written") == data
        except SMBResponseException as error:
            assert error.status == NtStatus.SERVER_UNAVAILABLE
            return False

    eventually(logs_on, "new SMB sessions", SECONDS_MAX)
