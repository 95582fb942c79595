"""`etagere cell`: lists the cells of an account map, and removes them from it."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from typing import Final

from etagere.cli import CLEAN, CommandError, settings_of
from etagere.cli.account_map import open_map_ledger
from etagere.cli.output import print_columns, print_json
from etagere.cli.stores import Store
from etagere.cli.verbs import Verbs
from etagere.engine.interface import Refused
from etagere.model.cells import ForgetCell, ListMappedAccounts, NamedCellNode
from etagere.operations.account_map import (
    forget_cell,
    list_cell_nodes,
    list_cells,
    list_mapped_accounts,
)
from etagere.settings.addresses import format_host_and_port

NAME = "cell"
SUMMARY = "list the cells of an account map and their accounts, or remove a cell from it"
DESCRIPTION = """\
Shows and changes the account map: the cells, the nodes of each cell with the address
where nodes of other cells reach them, and the accounts of all cells. The commands use the
database with the map, `--account-map`, and may run on any machine that reaches it.

A node is in the map while it runs and is not drained. A node that was killed stays in it
until it is started again, or removed with `etagere node forget`."""
EXAMPLES = """\
etagere cell list --config /etc/etagere.toml
etagere cell list --json                  # for programs
etagere cell accounts                     # which cell each account is in
etagere cell forget two                   # a cell that will not come back"""

_PAGE: Final = 1_000
_CELL_HEADINGS: Final = ("CELL", "NODE", "ADDRESS")
_ACCOUNT_HEADINGS: Final = ("ACCOUNT", "CELL")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    verbs: Verbs[Callable[[argparse.Namespace, Store], None]] = Verbs(
        parser, NAME, EXAMPLES, "engine", "account_map", "cell"
    )
    shown = verbs.add("list", _list, "list the cells", "Cells without nodes are listed too.")
    accounts = verbs.add(
        "accounts",
        _list_accounts,
        "list the accounts of all cells",
        "The development account and accounts in the settings, which every cell has, are not "
        "listed.",
    )
    for each in (shown, accounts):
        each.add_argument("--json", action="store_true", help="print the list as JSON")
    forget = verbs.add(
        "forget",
        _forget,
        "remove a cell from the map",
        "A cell that has nodes or accounts cannot be removed.",
    )
    forget.add_argument("name", metavar="NAME", help="the cell")


def run(arguments: argparse.Namespace) -> int:
    with open_map_ledger(settings_of(arguments)) as store:
        arguments.act(arguments, store)
    return CLEAN


def _list(arguments: argparse.Namespace, store: Store) -> None:
    cells = [cell.name for cell in store.read(list_cells, None)]
    nodes = {cell: store.read(list_cell_nodes, cell) for cell in cells}
    if arguments.json:
        listed = [
            {"name": cell, "nodes": [_as_json(node) for node in nodes[cell]]} for cell in cells
        ]
        print_json({"cells": listed})
        return
    if not cells:
        print("the account map has no cells")
        return
    rows = [(cell, *row) for cell in cells for row in map(_columns, nodes[cell])]
    rows += [(cell, "-", "-") for cell in cells if not nodes[cell]]
    print_columns([_CELL_HEADINGS, *sorted(rows)])


def _columns(node: NamedCellNode) -> tuple[str, str]:
    return node.name, format_host_and_port(node.node.host, node.node.port)


def _as_json(node: NamedCellNode) -> dict[str, object]:
    return {"name": node.name, "host": node.node.host, "port": node.node.port}


def _list_accounts(arguments: argparse.Namespace, store: Store) -> None:
    accounts = list(_mapped_accounts(store))
    if arguments.json:
        print_json({"accounts": [{"name": name, "cell": cell} for name, cell in accounts]})
    else:
        print_columns([_ACCOUNT_HEADINGS, *accounts])


def _mapped_accounts(store: Store) -> Iterator[tuple[str, str]]:
    after = ""
    while page := store.read(list_mapped_accounts, ListMappedAccounts(_PAGE, after)):
        yield from ((account.name, account.cell) for account in page)
        after = page[-1].name


def _forget(arguments: argparse.Namespace, store: Store) -> None:
    name: str = arguments.name
    in_cell = [account for account, cell in _mapped_accounts(store) if cell == name]
    if in_cell:
        raise CommandError(f"cell {name} has accounts, among them {in_cell[0]}")
    try:
        is_removed = store.write(forget_cell, ForgetCell(name))
    except Refused:
        raise CommandError(f"there is no cell named {name}") from None
    if not is_removed:
        raise CommandError(
            f"cell {name} has nodes; stop them, or remove them with `etagere node forget`"
        )
