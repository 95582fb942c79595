"""A store with the processes of a server."""

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
    """A supervisor and its writer, with a temporary directory."""

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
        """Starts the processes; returns when the writer accepts connections."""
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
    """Creates a store and removes it at the end."""
    with tempfile.TemporaryDirectory(prefix="etagere-bench-", dir=below) as name:
        server = Server(Path(name) / "store", config or Config())
        try:
            server.wait()
            yield server
        finally:
            server.stop()


def peak_mebibytes(pid: int | str = "self") -> float:
    """Returns the peak resident memory of a process."""
    for line in Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    raise LookupError(f"process {pid} has no VmHWM")


def forget_peak() -> float:
    """Resets the peak memory of this process; returns its current resident memory."""
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    return peak_mebibytes()
