"""Runs tests of smbtorture, each in a process of its own with a time limit."""

from __future__ import annotations

import contextlib
import os
import queue
import re
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from enum import Enum
from pathlib import Path
from typing import Final, NamedTuple

from smbtorture.servers import SmbServer
from smbtorture.suites import SLOW_SUITES, TortureTest

_RESULT: Final = re.compile(r"^(success|failure|error|skip): (.*?)(?: \[)?$", re.MULTILINE)
_REASON_CHARACTERS_MAX: Final = 200

_CLIENT_CONFIGURATION: Final = """\
[global]
workgroup = WORKGROUP
client min protocol = SMB2
private dir = {directory}
state directory = {directory}
cache directory = {directory}
lock directory = {directory}
"""


class Result(Enum):
    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"


_RESULTS: Final = {
    "success": Result.PASSED,
    "failure": Result.FAILED,
    "error": Result.FAILED,
    "skip": Result.SKIPPED,
}


class Outcome(NamedTuple):
    """The outcome of a test."""

    test: TortureTest
    result: Result
    reason: str = ""
    """Of a failure or a skip, in one line."""
    seconds: float = 0.0


def run(
    tests: Sequence[TortureTest],
    server: SmbServer,
    directory: Path,
    *,
    test_seconds_max: float,
    progress: Callable[[str], None],
) -> list[Outcome]:
    """Runs the tests, as many at a time as there are shares: tests that use one share disturb each
    other. Keeps the output of each test in the directory."""
    directory.mkdir(parents=True)
    configuration = directory / "client.conf"
    configuration.write_text(_CLIENT_CONFIGURATION.format(directory=directory), "utf-8")
    waiting: queue.SimpleQueue[TortureTest] = queue.SimpleQueue()
    for test in sorted(tests, key=_start_order):
        waiting.put(test)
    outcomes: dict[TortureTest, Outcome] = {}

    def work(share: str) -> None:
        while True:
            try:
                test = waiting.get_nowait()
            except queue.Empty:
                return
            command = _command(test, server, share, configuration)
            output = directory / f"{test.name.replace('/', '_')}.txt"
            outcomes[test] = run_test(test, command, output, test_seconds_max)
            progress(f"{len(outcomes)} of {len(tests)} tests")

    workers = [threading.Thread(target=work, args=(share,)) for share in server.shares]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return [outcomes[test] for test in tests]


def _start_order(test: TortureTest) -> int:
    return SLOW_SUITES.index(test.suite) if test.suite in SLOW_SUITES else len(SLOW_SUITES)


def _command(test: TortureTest, server: SmbServer, share: str, configuration: Path) -> list[str]:
    return [
        "smbtorture",
        f"--configfile={configuration}",
        f"--smb-ports={server.port}",
        f"--user={server.user}%{server.password}",
        f"//127.0.0.1/{share}",
        test.full_name,
    ]


def run_test(
    test: TortureTest, command: Sequence[str], output: Path, seconds_max: float
) -> Outcome:
    """Runs one test; its output goes to a file."""
    began = time.monotonic()
    with output.open("wb") as file:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        process.wait(seconds_max)
        is_late = False
    except subprocess.TimeoutExpired:
        is_late = True
    finally:
        # Including processes that the test has started.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    seconds = time.monotonic() - began
    if is_late:
        return Outcome(test, Result.FAILED, f"took longer than {seconds_max:g} s", seconds)
    result, reason = parse(output.read_text("utf-8", errors="replace"))
    return Outcome(test, result, reason, seconds)


def parse(output: str) -> tuple[Result, str]:
    """Returns the result of the only test in an output, and the reason that it gives."""
    found = list(_RESULT.finditer(output))
    if not found:
        last = output.strip().rpartition("\n")[2]
        return Result.FAILED, _shortened(f"no result: {last}")
    # A test may be reported as failed when it ends, after it has reported something else.
    failed = [one for one in found if _RESULTS[one[1]] is Result.FAILED]
    told = (failed or found)[-1]
    result = _RESULTS[told[1]]
    if result is Result.PASSED:
        return result, ""
    return result, _shortened(output[told.end() :].partition("\n]")[0].strip())


def _shortened(reason: str) -> str:
    reason = re.sub(r"(\.\./)+source[34]/torture/smb2/", "", " ".join(reason.split()))
    return reason[:_REASON_CHARACTERS_MAX]
