"""The faults of a cluster under which histories are made."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from tests.clusters.ceph import CephCluster
    from tests.clusters.hosts import Host
    from tests.clusters.nodes import Node
    from tests.clusters.patroni import PatroniCluster
    from tests.clusters.postgresql import PostgresServer
    from tests.clusters.s3 import S3Server

SHORT_SECONDS: Final = 2.0
"""How long what is started again at once stays dead."""
PAUSE_SECONDS: Final = 15.0
"""Longer than a process of a node may be silent before the others declare it dead."""


@dataclass(frozen=True)
class Fault:
    """Something that fails, and how it is repaired."""

    name: str
    inject: Callable[[], None]
    heal: Callable[[], None]
    seconds: float
    """Between the two."""
    node: int | None = None
    """The node that cannot be expected to answer meanwhile."""
    may_lose_writes: bool = True
    """Whether what SMB clients have written and not flushed may be lost."""


def node_faults(nodes: Sequence[Node], number: int) -> list[Fault]:
    """Returns the faults of one node."""
    node = nodes[number]
    return [
        Fault("kill -9 of a node", node.kill, node.start, SHORT_SECONDS, number),
        Fault("kill -9 of a writer", node.kill_writer, _nothing, SHORT_SECONDS, number),
        Fault("kill -9 of front ends", node.kill_front_ends, _nothing, SHORT_SECONDS, number),
        Fault("SIGSTOP of a node", node.pause, node.resume, PAUSE_SECONDS, number),
        _paused_writer(node, number),
    ]


def node_partitions(hosts: Sequence[Host], number: int) -> list[Fault]:
    """Returns the faults of the network between nodes, and of the one between a node and all
    other machines. Clients still reach every node."""
    host = hosts[number]

    def isolate() -> None:
        for each in hosts:
            each.isolate()

    def end_isolation() -> None:
        for each in hosts:
            each.end_isolation()

    return [
        Fault("partition of a node", host.cut_off, host.reconnect, PAUSE_SECONDS, number),
        Fault("partition between the nodes", isolate, end_isolation, PAUSE_SECONDS),
    ]


def _paused_writer(node: Node, number: int) -> Fault:
    def pause() -> None:
        os.kill(node.pid_of("writer"), signal.SIGSTOP)

    def resume() -> None:
        os.kill(node.pid_of("writer"), signal.SIGCONT)

    return Fault("SIGSTOP of a writer", pause, resume, PAUSE_SECONDS, number)


def postgresql_faults(server: PostgresServer) -> list[Fault]:
    """Returns the faults of a ledger on one server."""
    return [
        Fault("kill -9 of PostgreSQL", server.kill, server.start, SHORT_SECONDS),
        Fault("SIGSTOP of PostgreSQL", server.pause, server.resume, PAUSE_SECONDS),
        Fault("restart of PostgreSQL", server.restart, _nothing, 0.0),
    ]


def patroni_faults(cluster: PatroniCluster, *, can_cut_off: bool) -> list[Fault]:
    """Returns the faults of a ledger on several servers. A machine that hangs or is cut off comes
    back after another one has taken over."""
    seconds = 1.6 * cluster.ttl_seconds
    primary: Callable[[], int] = cluster.await_primary
    standby: Callable[[], int] = cluster.standby
    start, resume = cluster.start_node, cluster.resume_node
    of_members = [
        ("kill -9 of the primary", primary, cluster.kill_postgresql, _leave),
        ("kill -9 of the primary's machine", primary, cluster.kill_node, start),
        ("SIGSTOP of the primary's machine", primary, cluster.pause_node, resume),
        ("kill -9 of the primary's Patroni", primary, cluster.kill_patroni, start),
        ("kill -9 of the synchronous standby", standby, cluster.kill_node, start),
        ("SIGSTOP of the synchronous standby", standby, cluster.pause_node, resume),
    ]
    if can_cut_off:
        cut_off, reconnect = cluster.cut_off, cluster.reconnect
        of_members.append(("partition of the primary", primary, cut_off, reconnect))
    return [
        *(_on_member(cluster, *each, seconds) for each in of_members),
        Fault("switchover", lambda: _ignore(cluster.switch_over()), cluster.await_healthy, 0.0),
        Fault("kill -9 of etcd", cluster.kill_etcd, cluster.start_etcd, SHORT_SECONDS),
    ]


def _on_member(
    cluster: PatroniCluster,
    name: str,
    choose: Callable[[], int],
    harm: Callable[[int], None],
    repair: Callable[[int], None],
    seconds: float,
) -> Fault:
    """Returns a fault of the member that has a role when the fault begins."""
    victims: list[int] = []

    def inject() -> None:
        victims.append(choose())
        harm(victims[-1])

    def heal() -> None:
        repair(victims[-1])
        cluster.await_healthy()

    return Fault(name, inject, heal, seconds)


def s3_faults(server: S3Server) -> list[Fault]:
    """Returns the faults of an S3 store."""
    return [
        Fault("kill -9 of the S3 server", server.kill, server.start, SHORT_SECONDS),
        Fault("SIGSTOP of the S3 server", server.pause, server.resume, PAUSE_SECONDS),
    ]


def ceph_faults(cluster: CephCluster) -> list[Fault]:
    """Returns the faults of one OSD."""

    def restart() -> None:
        cluster.start_osd(0)
        cluster.await_healthy()

    def resume() -> None:
        cluster.resume_osd(1)
        cluster.await_healthy()

    return [
        Fault("kill -9 of an OSD", lambda: cluster.kill_osd(0), restart, PAUSE_SECONDS),
        Fault("SIGSTOP of an OSD", lambda: cluster.pause_osd(1), resume, PAUSE_SECONDS),
    ]


def _nothing() -> None:
    """What fails is started again by its supervisor."""


def _leave(member: int) -> None:
    """Patroni starts PostgreSQL again."""
    del member


def _ignore(value: object) -> None:
    del value
