"""Errors of system calls on the files of a running server, which `strace` injects."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from tests.server import PORTS, environment, eventually

_READY: Final = re.compile(r"^READY (.*)\n", re.MULTILINE)


class InjectedError(NamedTuple):
    """A failing call: the n-th of each thread that makes it."""

    call: str
    path: str
    name: str = "EIO"
    nth: int = 1
    every: int = 0
    """If not 0, further calls fail: each time after so many."""

    @property
    def when(self) -> str:
        return f"{self.nth}+{self.every}" if self.every else str(self.nth)

    def __str__(self) -> str:
        where = self.path or "directory"
        return f"{self.call}-{where}-{self.name}-{self.when}".replace("/", ".")


@contextlib.contextmanager
def broken_server(
    directory: Path, error: InjectedError, log_path: Path, service: str, *more: InjectedError
) -> Iterator[str]:
    """Runs a server that meets the error, and more of them on the same file; yields the endpoint of
    the service."""
    ready = log_path.with_suffix(".ready")
    strace = ["strace", "-f", "-qq", "--seccomp-bpf", "-o", str(log_path.with_suffix(".trace"))]
    strace += ["-e", f"trace={','.join(each.call for each in (error, *more))}"]
    for each in (error, *more):
        strace += ["-e", f"inject={each.call}:error={each.name}:when={each.when}"]
    serve = [sys.executable, "-m", "etagere", "serve", "--data", str(directory), "--workers", "1"]
    ports = [f"--{service}-port=0" for service in PORTS]
    path = str(directory / error.path) if error.path else str(directory)
    with log_path.open("wb") as log, ready.open("wb") as out:
        process = subprocess.Popen(
            [*strace, "-P", path, *serve, *ports],
            stdout=out,
            stderr=log,
            env=environment(),
            start_new_session=True,
        )
    try:
        eventually(lambda: _READY.search(ready.read_text()) is not None, "the server")
        found = _READY.search(ready.read_text())
        assert found is not None
        yield dict(word.split("=", 1) for word in found[1].split())[service]
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
