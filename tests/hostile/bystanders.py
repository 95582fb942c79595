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

from tests.probes.client import Client, Pairs, Request, shared_key
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

    @property
    def percentile_99_seconds(self) -> float:
        return sorted(self.waits_seconds)[len(self.waits_seconds) * 99 // 100]


_CREATION: Final[dict[str, tuple[str, Pairs]]] = {
    "blob": ("container", (("x-ms-blob-type", "BlockBlob"),)),
    "file": ("share", (("x-ms-type", "file"), ("x-ms-content-length", "1024"))),
}
"""The `restype` of what contains the object, and the headers that create the object."""
_SERVED_BY: Final = {"smb": "file"}
"""The service that creates the object, if it is another one."""


@contextlib.contextmanager
def bystanders(server: Server, service: str = "blob") -> Iterator[Bystanders]:
    """Runs clients that get one small blob or file repeatedly until the block ends."""
    path = f"/{ACCOUNT}/{unique('bystanders')}"
    creator = _SERVED_BY.get(service, service)
    restype, headers = _CREATION[creator]
    endpoint = server.endpoints[service]
    with Client(server.endpoints[creator]) as owner:
        created = owner.ask(_sign(Request("PUT", path, (("restype", restype),))))
        put = owner.ask(_sign(Request("PUT", f"{path}/small", (), headers, b"x" * 1024)))
    assert (created.status, put.status) == (201, 201)
    measured = Bystanders()
    process = subprocess.Popen(
        [sys.executable, "-m", _PROCESS, endpoint, f"{path}/small", ACCOUNT, KEY],
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
    server: Server,
    attack: Callable[[], object],
    seconds_max: float = WAIT_SECONDS_MAX,
    service: str = "blob",
) -> None:
    """Fails if bystanders wait too long beside the attack in each of several attempts: a stall that
    a request causes recurs every time, the noise of a busy machine does not."""
    slowest = []
    for _ in range(_ATTEMPTS):
        with bystanders(server, service) as others:
            attack()
        slowest.append(others.slowest_seconds)
        if slowest[-1] <= seconds_max:
            return
    raise AssertionError(f"others waited {slowest} s, of which {seconds_max} s are allowed")
