"""`etagere node`: the nodes of a cluster, as an operator sees and changes them."""

from __future__ import annotations

import json
import os

import psycopg
import pytest

from etagere.cli.main import main
from etagere.coordination.postgres import NodeRegistry, PostgresCoordinator
from etagere.engine.postgres import connecting, schema
from etagere.engine.postgres.connecting import Database
from etagere.postgresql import SCHEMA

ADDRESSES = {"blob": "10.0.0.1:10000", "file": "10.0.0.1:10004"}


def test_nodes_are_listed_drained_and_resumed(
    postgresql_database: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(*words: str) -> str:
        assert main(["node", *words]) == 0
        return capsys.readouterr().out

    def listed() -> list[dict[str, object]]:
        nodes: list[dict[str, object]] = json.loads(run("list", "--json"))["nodes"]
        return nodes

    monkeypatch.setenv("ETAGERE_ENGINE", postgresql_database)
    with connecting.connect_writer(Database(postgresql_database)) as connection:
        schema.create(connection, SCHEMA)
    assert run("list") == "no node has been started\n"
    registry = NodeRegistry(postgresql_database)
    registry.register("node-1", b"1", ADDRESSES, "1.2.3")
    registry.register("node-2", b"2", {}, "1.2.3")
    coordinator = PostgresCoordinator(postgresql_database, node="node-1")
    heading, first, second = run("list").splitlines()
    assert heading.split() == ["NODE", "STATE", "VERSION", "SEEN", "FILES", "ADDRESSES"]
    assert first.split()[:3] == ["node-1", "serving", "1.2.3"]
    assert first.endswith("s ago  -      blob=10.0.0.1:10000 file=10.0.0.1:10004")
    assert second.split()[:3] == ["node-2", "gone", "1.2.3"]
    assert run("drain", "node-1") == ""
    assert [node["state"] for node in listed()] == ["draining", "gone"]
    assert listed()[0]["addresses"] == ADDRESSES
    run("resume", "node-1")
    run("forget", "node-2")
    assert [(node["name"], node["state"]) for node in listed()] == [("node-1", "serving")]
    assert main(["node", "forget", "node-1"]) == 2
    assert "node node-1 is running" in capsys.readouterr().err
    assert main(["node", "drain", "node-9"]) == 2
    assert "there is no node named node-9" in capsys.readouterr().err
    coordinator.close()


@pytest.mark.parametrize("words", [["list"], ["list", "--json"], ["drain", "a"], ["forget", "a"]])
def test_a_database_without_a_ledger_is_not_changed(
    postgresql_database: str, capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    assert main(["node", *words, "--engine", postgresql_database]) == 2
    assert "there is no ledger in postgresql://" in capsys.readouterr().err
    with psycopg.connect(postgresql_database) as connection:
        found = connection.execute("SELECT FROM pg_namespace WHERE nspname = %s", (SCHEMA,))
        assert found.fetchone() is None


def test_the_database_is_needed(capsys: pytest.CaptureFixture[str]) -> None:
    assert "ETAGERE_ENGINE" not in os.environ
    assert main(["node", "list"]) == 2
    assert capsys.readouterr().err == "etagere: set --engine to the database of the cluster\n"
    assert main(["node", "list", "--engine", "postgresql://me:hunter2@127.0.0.1:1/x"]) == 2
    error = capsys.readouterr().err
    assert error.startswith("etagere: postgresql://127.0.0.1:1/x cannot be used: ")
    assert "hunter2" not in error and error.count("\n") == 1
