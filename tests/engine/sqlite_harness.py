"""A ledger with its processes, started as a server starts them."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from pathlib import Path

from etagere import app
from etagere.config import Config
from etagere.engine.sqlite import SqliteEngine
from tests.clocks import SharedClock

_SECONDS_MAX = 20.0


class SqliteHarness:
    """A supervisor and its writer in separate processes, and handles on the ledger in this one."""

    name = "sqlite"
    reading_seconds_max = 0.1
    unknown_seconds_max = 0.001

    def __init__(self, directory: Path, config: Config | None = None) -> None:
        self.directory = directory
        self.config = config or Config()
        self.clock = SharedClock()
        self.supervisor_pid = 0
        self._engines: list[SqliteEngine] = []

    def start(self) -> None:
        """Starts the processes; returns when the writer has the ledger open."""
        self.supervisor_pid = os.fork()
        if self.supervisor_pid == 0:
            status = 1
            try:
                status = app.serve_engine(self.directory, self.config, self.clock)
            finally:
                os._exit(status)
        self.wait_for_writer()

    def wait_for_writer(self, *, other_than: int = 0) -> int:
        """Returns the pid of the writer once there is one, or another one than given."""
        deadline = time.monotonic() + _SECONDS_MAX
        while time.monotonic() < deadline:
            pid = self.writer_pid()
            if pid and pid != other_than and (self.directory / "writer.sock").exists():
                return pid
            time.sleep(0.005)
        raise TimeoutError("no writer was started")

    def writer_pid(self) -> int:
        """Returns the pid of the supervisor's only child."""
        children = Path(f"/proc/{self.supervisor_pid}/task/{self.supervisor_pid}/children")
        listed = children.read_text(encoding="ascii").split()
        return int(listed[0]) if listed else 0

    def kill_writer(self) -> None:
        os.kill(self.writer_pid(), signal.SIGKILL)

    async def open(self) -> SqliteEngine:
        engine = SqliteEngine(self.directory, self.config, self.clock)
        self._engines.append(engine)
        return engine

    async def restart(self) -> None:
        """Stops everything and starts it again over the same data."""
        await self.close()
        self.start()

    async def close(self) -> None:
        engines, self._engines = self._engines, []
        for engine in engines:
            await engine.close()
        await asyncio.to_thread(self.stop)

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Stops the supervisor and returns its exit status."""
        if not self.supervisor_pid:
            return 0
        os.kill(self.supervisor_pid, number)
        _, status = os.waitpid(self.supervisor_pid, 0)
        self.supervisor_pid = 0
        return os.waitstatus_to_exitcode(status)


async def start(directory: Path, config: Config | None = None) -> SqliteHarness:
    harness = SqliteHarness(directory, config)
    harness.start()
    return harness
