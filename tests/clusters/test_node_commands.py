"""Commands on clusters, and how nodes start and do not start."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from etagere.data_directory import NODE_ID_NAME
from tests.clusters.postgresql import PostgresServer
from tests.clusters.running import Cluster, cluster
from tests.clusters.s3 import BUCKET, S3Server
from tests.clusters.test_nodes import LONG, blobs, shares
from tests.server import PORTS, Server, environment, served, unique


@pytest.fixture(scope="module")
def nodes(
    postgresql_server: PostgresServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cluster]:
    directory = tmp_path_factory.mktemp("cluster")
    with cluster(postgresql_server, directory, 1) as running:
        yield running


# Commands


def test_the_check_finds_a_running_cluster_clean(nodes: Cluster) -> None:
    blobs(nodes.nodes[0]).create_container(unique()).upload_blob("b", LONG)
    result = nodes.command("check", "--bodies", nodes.bodies)
    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stdout.strip().endswith("clean")


def test_the_check_finds_what_is_missing(nodes: Cluster) -> None:
    blobs(nodes.nodes[0]).create_container(unique()).upload_blob("b", LONG)
    result = nodes.command("check", "--bodies", str(nodes.directory))
    assert result.returncode == 1
    assert "LOSS" in result.stdout


def test_the_clock_of_a_cluster(nodes: Cluster) -> None:
    result = nodes.command("clock")
    assert result.returncode == 0, result.stderr
    assert [line[:21] for line in result.stdout.splitlines()] == [
        "clock of this machine",
        "date of the store    ",
    ]


def test_the_status_of_a_node(nodes: Cluster) -> None:
    for node in nodes.nodes:
        result = nodes.command("status", "--data", str(node.directory))
        assert result.returncode == 0, result.stdout
        assert "file front end: pid" in result.stdout
        assert " free\n" in result.stdout
        assert "reserve" not in result.stdout
        assert "ledger " not in result.stdout


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("compact",), "autovacuum"),
        (("backup", "/tmp/nowhere"), "the tools of PostgreSQL"),
        (("restore", "/tmp/nowhere"), "the tools of PostgreSQL"),
        (("check", "--repair"), "not for clusters"),
        (("clock", "--reset"), "not for clusters"),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)
def test_commands_that_clusters_do_not_have(
    nodes: Cluster, words: tuple[str, ...], message: str
) -> None:
    result = nodes.command(*words)
    assert result.returncode == 2
    assert message in result.stderr
    assert result.stderr.count("\n") == 1


# Starting


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--engine", "postgresql://nobody:secret@127.0.0.1:1/x"), "127.0.0.1:1/x cannot be used"),
        (("--bodies", "elsewhere"), "are not in elsewhere"),
        (("--node-name", "node1"), "choose another with --node-name"),
        (("--node-address", "192.0.2.1"), "choose another with --node-address"),
    ],
    ids=["engine", "bodies", "name", "address"],
)
def test_nodes_that_cannot_start(
    nodes: Cluster, tmp_path: Path, flags: tuple[str, ...], message: str
) -> None:
    node = Server(
        tmp_path / "node", "--engine", nodes.dsn, "--bodies", nodes.bodies, "--workers", "1", *flags
    )
    with pytest.raises(RuntimeError):
        node.start()
    assert message in node.log()
    assert "secret" not in node.log()
    assert "Traceback" not in node.log()


def test_a_node_with_bodies_of_its_own_does_not_start(nodes: Cluster, tmp_path: Path) -> None:
    node = Server(tmp_path / "node", "--engine", nodes.dsn, "--workers", "1")
    with pytest.raises(RuntimeError):
        node.start()
    assert "must have the same --bodies" in node.log()


def test_a_data_directory_is_not_used_both_by_a_node_and_by_a_server_of_its_own(
    nodes: Cluster, tmp_path: Path
) -> None:
    with served(tmp_path / "own", "--workers", "1") as alone:
        assert alone.stop() == 0
    node = Server(alone.directory, "--engine", nodes.dsn, "--bodies", nodes.bodies)
    with pytest.raises(RuntimeError):
        node.start()
    assert "has a ledger of its own" in node.log()
    directory = tmp_path / "node"
    directory.mkdir()
    shutil.copy(nodes.nodes[0].directory / NODE_ID_NAME, directory)
    without = Server(directory)
    with pytest.raises(RuntimeError):
        without.start()
    assert "set --engine" in without.log()


@pytest.mark.parametrize("missing", ["psycopg", "obstore"])
def test_a_server_without_the_packages_of_clusters(
    nodes: Cluster, tmp_path: Path, missing: str
) -> None:
    program = (
        f"import sys; sys.modules[{missing!r}] = None; from etagere.cli.main import main; "
        "sys.exit(main())"
    )
    bodies = "s3://bucket/prefix"
    words = ["serve", "--engine", nodes.dsn, "--bodies", bodies, "--data", str(tmp_path / "node")]
    for service in PORTS:
        words += [f"--{service}-port", "0"]
    result = subprocess.run(
        [sys.executable, "-c", program, *words],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert result.returncode == 2
    assert f"the package {missing}: pip install 'etagere[cluster]'" in result.stderr
    assert "Traceback" not in result.stderr


def test_a_server_that_is_not_a_node_imports_no_modules_of_clusters() -> None:
    program = (
        "import sys, etagere.app, etagere.cli.serve; "
        "names = 'psycopg', 'obstore', 'etagere.node.cluster', 'etagere.engine.tasks', "
        "'etagere.cells', 'etagere.operations.account_map'; "
        "print(*[name for name in names if name in sys.modules])"
    )
    result = subprocess.run(
        [sys.executable, "-c", program],
        env=environment(),
        capture_output=True,
        text=True,
        check=True,
    )
    assert result.stdout == "\n"


def test_a_node_with_the_bodies_of_another_ledger_does_not_start(
    postgresql_database: str, nodes: Cluster, tmp_path: Path
) -> None:
    node = Cluster(tmp_path, postgresql_database, nodes.bodies).node()
    with pytest.raises(RuntimeError):
        node.start()
    assert "belong to another ledger" in node.log()


# Bodies in an object store


def test_nodes_with_bodies_in_an_object_store(
    postgresql_server: PostgresServer, s3_store: S3Server, tmp_path: Path
) -> None:
    bodies = f"s3://{BUCKET}/{unique('bodies')}"
    variables = s3_store.environment
    with cluster(postgresql_server, tmp_path, 2, bodies=bodies, variables=variables) as nodes:
        one, other = nodes.nodes
        name = unique()
        blobs(one).create_container(name).upload_blob("b", LONG)
        shares(other).create_share(name).get_file_client("f").upload_file(LONG)
        assert blobs(other).get_blob_client(name, "b").download_blob().readall() == LONG
        file = shares(one).get_share_client(name).get_file_client("f")
        assert file.download_file().readall() == LONG
        result = nodes.command("check", "--bodies", bodies)
        assert (result.returncode, result.stderr) == (0, ""), result.stdout
        (tmp_path / "more").mkdir()
        more = Cluster(tmp_path / "more", nodes.dsn, f"{bodies}-elsewhere", variables)
        wrong = more.node("--node-name", "wrong")
        with pytest.raises(RuntimeError):
            wrong.start()
        assert "must have the same --bodies" in wrong.log()
