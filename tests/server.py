"""A server started as a user starts it, and clients of the public SDK for it."""

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
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from azure.core.exceptions import HttpResponseError
from azure.storage.blob import BlobServiceClient
from azure.storage.blob.aio import BlobServiceClient as AsyncBlobServiceClient

SECONDS_MAX = 20.0
ROOT: Final = Path(__file__).parents[1]

ACCOUNT: Final = "devstoreaccount1"
KEY: Final = (
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
)
SECOND_ACCOUNT: Final = "second"
SECOND_KEYS: Final = tuple(base64.b64encode(bytes([n]) * 64).decode() for n in (1, 2))
SERVICES: Final = ("blob", "queue", "table")
DEVELOPMENT_PORT: Final = 10_000
WRONG_KEY: Final = base64.b64encode(b"x" * 64).decode()

_numbers = itertools.count(1)


class Server:
    """The processes of `etagere serve` on one data directory."""

    program: tuple[str, ...] = ("-m", "etagere")
    """What the interpreter is told to run."""

    def __init__(self, directory: Path, *flags: str, command_prefix: tuple[str, ...] = ()) -> None:
        """The prefix is a command that runs the server in its own place, such as `prlimit`."""
        self.directory = directory
        self.log_path = directory.with_name(f"{directory.name}.log")
        self.endpoints: dict[str, str] = {}
        self._flags = flags
        self._command_prefix = command_prefix
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Returns when requests are answered."""
        command = [sys.executable, *self.program, "serve", "--data", str(self.directory)]
        for service in SERVICES:
            if f"--{service}-port" not in self._flags:
                command += [f"--{service}-port", "0"]
        with self.log_path.open("ab") as log:
            self._process = subprocess.Popen(
                [*self._command_prefix, *command, *self._flags],
                stdout=subprocess.PIPE,
                stderr=log,
                env=environment(),
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
            if not selector.select(SECONDS_MAX):
                raise TimeoutError(f"the server is not ready:\n{self.log()}")
        line = self._process.stdout.readline().decode()
        if not line.startswith("READY "):
            raise RuntimeError(f"the server did not start: {line}\n{self.log()}")
        return line

    def log(self) -> str:
        return self.log_path.read_text("utf-8") if self.log_path.exists() else ""

    def stop(self) -> int:
        """Ends it as a user does; returns the exit status."""
        if self._process is None:
            return 0
        self._process.send_signal(signal.SIGTERM)
        try:
            return self._forget(self._process.wait(SECONDS_MAX))
        except subprocess.TimeoutExpired:
            self.kill()
            raise

    def kill(self) -> None:
        """Ends the whole tree at once, as a crash of the machine would."""
        if self._process is None:
            return
        # So that the supervisor starts no more of them.
        self._process.send_signal(signal.SIGSTOP)
        children = self.children()
        for pid in (*children, self.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._forget(self._process.wait(SECONDS_MAX))
        eventually(lambda: not any(map(_lives, children)), "the end of the server's processes")

    def children(self) -> list[int]:
        listed = Path(f"/proc/{self.pid}/task/{self.pid}/children")
        if not listed.exists():
            return []
        return [int(pid) for pid in listed.read_text("ascii").split()]

    def _forget(self, status: int) -> int:
        assert self._process is not None
        if self._process.stdout is not None:
            self._process.stdout.close()
        self._process = None
        return status

    # Clients

    @property
    def endpoint(self) -> str:
        """Of Blob."""
        return self.endpoints.get("blob", "")

    def url(self, account: str = ACCOUNT) -> str:
        return f"{self.endpoint}/{account}"

    def service(self, account: str = ACCOUNT, key: str = KEY, **options: Any) -> BlobServiceClient:
        """Without retries: every answer counts."""
        credential = {"account_name": account, "account_key": key}
        return BlobServiceClient(self.url(account), credential, retry_total=0, **options)

    def async_service(self, **options: Any) -> AsyncBlobServiceClient:
        credential = {"account_name": ACCOUNT, "account_key": KEY}
        return AsyncBlobServiceClient(self.url(), credential, retry_total=0, **options)


@contextlib.contextmanager
def served(directory: Path, *flags: str, command_prefix: tuple[str, ...] = ()) -> Iterator[Server]:
    """A server that ends with its test, whatever happens."""
    server = Server(directory, *flags, command_prefix=command_prefix)
    server.start()
    try:
        yield server
    finally:
        server.kill()


@contextlib.contextmanager
def development_port() -> Iterator[int]:
    """Port 10000, for one test at a time on this machine."""
    # An abstract name is gone with the process that holds it, however that ends.
    with socket.socket(socket.AF_UNIX) as turn:
        name = f"\0etagere-port-{DEVELOPMENT_PORT}"
        eventually(lambda: _binds(turn, name), "the end of another test on the port")
        eventually(_is_free, f"the end of what listens on port {DEVELOPMENT_PORT}")
        yield DEVELOPMENT_PORT


def _binds(turn: socket.socket, name: str) -> bool:
    try:
        turn.bind(name)
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            raise
        return False
    return True


def _is_free() -> bool:
    """The port of Blob, and those behind it of the other services."""
    for number in range(len(SERVICES)):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", DEVELOPMENT_PORT + number)) == 0:
                return False
    return True


def environment() -> dict[str, str]:
    """Without the settings of whoever runs the tests, and with the sources on the path."""
    clean = {name: text for name, text in os.environ.items() if not name.startswith("ETAGERE_")}
    return {**clean, "PYTHONPATH": str(ROOT / "src")}


def check(directory: Path) -> subprocess.CompletedProcess[str]:
    """`etagere check` on a data directory."""
    command = [sys.executable, "-m", "etagere", "check", "--data", str(directory)]
    return subprocess.run(
        command, env=environment(), capture_output=True, text=True, timeout=60, check=False
    )


def _lives(pid: int) -> bool:
    try:
        told = Path(f"/proc/{pid}/stat").read_text("utf-8")
    except (FileNotFoundError, ProcessLookupError):
        return False
    return told.rpartition(")")[2].split()[0] != "Z"


# What tests say again and again


def unique(prefix: str = "container") -> str:
    return f"{prefix}-{os.getpid()}-{next(_numbers)}"


class Refused:
    """What a client was told."""

    status: int = 0
    code: str = ""
    message: str = ""
    details: dict[str, str]
    """By the names of the elements, which the SDK puts in lower case."""


@contextlib.contextmanager
def refused(status: int, code: str) -> Iterator[Refused]:
    """The SDK raises just this."""
    told = Refused()
    with pytest.raises(HttpResponseError) as caught:
        yield told
    error = caught.value
    told.status = error.status_code or 0
    found = getattr(error, "error_code", "") or ""
    told.code = str(getattr(found, "value", found))
    told.message = error.message
    told.details = getattr(error, "additional_info", None) or {}
    assert (told.status, told.code) == (status, code), error


class Answer:
    """Sees the answers to the requests it is given to."""

    status: int = 0
    headers: dict[str, str]

    def __call__(self, response: Any) -> None:
        self.status = response.http_response.status_code
        self.headers = {
            name.lower(): value for name, value in response.http_response.headers.items()
        }


def with_headers(**headers: str) -> Callable[[Any], None]:
    """A hook that adds or replaces headers before a request is signed."""

    def change(request: Any) -> None:
        for name, value in headers.items():
            request.http_request.headers[name.replace("_", "-")] = value

    return change


def eventually(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + SECONDS_MAX
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(what)
        time.sleep(0.01)
