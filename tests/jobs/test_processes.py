"""The supervisor continues when a child cannot be started, and stops what it has started."""

from __future__ import annotations

import errno
import functools
import os
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import ParamSpec

import pytest

from etagere import processes
from etagere.metrics.snapshots import Snapshot
from etagere.processes import Supervisor, SupervisorStatus
from tests.server import eventually

P = ParamSpec("P")


def in_child(test: Callable[P, None]) -> Callable[P, None]:
    """Runs a test in a process of its own. As in a supervisor, no other thread gets its signals:
    those that earlier tests have left do not exist in it, and those that the test starts inherit
    the mask."""

    @functools.wraps(test)
    def run(*arguments: P.args, **keywords: P.kwargs) -> None:
        output = sys.stderr  # the test may replace it
        pid = os.fork()
        if pid == 0:
            status = 1
            signal.pthread_sigmask(signal.SIG_BLOCK, processes._SIGNALS)
            try:
                test(*arguments, **keywords)
                status = 0
            except BaseException:
                traceback.print_exc(file=output)
            finally:
                output.flush()
                os._exit(status)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0

    return run


def _wait(_lifeline: int, ready: Path | None = None) -> None:
    """Waits for the signal to stop. Creates a file when that can be sent."""
    stopped = False

    def stop(_signal: int, _frame: object) -> None:
        nonlocal stopped
        stopped = True

    signal.signal(signal.SIGTERM, stop)
    if ready is not None:
        ready.touch()
    while not stopped:
        time.sleep(0.01)


def _after(seconds: float) -> None:
    """Signals this process to stop."""
    threading.Timer(seconds, lambda: os.kill(os.getpid(), signal.SIGTERM)).start()


def _when(condition: Callable[[], bool]) -> None:
    """Signals this process to stop as soon as a condition holds."""

    def wait() -> None:
        try:
            eventually(condition, "the condition")
        finally:
            os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=wait).start()


@in_child
def test_a_failed_fork_is_retried(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    fork, failures = os.fork, [OSError(errno.EAGAIN, "none to be had")] * 2

    def sometimes() -> int:
        if failures:
            raise failures.pop()
        return fork()

    monkeypatch.setattr(os, "fork", sometimes)
    monkeypatch.setattr(processes, "_FORK_RETRY_SECONDS", 0.05)

    def main(lifeline: int) -> None:
        _wait(lifeline, tmp_path / "started")

    supervisor = Supervisor({"first": main})
    _when((tmp_path / "started").exists)
    assert supervisor.run() == 0
    assert (tmp_path / "started").exists()
    assert sum(record.getMessage().startswith("cannot start ") for record in caplog.records) == 2


@in_child
def test_children_start_even_if_output_cannot_be_written(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def main(lifeline: int) -> None:
        _wait(lifeline, tmp_path / "started")

    _when((tmp_path / "started").exists)
    with pytest.raises(OSError, match="No space"), Path("/dev/full").open("w") as full:
        full.write("a line that stays in the buffer")
        monkeypatch.setattr(sys, "stderr", full)
        assert Supervisor({"first": main}).run() == 0
    assert (tmp_path / "started").exists()


@in_child
def test_a_child_that_outlives_its_supervisor_is_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(processes, "GRACE_SECONDS", 0.5)
    pid = os.fork()
    if not pid:
        processes.end_without_supervisor()
        time.sleep(10)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGALRM


@in_child
def test_all_but_the_first_stop_together(tmp_path: Path) -> None:
    def other(lifeline: int) -> None:
        _wait(lifeline, tmp_path / f"{os.getpid()} is ready")
        (tmp_path / f"{os.getpid()} stops").touch()
        # Before any of the others has ended.
        eventually(lambda: len(list(tmp_path.glob("* stops"))) == 3, "the others to stop")
        (tmp_path / f"{os.getpid()} has stopped").touch()

    def first(lifeline: int) -> None:
        _wait(lifeline, tmp_path / "first is ready")
        assert len(list(tmp_path.glob("* has stopped"))) == 3

    children: dict[str, Callable[[int], None]] = {"first": first}
    children |= {f"other {number}": other for number in range(3)}
    _when(lambda: len(list(tmp_path.glob("* is ready"))) == 4)
    assert Supervisor(children).run() == 0
    assert len(list(tmp_path.glob("* has stopped"))) == 3


@pytest.mark.parametrize("exits", [1, 2])
@in_child
def test_the_first_is_restarted_once_while_the_others_stop(tmp_path: Path, exits: int) -> None:
    """The others may have data that only the first can store."""

    def other(lifeline: int) -> None:
        _wait(lifeline, tmp_path / "other is ready")
        (tmp_path / "stopping").touch()
        eventually(lambda: len(list(tmp_path.glob("first *"))) >= 2, "a restart of the first")
        time.sleep(0.3)  # in which there is no other restart

    def first(lifeline: int) -> None:
        (tmp_path / f"first {os.getpid()}").touch()
        if len(list(tmp_path.glob("first *"))) <= exits:
            while not (tmp_path / "stopping").exists():
                time.sleep(0.01)
            os._exit(1)
        _wait(lifeline)

    _when(lambda: any(tmp_path.glob("first *")) and (tmp_path / "other is ready").exists())
    assert Supervisor({"first": first, "other": other}).run() == 0
    assert len(list(tmp_path.glob("first *"))) == 2


class FailingStatusSocket:
    """A socket on which no response can be sent."""

    def __init__(self) -> None:
        self._read, self._write = os.pipe()
        self.asked = 0

    def fileno(self) -> int:
        return self._read

    def answer(
        self, report: Callable[[], object], metrics: Callable[[], Snapshot] | None = None
    ) -> None:
        self.asked += 1
        status = report()
        assert isinstance(status, SupervisorStatus)
        assert status.children[0].name == "first"
        raise ValueError("for a test")

    def close(self) -> None:
        os.close(self._read)
        os.close(self._write)


@in_child
def test_a_failed_status_response_ends_nothing() -> None:
    broken = FailingStatusSocket()
    _after(0.3)
    assert Supervisor({"first": _wait}, status_socket=broken).run() == 0
    assert broken.asked
    broken.close()


@in_child
def test_an_endless_input_does_not_occupy_the_supervisor() -> None:
    with subprocess.Popen(["yes"], stdout=subprocess.PIPE) as writer:
        assert writer.stdout is not None
        _after(1.0)
        used = time.process_time()
        assert Supervisor({"first": _wait}, stop_at_eof=writer.stdout.fileno()).run() == 0
        assert time.process_time() - used < 0.3
        writer.kill()


@in_child
def test_the_end_of_the_input_stops_the_supervisor() -> None:
    with subprocess.Popen(["sh", "-c", "echo; sleep 0.3"], stdout=subprocess.PIPE) as writer:
        assert writer.stdout is not None
        began = time.monotonic()
        assert Supervisor({"first": _wait}, stop_at_eof=writer.stdout.fileno()).run() == 0
        assert time.monotonic() - began < 20.0


@pytest.mark.parametrize("status", [1, processes.EXIT_FINAL])
@in_child
def test_a_dispensable_child_that_cannot_run_ends_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, status: int
) -> None:
    monkeypatch.setattr(processes, "_RESTART_SECONDS_MAX", 0.01)

    def fail(_lifeline: int) -> None:
        (tmp_path / str(os.getpid())).touch()
        sys.exit(status)

    _when(lambda: len(list(tmp_path.iterdir())) > 6)
    assert Supervisor({"first": _wait, "other": fail}, dispensable=("other",)).run() == 0
    assert len(list(tmp_path.iterdir())) > 6
