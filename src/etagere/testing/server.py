"""A server process for tests."""

from __future__ import annotations

import base64
import contextlib
import os
import secrets
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Final, TypeAlias

from etagere.testing.accounts import Account

SettingValue: TypeAlias = str | int | bool | Path | Iterable[str] | None
"""A value of a setting; None leaves the default."""

_LOG_CHARACTERS_MAX: Final = 8_000
"""How much of the log an error shows."""
_KILL_SECONDS: Final = 30.0
"""How long a server has to stop. Its own grace periods are shorter."""
_FOREIGN_VARIABLES: Final = (
    "ETAGERE_",
    # Those that measure coverage, or look for mistakes in the application, would slow it down.
    "COV_CORE_",
    "COVERAGE_PROCESS_",
    "PYTHONASYNCIODEBUG",
    "PYTHONDEVMODE",
    "PYTHONWARNINGS",
)
"""Beginnings of the names of variables that the server does not get."""
_PORTS: Final = ("blob_port", "queue_port", "table_port", "file_port", "smb_port")


class ServerError(RuntimeError):
    """The server did not start, or failed. The message contains the end of its log."""


class Server:
    """A process of `etagere serve`, for tests.

    By default it listens on free ports of this machine and stores data in a temporary directory
    without syncing it. It never outlives this process, however that ends. It is a context manager;
    `start` and `stop` do the same for frameworks that have no place for a `with` statement.
    """

    def __init__(
        self,
        *,
        data: str | Path | None = None,
        workers: int = 1,
        start_seconds_max: float = 30.0,
        **settings: SettingValue,
    ) -> None:
        """Keyword arguments are settings of the server, by the names that docs/configuration.md
        lists. With `data`, the server stores its data in this directory, durably. One front end is
        enough for most tests; more `workers` find races between front ends of the application."""
        self._variables = _variables(
            {
                **dict.fromkeys(_PORTS, 0),
                "memory": data is None,
                "data": data,
                "workers": workers,
                **settings,
            }
        )
        self._start_seconds_max = start_seconds_max
        self._process: subprocess.Popen[bytes] | None = None
        self._owner = 0
        self._log: BinaryIO | None = None
        self._log_text = ""
        self._given_directory = None if data is None else Path(data).absolute()
        self._directory: Path | None = None
        self._endpoints: Mapping[str, str] = {}

    def __enter__(self) -> Server:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        # The error of the test matters more than that of the server, which may have caused it.
        with contextlib.suppress(ServerError) if error is not None else contextlib.nullcontext():
            self.stop()

    def start(self) -> None:
        """Starts the server; returns when it answers requests. Raises `ServerError` if it does not
        start."""
        if self._process is not None:
            raise ServerError("the server has been started already")
        # Without a name, so that nothing remains of it if this process is killed.
        self._log = tempfile.TemporaryFile(prefix="etagere-log-")  # noqa: SIM115
        self._process = subprocess.Popen(
            # -P: a module of the application in this directory must not replace another one.
            [sys.executable, "-P", "-m", "etagere", "serve", "--stop-at-eof"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            env={**_environment(), **self._variables},
            # ^C on the terminal is for the tests, which stop the server at the end.
            start_new_session=True,
        )
        self._owner = os.getpid()
        try:
            _import_account_operations()  # while the server starts
            line = self._ready_line()
            self._endpoints = dict(word.split("=", 1) for word in line.split()[1:])
            self._directory = self._given_directory or _data_directory(self._process.pid)
        except BaseException:
            self._abandon()
            raise

    def _ready_line(self) -> str:
        """Returns what the server prints when it answers requests."""
        assert self._process is not None
        assert self._process.stdout is not None
        descriptor = self._process.stdout.fileno()
        deadline = time.monotonic() + self._start_seconds_max
        received = b""
        while not received.endswith(b"\n"):
            seconds = max(0.0, deadline - time.monotonic())
            poll = select.poll()
            poll.register(descriptor, select.POLLIN)
            if not poll.poll(seconds * 1000):
                raise self._error(f"the server was not ready after {self._start_seconds_max:g} s")
            part = os.read(descriptor, 4096)
            if not part:
                self._process.wait(_KILL_SECONDS)
                raise self._error("the server did not start")
            received += part
        return received.decode()

    def stop(self) -> None:
        """Stops the server, and waits until all of its processes have ended. Does nothing if it is
        not running. Raises `ServerError` if it had failed."""
        process = self._process
        if process is None or os.getpid() != self._owner:
            # A process that was forked from the owner has a copy of this object.
            return
        process.terminate()
        try:
            status = process.wait(_KILL_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()  # its children end with it
            process.wait()
            failure = f"the server did not stop within {_KILL_SECONDS:g} s"
        else:
            failure = f"the server has failed (exit status {status})" if status else ""
        self._release()
        if failure:
            raise self._error(failure)

    def _abandon(self) -> None:
        """Ends a server that is still starting. Closing its input lets it remove its temporary
        directory, which a signal might not, so early."""
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(_KILL_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._release()

    def _release(self) -> None:
        assert self._process is not None
        assert self._log is not None
        self._log_text = self.log()
        for stream in (self._process.stdin, self._process.stdout, self._log):
            if stream is not None:
                stream.close()
        self._process, self._log, self._endpoints = None, None, {}

    def _error(self, what: str) -> ServerError:
        log = self.log()
        cut = "…" if len(log) > _LOG_CHARACTERS_MAX else ""
        return ServerError(f"{what}. Its log:\n{cut}{log[-_LOG_CHARACTERS_MAX:]}")

    # The running server

    @property
    def pid(self) -> int:
        """The process ID of the supervisor."""
        return self._running().pid

    @property
    def endpoints(self) -> Mapping[str, str]:
        """The URLs of the services, without an account, by name: `blob`, `queue`, `table`, `file`
        and, unless it is off, `smb`."""
        self._running()
        return self._endpoints

    @property
    def data(self) -> Path:
        """The data directory."""
        self._running()
        assert self._directory is not None
        return self._directory

    def log(self, start: int = 0) -> str:
        """Returns what the server has logged: the requests, and what went wrong. `start` is the
        number of bytes to skip."""
        if self._log is None:
            return self._log_text
        size = os.fstat(self._log.fileno()).st_size
        text = os.pread(self._log.fileno(), max(0, size - start), start)
        return text.decode(errors="replace")

    def log_size(self) -> int:
        """Returns how many bytes the log has now."""
        return 0 if self._log is None else os.fstat(self._log.fileno()).st_size

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            raise ServerError("the server is not running")
        return self._process

    # Accounts

    @property
    def account(self) -> Account:
        """The development account, which every server has. It is public, and all tests that use it
        share its data: `new_account` isolates them."""
        from etagere.settings.values import DEVELOPMENT_ACCOUNT  # noqa: PLC0415

        (key,) = DEVELOPMENT_ACCOUNT.keys
        return self._account(DEVELOPMENT_ACCOUNT.name, key)

    @property
    def connection_string(self) -> str:
        """The connection string of the development account."""
        return self.account.connection_string

    def new_account(self, name: str | None = None) -> Account:
        """Adds an account, which is empty, and returns it; takes a few milliseconds. The name is
        unique unless given. May be called from any thread, and while an event loop runs."""
        from etagere.testing.account_adding import add  # noqa: PLC0415

        self._running()
        # Random, because a data directory outlives this object.
        chosen = name or f"test{secrets.token_hex(8)}"
        return self._account(chosen, add(self.data, chosen))

    def _account(self, name: str, key: bytes) -> Account:
        self._running()
        return Account(name, base64.b64encode(key).decode(), self._endpoints, self._authority())

    def _authority(self) -> Path | None:
        """Returns the certificate of the CA that the server created, if it did."""
        if self._variables.get("ETAGERE_TLS") != "self-signed":
            return None
        from etagere.tls import DIRECTORY_NAME  # noqa: PLC0415
        from etagere.tls.development import CertificateFiles  # noqa: PLC0415

        return CertificateFiles(self.data / DIRECTORY_NAME).authority


def _import_account_operations() -> None:
    """Imports what `Server.new_account` needs, which takes 0.1 s."""
    from etagere.gc_tuning import paused_gc  # noqa: PLC0415

    with paused_gc():
        import etagere.testing.account_adding  # noqa: F401, PLC0415


def _data_directory(pid: int) -> Path:
    """Returns the data directory of a server that chose it itself: the supervisor has the lock file
    in it open."""
    from etagere.directories import LOCK_NAME  # noqa: PLC0415

    for link in Path(f"/proc/{pid}/fd").iterdir():
        path = link.readlink()
        if path.name == LOCK_NAME:
            return path.parent
    raise ServerError("the data directory of the server is unknown")


def _environment() -> dict[str, str]:
    """Returns the environment of the tests, without variables that would change the server."""
    return {
        name: text for name, text in os.environ.items() if not name.startswith(_FOREIGN_VARIABLES)
    }


def _variables(given: Mapping[str, SettingValue]) -> dict[str, str]:
    """Returns the environment variables of settings. Unlike flags, other users cannot see them."""
    from etagere.settings import SETTINGS  # noqa: PLC0415
    from etagere.settings.loading import did_you_mean  # noqa: PLC0415

    known = {setting.name: setting for setting in SETTINGS}
    for name in given:
        if name not in known:
            raise TypeError(f"{name!r} is not a setting{did_you_mean(name, known)}")
    return {
        known[name].variable: _text(value) for name, value in given.items() if value is not None
    }


def _text(value: SettingValue) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str | int | Path):
        return str(value)
    assert value is not None
    return ";".join(value)
