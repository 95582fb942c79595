"""Several cells with one account map, started as a user would, on one PostgreSQL server."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path

from tests.clusters.postgresql import PostgresServer, temporary_database
from tests.clusters.running import Cluster
from tests.server import Server


class Cell(Cluster):
    """The nodes of one cell. Commands use the same settings."""

    def __init__(self, name: str, directory: Path, dsn: str, account_map: str) -> None:
        super().__init__(directory, dsn, str(directory / "bodies"))
        self.name = name
        self.account_map = account_map
        self.variables = {"ETAGERE_ACCOUNT_MAP": account_map, "ETAGERE_CELL": name}

    def node(self, *flags: str) -> Server:
        # Nodes of several cells are on this machine, and their names in log files.
        return super().node("--node-name", f"{self.name}-{len(self.nodes) + 1}", *flags)

    def configuration(self) -> Path:
        """Writes a configuration file of the cell; returns its path."""
        settings = {
            "engine": self.dsn,
            "bodies": self.bodies,
            "account_map": self.account_map,
            "cell": self.name,
        }
        path = self.directory / "cell.toml"
        lines = [f"{name} = {json.dumps(value)}\n" for name, value in settings.items()]
        path.write_text("".join(lines), "utf-8")
        return path


@contextlib.contextmanager
def stopped_cells(
    server: PostgresServer, directory: Path, *names: str
) -> Iterator[tuple[Cell, ...]]:
    """Yields cells without nodes, and kills their nodes on exit. The ledger of the first one has
    the map."""
    with contextlib.ExitStack() as held:
        databases = [held.enter_context(temporary_database(server)) for _ in names]
        cells = []
        for name, dsn in zip(names, databases, strict=True):
            own = directory / name
            own.mkdir()
            cells.append(Cell(name, own, dsn, databases[0]))
            held.callback(cells[-1].kill)
        yield tuple(cells)


@contextlib.contextmanager
def two_cells(
    server: PostgresServer, directory: Path, *flags: str, nodes: int = 1
) -> Iterator[tuple[Cell, Cell]]:
    """Runs two cells, `one` and `two`, with this many nodes each, and kills them on exit."""
    with stopped_cells(server, directory, "one", "two") as (one, two):
        for cell in (one, two):
            for _ in range(nodes):
                cell.node(*flags).start()
        yield one, two
