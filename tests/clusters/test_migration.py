"""Migrations of a store between a data directory and a cluster."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import obstore
import pytest
from azure.core.exceptions import HttpResponseError
from azure.storage.blob import BlobBlock, BlobLeaseClient

from etagere.cli.main import main
from tests.clusters.inventory import LEASE_ID, ClientState, contents, fill
from tests.clusters.nodes import Node
from tests.clusters.s3 import BUCKET, S3Server
from tests.sdk.blob.clients import blob_service
from tests.sdk.queue.clients import queue_service
from tests.server import Server, check, environment, eventually, served, unique

_SECONDS_MAX = 120.0


class ClusterStore:
    """A store of a cluster: a database, and bodies in an object store or a directory."""

    def __init__(self, directory: Path, engine: str, bodies: str, s3: S3Server | None) -> None:
        self.directory = directory
        self.words = ["--engine", engine, "--bodies", bodies]
        self.engine, self.bodies = engine, bodies
        self.variables = s3.environment if s3 is not None else {}

    def command(self, *words: str | Path) -> list[str]:
        return [sys.executable, "-m", "etagere", *map(str, words), *self.words]

    def run(self, *words: str | Path, status: int = 0) -> str:
        """Runs a command on the cluster; returns its output, or its error if it fails."""
        done = subprocess.run(
            self.command(*words),
            env={**environment(), **self.variables},
            capture_output=True,
            text=True,
            timeout=_SECONDS_MAX,
            check=False,
        )
        assert done.returncode == status, done
        return done.stdout if status == 0 else done.stderr

    def node(self) -> Node:
        """Returns a node, which is not started yet."""
        return Node(self.directory / "node", self.engine, self.bodies, variables=self.variables)

    @contextlib.contextmanager
    def served(self) -> Iterator[Node]:
        """Runs a node."""
        node = self.node()
        try:
            node.start()
            yield node
        finally:
            node.kill()


@pytest.fixture
def cluster(postgresql_database: str, s3_store: S3Server, tmp_path: Path) -> ClusterStore:
    bodies = f"s3://{BUCKET}/{unique('migration')}"
    return ClusterStore(tmp_path, postgresql_database, bodies, s3_store)


@pytest.fixture
def file_cluster(postgresql_database: str, tmp_path: Path) -> ClusterStore:
    return ClusterStore(tmp_path, postgresql_database, str(tmp_path / "bodies"), None)


def filled(directory: Path, **sizes: int) -> tuple[ClientState, dict[str, Any]]:
    """Fills a store; returns what clients remember of it, and what they see in it."""
    with served(directory, "--workers", "1") as server:
        state = fill(server, **sizes)
        found = contents(server)
        server.stop()
    return state, found


def files_of(directory: Path) -> dict[str, bytes]:
    """Returns the files of a store that hold data."""
    segments = (directory / "segments").iterdir()
    return {path.name: path.read_bytes() for path in (directory / "ledger.sqlite3", *segments)}


def use_client_state(server: Server, state: ClientState) -> int:
    """Uses leases and the receipt of a message that clients had before. Returns the last ETag as a
    number."""
    leased = blob_service(server).get_blob_client("blobs", "leased")
    before = leased.get_blob_properties()
    with pytest.raises(HttpResponseError, match="LeaseIdMissing"):
        leased.upload_blob(b"x", overwrite=True)
    lease = BlobLeaseClient(leased, LEASE_ID)
    after = leased.upload_blob(os.urandom(100_000), overwrite=True, lease=lease)
    assert after["last_modified"] >= before.last_modified
    assert number_of(after["etag"]) > number_of(before.etag)
    late = blob_service(server).get_blob_client("blobs", "blocks")
    last = late.commit_block_list([BlobBlock("late")])
    queue_service(server).get_queue_client("messages").delete_message(
        state.message_id, state.pop_receipt
    )
    return number_of(str(last["etag"]))


def number_of(etag: str) -> int:
    return int(etag.strip('"'), 16)


def test_a_store_is_migrated_to_a_cluster_and_back(cluster: ClusterStore, tmp_path: Path) -> None:
    source, back = tmp_path / "source", tmp_path / "back"
    state, found = filled(source)
    before = files_of(source)
    result = json.loads(cluster.run("migrate", "--from", source, "--json"))
    assert result["migrated"]
    assert result["records"] > 300
    assert files_of(source) == before
    with cluster.served() as node:
        assert contents(node) == found
        last = use_client_state(node, state)
        found = contents(node)
        error = cluster.run("migrate", "--to", back, status=2)
        assert "node node is running; stop all nodes first" in error
        node.stop()
    assert "there is a ledger in" in cluster.run("migrate", "--from", source, status=2)
    cluster.run("migrate", "--to", back)
    assert sorted(path.name for path in back.iterdir()) == ["ledger.sqlite3", "lock", "segments"]
    with served(back, "--workers", "1") as server:
        assert contents(server) == found
        small = blob_service(server).get_blob_client("blobs", "small")
        assert number_of(small.upload_blob(b"again", overwrite=True)["etag"]) > last
        server.stop()
    assert check(back).returncode == 0


DATABASE = "postgresql://127.0.0.1:9/none"


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["--from", "missing"], "set --engine to the database of the cluster"),
        (["--from", "missing", "--engine", DATABASE], "set --bodies to where the bodies"),
        (["--engine", DATABASE, "--bodies", "b"], "one of the arguments --from --to is required"),
        (
            ["--from", "a", "--to", "b", "--engine", DATABASE, "--bodies", "b"],
            "argument --to: not allowed with argument --from",
        ),
        (["--from", "missing", "--engine", DATABASE, "--bodies", "b"], "there is no directory"),
        (["--to", "new", "--engine", DATABASE, "--bodies", "ftp://b"], "must be a directory, s3:"),
    ],
)
def test_wrong_arguments_change_nothing(
    words: list[str],
    error: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ETAGERE_ENGINE", raising=False)
    assert main(["migrate", *words]) == 2
    assert error in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.long
def test_a_store_is_migrated_to_bodies_in_a_directory_and_back(
    file_cluster: ClusterStore, tmp_path: Path
) -> None:
    source, back = tmp_path / "source", tmp_path / "back"
    state, found = filled(source)
    assert "segments" in file_cluster.run("migrate", "--from", source)
    assert "clean" in file_cluster.run("check")
    with file_cluster.served() as node:
        assert contents(node) == found
        use_client_state(node, state)
        found = contents(node)
        node.stop()
    file_cluster.run("migrate", "--to", back)
    assert check(back).returncode == 0
    with served(back, "--workers", "1") as server:
        assert contents(server) == found


def kill_when(
    cluster: ClusterStore, words: list[str | Path], has_begun: Callable[[], bool]
) -> None:
    """Runs a command, and kills it when it has begun to copy bodies."""
    variables = {**environment(), **cluster.variables}
    process = subprocess.Popen(cluster.command(*words), env=variables)
    try:
        eventually(has_begun, "the migration to begin", _SECONDS_MAX)
    finally:
        process.kill()
        assert process.wait(_SECONDS_MAX) == -signal.SIGKILL


@pytest.mark.long
def test_an_interrupted_migration_starts_over(
    cluster: ClusterStore, s3_store: S3Server, tmp_path: Path
) -> None:
    source, back = tmp_path / "source", tmp_path / "back"
    state, found = filled(source, long_bytes=4 << 20, bodies=60)
    objects = s3_store.store(cluster.bodies.partition(f"s3://{BUCKET}/")[2])

    def has_objects() -> bool:
        return any(batch for batch in obstore.list(objects, "segments"))

    kill_when(cluster, ["migrate", "--from", source], has_objects)
    node = cluster.node()
    with pytest.raises(RuntimeError):
        node.start()
    assert "is incomplete: a migration is running or was interrupted" in node.log()
    assert "is incomplete" in cluster.run("check", status=2)
    elsewhere = ClusterStore(tmp_path, cluster.engine, str(tmp_path / "elsewhere"), s3_store)
    assert "run it again with the same --bodies" in elsewhere.run(
        "migrate", "--from", source, status=2
    )
    cluster.run("migrate", "--from", source)
    assert "clean" in cluster.run("check")
    with cluster.served() as node:
        assert contents(node) == found
        node.stop()

    kill_when(
        cluster,
        ["migrate", "--to", back],
        lambda: any((back / "migrate.partial").glob("segments/*.seg")),
    )
    server = Server(back, "--workers", "1")
    with pytest.raises(RuntimeError):
        server.start()
    assert "is not a store: a migration was interrupted" in server.log()
    eventually(lambda: _succeeds(cluster, "migrate", "--to", back), "the nodes to be gone")
    assert check(back).returncode == 0
    with served(back, "--workers", "1") as server:
        assert contents(server) == found
        use_client_state(server, state)


def _succeeds(cluster: ClusterStore, *words: str | Path) -> bool:
    command = cluster.command(*words)
    variables = {**environment(), **cluster.variables}
    return subprocess.run(command, env=variables, timeout=_SECONDS_MAX, check=False).returncode == 0


@pytest.mark.long
def test_refusals_leave_everything_as_it_was(cluster: ClusterStore, tmp_path: Path) -> None:
    source = tmp_path / "source"
    with served(source, "--workers", "1") as server:
        fill(server)
        error = cluster.run("migrate", "--from", source, status=2)
        assert "is in use by another etagere process" in error
        server.stop()
    before = files_of(source)

    unreachable = ClusterStore(tmp_path, cluster.engine, cluster.bodies, None)
    unreachable.variables = {**cluster.variables, "AWS_ENDPOINT_URL": "http://127.0.0.1:9"}
    error = unreachable.run("migrate", "--from", source, status=2)
    assert f"{cluster.bodies} cannot be used" in error
    assert "Traceback" not in error
    nowhere = ClusterStore(tmp_path, "postgresql://127.0.0.1:9/none", cluster.bodies, None)
    nowhere.variables = cluster.variables
    assert "Traceback" not in nowhere.run("migrate", "--from", source, status=2)

    longest = max((source / "segments").iterdir(), key=lambda path: path.stat().st_size)
    intact = longest.read_bytes()
    longest.write_bytes(bytes(byte ^ 1 for byte in intact))
    error = cluster.run("migrate", "--from", source, status=1)
    assert "are damaged or missing, and nothing was migrated" in error
    assert "is incomplete" in cluster.run("check", status=2)
    longest.write_bytes(intact)

    cluster.run("migrate", "--from", source)
    assert files_of(source) == before
    full = tmp_path / "full"
    full.mkdir()
    (full / "something").touch()
    assert "is not empty" in cluster.run("migrate", "--to", full, status=2)
    back = tmp_path / "back"
    limited = ["prlimit", f"--fsize={1 << 20}", *cluster.command("migrate", "--to", back)]
    done = subprocess.run(
        limited,
        env={**environment(), **cluster.variables},
        capture_output=True,
        text=True,
        timeout=_SECONDS_MAX,
        check=False,
    )
    assert done.returncode == 2, done
    assert done.stderr.startswith(f"etagere: {back}/migrate.partial/segments/")
    assert "File too large" in done.stderr
    assert not (back / "ledger.sqlite3").exists()
    cluster.run("migrate", "--to", back)
    assert check(back).returncode == 0
