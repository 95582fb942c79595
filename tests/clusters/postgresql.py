"""A PostgreSQL server of Debian's package, on a loopback port, for tests."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import shutil
import signal
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, ClassVar, Final

import msgspec
import psycopg

from tests.clusters.guard import give_to_engine, processes_in, start_daemon
from tests.clusters.ports import free_ports
from tests.clusters.sharing import Engine, private_engine, shared_engine
from tests.server import eventually, unique

START_SECONDS_MAX: Final = 60.0
"""Recovery after a kill included, on a busy machine."""
_STARTS_MAX: Final = 5
"""Another process may take the port that was free."""
_DATABASE: Final = "etagere"
_ROLE: Final = "etagere"
_STATUS_LINE: Final = 7
"""The line of postmaster.pid, from 0, that contains the status."""
_SETTINGS: Final = {
    "fsync": "on",
    "synchronous_commit": "on",
    "full_page_writes": "on",
    "max_connections": "300",
    "shared_buffers": "64MB",
    "max_wal_size": "512MB",
    "listen_addresses": "127.0.0.1",
    "timezone": "UTC",
    "lc_messages": "C",
    # Not in /dev/shm, so that removing the directory removes everything.
    "dynamic_shared_memory_type": "mmap",
}


class _Access(msgspec.Struct, frozen=True):
    """What clients need to know about a server that another process has started."""

    port: int
    password: str


class PostgresServer(Engine[_Access]):
    """A PostgreSQL server whose files are in one directory."""

    settings: ClassVar[Mapping[str, str]] = _SETTINGS

    def __init__(self, directory: Path, log_path: Path) -> None:
        super().__init__(directory, log_path, _Access(0, ""))
        self._data = directory / "data"

    @property
    def dsn(self) -> str:
        """The URL of a database whose owner is an ordinary role."""
        return self.url(_DATABASE)

    def url(self, database: str) -> str:
        """Returns the URL of another database of this server."""
        access = self._access
        return f"postgresql://{_ROLE}:{access.password}@127.0.0.1:{access.port}/{database}"

    @property
    def superuser_dsn(self) -> str:
        """The connection string of the superuser, over a UNIX socket."""
        return f"host={self._data} port={self._access.port} user=postgres dbname=postgres"

    def create(self) -> None:
        """Creates the files of the server, starts it, and creates the role and the database."""
        password = secrets.token_hex(12)
        self._data.mkdir(mode=0o700)
        give_to_engine(self._data)
        options = "--no-sync --username=postgres --encoding=UTF8 --locale=C --data-checksums"
        authentication = "--auth-local=trust --auth-host=scram-sha-256"
        command = [str(binary("initdb")), "-D", str(self._data), *options.split()]
        command += authentication.split()
        if start_daemon(command, self._data, self.log_path).wait(START_SECONDS_MAX):
            raise RuntimeError(f"initdb failed:\n{self.log()}")
        for _ in range(_STARTS_MAX):
            (port,) = free_ports()
            self._access = _Access(port, password)
            with contextlib.suppress(_PortTakenError):
                self.start()
                break
        else:
            raise RuntimeError(f"PostgreSQL did not start:\n{self.log()}")
        with psycopg.connect(self.superuser_dsn, autocommit=True) as connection:
            # The password consists of hexadecimal digits.
            connection.execute(f"CREATE ROLE {_ROLE} LOGIN CREATEDB PASSWORD '{password}'")
            connection.execute(f"CREATE DATABASE {_DATABASE} OWNER {_ROLE}")

    def start(self) -> None:
        """Starts the server on its data, and waits until it accepts connections."""
        settings = {
            **self.settings,
            "port": str(self._access.port),
            "unix_socket_directories": str(self._data),
        }
        words = [f"--{name}={value}" for name, value in settings.items()]
        begin = self.log_path.stat().st_size if self.log_path.exists() else 0
        command = [str(binary("postgres")), "-D", str(self._data), *words]
        self._process = start_daemon(command, self._data, self.log_path)
        eventually(self._is_ready_or_ended, "PostgreSQL to start", START_SECONDS_MAX)
        if self._process.poll() is not None:
            self._process = None
            if re.search("Address already in use", self.log()[begin:]):
                raise _PortTakenError
            raise RuntimeError(f"PostgreSQL did not start:\n{self.log()}")

    def _is_ready_or_ended(self) -> bool:
        assert self._process is not None
        if self._process.poll() is not None:
            return True
        try:
            lines = (self._data / "postmaster.pid").read_text("utf-8").splitlines()
        except FileNotFoundError:
            return False
        is_own = bool(lines) and lines[0] == str(self._process.pid)
        return is_own and len(lines) > _STATUS_LINE and lines[_STATUS_LINE].strip() == "ready"

    def stop(self) -> None:
        """Stops the server in order, and ends the connections of its clients."""
        self._end(signal.SIGINT)

    def kill(self) -> None:
        """Kills every process of the server at once."""
        assert self._process is not None
        # Otherwise the postmaster would restart the others.
        self._process.send_signal(signal.SIGSTOP)
        self._signal_all(signal.SIGKILL)
        self._end(signal.SIGKILL)

    def restart(self) -> None:
        """Stops the server in order and starts it again, on the same port."""
        self.stop()
        self.start()

    def pause(self) -> None:
        """Stops every process of the server, like a machine that hangs."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)
        self._signal_all(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal_all(signal.SIGCONT)

    def _signal_all(self, number: signal.Signals) -> None:
        for pid in processes_in(self._data):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def _end(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)
        self._process.wait(START_SECONDS_MAX)
        self._process = None
        eventually(lambda: not processes_in(self._data), "the processes of PostgreSQL to end")


class SharedPostgresServer(PostgresServer):
    """A server that no test kills, so it need not wait for the disk."""

    settings: ClassVar[Mapping[str, str]] = {
        **_SETTINGS,
        "fsync": "off",
        "full_page_writes": "off",
    }


class _PortTakenError(Exception):
    """Another process listens on the chosen port."""


def postgresql(directory: Path) -> AbstractContextManager[PostgresServer]:
    """Runs a PostgreSQL server for one test; its log is in `directory`."""
    return private_engine(PostgresServer, "postgresql", directory)


def shared_postgresql(run: str) -> PostgresServer:
    """Returns the server that all processes of a test run share."""
    return shared_engine(SharedPostgresServer, "postgresql", run)


@contextlib.contextmanager
def without_standby(server: PostgresServer) -> Iterator[psycopg.Connection[Any]]:
    """Makes every COMMIT wait for a standby that does not exist. Yields a connection of the
    superuser."""
    with psycopg.connect(server.superuser_dsn, autocommit=True) as connection:
        connection.execute("ALTER SYSTEM SET synchronous_standby_names = 'nobody'")
        connection.execute("SELECT pg_reload_conf()")
        try:
            yield connection
        finally:
            connection.execute("ALTER SYSTEM SET synchronous_standby_names = ''")
            connection.execute("SELECT pg_reload_conf()")


@contextlib.contextmanager
def temporary_database(server: PostgresServer) -> Iterator[str]:
    """Creates a database; yields its URL, and removes it on exit."""
    name = unique("database").replace("-", "_")
    with psycopg.connect(server.dsn, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}".encode())
    try:
        yield server.url(name)
    finally:
        with psycopg.connect(server.dsn, autocommit=True) as connection:
            connection.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)".encode())


def binary(name: str) -> Path:
    """Returns the path of a program of PostgreSQL; Debian does not put them on the PATH."""
    versions = Path("/usr/lib/postgresql")
    found = sorted(versions.glob(f"*/bin/{name}"), key=lambda path: int(path.parts[-3]))
    if found:
        return found[-1]
    on_path = shutil.which(name)
    if on_path is None:
        raise FileNotFoundError(f"{name} of PostgreSQL is not installed; see `make test`")
    return Path(on_path)
