"""Server processes for crash tests: started, watched, killed, and always ended."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import faulthandler
import logging
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from etagere import app, data_directory, processes
from etagere.bodies.disk import Disk
from etagere.bodies.files import FileBodyStore
from etagere.config import Config
from etagere.engine.interface import Fault, FaultReason, Refused, Unknown
from etagere.engine.sqlite import SqliteEngine
from etagere.processes import ChildMain, Supervisor

T = TypeVar("T")

SECONDS_MAX = 20.0
_STARTED = re.compile(r"started (\S+) \(pid (\d+)\)")


class Server:
    """A supervisor with its writer, and optional front ends."""

    def __init__(
        self,
        directory: Path,
        config: Config,
        front_ends: Mapping[str, ChildMain] | None = None,
        log_path: Path | None = None,
    ) -> None:
        self.directory = directory
        self.config = config
        self.log_path = log_path or directory.parent / f"{directory.name}.log"
        self.pid = 0
        self._status = 0
        self._left_behind: list[int] = []
        self._front_ends = front_ends or {}

    def start(self) -> None:
        """Starts the processes; returns when each has been forked."""
        begin = self.log_bytes()
        self.pid = os.fork()
        if self.pid == 0:
            self._become_supervisor()
        names = ["writer", *self._front_ends]
        wait_until(lambda: self._ended() or self._all_started(names, begin), "the start")
        if not self.pid:
            raise RuntimeError(f"the server did not start:\n{self.log()}")

    def _all_started(self, names: list[str], since: int) -> bool:
        return all(self.pid_of(name, since=since) for name in names)

    def _become_supervisor(self) -> None:
        """Runs in the forked process; never returns."""
        status = 1
        try:
            log = os.open(self.log_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            os.dup2(log, 1)
            os.dup2(log, 2)
            form = "%(process)d %(levelname)s %(message)s"
            logging.basicConfig(stream=sys.__stderr__, level=logging.INFO, format=form, force=True)
            faulthandler.register(signal.SIGUSR2, file=log)  # by the children, too
            # Children that tests kill repeatedly are restarted at once.
            processes._HEALTHY_SECONDS = -1.0
            held = data_directory.claim(self.directory)
            children = app.engine_children(self.directory, self.config)
            status = Supervisor({**children, **self._front_ends}).run()
            os.close(held)
        except BaseException:
            logging.exception("the supervisor failed")
        finally:
            os._exit(status)

    # Watching

    def log(self) -> str:
        """Returns the log of the processes so far."""
        return self.log_path.read_text("utf-8") if self.log_path.exists() else ""

    def show_stacks(self) -> None:
        """Makes every process write its stacks to the log, for a failed test."""
        if not self.pid:
            return
        for pid in (self.pid, *_children(self.pid)):
            send(pid, signal.SIGUSR2)
        time.sleep(0.2)

    def log_bytes(self) -> int:
        return self.log_path.stat().st_size if self.log_path.exists() else 0

    def pid_of(self, name: str, *, since: int = 0) -> int:
        """Returns the last logged pid of this child, or 0."""
        output = self.log().encode()[since:].decode()
        pids = [int(pid) for started, pid in _STARTED.findall(output) if started == name]
        return pids[-1] if pids else 0

    @property
    def writer_pid(self) -> int:
        return self.pid_of("writer")

    def wait_for_another(self, name: str, pid: int) -> None:
        """Waits until the child was restarted."""
        wait_until(lambda: self.pid_of(name) != pid, f"another {name}")

    def wait_for_exit(self) -> int:
        """Returns the supervisor's exit status, once it ends."""
        wait_until(self._ended, "the end of the supervisor")
        return self._status

    def _ended(self) -> bool:
        if not self.pid:
            return True
        pid, status = os.waitpid(self.pid, os.WNOHANG)
        if not pid:
            return False
        self.pid = 0
        self._status = os.waitstatus_to_exitcode(status)
        return True

    # Ending

    def kill(self, name: str) -> int:
        """Kills one child; returns its pid."""
        pid = self.pid_of(name)
        send(pid, signal.SIGKILL)
        return pid

    def kill_supervisor(self) -> list[int]:
        """Kills only the supervisor; returns the pids of its children."""
        send(self.pid, signal.SIGSTOP)  # so that it starts no more of them
        self._left_behind = _children(self.pid)
        send(self.pid, signal.SIGKILL)
        self.wait_for_exit()
        return self._left_behind

    def kill_all(self) -> None:
        """Kills the whole process tree at once, like a crash of the machine."""
        children = [pid for pid in self._left_behind if running(pid)]
        if self.pid:
            send(self.pid, signal.SIGSTOP)
            children += [self.pid, *_children(self.pid)]
        for pid in children:
            send(pid, signal.SIGKILL)
        self.wait_for_exit()
        wait_until(lambda: not any(map(running, children)), "the end of the children")

    def stop(self) -> int:
        """Stops everything cleanly; returns the supervisor's exit status."""
        send(self.pid, signal.SIGTERM)
        return self.wait_for_exit()

    def crash_and_restart(self) -> None:
        self.kill_all()
        self.start()


@contextlib.contextmanager
def served(
    directory: Path,
    config: Config,
    front_ends: Mapping[str, ChildMain] | None = None,
    log_path: Path | None = None,
) -> Iterator[Server]:
    """Runs a server; none of its processes outlives the test."""
    server = Server(directory, config, front_ends, log_path)
    try:
        server.start()
        yield server
    finally:
        server.kill_all()


def _children(pid: int) -> list[int]:
    try:
        listed = Path(f"/proc/{pid}/task/{pid}/children").read_text("ascii")
    except FileNotFoundError:
        return []
    return [int(child) for child in listed.split()]


def send(pid: int, number: int) -> None:
    """Signals one process, if it is still there."""
    if pid <= 0:
        raise ValueError("there is no such process")  # 0 would be all of the test's own
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def running(pid: int) -> bool:
    """Reports whether a process runs; a zombie does not."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text("utf-8")
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(")")[2].split()[0] not in ("Z", "X")


def wait_until(
    condition: Callable[[], object], what: str, seconds: float | None = None, every: float = 0.005
) -> None:
    """Waits for a condition, for a bounded time."""
    deadline = time.monotonic() + (SECONDS_MAX if seconds is None else seconds)
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"timed out waiting for {what}")
        time.sleep(every)


# A front end in the test's own process


class FrontEnd(NamedTuple):
    """The parts of a front end."""

    engine: SqliteEngine
    store: FileBodyStore


@contextlib.asynccontextmanager
async def front_end(server: Server, disk: Disk | None = None) -> AsyncIterator[FrontEnd]:
    """Opens a front end of a server in this process."""
    # Faults are for the writer. In this process, errors that SQLite ignores when it closes a file
    # would be raised by a VFS written in Python.
    config = dataclasses.replace(server.config, sqlite_vfs="")
    engine = SqliteEngine(server.directory, config)
    try:
        store = FileBodyStore(server.directory, engine, config, disk)
        try:
            yield FrontEnd(engine, store)
        finally:
            await store.close()
    finally:
        await engine.close()


def run(work: Coroutine[Any, Any, T], seconds: float = 60.0) -> T:
    """Runs the work of a test with a time limit."""
    return asyncio.run(asyncio.wait_for(work, seconds))


class Ending(NamedTuple):
    """The outcome of one call, as its caller saw it."""

    kind: str
    """done, refused, fault or unknown"""
    value: Any = None
    reason: FaultReason | None = None

    @property
    def happened(self) -> bool | None:
        """Whether the call took effect; None if unknown."""
        return None if self.kind == "unknown" else self.kind == "done"


async def ending_of(call: Awaitable[Any]) -> Ending:
    """Waits for a call. Any other exception is a defect, and not caught."""
    try:
        return Ending("done", await call)
    except Refused as refused:
        return Ending("refused", refused.refusal.code)
    except Fault as fault:
        return Ending("fault", fault.detail, fault.reason)
    except Unknown as unknown:
        return Ending("unknown", str(unknown))


async def eventually(call: Callable[[], Awaitable[Any]], seconds: float = SECONDS_MAX) -> Any:
    """Repeats a call until it succeeds and returns its result."""
    deadline = time.monotonic() + seconds
    while True:
        ending = await ending_of(call())
        if ending.kind == "done":
            return ending.value
        if time.monotonic() > deadline:
            raise TimeoutError(f"still {ending}")
        await asyncio.sleep(0.02)


# The check

_ROOT = Path(__file__).parents[2]
# Like `python -m etagere`, which would not know the collections of the tests.
_ETAGERE = """
import runpy
import tests.bodies.objects, tests.engine.samples
runpy.run_module("etagere", run_name="__main__", alter_sys=True)
"""


def require_clean(directory: Path) -> None:
    """Runs `etagere check` on a data directory."""
    command = [sys.executable, "-c", _ETAGERE, "check", "--data", str(directory)]
    checked = subprocess.run(
        command,
        env={**os.environ, "PYTHONPATH": f"{_ROOT / 'src'}:{_ROOT}"},
        cwd=_ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    output = checked.stdout + checked.stderr
    assert checked.returncode == 0, f"etagere check --data {directory}:\n{output}"
