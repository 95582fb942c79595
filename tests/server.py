"""Starts `etagere serve` as a user would, for the tests that need a real server."""

from __future__ import annotations

import base64
import contextlib
import errno
import itertools
import os
import selectors
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final

SECONDS_MAX = 20.0
_PORT_SECONDS_MAX = 240.0
"""Several tests may wait for the default ports, and each starts a server and clients."""
ROOT: Final = Path(__file__).parents[1]

ACCOUNT: Final = "devstoreaccount1"
KEY: Final = (
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
)
SECOND_ACCOUNT: Final = "second"
SECOND_KEYS: Final = tuple(base64.b64encode(bytes([n]) * 64).decode() for n in (1, 2))
PREMIUM_ACCOUNT: Final = "premium"
"""An account whose file shares are premium."""
PREMIUM_KEY: Final = base64.b64encode(bytes([3]) * 64).decode()
SERVICES: Final = ("blob", "queue", "table", "file")
PORTS: Final = (*SERVICES, "smb")
"""What a server listens for."""
DEVELOPMENT_PORT: Final = 10_000
DEVELOPMENT_SMB_PORT: Final = 10_445
WRONG_KEY: Final = base64.b64encode(b"x" * 64).decode()

_numbers = itertools.count(1)


class Server:
    """The processes of `etagere serve` on one data directory."""

    program: tuple[str, ...] = ("-m", "etagere")
    """Arguments of the interpreter that start the program."""
    start_seconds_max = SECONDS_MAX

    def __init__(
        self,
        directory: Path,
        *flags: str,
        command_prefix: tuple[str, ...] = (),
        variables: Mapping[str, str] | None = None,
    ) -> None:
        """`command_prefix` is a command that executes the server, such as `prlimit`; `variables`
        are added to its environment."""
        self.directory = directory
        self.log_path = directory.with_name(f"{directory.name}.log")
        self.endpoints: dict[str, str] = {}
        self._flags = flags
        self._command_prefix = command_prefix
        self._variables = variables or {}
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Starts the server and waits until it answers requests."""
        command = [sys.executable, *self.program, "serve", "--data", str(self.directory)]
        for service in PORTS:
            if f"--{service}-port" not in self._flags:
                command += [f"--{service}-port", "0"]
        with self.log_path.open("ab") as log:
            self._process = subprocess.Popen(
                [*self._command_prefix, *command, *self._flags],
                stdout=subprocess.PIPE,
                stderr=log,
                env={**environment(), **self._variables},
            )
        try:
            self.endpoints = dict(word.split("=", 1) for word in self._ready_line().split()[1:])
        except BaseException:
            self.kill()
            raise

    def _ready_line(self) -> str:
        assert self._process is not None
        assert self._process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            if not selector.select(self.start_seconds_max):
                raise TimeoutError(f"the server is not ready:\n{self.log()}")
        line = self._process.stdout.readline().decode()
        if not line.startswith("READY "):
            raise RuntimeError(f"the server did not start: {line}\n{self.log()}")
        return line

    def log(self) -> str:
        return self.log_path.read_text("utf-8") if self.log_path.exists() else ""

    def log_with(self, words: str) -> str:
        """Waits until the log contains some words, such as the ID of a request, and returns it. The
        line of a request is written after its response was sent."""
        eventually(lambda: words in self.log(), f"{words!r} in the log")
        return self.log()

    def stop(self) -> int:
        """Sends SIGTERM and returns the exit status."""
        if self._process is None:
            return 0
        self._process.send_signal(signal.SIGTERM)
        try:
            return self._reap(self._process.wait(SECONDS_MAX))
        except subprocess.TimeoutExpired:
            self.kill()
            raise

    def kill(self) -> None:
        """Kills every process of the server at once, like a crash of the machine."""
        if self._process is None:
            return
        # Keeps the supervisor from restarting children.
        self._process.send_signal(signal.SIGSTOP)
        children = self.children()
        for pid in (*children, self.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._reap(self._process.wait(SECONDS_MAX))
        eventually(lambda: not any(map(_is_running, children)), "the server's processes to exit")

    def children(self) -> list[int]:
        path = Path(f"/proc/{self.pid}/task/{self.pid}/children")
        if not path.exists():
            return []
        return [int(pid) for pid in path.read_text("ascii").split()]

    def pid_of(self, name: str) -> int:
        """Returns the child of this name that was started last."""
        return int(self.log().rpartition(f"started {name} (pid ")[2].partition(")")[0])

    def front_end(self) -> int:
        """Returns the last front end of the blob, queue and table services, if none was restarted
        yet."""
        return self.children()[-2]

    def file_front_end(self) -> int:
        """Returns the front end of the file service, if no child was restarted yet."""
        return self.children()[-1]

    def _reap(self, status: int) -> int:
        assert self._process is not None
        if self._process.stdout is not None:
            self._process.stdout.close()
        self._process = None
        return status

    def url(self, service: str, account: str = ACCOUNT) -> str:
        """Returns the URL of an account in one of the services, with the account in the path."""
        return f"{self.endpoints[service]}/{account}"

    def connection_string(self, *services: str) -> str:
        """Returns a connection string for the development account in some of the services."""
        parts = [f"DefaultEndpointsProtocol=http;AccountName={ACCOUNT};AccountKey={KEY}"]
        parts += [f"{service.title()}Endpoint={self.url(service)}" for service in services]
        return ";".join(parts)


@contextlib.contextmanager
def served(directory: Path, *flags: str, command_prefix: tuple[str, ...] = ()) -> Iterator[Server]:
    """Runs a server and kills it on exit, whether or not the test passed."""
    server = Server(directory, *flags, command_prefix=command_prefix)
    server.start()
    try:
        yield server
    finally:
        server.kill()


@contextlib.contextmanager
def development_port() -> Iterator[int]:
    """Reserves the default ports of a server, for one test at a time on this machine; yields the
    first of them."""
    # The kernel releases an abstract socket name when its process ends, however it ends.
    with socket.socket(socket.AF_UNIX) as lock:
        name = f"\0etagere-port-{DEVELOPMENT_PORT}"
        awaited = "another test to release the port"
        eventually(lambda: _binds(lock, name), awaited, _PORT_SECONDS_MAX)
        eventually(_ports_are_free, f"port {DEVELOPMENT_PORT} to become free")
        yield DEVELOPMENT_PORT


def _binds(lock: socket.socket, name: str) -> bool:
    try:
        lock.bind(name)
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            raise
        return False
    return True


def _ports_are_free() -> bool:
    """Checks the Blob port, the ports of the other services, which follow it, and that of SMB."""
    numbers = range(DEVELOPMENT_PORT, DEVELOPMENT_PORT + len(SERVICES))
    for number in (*numbers, DEVELOPMENT_SMB_PORT):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", number)) == 0:
                return False
    return True


def environment() -> dict[str, str]:
    """Returns this environment without `ETAGERE_*` settings and with the sources on the path."""
    clean = {name: text for name, text in os.environ.items() if not name.startswith("ETAGERE_")}
    return {**clean, "PYTHONPATH": str(ROOT / "src")}


def check(directory: Path) -> subprocess.CompletedProcess[str]:
    """Runs `etagere check` on a data directory."""
    command = [sys.executable, "-m", "etagere", "check", "--data", str(directory)]
    return subprocess.run(
        command, env=environment(), capture_output=True, text=True, timeout=60, check=False
    )


def _is_running(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text("utf-8")
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


def unique(prefix: str = "container") -> str:
    """Returns a resource name that no other test uses, in this process or another."""
    return f"{prefix}-{os.getpid()}-{next(_numbers)}"


def eventually(condition: Callable[[], bool], what: str, seconds_max: float = SECONDS_MAX) -> None:
    """Waits until a condition holds; `what` names it in the error on timeout."""
    deadline = time.monotonic() + seconds_max
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"timed out waiting for {what}")
        time.sleep(0.01)
