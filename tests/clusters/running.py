"""Nodes of a cluster, started as a user would, on one PostgreSQL server."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from tests.clusters.postgresql import PostgresServer, temporary_database
from tests.server import Server, environment

_START_SECONDS_MAX: Final = 60.0


class Cluster:
    """The nodes that share a database and bodies."""

    def __init__(
        self, directory: Path, dsn: str, bodies: str, variables: Mapping[str, str] | None = None
    ) -> None:
        """`variables` of the environment are those of the object store."""
        self.directory = directory
        self.variables = dict(variables or {})
        self.dsn = dsn
        self.bodies = bodies
        self.nodes: list[Server] = []

    def node(self, *flags: str) -> Server:
        """Returns another node, which is not started yet."""
        name = f"node{len(self.nodes) + 1}"
        own = ["--engine", self.dsn, "--bodies", self.bodies, "--node-name", name]
        words = [*own, "--workers", "1", *flags]
        node = Server(self.directory / name, *words, variables=self.variables)
        # It may have to wait for a database, and several nodes share the cores of this machine.
        node.start_seconds_max = _START_SECONDS_MAX
        self.nodes.append(node)
        return node

    def command(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Runs a command of `etagere` on this cluster."""
        command = [sys.executable, "-m", "etagere", *words]
        variables = {**environment(), **self.variables, "ETAGERE_ENGINE": self.dsn}
        return subprocess.run(
            command, env=variables, capture_output=True, text=True, timeout=60, check=False
        )

    def account_keys(self, name: str) -> list[str]:
        """Returns the keys of a stored account."""
        shown = self.command("account", "list", "--show-keys")
        (line,) = (line for line in shown.stdout.splitlines() if line.startswith(name))
        return line.split()[-2:]

    def kill(self) -> None:
        for node in self.nodes:
            node.kill()


@contextlib.contextmanager
def cluster(
    server: PostgresServer,
    directory: Path,
    count: int,
    *flags: str,
    bodies: str | None = None,
    variables: Mapping[str, str] | None = None,
) -> Iterator[Cluster]:
    """Runs nodes, and kills them on exit. Bodies are in a directory unless said otherwise."""
    with temporary_database(server) as dsn:
        made = Cluster(directory, dsn, bodies or str(directory / "bodies"), variables)
        try:
            for _ in range(count):
                made.node(*flags).start()
            yield made
        finally:
            made.kill()
