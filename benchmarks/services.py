"""The compared servers, each with its processes and its directory."""

from __future__ import annotations

import contextlib
import http.client
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from benchmarks import tools
from benchmarks.figures import Settings
from benchmarks.server import peak_mebibytes

_START_SECONDS_MAX = 30.0
_STOP_SECONDS_MAX = 20.0
_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")

OURS, AZURITE, NGINX, NODE = "ours", "azurite", "nginx", "node"
BLOB, QUEUE, TABLE, FILE = "blob", "queue", "table", "file"
"""The services of a server, each on its own port."""


class Service:
    """A server on a port of this machine."""

    def __init__(self, name: str, process: subprocess.Popen[str], port: int) -> None:
        self.name = name
        self.port = port
        self.ports: dict[str, int] = {}
        """The ports of all its services, if it is ours."""
        self._process = process

    def serving(self, kind: str) -> Service:
        """Returns another service of the same server."""
        return Service(self.name, self._process, self.ports[kind])

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def processes(self) -> list[int]:
        """Returns the IDs of the process and of all its descendants."""
        found = [self._process.pid]
        for pid in found:
            with contextlib.suppress(OSError):
                for task in Path(f"/proc/{pid}/task").iterdir():
                    found += map(int, (task / "children").read_text(encoding="ascii").split())
        return found

    def cpu_seconds(self) -> float:
        """Returns the user and system CPU time of all its processes."""
        return cpu_seconds(self.processes())

    def peak_mebibytes(self) -> float:
        """Returns the sum of the peaks of all processes; shared memory is counted in each."""
        return sum(peak_mebibytes(pid) for pid in self.processes())

    def mebibytes(self) -> float:
        """Returns the resident memory of all processes; shared memory is counted once."""
        return sum(_proportional_mebibytes(pid) for pid in self.processes())

    def wait(self) -> None:
        """Waits until it accepts connections."""
        deadline = time.monotonic() + _START_SECONDS_MAX
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port)):
                return
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"{self.name} did not start")
            time.sleep(0.02)

    def stop(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(_STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()

    def kill(self) -> None:
        """Kills all processes at once."""
        # The parent first, because it would restart the others.
        for pid in self.processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._process.wait()


def cpu_seconds(pids: Iterable[int]) -> float:
    """Returns the user and system CPU time of processes."""
    return sum(map(_cpu_ticks, pids)) / _TICKS_PER_SECOND


def _cpu_ticks(pid: int) -> int:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    except OSError:
        return 0
    # The name may contain anything, even blanks and parentheses.
    user, system = stat.rpartition(")")[2].split()[11:13]
    return int(user) + int(system)


def _proportional_mebibytes(pid: int) -> float:
    """Returns the proportional set size of a process."""
    rollup = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii")
    for line in rollup.splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) / 1024
    raise LookupError(f"process {pid} has no Pss")


# The servers


@contextlib.contextmanager
def started(
    settings: Settings, files: Mapping[str, bytes], *, kind: str = BLOB
) -> Iterator[dict[str, Service]]:
    """Starts our server and, unless `--quick` is set, the available servers for comparison. nginx
    serves `files`, if there are any; the others are empty."""
    below = tempfile.TemporaryDirectory(prefix="etagere-bench-", dir=settings.directory)
    with contextlib.ExitStack() as ends:
        directory = Path(ends.enter_context(below))
        services = {OURS: etagere(directory, ends, kind)}
        if not settings.quick:
            command = tools.azurite(kind)
            nginx = tools.nginx(install=True) if files else None
            if command is not None:
                services[AZURITE] = _azurite(command, directory, ends, kind)
            if nginx is not None:
                services[NGINX] = _nginx(nginx, directory, files, ends)
        for service in services.values():
            service.wait()
        yield services


def etagere(
    directory: Path,
    ends: contextlib.ExitStack,
    kind: str = BLOB,
    *,
    name: str = OURS,
    flags: Sequence[str] = (),
    variables: Mapping[str, str] | None = None,
) -> Service:
    """Starts our server on an existing directory; returns when it accepts requests. `variables` are
    added to its environment."""
    log = ends.enter_context((directory / f"{name}.log").open("wb"))
    serve = [
        sys.executable,
        "-m",
        "etagere",
        "serve",
        "--blob-port",
        "0",
        "--queue-port",
        "0",
        "--table-port",
        "0",
        "--file-port",
        "0",
        "--smb-port",
        "0",
    ]
    process = subprocess.Popen(
        [*serve, "--data", str(directory / name), *flags],
        stdout=subprocess.PIPE,
        stderr=log,
        text=True,
        env={**os.environ, **(variables or {})},
    )
    service = Service(name, process, 0)
    ends.callback(service.stop)
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith("READY "):
            endpoints = (word.split("=", 1) for word in line.split()[1:])
            service.ports = {each: int(url.rpartition(":")[2]) for each, url in endpoints}
            service.port = service.ports[kind]
            return service
    raise RuntimeError(f"{name} did not start: {Path(log.name).read_text(encoding='utf-8')[-500:]}")


def _azurite(command: list[str], directory: Path, ends: contextlib.ExitStack, kind: str) -> Service:
    port = _free_port()
    flags = ["--silent", "--skipApiVersionCheck", "--disableTelemetry"]
    process = subprocess.Popen(
        [*command, *flags, f"--{kind}Port", str(port), "--location", str(directory / "azurite")],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    service = Service(AZURITE, process, port)
    ends.callback(service.stop)
    return service


_NGINX = """\
{user}
daemon off;
worker_processes 1;
pid {directory}/pid;
error_log {directory}/error.log;
events {{ worker_connections 256; }}
http {{
    access_log off;
    sendfile on;
    tcp_nopush on;
    keepalive_requests 100000000;
    client_body_temp_path {directory}/body;
    proxy_temp_path {directory}/proxy;
    fastcgi_temp_path {directory}/fastcgi;
    uwsgi_temp_path {directory}/uwsgi;
    scgi_temp_path {directory}/scgi;
    server {{
        listen 127.0.0.1:{port};
        root {directory}/files;
    }}
}}
"""


def _nginx(
    nginx: str, directory: Path, files: Mapping[str, bytes], ends: contextlib.ExitStack
) -> Service:
    """Starts nginx with one worker that serves files, without a log."""
    port, directory = _free_port(), directory / "nginx"
    (directory / "files").mkdir(parents=True)
    for name, data in files.items():
        (directory / "files" / name).write_bytes(data)
    user = "user root;" if os.geteuid() == 0 else ""
    written = directory / "nginx.conf"
    config = _NGINX.format(user=user, directory=directory, port=port)
    written.write_text(config, encoding="utf-8")
    process = subprocess.Popen(
        [nginx, "-c", str(written), "-e", str(directory / "error.log")],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    service = Service(NGINX, process, port)
    ends.callback(service.stop)
    return service


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
        return port


# Requests for preparation and checks, which are not measured


def ask(
    connection: http.client.HTTPConnection,
    method: str,
    target: str,
    body: bytes = b"",
    headers: Mapping[str, str] | None = None,
) -> bytes:
    connection.request(method, target, body, dict(headers or {}))
    response = connection.getresponse()
    answer = response.read()
    if response.status not in (200, 201, 204):
        raise RuntimeError(f"{method} {target}: {response.status} {answer[:500]!r}")
    return answer
