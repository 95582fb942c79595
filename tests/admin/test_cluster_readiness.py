"""The readiness of a node of a cluster, as load balancers ask for it."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from etagere.admin import cluster
from etagere.admin.application import AdminApplication
from etagere.admin.child import AdminAccess
from etagere.admin.cluster import NodeObserver
from etagere.admin.collecting import ServerObserver
from etagere.coordination.interface import CoordinatorUnavailable, NodeStatus
from etagere.coordination.postgres import NodeRegistry
from etagere.coordination.postgres.nodes import NodeStatusReader, NoSuchNode
from etagere.engine.interface import Fault, FaultReason
from etagere.metrics.snapshots import Snapshot
from etagere.model.cluster import FILE_TASK
from etagere.processes import SupervisorStatus
from tests.coordination.postgres import joining
from tests.protocol.http.harness import get, serving

PATHS = ["/readyz", "/readyz/blob", "/readyz/queue", "/readyz/table", "/readyz/file"]


class Probe:
    """A probe whose answers the test chooses."""

    def __init__(self) -> None:
        self.node: NodeStatus | None = NodeStatus("a", False, True)
        self.ledger_error: Exception | None = None
        self.bodies_error: Exception | None = None
        self.blocks: threading.Event | None = None
        self.calls = 0

    def status(self) -> NodeStatus:
        if self.node is None:
            raise CoordinatorUnavailable("connection refused")
        return self.node

    def check_ledger(self) -> None:
        if self.ledger_error is not None:
            raise self.ledger_error

    def check_bodies(self) -> None:
        self.calls += 1
        if self.blocks is not None:
            self.blocks.wait(20)
        if self.bodies_error is not None:
            raise self.bodies_error


class NoMetrics:
    def report(self, snapshot: Snapshot) -> None:
        pass


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(8) as pool:
        yield pool


def statuses(tmp_path: Path, probe: Probe, threads: ThreadPoolExecutor) -> list[int]:
    """Returns what each path answers for a server whose processes are well."""
    return asyncio.run(_ask(tmp_path, probe, threads))[0]


async def _ask(
    directory: Path, probe: Probe, threads: ThreadPoolExecutor
) -> tuple[list[int], dict[str, object]]:
    node = NodeObserver(probe, probe.check_ledger, threads)
    observer = ServerObserver(directory, (), own=NoMetrics(), store=NoMetrics(), node=node)
    found = observer.health()._replace(supervisor=SupervisorStatus(1, 0.0, False, ()))
    observer.health = lambda: found  # type: ignore[method-assign]
    application = AdminApplication(observer, threads, AdminAccess(True, None))
    async with serving(application.handle) as server:
        client = await server.connect()
        answers = [(await client.ask(get(path))).status for path in PATHS]
        document = await client.ask(get("/readyz/file", "Accept: application/json"))
        assert document.header("Content-Type") == "application/json"
        assert (await client.ask(get("/readyz/smtp"))).status == 404
        return answers, json.loads(document.body)


ALL, NONE = [200] * 5, [503] * 5


def test_services_are_ready_if_what_they_need_answers(
    tmp_path: Path, threads: ThreadPoolExecutor
) -> None:
    probe = Probe()
    assert statuses(tmp_path, probe, threads) == ALL
    probe.node = NodeStatus("a", False, False)
    assert statuses(tmp_path, probe, threads) == [200, 200, 200, 200, 503]
    probe.node = NodeStatus("a", True, True)
    assert statuses(tmp_path, probe, threads) == NONE
    probe.node = None
    assert statuses(tmp_path, probe, threads) == NONE
    probe.node = NodeStatus("a", False, True)
    probe.bodies_error = Fault(FaultReason.UNAVAILABLE, "no store")
    assert statuses(tmp_path, probe, threads) == [503, 503, 200, 200, 503]
    probe.bodies_error = None
    probe.ledger_error = Fault(FaultReason.UNAVAILABLE, "the fence is old")
    assert statuses(tmp_path, probe, threads) == NONE


def test_the_document_names_all_problems(tmp_path: Path, threads: ThreadPoolExecutor) -> None:
    probe = Probe()
    probe.node = NodeStatus("a", True, False)
    probe.bodies_error = OSError("https://store/x?signature=secret is away")
    _, document = asyncio.run(_ask(tmp_path, probe, threads))
    assert document == {
        "ready": False,
        "problems": [
            "bodies: OSError: https://store/x?… is away",
            "the node is being drained",
            "another node serves files",
        ],
        "service": "file",
        "checks": {
            "database": "ok",
            "ledger": "ok",
            "bodies": "OSError: https://store/x?… is away",
        },
        "node": "a",
        "state": "draining",
        "serves_files": False,
    }


def test_a_store_that_hangs_is_asked_once(
    threads: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster, "ANSWER_SECONDS_MAX", 1.0)
    probe = Probe()
    probe.blocks = threading.Event()
    observer = NodeObserver(probe, probe.check_ledger, threads)
    for _ in range(3):
        assert observer.observe().problems == {"bodies": "no answer for 1 s"}
    assert probe.calls == 1
    probe.blocks.set()
    monkeypatch.setattr(cluster, "ANSWER_SECONDS_MAX", 10.0)
    assert observer.observe().problems == {}


def test_the_state_of_a_node_is_read(postgresql_dsn: str, postgresql_schema: str) -> None:
    registry = NodeRegistry(postgresql_dsn, schema=postgresql_schema)
    reader = NodeStatusReader(postgresql_dsn, "a", schema=postgresql_schema)
    with pytest.raises(CoordinatorUnavailable, match="cluster_nodes"):
        reader.read()
    registry.register("b", b"2", {}, "1.2.3")
    with pytest.raises(NoSuchNode):
        reader.read()
    registry.register("a", b"1", {}, "1.2.3")
    assert reader.read() == NodeStatus("a", False, False)
    coordinator = joining(postgresql_dsn, postgresql_schema, node="a")()

    async def scenario() -> None:
        async with coordinator.sole_worker(FILE_TASK):
            assert reader.read() == NodeStatus("a", False, True)

    asyncio.run(scenario())
    registry.drain("a")
    assert reader.read() == NodeStatus("a", True, False)
    coordinator.close()
    reader.close()
