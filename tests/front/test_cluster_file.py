"""The process that serves files on one node of a cluster at a time."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

import pytest

from etagere.coordination.interface import Coordinator
from etagere.engine.interface import Fault, FaultReason
from etagere.engine.memory import MemoryEngine
from etagere.front.cluster_file import ClusterFileFrontEnd, ClusterStorage, Membership
from etagere.front.forwarding import ForwardedConnections, NodeListener
from etagere.front.process import FrontEnd
from etagere.processes import EXIT_START_AGAIN
from tests.loops import in_event_loop


@dataclass(frozen=True)
class _FailingFrontEnd:
    """A front end that cannot reach the database when it starts."""

    directory: Path
    storage: object = None
    forwarded: ForwardedConnections | None = None
    sockets: dict[str, socket.socket] = field(default_factory=dict)

    def announce(self) -> None:
        """Tells nobody."""

    async def serve(self, _name: str, _number: int, _stopped: asyncio.Event) -> None:
        raise Fault(FaultReason.UNAVAILABLE, "the database cannot be reached")


@dataclass(frozen=True)
class _Lock:
    epoch: int


class _Coordinator:
    """A coordinator that gives every task to this process."""

    @contextlib.asynccontextmanager
    async def sole_worker(self, _task: str) -> AsyncIterator[_Lock]:
        yield _Lock(1)

    def close(self) -> None:
        """Has nothing to close."""


class _Storage:
    async def join(self, _name: str) -> Membership:
        coordinator = cast("Coordinator", _Coordinator())
        return Membership(MemoryEngine(), coordinator, bytes(32), asyncio.Event())

    def for_epoch(self, _epoch: int) -> _Storage:
        return self


@in_event_loop
async def test_a_process_that_could_not_start_to_serve_ends(tmp_path: Path) -> None:
    """What it has begun, such as accepting connections, must not go on while another epoch does."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        process = ClusterFileFrontEnd(
            cast("FrontEnd", _FailingFrontEnd(tmp_path)),
            cast("ClusterStorage", _Storage()),
            "one",
            NodeListener(listening, "127.0.0.1"),
            "file front end",
            0,
        )
        membership = await process.storage.join(process.name)
        with pytest.raises(SystemExit) as ended:
            async with asyncio.timeout(5):
                await process._wait_for_task(membership, asyncio.Event())
        assert ended.value.code == EXIT_START_AGAIN
