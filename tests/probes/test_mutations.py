"""Thousands of mutated requests to every service: each is answered, and nothing breaks or leaks."""

from __future__ import annotations

import contextlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import pytest

from tests.probes.blob.mutations import BlobMutations
from tests.probes.file.mutations import FileMutations
from tests.probes.mutation_run import MutationRun
from tests.probes.queue.mutations import QueueMutations
from tests.probes.service import ServiceFixture
from tests.probes.services import each_service
from tests.probes.table.mutations import TableMutations
from tests.server import Server, eventually

THREADS: Final = 6
FAILURES_SHOWN: Final = 8
SPARE_FILES: Final = 8
"""Files that a process may open meanwhile for the bodies that it writes."""
RUNS: Final[dict[str, type[MutationRun[Any]]]] = {
    "blob": BlobMutations,
    "queue": QueueMutations,
    "table": TableMutations,
    "file": FileMutations,
}
CASES: Final = {"blob": 4_500, "queue": 2_400, "table": 2_400, "file": 2_400}
LONG_CASES: Final = {"blob": 40_000, "queue": 20_000, "table": 20_000, "file": 20_000}


def _descriptors(server: Server) -> tuple[int, int]:
    """How many sockets, and how many descriptors, the processes of the server have open."""
    names = []
    for pid in server.children():
        for descriptor in Path(f"/proc/{pid}/fd").iterdir():
            # It may be closed in this moment.
            with contextlib.suppress(FileNotFoundError):
                names.append(str(descriptor.readlink()))
    return sum(name.startswith("socket:") for name in names), len(names)


def _has_released(server: Server, sockets: int, descriptors: int) -> bool:
    sockets_now, descriptors_now = _descriptors(server)
    spare = SPARE_FILES * len(server.children())
    return sockets_now <= sockets and descriptors_now <= descriptors + spare


def _attack(fixture: ServiceFixture[Any], seed: int, count: int) -> None:
    server = fixture.server
    # The server would close this idle connection during a long run.
    fixture.client.close()
    processes, open_before = server.children(), _descriptors(server)
    log_length = len(server.log())
    runs = [RUNS[fixture.service](server, seed) for _ in range(THREADS)]
    with ThreadPoolExecutor(THREADS) as threads:
        shares = [range(first, count, THREADS) for first in range(THREADS)]
        failures = [
            failure for found in threads.map(MutationRun.send, runs, shares) for failure in found
        ]
    shown = "\n".join(map(str, failures[:FAILURES_SHOWN]))
    assert not failures, f"{len(failures)} of {count} cases:\n{shown}"
    assert "Traceback" not in server.log()[log_length:]
    assert server.children() == processes
    eventually(lambda: _has_released(server, *open_before), "the end of all connections")
    # The server still works.
    fixture.remove(fixture.create())


@each_service
def test_mutated_requests(fixture: ServiceFixture[Any], service: str) -> None:
    _attack(fixture, seed=20_261_115, count=CASES[service])


@pytest.mark.long
@pytest.mark.parametrize("seed", range(1, 6))
@each_service
def test_many_mutated_requests(fixture: ServiceFixture[Any], service: str, seed: int) -> None:
    _attack(fixture, seed, count=LONG_CASES[service])
