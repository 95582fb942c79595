"""The account map in a ledger: cells, their nodes, and the cells of accounts."""

from __future__ import annotations

import pytest

from etagere.engine.interface import Refused
from etagere.model.cells import (
    AccountCell,
    Cell,
    CellMembership,
    CellNode,
    ClaimAccounts,
    ForgetCell,
    ListMappedAccounts,
    MapIdentity,
    MappedAccount,
    NamedCell,
    NamedCellNode,
    RecordMove,
    RegisterCellNode,
    SetAccountCell,
    UnregisterCellNode,
)
from etagere.operations.account_map import (
    claim_accounts,
    forget_cell,
    get_account_cell,
    get_account_cells,
    get_account_entry,
    get_cell_membership,
    join_cell,
    list_cell_nodes,
    list_cells,
    list_mapped_accounts,
    record_move,
    register_cell_node,
    set_account_cell,
    unregister_cell_node,
)
from tests.engine.conftest import start  # noqa: F401
from tests.engine.harness import Harness, conformance

SECRET = b"s" * 32
EAST = RegisterCellNode("east", b"E" * 16, "node", CellNode("10.0.0.1", 7_000), SECRET)
WEST = RegisterCellNode("west", b"W" * 16, "node", CellNode("10.0.0.2", 7_000), b"t" * 32)


@conformance
async def test_nodes_are_registered_and_unregistered(harness: Harness) -> None:
    engine = await harness.open()
    assert await engine.write(register_cell_node, EAST) == MapIdentity(SECRET)
    assert await engine.write(register_cell_node, WEST) == MapIdentity(SECRET)
    moved = RegisterCellNode("east", b"E" * 16, "node", CellNode("10.0.0.3", 7_001), b"u")
    await engine.write(register_cell_node, moved)
    another = RegisterCellNode("east", b"E" * 16, "another", CellNode("10.0.0.4", 1), b"u")
    assert await engine.write(register_cell_node, another) == MapIdentity(SECRET)
    cells = [NamedCell("east", Cell(b"E" * 16)), NamedCell("west", Cell(b"W" * 16))]
    assert await engine.read(list_cells, None) == cells
    nodes = [NamedCellNode("another", another.node), NamedCellNode("node", moved.node)]
    assert await engine.read(list_cell_nodes, "east") == nodes
    # A node that stops late does not remove the one that has taken its name.
    late = UnregisterCellNode("east", "node", EAST.node)
    assert not await engine.write(unregister_cell_node, late)
    assert await engine.read(list_cell_nodes, "east") == nodes
    assert await engine.write(unregister_cell_node, UnregisterCellNode("east", "node", moved.node))
    assert await engine.write(unregister_cell_node, UnregisterCellNode("east", "another"))
    assert not await engine.write(unregister_cell_node, UnregisterCellNode("east", "another"))
    assert await engine.read(list_cell_nodes, "east") == []
    assert await engine.read(list_cells, None) == cells
    assert not await engine.write(forget_cell, ForgetCell("west"))
    assert await engine.write(forget_cell, ForgetCell("east"))
    with pytest.raises(Refused, match="ResourceNotFound"):
        await engine.write(forget_cell, ForgetCell("east"))
    assert await engine.read(list_cells, None) == cells[1:]


@conformance
async def test_a_cell_has_one_ledger_and_a_ledger_one_cell(harness: Harness) -> None:
    engine = await harness.open()
    await engine.write(register_cell_node, EAST)
    for cell, store_id in (("east", b"other"), ("west", b"E" * 16)):
        command = RegisterCellNode(cell, store_id, "n", EAST.node, b"")
        with pytest.raises(Refused, match="ResourceAlreadyExists") as refused:
            await engine.write(register_cell_node, command)
        assert refused.value.refusal.facts == {"Cell": "east"}
    assert [entry.name for entry in await engine.read(list_cell_nodes, "east")] == ["node"]
    assert await engine.read(list_cell_nodes, "west") == []


@conformance
async def test_an_address_is_that_of_one_node(harness: Harness) -> None:
    """A node that was killed may come back in another cell, or another node at its address."""
    engine = await harness.open()
    await engine.write(register_cell_node, EAST)
    here = RegisterCellNode("west", b"W" * 16, "node", EAST.node, b"")
    for _ in range(2):
        await engine.write(register_cell_node, here)
        assert await engine.read(list_cell_nodes, "east") == []
        assert await engine.read(list_cell_nodes, "west") == [NamedCellNode("node", EAST.node)]


@conformance
async def test_an_account_is_in_one_cell(harness: Harness) -> None:
    engine = await harness.open()
    assert await engine.read(get_account_cell, "mine") == ""
    for _ in range(2):  # the command that adds an account may be run again
        await engine.write(set_account_cell, SetAccountCell("mine", "east"))
    for wrong in (SetAccountCell("mine", "west"), SetAccountCell("mine", "", "west")):
        with pytest.raises(Refused, match="AccountAlreadyExists"):
            await engine.write(set_account_cell, wrong)
    assert await engine.read(get_account_cell, "mine") == "east"
    await engine.write(set_account_cell, SetAccountCell("mine", "west", "east"))
    assert await engine.read(get_account_cell, "mine") == "west"
    for _ in range(2):
        await engine.write(set_account_cell, SetAccountCell("mine", "", "west"))
    assert await engine.read(get_account_cell, "mine") == ""


@conformance
async def test_a_move_is_recorded_unless_the_map_has_changed(harness: Harness) -> None:
    engine = await harness.open()
    await engine.write(set_account_cell, SetAccountCell("mine", "east"))
    first, returned = AccountCell("west", b"1"), AccountCell("east", b"2")
    for _ in range(2):
        assert await engine.write(record_move, RecordMove("mine", first, AccountCell("east")))
    assert await engine.read(get_account_cell, "mine") == "west"
    # A claim of the cell that the map has anyway does not forget the move.
    await engine.write(set_account_cell, SetAccountCell("mine", "west"))
    assert await engine.read(get_account_entry, "mine") == first
    assert await engine.write(record_move, RecordMove("mine", returned, first))
    # The first move is recorded late: the account has returned meanwhile.
    for known in (None, AccountCell("east")):
        assert not await engine.write(record_move, RecordMove("mine", first, known))
    assert await engine.read(get_account_entry, "mine") == returned
    assert await engine.write(record_move, RecordMove("lost", first, None))
    assert await engine.read(get_account_entry, "lost") == first


@conformance
async def test_accounts_without_a_cell_are_claimed(harness: Harness) -> None:
    engine = await harness.open()
    await engine.write(set_account_cell, SetAccountCell("two", "west"))
    claim = ClaimAccounts(("three", "two", "one"), "east")
    for _ in range(2):
        assert await engine.write(claim_accounts, claim) == [MappedAccount("two", "west")]
    cells = await engine.read(get_account_cells, ("one", "two", "three", "four"))
    assert cells == ["east", "west", "east", ""]
    listed = await engine.read(list_mapped_accounts, ListMappedAccounts(2))
    assert listed == [MappedAccount("one", "east"), MappedAccount("three", "east")]
    listed = await engine.read(list_mapped_accounts, ListMappedAccounts(2, "three"))
    assert listed == [MappedAccount("two", "west")]


@conformance
async def test_a_ledger_remembers_its_cell(harness: Harness) -> None:
    engine = await harness.open()
    assert await engine.read(get_cell_membership, None) is None
    await engine.write(join_cell, CellMembership("east", SECRET))
    with pytest.raises(Refused, match="ResourceAlreadyExists"):
        await engine.write(join_cell, CellMembership("west", SECRET))
    await engine.write(join_cell, CellMembership("east", b"new"))
    assert await engine.read(get_cell_membership, None) == CellMembership("east", b"new")


def test_secrets_are_not_shown() -> None:
    for value in (EAST, MapIdentity(SECRET), CellMembership("east", SECRET)):
        assert "sss" not in repr(value)
        assert repr(value) == str(value)
