"""Measures how long well-behaved clients wait while another client is hostile.

The bystanders run in a process of their own, so that what the test does to the server does not
slow them down. Each has a connection of its own and sends a small request every few milliseconds.
"""

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
"""How long a bystander may wait for somebody else's request. The aim is a fifth of it."""
_PROCESS: Final = "tests.hostile.bystander_process"
_ATTEMPTS: Final = 3
_REPORT_SECONDS_MAX: Final = 60.0

_sign = shared_key(ACCOUNT, KEY)


class Bystanders:
    """What the bystanders measured; filled in when their time is over."""

    def __init__(self) -> None:
        self.waits_seconds: list[float] = []

    @property
    def slowest_seconds(self) -> float:
        return max(self.waits_seconds)


@contextlib.contextmanager
def bystanders(server: Server) -> Iterator[Bystanders]:
    """Clients that get one small blob again and again until the block ends."""
    container = unique("bystanders")
    path = f"/{ACCOUNT}/{container}"
    with Client(server.endpoint) as owner:
        created = owner.ask(_sign(Request("PUT", path, (("restype", "container"),))))
        headers = (("x-ms-blob-type", "BlockBlob"),)
        put = owner.ask(_sign(Request("PUT", f"{path}/blob", (), headers, b"x" * 1024)))
    assert (created.status, put.status) == (201, 201)
    measured = Bystanders()
    process = subprocess.Popen(
        [sys.executable, "-m", _PROCESS, server.endpoint, f"{path}/blob", ACCOUNT, KEY],
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
    """Fails if bystanders wait too long beside the attack in each of several attempts: the stall
    that a request causes is there every time, the noise of a busy machine is not."""
    slowest = []
    for _ in range(_ATTEMPTS):
        with bystanders(server) as others:
            attack()
        slowest.append(others.slowest_seconds)
        if slowest[-1] <= seconds_max:
            return
    raise AssertionError(f"others waited {slowest} s, of which {seconds_max} s are allowed")
