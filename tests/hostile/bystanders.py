"""Measures how long well-behaved clients wait while another client is hostile.

The bystanders run in their own process, so that the test's load on the server does not slow them
down. Each has its own connection and sends a small request every few milliseconds."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Final

from tests.probes.client import Client, Request, shared_key
from tests.server import ACCOUNT, KEY, ROOT, Server, environment, unique

WAIT_SECONDS_MAX: Final = 0.25
"""The maximum delay that another client's request may cause. The aim is a fifth of it."""
_PROCESS: Final = "tests.hostile.bystander_process"
_ATTEMPTS: Final = 3
_REPORT_SECONDS_MAX: Final = 60.0

_sign = shared_key(ACCOUNT, KEY)


class Bystanders:
    """The bystanders' measurements; filled in at the end."""

    def __init__(self) -> None:
        self.waits_seconds: list[float] = []

    @property
    def slowest_seconds(self) -> float:
        return max(self.waits_seconds)


@contextlib.contextmanager
def bystanders(server: Server) -> Iterator[Bystanders]:
    """Runs clients that get one small blob repeatedly until the block ends."""
    container = unique("bystanders")
    path = f"/{ACCOUNT}/{container}"
    with Client(server.endpoints["blob"]) as owner:
        created = owner.ask(_sign(Request("PUT", path, (("restype", "container"),))))
        headers = (("x-ms-blob-type", "BlockBlob"),)
        put = owner.ask(_sign(Request("PUT", f"{path}/blob", (), headers, b"x" * 1024)))
    assert (created.status, put.status) == (201, 201)
    measured = Bystanders()
    process = subprocess.Popen(
        [sys.executable, "-m", _PROCESS, server.endpoints["blob"], f"{path}/blob", ACCOUNT, KEY],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=ROOT,
        env={**environment(), "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"},
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"started\n"
        yield measured
        report, _ = process.communicate(timeout=_REPORT_SECONDS_MAX)
        measured.waits_seconds = json.loads(report)
    finally:
        process.kill()
        process.communicate()


def assert_others_do_not_wait(
    server: Server, attack: Callable[[], object], seconds_max: float = WAIT_SECONDS_MAX
) -> None:
    """Fails if bystanders wait too long beside the attack in each of several attempts: a stall that
    a request causes recurs every time, the noise of a busy machine does not."""
    slowest = []
    for _ in range(_ATTEMPTS):
        with bystanders(server) as others:
            attack()
        slowest.append(others.slowest_seconds)
        if slowest[-1] <= seconds_max:
            return
    raise AssertionError(f"others waited {slowest} s, of which {seconds_max} s are allowed")
