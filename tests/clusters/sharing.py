"""Engines that one test starts for itself, or that all processes of a test run share."""

from __future__ import annotations

import contextlib
import os
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

import msgspec

from tests.clusters.guard import (
    locked_directory,
    private_directory,
    register_user,
    start_guard,
)

AccessT = TypeVar("AccessT", bound=msgspec.Struct)


class Engine(ABC, Generic[AccessT]):
    """An engine that one process starts and others use. Its files are in one directory, except for
    its log."""

    def __init__(self, directory: Path, log_path: Path, access: AccessT) -> None:
        """`access` is what a process needs to know to use the engine."""
        self.directory = directory
        self.log_path = log_path
        self._access = access
        self._process: subprocess.Popen[bytes] | None = None

    @abstractmethod
    def create(self) -> None:
        """Creates the files of the engine and starts it."""

    def log(self) -> str:
        return self.log_path.read_text("utf-8", "replace") if self.log_path.exists() else ""

    def access(self) -> bytes:
        """Returns what another process needs to know to use the engine."""
        return msgspec.json.encode(self._access)

    def attach(self, access: bytes) -> None:
        """Uses the engine that another process has started."""
        self._access = msgspec.json.decode(access, type=type(self._access))

    def detach(self) -> None:
        """Leaves the engine to the guard of its directory."""
        if self._process is not None:
            self._process.returncode = 0  # otherwise, Popen would warn that it is running


EngineT = TypeVar("EngineT", bound=Engine[Any])
MakeEngine = Callable[[Path, Path], EngineT]
"""Makes an engine with its files in a directory, and its log in a file."""


def run_name() -> str:
    """Returns the name of this test run, which is the same in all its processes."""
    return os.environ.get("PYTEST_XDIST_TESTRUNUID", str(os.getpid()))


@contextlib.contextmanager
def private_engine(make: MakeEngine[EngineT], name: str, directory: Path) -> Iterator[EngineT]:
    """Runs an engine for one test. Only its log is in `directory`: the account that runs the engine
    need not have access to the directories of tests."""
    with private_directory(name) as private:
        engine = make(private, directory / f"{name}.log")
        create(engine)
        try:
            yield engine
        finally:
            engine.detach()


def shared_engine(make: MakeEngine[EngineT], name: str, run: str) -> EngineT:
    """Returns the engine that all processes of a test run share. The first one starts it, and it
    runs until the last one has ended."""
    directory = Path(f"/tmp/etagere-{name}-{run}")
    engine = make(directory, directory / f"{name}.log")
    published = directory / "access.json"
    with locked_directory(directory):
        if published.exists():
            register_user(directory)
            engine.attach(published.read_bytes())
        else:
            guard = start_guard(directory)
            guard.returncode = 0  # it outlives this process
            create(engine)
            engine.detach()
            published.touch(0o600)
            published.write_bytes(engine.access())
    return engine


class Creatable(Protocol):
    """An engine, or a cluster of several."""

    def create(self) -> None:
        """Creates its files and starts it."""

    def log(self) -> str: ...


def create(engine: Creatable) -> None:
    """Creates an engine, and adds its log to the error if that fails."""
    try:
        engine.create()
    except BaseException as error:
        error.add_note(engine.log())
        raise
