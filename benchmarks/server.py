"""A store with its processes, as a server starts them."""

from __future__ import annotations

import contextlib
import os
import signal
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from etagere import app
from etagere.config import Config

_START_SECONDS_MAX = 20.0


class Server:
    """A supervisor and its writer, over a directory that goes with them."""

    def __init__(self, directory: Path, config: Config) -> None:
        self.directory = directory
        self.config = config
        self._supervisor = os.fork()
        if self._supervisor == 0:
            status = 1
            try:
                status = app.serve_engine(directory, config)
            finally:
                os._exit(status)

    def wait(self) -> None:
        """Returns when there is a writer to talk to."""
        deadline = time.monotonic() + _START_SECONDS_MAX
        while not (self._children() and (self.directory / "writer.sock").exists()):
            if time.monotonic() > deadline:
                raise TimeoutError("no writer was started")
            time.sleep(0.005)

    def _children(self) -> list[int]:
        listed = Path(f"/proc/{self._supervisor}/task/{self._supervisor}/children")
        return [int(pid) for pid in listed.read_text(encoding="ascii").split()]

    @property
    def writer_pid(self) -> int:
        (pid,) = self._children()
        return pid

    def stop(self) -> None:
        os.kill(self._supervisor, signal.SIGTERM)
        os.waitpid(self._supervisor, 0)


@contextlib.contextmanager
def running(below: Path, config: Config | None = None) -> Iterator[Server]:
    """A new store, removed at the end."""
    with tempfile.TemporaryDirectory(prefix="etagere-bench-", dir=below) as name:
        server = Server(Path(name) / "store", config or Config())
        try:
            server.wait()
            yield server
        finally:
            server.stop()


def peak_mebibytes(pid: int | str = "self") -> float:
    """The most memory that a process ever had resident."""
    for line in Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    raise LookupError(f"process {pid} has no VmHWM")


def forget_peak() -> float:
    """Lets this process's peak memory begin anew; returns what it has resident now."""
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    return peak_mebibytes()
