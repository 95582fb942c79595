"""Nodes of a cluster: servers with one ledger in PostgreSQL and one store of bodies."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from tests.clusters.hosts import LOOPBACK, Host, LoopbackHost, loopback_hosts
from tests.clusters.ports import free_ports
from tests.server import PORTS, Server

_WORKERS: Final = 1
"""Front ends of a node; several nodes share the cores of this machine."""


class Node(Server):
    """A server of a cluster, which has the same ports after each start."""

    # It may have to wait until it may write to a new primary of PostgreSQL.
    start_seconds_max = 60.0

    def __init__(
        self,
        directory: Path,
        engine: str,
        bodies: str,
        *,
        flags: tuple[str, ...] = (),
        host: Host | None = None,
        ports: Mapping[str, int] | None = None,
        command_prefix: tuple[str, ...] = (),
        variables: Mapping[str, str] | None = None,
    ) -> None:
        host = host or LoopbackHost()
        ports = ports or dict(zip(PORTS, free_ports(len(PORTS)), strict=True))
        self.name = directory.name
        words = ["--engine", engine, "--bodies", bodies, "--node-name", self.name]
        if host.client_address != LOOPBACK:
            words += ["--host", host.client_address, "--development-account-anywhere"]
        if "--workers" not in flags:
            words += ["--workers", str(_WORKERS)]
        for service, port in ports.items():
            words += [f"--{service}-port", str(port)]
        prefix = (*host.command_prefix, *command_prefix)
        super().__init__(directory, *words, *flags, command_prefix=prefix, variables=variables)

    def pause(self) -> None:
        """Stops all processes of the node, like a machine that hangs."""
        os.kill(self.pid, signal.SIGSTOP)
        self._signal_children(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal_children(signal.SIGCONT)
        os.kill(self.pid, signal.SIGCONT)

    def kill_writer(self) -> None:
        """Kills the writer process, which the supervisor starts again."""
        os.kill(self.pid_of("writer"), signal.SIGKILL)

    def kill_front_ends(self) -> None:
        """Kills the front ends, which the supervisor starts again."""
        writer = self.pid_of("writer")
        for pid in self.children():
            if pid != writer:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    def _signal_children(self, number: signal.Signals) -> None:
        for pid in self.children():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)


@contextlib.contextmanager
def cluster_nodes(
    directory: Path,
    count: int,
    engine: str,
    bodies: str,
    *,
    flags: tuple[str, ...] = (),
    hosts: Sequence[Host] | None = None,
    ports: Mapping[str, int] | None = None,
    variables: Mapping[str, str] | None = None,
) -> Iterator[list[Node]]:
    """Runs the nodes of a cluster, and kills them on exit. All use the same `ports` of their hosts,
    if given."""
    nodes = [
        Node(
            directory / f"node{number}",
            engine,
            bodies,
            flags=flags,
            host=host,
            ports=ports,
            variables=variables,
        )
        for number, host in enumerate(hosts or loopback_hosts(count))
    ]
    try:
        for node in nodes:
            node.start()
        yield nodes
    finally:
        for node in nodes:
            with contextlib.suppress(ProcessLookupError):
                node.kill()
