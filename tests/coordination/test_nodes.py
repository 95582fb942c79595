"""Nodes: registration, their state as others see it, and draining."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Callable

import pytest

from etagere.coordination.interface import CoordinatorUnavailable
from etagere.coordination.postgres import NodeRegistry, PostgresCoordinator
from etagere.coordination.postgres.nodes import NodeInUse, NodeState, NoSuchNode
from etagere.model.cluster import FILE_TASK
from tests.coordination.postgres import PATIENT_TIMING, joining, member
from tests.server import eventually

ADDRESSES = {"blob": "10.0.0.1:10000", "file": "10.0.0.1:10004"}


@pytest.fixture
def registry(postgresql_dsn: str, postgresql_schema: str) -> NodeRegistry:
    return NodeRegistry(postgresql_dsn, schema=postgresql_schema)


@pytest.fixture
def join(postgresql_dsn: str, postgresql_schema: str) -> Callable[[], PostgresCoordinator]:
    return joining(postgresql_dsn, postgresql_schema, node="a")


def state(registry: NodeRegistry) -> NodeState:
    (node,) = registry.list()
    return node.state


def test_a_node_lives_as_long_as_its_processes(
    registry: NodeRegistry, join: Callable[[], PostgresCoordinator]
) -> None:
    registry.register("a", b"1", ADDRESSES, "1.2.3")
    (registered,) = registry.list()
    assert registered.state is NodeState.GONE and registered.addresses == ADDRESSES
    first, second = join(), join()
    (node,) = registry.list()
    assert (node.state, node.processes, node.version) == (NodeState.SERVING, 2, "1.2.3")
    assert node.seen >= node.started == registered.started
    with pytest.raises(NodeInUse, match="another node named a"):
        registry.register("a", b"2", {}, "1.2.3")
    registry.register("a", b"1", ADDRESSES, "1.2.4")
    with pytest.raises(NodeInUse, match="node a is running"):
        registry.forget("a")
    first.close()
    assert state(registry) is NodeState.SERVING
    second.close()
    (gone,) = registry.list()
    assert gone.state is NodeState.GONE and gone.seen > node.seen and gone.version == "1.2.4"
    registry.register("a", b"2", {}, "1.2.3")
    registry.forget("a")
    assert registry.list() == []


def test_a_killed_node_is_gone(
    registry: NodeRegistry, join: Callable[[], PostgresCoordinator]
) -> None:
    registry.register("a", b"1", ADDRESSES, "1.2.3")
    with member(join) as (pid, _):
        witness = join()
        os.kill(pid, signal.SIGKILL)
        eventually(lambda: registry.list()[0].processes == 1, "the process to be declared dead")
        witness.close()
    assert state(registry) is NodeState.GONE


def test_the_last_node_is_killed(
    registry: NodeRegistry, postgresql_dsn: str, postgresql_schema: str
) -> None:
    """No other node declares its processes dead. A new machine may take its name."""
    join = joining(postgresql_dsn, postgresql_schema, timing=PATIENT_TIMING, node="a")
    registry.register("a", b"1", ADDRESSES, "1.2.3")
    with member(join) as (pid, _):
        os.kill(pid, signal.SIGKILL)
        assert not _takes_name(registry)
        with pytest.raises(NodeInUse):
            registry.forget("a")
        eventually(lambda: state(registry) is NodeState.GONE, "the node to be gone")
        eventually(lambda: _takes_name(registry), "the name to be free")
        registry.forget("a")
        assert registry.list() == []


def _takes_name(registry: NodeRegistry) -> bool:
    try:
        registry.register("a", b"2", {}, "1.2.3")
    except NodeInUse:
        return False
    return True


def test_a_node_that_is_drained_gets_no_tasks(
    postgresql_dsn: str, postgresql_schema: str, registry: NodeRegistry
) -> None:
    registry.register("a", b"1", {}, "1.2.3")
    changes: list[bool] = []
    told = threading.Event()

    def on_draining(is_draining: bool) -> None:
        changes.append(is_draining)
        told.set()

    join = joining(postgresql_dsn, postgresql_schema, node="a", on_draining=on_draining)
    coordinator = join()

    async def has_task() -> bool:
        async with coordinator.sole_worker(FILE_TASK) as lock:
            assert registry.list()[0].serves_files is (lock is not None)
            return lock is not None

    assert asyncio.run(has_task())
    registry.drain("a")
    # Even before the process knows.
    assert not asyncio.run(has_task())
    assert told.wait(10)
    assert state(registry) is NodeState.DRAINING
    # A restart does not end it.
    registry.register("a", b"1", {}, "1.2.4")
    assert state(registry) is NodeState.DRAINING
    told.clear()
    registry.resume("a")
    assert told.wait(10)
    assert asyncio.run(has_task())
    assert changes == [True, False]
    coordinator.close()
    assert state(registry) is NodeState.GONE


@pytest.mark.parametrize("verb", ["drain", "resume", "forget"])
def test_unknown_nodes(registry: NodeRegistry, verb: str) -> None:
    registry.register("a", b"1", ADDRESSES, "1.2.3")
    with pytest.raises(NoSuchNode, match="no node named x"):
        getattr(registry, verb)("x")


@pytest.mark.parametrize(
    "dsn",
    [
        "postgresql://user:hunter2@127.0.0.1:1/x",
        "postgresql://user:hunter2%zz@127.0.0.1:1/x",
        "host=127.0.0.1 port=1 password=hunter2 hunter2",
        "host=127.0.0.1 port=1 password='hunter2",
    ],
)
def test_errors_of_the_database_show_no_password(dsn: str) -> None:
    registry = NodeRegistry(dsn)
    with pytest.raises(CoordinatorUnavailable) as caught:
        registry.list()
    assert "hunter2" not in str(caught.value) and "hunter2" not in repr(caught.value)
