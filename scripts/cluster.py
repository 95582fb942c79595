"""Starts a small cluster on the loopback address, to try it out: PostgreSQL, S3 and three nodes;
with `--cells 2`, two cells of one node each.

`make cluster` runs it from the root of the repository. It stops at ^C, and all its data is removed.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.clusters.cells import Cell, stopped_cells
from tests.clusters.postgresql import postgresql
from tests.clusters.running import Cluster
from tests.clusters.s3 import BUCKET, s3_server
from tests.server import SERVICES

NODES = 3
CELLS_MAX = 9
CELL_ACCOUNT = "account{number}"
"""The account of each cell."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--cells", type=int, default=1, choices=range(1, CELLS_MAX + 1), metavar="COUNT"
    )
    count: int = parser.parse_args().cells
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with contextlib.ExitStack() as held:
        directory = Path(held.enter_context(tempfile.TemporaryDirectory(prefix="etagere-cluster-")))
        # PostgreSQL, which does not run as root, passes through it.
        directory.chmod(0o711)
        print("starting PostgreSQL and an S3 server ...", flush=True)
        server = held.enter_context(postgresql(directory))
        objects = held.enter_context(s3_server(directory))
        os.environ.update(objects.environment)
        if count == 1:
            cluster = Cluster(directory, server.dsn, f"s3://{BUCKET}/bodies")
            held.callback(cluster.kill)
            _start(cluster, NODES)
            _show(cluster, objects.environment)
        else:
            names = [f"cell{number}" for number in range(1, count + 1)]
            cells = held.enter_context(stopped_cells(server, directory, *names))
            _start_cells(cells)
            _show_cells(cells, objects.environment)
        with contextlib.suppress(KeyboardInterrupt):
            signal.pause()
        print("stopping ...", flush=True)


def _start(cluster: Cluster, count: int) -> None:
    for _ in range(count):
        node = cluster.node()
        print(f"starting {node.directory.name} ...", flush=True)
        node.start()


def _start_cells(cells: Sequence[Cell]) -> None:
    """Starts cells with a node and an account each."""
    for number, cell in enumerate(cells, 1):
        cell.bodies = f"s3://{BUCKET}/{cell.name}"
        print(f"{cell.name}:", flush=True)
        _start(cell, 1)
        cell.command("account", "add", CELL_ACCOUNT.format(number=number)).check_returncode()


def _show(cluster: Cluster, variables: Mapping[str, str]) -> None:
    """Shows how to use a cluster. `variables` are those of the S3 server."""
    print(f"\nPostgreSQL  {cluster.dsn}\nbodies      {cluster.bodies}\n")
    _show_nodes(cluster)
    print("Try, in another terminal:")
    print(f"  export ETAGERE_ENGINE={cluster.dsn} ETAGERE_BODIES={cluster.bodies}")
    _export(variables)
    print("  .venv/bin/etagere node list")
    print("  .venv/bin/etagere node drain node1")
    print("  .venv/bin/etagere check")
    print("\n^C stops the cluster and removes its data.", flush=True)


def _export(variables: Mapping[str, str]) -> None:
    print(f"  export {' '.join(f'{name}={value}' for name, value in variables.items())}")


def _show_nodes(cluster: Cluster) -> None:
    for node in cluster.nodes:
        print(f"{node.directory.name}, whose log is {node.log_path}")
        print(f"  {node.connection_string(*SERVICES)}")
        print(f"  {node.endpoints['smb']}\n")


def _show_cells(cells: Sequence[Cell], variables: Mapping[str, str]) -> None:
    """Shows how to use the cells. `variables` are those of the S3 server."""
    for number, cell in enumerate(cells, 1):
        print(f"\n{cell.name}, with the account {CELL_ACCOUNT.format(number=number)}")
        print(f"PostgreSQL  {cell.dsn}\nbodies      {cell.bodies}\n")
        _show_nodes(cell)
    first, second = cells[0].configuration(), cells[1].configuration()
    account = CELL_ACCOUNT.format(number=1)
    print("Try, in another terminal:")
    _export(variables)
    print(f"  .venv/bin/etagere cell list --config {first}")
    print(f"  .venv/bin/etagere cell accounts --config {first}")
    print(f"  .venv/bin/etagere account list --show-keys --config {first}")
    print(f"  .venv/bin/etagere account move {account} --to {second} --config {first}")
    print(
        "\nEvery node serves every account. ^C stops the cells and removes their data.", flush=True
    )


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        main()
