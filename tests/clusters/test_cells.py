"""Nodes of several cells: how they join, and what the account map knows of them."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from etagere.cli.main import main
from etagere.model.accounts import AddAccount, RemoveAccount
from etagere.model.cells import CellMembership, CellNode, RegisterCellNode, SetAccountCell
from etagere.node.cluster_ledger import ClusterLedger
from etagere.operations.account_map import (
    get_cell_membership,
    list_cell_nodes,
    list_cells,
    register_cell_node,
    set_account_cell,
)
from etagere.operations.accounts import add_account, remove_account
from etagere.settings.addresses import DatabaseAddress
from tests.clusters.cells import Cell, stopped_cells, two_cells
from tests.clusters.ports import free_ports
from tests.clusters.postgresql import PostgresServer
from tests.clusters.running import Cluster
from tests.server import SERVICES, Server, eventually

GIVEN_PORTS = [word for service in SERVICES for word in (f"--{service}-port", "1")]


@pytest.fixture(scope="module")
def cells(
    postgresql_server: PostgresServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Cell, Cell]]:
    with two_cells(postgresql_server, tmp_path_factory.mktemp("cells")) as running:
        yield running


class Done(NamedTuple):
    """The result of a command."""

    status: int
    output: str
    errors: str


Command = Callable[..., Done]


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """Runs a command with the settings of a cell, in this process."""

    def run(cell: Cluster, *words: str) -> Done:
        for name in ("ETAGERE_ACCOUNT_MAP", "ETAGERE_CELL"):
            monkeypatch.delenv(name, raising=False)
        for name, value in {**cell.variables, "ETAGERE_ENGINE": cell.dsn}.items():
            monkeypatch.setenv(name, value)
        capsys.readouterr()
        return Done(main(list(words)), *capsys.readouterr())

    return run


def nodes_in_map(one: Cell, cell: str) -> list[str]:
    with ClusterLedger(DatabaseAddress(one.account_map)) as ledger:
        return [entry.name for entry in ledger.read(list_cell_nodes, cell)]


def membership(cell: Cell) -> CellMembership:
    with ClusterLedger(DatabaseAddress(cell.dsn)) as ledger:
        found = ledger.read(get_cell_membership, None)
    assert found is not None
    return found


def refusal_to_start(node: Server) -> str:
    """Returns the last line of the log of a node that does not start."""
    with pytest.raises(RuntimeError):
        node.start()
    assert "Traceback" not in node.log()
    return node.log().splitlines()[-1]


def test_nodes_of_all_cells_share_a_secret_that_is_not_logged(cells: tuple[Cell, Cell]) -> None:
    one, two = cells
    assert nodes_in_map(one, "one") == ["one-1"]
    assert nodes_in_map(one, "two") == ["two-1"]
    secret = membership(one).secret
    assert len(secret) == 32
    assert membership(two) == CellMembership("two", secret)
    shown = [repr(membership(two)), *(cell.nodes[0].log() for cell in cells)]
    for text in (secret.hex(), base64.b64encode(secret).decode(), repr(secret)):
        assert not any(text in line for line in shown)


def test_a_drained_node_is_not_in_the_map(cells: tuple[Cell, Cell]) -> None:
    one, two = cells
    assert two.command("node", "drain", "two-1").returncode == 0
    eventually(lambda: nodes_in_map(one, "two") == [], "the node to leave the map")
    assert two.command("node", "resume", "two-1").returncode == 0
    eventually(lambda: nodes_in_map(one, "two") == ["two-1"], "the node to return to the map")


def test_a_cell_has_one_ledger_and_a_ledger_one_cell(
    cells: tuple[Cell, Cell], postgresql_server: PostgresServer, tmp_path: Path
) -> None:
    one, two = cells
    with stopped_cells(postgresql_server, tmp_path, "two") as (other,):
        other.variables["ETAGERE_ACCOUNT_MAP"] = one.account_map
        line = refusal_to_start(other.node())
        assert "cell two has another ledger than postgresql://" in line
    renamed = Cell("three", tmp_path / "three", two.dsn, one.account_map)
    renamed.directory.mkdir()
    renamed.bodies = two.bodies
    line = refusal_to_start(renamed.node())
    assert "is that of cell two, not of three" in line
    (tmp_path / "plain").mkdir()
    plain = Cluster(tmp_path / "plain", two.dsn, two.bodies)
    line = refusal_to_start(plain.node())
    assert "is that of cell two: set --account-map and --cell" in line
    line = refusal_to_start(two.node("--cell-address", "0.0.0.0:0"))
    assert "--cell-address: 0.0.0.0 is not an address that other nodes reach" in line
    assert nodes_in_map(one, "two") == ["two-1"]
    assert nodes_in_map(one, "three") == []


def test_a_map_that_does_not_answer(
    cells: tuple[Cell, Cell],
    postgresql_server: PostgresServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A cell that has joined can start without the map, a new one cannot."""
    _, two = cells
    (port,) = free_ports(1)
    nowhere = f"postgresql://me:hidden@127.0.0.1:{port}/map"
    with stopped_cells(postgresql_server, tmp_path, "three") as (new,):
        new.variables["ETAGERE_ACCOUNT_MAP"] = nowhere
        line = refusal_to_start(new.node())
        assert f"the account map in postgresql://127.0.0.1:{port}/map cannot be used" in line
        assert "hidden" not in line
    monkeypatch.setitem(two.variables, "ETAGERE_ACCOUNT_MAP", nowhere)
    node = two.node()
    node.start()
    assert "hidden" not in node.log_with("the node is not in the account map yet")
    assert node.stop() == 0


def test_a_node_that_stops_leaves_the_map(cells: tuple[Cell, Cell]) -> None:
    one, _ = cells
    node = one.node()
    node.start()
    assert nodes_in_map(one, "one") == ["one-1", "one-2"]
    assert node.stop() == 0
    if "still in the account map" in node.log():
        # It does not wait for long for a database that is slow to answer.
        assert one.command("node", "forget", "one-2").returncode == 0
    assert nodes_in_map(one, "one") == ["one-1"]


def test_a_cluster_becomes_a_cell(
    postgresql_server: PostgresServer, tmp_path: Path, command: Command
) -> None:
    with stopped_cells(postgresql_server, tmp_path, "cell") as (cell,):
        plain = Cluster(cell.directory, cell.dsn, cell.bodies)
        assert command(plain, "account", "add", "mine").status == 0
        node = plain.node()
        node.start()
        assert node.stop() == 0
        result = command(cell, "account", "add", "yours")
        assert "is not a cell yet: start a node with --cell first" in result.errors
        cell.node().start()
        expected = ["ACCOUNT  CELL", "mine     cell"]
        eventually(
            lambda: command(cell, "cell", "accounts").output.splitlines() == expected,
            "the account to be in the map",
        )


# Commands


def test_account_names_are_unique_among_cells(cells: tuple[Cell, Cell], command: Command) -> None:
    one, two = cells
    assert command(two, "account", "add", "mine").output == "account mine added\n"
    for words in (("account", "add"), ("account", "rotate"), ("account", "remove")):
        result = command(one, *words, "mine")
        assert result.status == 2
        assert result.errors.endswith(
            "account mine is in cell two: use the settings of that cell\n"
        )
    result = command(one, "connection-string", "--account", "mine", *GIVEN_PORTS)
    assert "account mine is in cell two" in result.errors
    assert command(one, "cell", "accounts").output.splitlines()[1:] == ["mine     two"]
    listed = command(two, "account", "list").output
    assert listed.splitlines()[-1].startswith("mine")
    assert "moving" not in listed
    assert command(two, "account", "remove", "mine").output == "account mine removed\n"
    result = command(two, "account", "remove", "mine")
    assert result.errors.endswith("account mine does not exist\n")
    assert command(one, "account", "add", "mine").status == 0
    assert command(one, "account", "remove", "mine").status == 0


def test_interrupted_commands_can_be_run_again(cells: tuple[Cell, Cell], command: Command) -> None:
    """The map is changed first when an account is added, and last when it is removed."""
    one, two = cells
    claim = SetAccountCell("half", "two")
    with ClusterLedger(DatabaseAddress(one.account_map)) as ledger:
        ledger.write(set_account_cell, claim)
    assert "account half is in cell two" in command(one, "account", "add", "half").errors
    assert command(two, "account", "add", "half").status == 0
    with ClusterLedger(DatabaseAddress(two.dsn)) as ledger:
        ledger.write(remove_account, RemoveAccount("half"))
    assert command(two, "account", "remove", "half").status == 0
    assert command(one, "cell", "accounts", "--json").output == '{\n "accounts": []\n}\n'


def test_an_entry_of_the_map_that_is_wrong(cells: tuple[Cell, Cell], command: Command) -> None:
    one, two = cells
    assert command(two, "account", "add", "mine").status == 0
    with ClusterLedger(DatabaseAddress(one.account_map)) as ledger:
        ledger.write(set_account_cell, SetAccountCell("mine", "one", "two"))
    assert "mine is not in cell one" in command(one, "account", "claim", "mine").errors
    assert command(two, "account", "claim", "mine").output == "account mine is in cell two\n"
    assert "mine is in cell two" in command(one, "account", "add", "mine").errors
    # Two clusters that became cells may have an account of the same name.
    with ClusterLedger(DatabaseAddress(one.dsn)) as ledger:
        ledger.write(add_account, AddAccount("mine", b"1", b"2"))
    assert command(one, "account", "remove", "mine").status == 0
    assert "mine is in cell two" in command(one, "account", "remove", "mine").errors
    assert command(two, "account", "remove", "mine").status == 0


def test_commands_without_the_settings_of_the_cell(
    cells: tuple[Cell, Cell], command: Command
) -> None:
    one, two = cells
    plain = Cluster(two.directory, two.dsn, two.bodies)
    result = command(plain, "account", "add", "mine")
    assert "is that of cell two: set --account-map and --cell" in result.errors
    wrong = Cell("one", two.directory, two.dsn, one.account_map)
    result = command(wrong, "account", "add", "mine")
    assert "is that of cell two, not of one" in result.errors
    result = command(plain, "cell", "list")
    assert "set --account-map" in result.errors
    assert command(one, "cell", "accounts").output == "ACCOUNT  CELL\n"


def test_cells_are_listed_and_forgotten(
    postgresql_server: PostgresServer, tmp_path: Path, command: Command
) -> None:
    with two_cells(postgresql_server, tmp_path) as (one, two):
        heading, first, second = command(one, "cell", "list").output.splitlines()
        assert heading.split() == ["CELL", "NODE", "ADDRESS"]
        assert first.split()[:2] == ["one", "one-1"]
        assert second.split()[:2] == ["two", "two-1"]
        assert "cell two has nodes" in command(one, "cell", "forget", "two").errors
        assert "there is no cell named three" in command(one, "cell", "forget", "three").errors
        assert two.nodes[0].stop() == 0
        with ClusterLedger(DatabaseAddress(one.account_map)) as ledger:
            stored = {entry.name: entry.cell for entry in ledger.read(list_cells, None)}
            lost = RegisterCellNode(
                "two", stored["two"].store_id, "two-1", CellNode("127.0.0.1", 1), b""
            )
            ledger.write(register_cell_node, lost)
        assert nodes_in_map(one, "two") == ["two-1"]
        assert command(two, "node", "forget", "two-1").status == 0
        assert command(one, "cell", "list").output.splitlines()[2].split() == ["two", "-", "-"]
        assert "no node named two-1" in command(two, "node", "forget", "two-1").errors
        assert command(one, "cell", "forget", "two").status == 0
        listed = json.loads(command(one, "cell", "list", "--json").output)["cells"]
        assert [cell["name"] for cell in listed] == ["one"]
