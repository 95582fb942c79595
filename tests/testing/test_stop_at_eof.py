"""`etagere serve --stop-at-eof`: the server ends with the program that started it."""

from __future__ import annotations

import subprocess
import sys

from tests.server import PORTS, SECONDS_MAX, environment

COMMAND = (
    *(sys.executable, "-m", "etagere", "serve", "--memory", "--stop-at-eof", "--workers", "1"),
    *(word for service in PORTS for word in (f"--{service}-port", "0")),
)


def test_the_end_of_the_input_stops_the_server() -> None:
    with subprocess.Popen(
        COMMAND,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=environment(),
        bufsize=0,
    ) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        assert server.stdout.readline().startswith(b"READY ")
        server.stdin.write(b"input is ignored\n" * 1_000)
        server.stdin.close()
        assert server.wait(SECONDS_MAX) == 0


def test_an_input_that_has_ended() -> None:
    shown = subprocess.run(
        COMMAND,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        env=environment(),
        timeout=SECONDS_MAX,
        check=False,
    )
    assert (shown.returncode, shown.stdout) == (0, b"")


def test_no_input() -> None:
    closed = (
        sys.executable,
        "-c",
        "import os, sys; os.close(0); os.execv(sys.argv[1], sys.argv[1:])",
    )
    shown = subprocess.run(
        [*closed, *COMMAND],
        capture_output=True,
        env=environment(),
        timeout=SECONDS_MAX,
        check=False,
    )
    assert shown.returncode == 2
    assert shown.stderr == b"etagere: --stop-at-eof: there is no standard input\n"
