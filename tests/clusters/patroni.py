"""A PostgreSQL cluster under Patroni, with synchronous replication, for long tests.

Each node is a Patroni and a PostgreSQL server in a directory of their own. One etcd, which is not
part of any node, keeps the state of the cluster.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import signal
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import psycopg

from tests.clusters.guard import (
    give_to_engine,
    private_directory,
    processes_in,
    start_daemon,
)
from tests.clusters.hosts import GATEWAY, LOOPBACK, Host, loopback_hosts
from tests.clusters.ports import free_ports
from tests.clusters.postgresql import binary
from tests.clusters.sharing import create
from tests.server import eventually

NODES: Final = 3
TTL_SECONDS: Final = 20
"""After this time without a sign of life, another node becomes the primary."""
START_SECONDS_MAX: Final = 180.0
FAILOVER_SECONDS_MAX: Final = 240.0
_LOG_CHARACTERS: Final = 8_000
_SCOPE: Final = "etagere"
_NAME: Final = "etagere"
_REQUEST_SECONDS_MAX: Final = 2.0
_PARAMETERS: Final = {
    "synchronous_commit": "on",
    "fsync": "on",
    "max_connections": 300,
    "shared_buffers": "64MB",
    "max_wal_size": "512MB",
    "wal_keep_size": "128MB",
    "wal_log_hints": "on",
    "hot_standby": "on",
    "wal_level": "replica",
    "password_encryption": "scram-sha-256",
    # How long a standby that hangs holds up commits.
    "wal_sender_timeout": "5s",
    "wal_receiver_timeout": "5s",
    "dynamic_shared_memory_type": "mmap",
    "timezone": "UTC",
    "lc_messages": "C",
}


@dataclass(frozen=True)
class _Ports:
    postgresql: int
    patroni: int


class PatroniCluster:
    """Three PostgreSQL servers, of which Patroni makes one the primary."""

    def __init__(
        self, directory: Path, hosts: Sequence[Host], *, ttl_seconds: int = TTL_SECONDS
    ) -> None:
        """The etcd of the cluster runs on this machine, the nodes on `hosts`."""
        self.directory = directory
        self.nodes = range(len(hosts))
        self._hosts = hosts
        self.ttl_seconds = ttl_seconds
        ports = free_ports(2 * len(hosts) + 2)
        self._etcd_ports, node_ports = ports[:2], ports[2:]
        self._ports = [_Ports(*node_ports[2 * n : 2 * n + 2]) for n in self.nodes]
        self._passwords = {name: secrets.token_hex(12) for name in ("postgres", "repl", _NAME)}
        self._patronis: dict[int, subprocess.Popen[bytes]] = {}
        is_local = all(host.address == LOOPBACK for host in hosts)
        self._etcd_address = LOOPBACK if is_local else GATEWAY

    @property
    def dsn(self) -> str:
        """The URL that names all nodes, of which clients choose the primary."""
        places = ",".join(
            f"{host.address}:{ports.postgresql}"
            for host, ports in zip(self._hosts, self._ports, strict=True)
        )
        user = f"{_NAME}:{self._passwords[_NAME]}"
        return f"postgresql://{user}@{places}/{_NAME}?target_session_attrs=read-write"

    def create(self) -> None:
        """Creates the cluster, starts it, and creates the role and the database."""
        for node in self.nodes:
            home = self._home(node)
            home.mkdir(mode=0o700)
            configuration = home / "patroni.yml"  # JSON is YAML
            configuration.touch(0o600)
            configuration.write_text(json.dumps(self._configuration(node), indent=1), "utf-8")
            give_to_engine(home)
            give_to_engine(configuration)
        self.start_etcd()
        # The first node creates the database, and the others copy it.
        self.start_node(0)
        eventually(lambda: self.primary() == 0, "the first primary", START_SECONDS_MAX)
        for node in self.nodes[1:]:
            self.start_node(node)
        self.await_healthy(START_SECONDS_MAX)
        with psycopg.connect(self._superuser_dsn(0), autocommit=True) as connection:
            # The password consists of hexadecimal digits.
            password = self._passwords[_NAME]
            connection.execute(f"CREATE ROLE {_NAME} LOGIN CREATEDB PASSWORD '{password}'")
            connection.execute(f"CREATE DATABASE {_NAME} OWNER {_NAME} TEMPLATE template0")

    def start_etcd(self) -> None:
        """Starts etcd, unless it runs."""
        home = self.directory / "etcd"
        if not home.exists():
            home.mkdir(mode=0o700)
            give_to_engine(home)
        client, peer = (f"http://{self._etcd_address}:{port}" for port in self._etcd_ports)
        options = {
            "name": "etcd",
            "data-dir": str(home / "data"),
            "listen-client-urls": client,
            "advertise-client-urls": client,
            "listen-peer-urls": peer,
            "initial-advertise-peer-urls": peer,
            "initial-cluster": f"etcd={peer}",
        }
        process = start_daemon(
            ["etcd", *(f"--{name}={value}" for name, value in options.items())],
            home,
            self.directory / "etcd.log",
            variables={"GOMAXPROCS": "1"},
        )
        process.returncode = 0  # the guard of the directory ends it
        url = f"{client}/health"
        eventually(lambda: _answers(url), "etcd to start", START_SECONDS_MAX)

    def kill_etcd(self) -> None:
        self._signal(self.directory / "etcd", signal.SIGKILL)

    def start_node(self, node: int) -> None:
        """Starts Patroni on a node, which starts PostgreSQL."""
        prefix = self._hosts[node].command_prefix
        command = [*prefix, "patroni", str(self._home(node) / "patroni.yml")]
        if prefix:  # entering a namespace takes root: the account changes afterwards
            account = "--reuid=postgres --regid=postgres --clear-groups"
            command = [*prefix, "setpriv", *account.split(), *command[len(prefix) :]]
        process = start_daemon(
            command,
            self._home(node),
            self.directory / f"node{node}.log",
            may_be_root=bool(prefix),
            variables={"PATH": f"{binary('postgres').parent}:{os.environ['PATH']}"},
        )
        process.returncode = 0  # the guard of the directory ends it
        self._patronis[node] = process

    def kill_node(self, node: int) -> None:
        """Kills Patroni and PostgreSQL of a node, like a machine that loses its power."""
        self.pause_patroni(node)
        self._signal(self._home(node), signal.SIGKILL)

    def kill_postgresql(self, node: int) -> None:
        """Kills PostgreSQL of a node; its Patroni remains."""
        self._signal(self._home(node) / "data", signal.SIGKILL)

    def kill_patroni(self, node: int) -> None:
        """Kills Patroni of a node; its PostgreSQL remains."""
        os.kill(self._patronis[node].pid, signal.SIGKILL)

    def pause_patroni(self, node: int) -> None:
        os.kill(self._patronis[node].pid, signal.SIGSTOP)

    def pause_node(self, node: int) -> None:
        """Stops all processes of a node, like a machine that hangs."""
        self._signal(self._home(node), signal.SIGSTOP)

    def resume_node(self, node: int) -> None:
        self._signal(self._home(node), signal.SIGCONT)

    def cut_off(self, node: int) -> None:
        """Cuts a node off from the others, from etcd and from all clients."""
        self._hosts[node].cut_off()

    def reconnect(self, node: int) -> None:
        self._hosts[node].reconnect()

    def switch_over(self) -> int:
        """Makes another node the primary, as an operator would; returns which one."""
        before = self._require_primary()
        body = json.dumps({"leader": f"node{before}"}).encode()
        request = urllib.request.Request(self._url(before, "/switchover"), body, method="POST")
        with urllib.request.urlopen(request, timeout=FAILOVER_SECONDS_MAX):
            pass
        return self.await_primary(other_than=before)

    def primary(self) -> int | None:
        """Returns the node that Patroni calls the primary."""
        for node in self.nodes:
            if _answers(self._url(node, "/primary")):
                return node
        return None

    def standby(self, *, synchronous: bool = True) -> int:
        """Returns a standby: the one for which commits wait, or another one."""
        primary = self._require_primary()
        roles = self._members(primary)
        wanted = "sync_standby" if synchronous else "replica"
        return next(node for node in self.nodes if roles.get(node, ("", ""))[0] == wanted)

    def await_primary(self, *, other_than: int | None = None) -> int:
        """Waits until there is a primary, or another one than before."""
        found: list[int] = []

        def is_found() -> bool:
            primary = self.primary()
            if primary is None or primary == other_than:
                return False
            found.append(primary)
            return True

        eventually(is_found, "a primary", FAILOVER_SECONDS_MAX)
        return found[-1]

    def await_healthy(self, seconds_max: float = FAILOVER_SECONDS_MAX) -> None:
        """Waits until all nodes run and the primary has a synchronous standby."""
        try:
            eventually(self._is_healthy, "all nodes of the cluster", seconds_max)
        except TimeoutError as error:
            error.add_note(self.log())
            raise

    def _is_healthy(self) -> bool:
        primary = self.primary()
        if primary is None:
            return False
        members = self._members(primary)
        running = [role for role, state in members.values() if state in {"running", "streaming"}]
        return len(running) == len(self.nodes) and "sync_standby" in running

    def _members(self, primary: int) -> dict[int, tuple[str, str]]:
        """Returns the role and the state of the nodes."""
        try:
            with urllib.request.urlopen(
                self._url(primary, "/cluster"), timeout=_REQUEST_SECONDS_MAX
            ) as response:
                members = json.load(response)["members"]
        except OSError:
            return {}
        return {
            int(member["name"].removeprefix("node")): (member["role"], member["state"])
            for member in members
        }

    def _require_primary(self) -> int:
        primary = self.primary()
        if primary is None:
            raise RuntimeError("there is no primary")
        return primary

    def log(self) -> str:
        """Returns the ends of all logs."""
        paths = sorted(self.directory.glob("*.log"))
        return "".join(
            f"--- {path.name}\n{path.read_text('utf-8', 'replace')[-_LOG_CHARACTERS:]}"
            for path in paths
        )

    def _home(self, node: int) -> Path:
        return self.directory / f"node{node}"

    def _url(self, node: int, path: str) -> str:
        return f"http://{self._hosts[node].address}:{self._ports[node].patroni}{path}"

    def _superuser_dsn(self, node: int) -> str:
        host, port = self._hosts[node].address, self._ports[node].postgresql
        return f"postgresql://postgres:{self._passwords['postgres']}@{host}:{port}/postgres"

    @staticmethod
    def _signal(directory: Path, number: signal.Signals) -> None:
        for pid in processes_in(directory):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def _configuration(self, node: int) -> dict[str, Any]:
        address, ports = self._hosts[node].address, self._ports[node]
        loop_seconds = max(self.ttl_seconds // 5, 1)
        replicator = {"username": "repl", "password": self._passwords["repl"]}
        data = self._home(node) / "data"
        return {
            "scope": _SCOPE,
            "name": f"node{node}",
            "restapi": {
                "listen": f"{address}:{ports.patroni}",
                "connect_address": f"{address}:{ports.patroni}",
            },
            "etcd3": {"hosts": f"{self._etcd_address}:{self._etcd_ports[0]}"},
            "bootstrap": {
                "dcs": {
                    "ttl": self.ttl_seconds,
                    "loop_wait": loop_seconds,
                    "retry_timeout": max(loop_seconds, 3),
                    # A primary that has failed is not waited for.
                    "primary_start_timeout": 0,
                    "synchronous_mode": True,
                    "synchronous_mode_strict": True,
                    "postgresql": {
                        "use_pg_rewind": True,
                        "use_slots": True,
                        "parameters": _PARAMETERS,
                    },
                },
                "initdb": [{"encoding": "UTF8"}, {"locale": "C"}, "data-checksums"],
            },
            "postgresql": {
                "listen": f"{address}:{ports.postgresql}",
                "connect_address": f"{address}:{ports.postgresql}",
                "data_dir": str(data),
                "bin_dir": str(binary("postgres").parent),
                "pgpass": str(self._home(node) / "pgpass"),
                "parameters": {"unix_socket_directories": ""},
                # A former primary that cannot be rewound is copied from the new one.
                "remove_data_directory_on_rewind_failure": True,
                "remove_data_directory_on_diverged_timelines": True,
                "pg_hba": [
                    "host all all 0.0.0.0/0 scram-sha-256",
                    "host replication repl 0.0.0.0/0 scram-sha-256",
                ],
                "authentication": {
                    "superuser": {
                        "username": "postgres",
                        "password": self._passwords["postgres"],
                    },
                    "replication": replicator,
                    "rewind": {**replicator, "username": "rewind"},
                },
            },
        }


@contextlib.contextmanager
def patroni_cluster(
    hosts: Sequence[Host] | None = None, *, ttl_seconds: int = TTL_SECONDS
) -> Iterator[PatroniCluster]:
    """Runs a cluster of its own for a test."""
    with private_directory("patroni") as directory:
        cluster = PatroniCluster(directory, hosts or loopback_hosts(NODES), ttl_seconds=ttl_seconds)
        create(cluster)
        yield cluster


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=_REQUEST_SECONDS_MAX):
            return True
    except OSError:
        return False
