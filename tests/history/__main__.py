"""Histories of a cluster under faults: runs them and checks them.

python -m tests.history --nodes 3 --ledger patroni --bodies ceph
python -m tests.history --ledger postgresql --bodies s3 --faults SIGSTOP switchover
python -m tests.history --cells 2 --nodes 1 --rounds 3
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from tests.clusters import moving
from tests.clusters.cells import two_cells
from tests.clusters.ceph import ceph_cluster
from tests.clusters.guard import private_directory
from tests.clusters.hosts import (
    GATEWAY,
    LOOPBACK,
    Host,
    can_have_own_network,
    in_own_network,
    namespace_hosts,
)
from tests.clusters.nodes import cluster_nodes
from tests.clusters.patroni import NODES as PATRONI_NODES
from tests.clusters.patroni import TTL_SECONDS, patroni_cluster
from tests.clusters.postgresql import postgresql
from tests.clusters.s3 import BUCKET, s3_server
from tests.history import cluster
from tests.history.blob.service import SERVICE as BLOB
from tests.history.faults import (
    Fault,
    ceph_faults,
    node_faults,
    node_partitions,
    patroni_faults,
    postgresql_faults,
    s3_faults,
)
from tests.history.file.service import SERVICE as FILE
from tests.history.moves import ACCOUNT, AccountMoves
from tests.history.queue.service import SERVICE as QUEUE
from tests.history.service import HistoryService
from tests.history.table.service import SERVICE as TABLE

SERVICES: Final[dict[str, HistoryService[Any]]] = {
    service.name: service for service in (BLOB, QUEUE, TABLE, FILE)
}
_SERVICES_DEFAULT: Final = ("blob", "queue", "table")


class Ledger(NamedTuple):
    """Where the ledger of the nodes is, and what may happen to it."""

    dsn: str
    faults: list[Fault]


class Bodies(NamedTuple):
    """Where the bodies of the nodes are, and what may happen to them."""

    address: str
    variables: dict[str, str]
    faults: list[Fault]


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command and returns its exit status."""
    parser = _parser()
    given = parser.parse_args(arguments)
    if given.cells > 1:
        if (given.ledger, given.bodies) != ("postgresql", "directory"):
            parser.error("--cells requires the default --ledger and --bodies")
        return _run_cells(given)
    partitions = given.partitions
    if partitions and given.ledger != "patroni":
        parser.error("--partitions needs --ledger patroni")
    if partitions is None:
        partitions = given.ledger == "patroni" and can_have_own_network()
    if partitions:
        in_own_network()
    services = [SERVICES[name] for name in given.services]
    directory = Path(tempfile.mkdtemp(prefix="history-"))
    print(f"recorded in {directory}", flush=True)
    with contextlib.ExitStack() as stack:
        members = hosts = None
        if partitions:
            place = stack.enter_context(private_directory("hosts"))
            members = namespace_hosts(place, PATRONI_NODES)
            hosts = namespace_hosts(place, given.nodes, first=PATRONI_NODES)
        ledger = stack.enter_context(_ledger(directory, given.ledger, members, given.ttl_seconds))
        address = GATEWAY if partitions else LOOPBACK
        bodies = stack.enter_context(_bodies(directory, given.bodies, address))
        nodes = stack.enter_context(
            cluster_nodes(
                directory,
                given.nodes,
                ledger.dsn,
                bodies.address,
                hosts=hosts,
                variables=bodies.variables,
            )
        )
        of_nodes = node_faults(nodes, given.node)
        if hosts is not None:
            of_nodes += node_partitions(hosts, given.node)
        possible = [*of_nodes, *ledger.faults, *bodies.faults]
        faults = _chosen(possible, given.faults) * given.rounds
        print(
            f"{len(nodes)} nodes, {given.ledger}, {given.bodies}: {len(faults)} faults", flush=True
        )
        schedule = cluster.Schedule(given.seed, given.quiet_seconds, faults)
        recorded = cluster.run(directory / "run", nodes, services, schedule)
    return _conclude(recorded, cluster.findings(recorded, services))


def _run_cells(given: argparse.Namespace) -> int:
    """Runs clients in an account that moves between two cells; returns the exit status."""
    services = [SERVICES[name] for name in given.services]
    directory = Path(tempfile.mkdtemp(prefix="history-"))
    print(f"recorded in {directory}", flush=True)
    with (
        postgresql(directory) as server,
        two_cells(server, directory, nodes=given.nodes) as cells,
    ):
        moves = AccountMoves(cells)
        nodes = [node for cell in cells for node in cell.nodes]
        faults = _chosen(moves.faults(), given.faults) * given.rounds
        print(f"2 cells, {len(nodes)} nodes: {len(faults)} moves", flush=True)
        schedule = cluster.Schedule(given.seed, given.quiet_seconds, faults)
        recorded = cluster.run(directory / "run", nodes, services, schedule, ACCOUNT)
        found = cluster.findings(recorded, services)
        checks = {cell.name: moving.check(cell) for cell in cells}
        found += [f"etagere check of cell {name}: {text}" for name, text in checks.items() if text]
    return _conclude(recorded, found)


def _conclude(recorded: cluster.ClusterRun, found: Sequence[str]) -> int:
    print(f"{recorded.operations} operations, {recorded.acknowledged} of them answered")
    for each in found:
        print(each)
    print("OK" if not found else f"{len(found)} findings")
    return 1 if found else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.history")
    parser.add_argument(
        "--cells",
        type=int,
        choices=(1, 2),
        default=1,
        help="2: the faults are moves of the account of the clients from one to the other",
    )
    parser.add_argument("--nodes", type=int, default=3, help="of each cell")
    parser.add_argument(
        "--node", type=int, default=0, help="the node that fails; the first one serves files"
    )
    parser.add_argument("--ledger", choices=("postgresql", "patroni"), default="postgresql")
    parser.add_argument("--bodies", choices=("directory", "s3", "ceph"), default="directory")
    parser.add_argument("--services", nargs="+", choices=SERVICES, default=_SERVICES_DEFAULT)
    parser.add_argument(
        "--faults", nargs="*", default=[""], help="parts of the names of faults; none: no faults"
    )
    parser.add_argument("--rounds", type=int, default=1, help="how often each fault occurs")
    parser.add_argument("--quiet-seconds", type=float, default=8.0, help="between two faults")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--ttl-seconds", type=int, default=TTL_SECONDS, help="of Patroni")
    parser.add_argument(
        "--partitions",
        action=argparse.BooleanOptionalAction,
        help="run the members of Patroni and the nodes in network namespaces, and cut one off; "
        "needs root and Patroni, and is the default if possible",
    )
    return parser


@contextlib.contextmanager
def _ledger(
    directory: Path, kind: str, hosts: Sequence[Host] | None, ttl_seconds: int
) -> Iterator[Ledger]:
    if kind == "postgresql":
        with postgresql(directory) as server:
            yield Ledger(server.dsn, postgresql_faults(server))
        return
    with patroni_cluster(hosts, ttl_seconds=ttl_seconds) as members:
        yield Ledger(members.dsn, patroni_faults(members, can_cut_off=hosts is not None))


@contextlib.contextmanager
def _bodies(directory: Path, kind: str, address: str) -> Iterator[Bodies]:
    if kind == "directory":
        path = directory / "bodies"
        path.mkdir()
        yield Bodies(str(path), {}, [])
    elif kind == "s3":
        with s3_server(directory, address) as server:
            yield Bodies(f"s3://{BUCKET}/bodies", server.environment, s3_faults(server))
    else:
        with ceph_cluster(address) as osds:
            yield Bodies(osds.url("bodies"), {}, ceph_faults(osds))


def _chosen(faults: Sequence[Fault], parts: Sequence[str]) -> list[Fault]:
    """Returns the faults whose names contain one of the parts."""
    return [fault for fault in faults if any(part in fault.name for part in parts)]


if __name__ == "__main__":
    sys.exit(main())
