"""Histories of several nodes: the checker finds nodes that do not show the same data."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tests.history.blob.service import SERVICE as BLOB
from tests.history.caching_proxy import caching_proxy
from tests.history.cluster import Schedule, findings, run
from tests.history.service import Listening
from tests.server import served

_RUNS_MAX: Final = 5
"""A run shows a stale read only if a client reads an object again that another has changed."""


def test_one_server_with_two_addresses_is_explained(tmp_path: Path) -> None:
    with served(tmp_path / "data", "--workers", "2") as server:
        recorded = run(tmp_path / "run", [server, server], [BLOB], Schedule(1, 1.0))
    assert recorded.acknowledged > 10
    assert not findings(recorded, [BLOB])


def test_a_node_that_caches_reads_is_found(tmp_path: Path) -> None:
    with (
        served(tmp_path / "data") as server,
        caching_proxy(server.endpoints["blob"], "blob") as proxy,
    ):
        assert any(
            _is_unexplained(tmp_path / f"run-{seed}", [server, proxy], seed)
            for seed in range(_RUNS_MAX)
        )


def _is_unexplained(directory: Path, nodes: Sequence[Listening], seed: int) -> bool:
    recorded = run(directory, nodes, [BLOB], Schedule(seed, 2.0))
    return any("no order explains" in each for each in findings(recorded, [BLOB]))


def test_nodes_that_share_nothing_are_found(tmp_path: Path) -> None:
    with served(tmp_path / "one") as one, served(tmp_path / "other") as other:
        BLOB.create_resource(BLOB.url(other))
        recorded = run(tmp_path / "run", [one, other], [BLOB], Schedule(1, 3.0))
    assert findings(recorded, [BLOB])
