"""A small Ceph cluster on this machine, for long tests: one monitor, one manager, three OSDs.

The daemons run as they are, without containers or systemd, and keep three copies of each object in
sparse files.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from tests.clusters.guard import private_directory, start_daemon
from tests.clusters.hosts import LOOPBACK
from tests.clusters.ports import free_ports
from tests.clusters.sharing import create
from tests.server import eventually

OSDS: Final = 3
POOL: Final = "etagere"
START_SECONDS_MAX: Final = 180.0
_COMMAND_SECONDS_MAX: Final = 60.0
_PLACEMENT_GROUPS: Final = 16
_OSD_BYTES: Final = 10 << 30
"""Of a sparse file."""
_OSD_MEMORY_BYTES: Final = 896 << 20
"""The minimum that OSDs accept."""
_HEARTBEAT_GRACE_SECONDS: Final = 4
"""After this time without an answer, an OSD is taken for dead."""
_BINDING: Final = "rados.cpython-*.so"
_DEBIAN_PACKAGES: Final = Path("/usr/lib/python3/dist-packages")


class CephCluster:
    """A Ceph cluster whose files are in one directory, with one pool."""

    def __init__(self, directory: Path, address: str) -> None:
        self.directory = directory
        self._address = address
        self.osds = range(OSDS)
        self.configuration = directory / "ceph.conf"
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def create(self) -> None:
        """Creates the cluster, starts it, and creates the pool."""
        for name in ("mon.a", "mgr.x", *map("osd.{}".format, self.osds), "run"):
            (self.directory / name).mkdir()
        cluster_id, ports = str(uuid.uuid4()), free_ports(2)
        self.configuration.write_text(self._settings(cluster_id, *ports), "utf-8")
        places = f"[v2:{self._address}:{ports[0]},v1:{self._address}:{ports[1]}]"
        map_path = str(self.directory / "monmap")
        self._run("monmaptool", "--create", "--fsid", cluster_id, "--addv", "a", places, map_path)
        self._run(*self._daemon("mon", "a"), "--mkfs", "--monmap", map_path)
        self._start("mon", "a")
        eventually(self._has_quorum, "the monitor", START_SECONDS_MAX)
        for osd in self.osds:
            osd_id = str(uuid.uuid4())
            self.ceph("osd", "new", osd_id, str(osd))
            self._run(*self._daemon("osd", str(osd)), "--mkfs", "--osd-uuid", osd_id)
        self._start("mgr", "x")
        for osd in self.osds:
            self.start_osd(osd)
        self.await_osds()
        groups = str(_PLACEMENT_GROUPS)
        self.ceph("osd", "pool", "create", POOL, groups, groups, "replicated")
        self.ceph("osd", "pool", "application", "enable", POOL, "etagere")
        self.await_healthy()

    def url(self, prefix: str) -> str:
        """Returns the value of `--bodies` for a prefix of the pool."""
        return f"rados://{POOL}/{prefix}?conf={self.configuration}"

    def start_osd(self, osd: int) -> None:
        self._start("osd", str(osd))

    def kill_osd(self, osd: int) -> None:
        self._signal(osd, signal.SIGKILL)

    def pause_osd(self, osd: int) -> None:
        """Stops an OSD, like a machine that hangs."""
        self._signal(osd, signal.SIGSTOP)

    def resume_osd(self, osd: int) -> None:
        self._signal(osd, signal.SIGCONT)

    def await_osds(self) -> None:
        """Waits until all OSDs are in service."""
        eventually(
            lambda: self._query("osd", "stat").get("num_up_osds") == OSDS,
            "all OSDs",
            START_SECONDS_MAX,
        )

    def await_healthy(self) -> None:
        """Waits until every object has all its copies."""
        eventually(self._is_clean, "all copies of all objects", START_SECONDS_MAX)

    def ceph(self, *words: str) -> str:
        """Runs a command of the administrator."""
        return self._run("ceph", "-c", str(self.configuration), "--connect-timeout", "10", *words)

    def log(self) -> str:
        paths = sorted(self.directory.glob("*.log"))
        return "".join(
            f"--- {path.name}\n{path.read_text('utf-8', 'replace')[-10_000:]}" for path in paths
        )

    def _is_clean(self) -> bool:
        summary = self._query("pg", "stat").get("pg_summary", {})
        states = {entry["name"]: entry["num"] for entry in summary.get("num_pg_by_state", [])}
        return bool(states) and states.get("active+clean") == summary["num_pgs"]

    def _has_quorum(self) -> bool:
        return bool(self._query("quorum_status").get("quorum"))

    def _query(self, *words: str) -> dict[str, Any]:
        try:
            found: dict[str, Any] = json.loads(self.ceph(*words, "-f", "json"))
        except (subprocess.SubprocessError, ValueError):
            return {}
        return found

    def _daemon(self, kind: str, name: str) -> list[str]:
        return [f"ceph-{kind}", "-c", str(self.configuration), "-i", name]

    def _start(self, kind: str, name: str) -> None:
        process = start_daemon(
            [*self._daemon(kind, name), "-f"],
            self.directory,
            self.directory / f"{kind}.{name}.out.log",
            may_be_root=True,
        )
        process.returncode = 0  # the guard of the directory ends it
        self._processes[f"{kind}.{name}"] = process

    def _signal(self, osd: int, number: signal.Signals) -> None:
        os.kill(self._processes[f"osd.{osd}"].pid, number)

    def _run(self, *command: str) -> str:
        return subprocess.run(
            command,
            check=True,
            capture_output=True,
            text=True,
            cwd=self.directory,
            timeout=_COMMAND_SECONDS_MAX,
        ).stdout

    def _settings(self, cluster_id: str, port: int, old_port: int) -> str:
        directory, address = self.directory, self._address
        return f"""\
[global]
fsid = {cluster_id}
mon_host = [v2:{address}:{port}/0,v1:{address}:{old_port}/0]
mon_initial_members = a
public_addr = {address}
cluster_addr = {address}
ms_bind_ipv6 = false
auth_cluster_required = none
auth_service_required = none
auth_client_required = none
auth_allow_insecure_global_id_reclaim = false
run_dir = {directory}/run
admin_socket = {directory}/run/$name.$pid.asok
pid_file =
log_file = {directory}/$name.log
log_to_stderr = false
mon_cluster_log_file = {directory}/cluster.log
crash_dir = {directory}/run
osd_pool_default_size = {OSDS}
osd_pool_default_min_size = {OSDS - 1}
osd_pool_default_pg_autoscale_mode = off
osd_crush_chooseleaf_type = 0
osd_heartbeat_grace = {_HEARTBEAT_GRACE_SECONDS}
mon_osd_adjust_heartbeat_grace = false
mon_osd_min_down_reporters = 1
mon_data_avail_warn = 1
mon_data_avail_crit = 1
[mon]
mon_data = {directory}/mon.a
[mgr]
mgr_data = {directory}/mgr.x
mgr_initial_modules =
[osd]
osd_data = {directory}/osd.$id
osd_objectstore = bluestore
bluestore_block_size = {_OSD_BYTES}
bluestore_block_create = true
osd_memory_target = {_OSD_MEMORY_BYTES}
osd_heartbeat_interval = 1
osd_op_num_shards = 2
osd_recovery_sleep_hdd = 0
osd_scrub_begin_hour = 1
osd_scrub_end_hour = 2
"""


@contextlib.contextmanager
def ceph_cluster(address: str = LOOPBACK) -> Iterator[CephCluster]:
    """Runs a cluster of its own for a test."""
    with private_directory("ceph") as directory:
        cluster = CephCluster(directory, address)
        create(cluster)
        yield cluster


def binding_directory(directory: Path) -> Path:
    """Returns a new directory whose only module is Debian's `rados`, to be put on the path of an
    environment. The directory of all of Debian's modules would shadow those of the environment."""
    (module,) = _DEBIAN_PACKAGES.glob(_BINDING)
    path = directory / "binding"
    path.mkdir()
    (path / module.name).symlink_to(module)
    return path
