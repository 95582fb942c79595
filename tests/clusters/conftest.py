"""Fixtures of several modules of tests of clusters."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.clusters.cells import Cell, two_cells
from tests.clusters.postgresql import PostgresServer


@pytest.fixture(scope="module")
def pair(
    postgresql_server: PostgresServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Cell, Cell]]:
    """Two cells with a node each."""
    with two_cells(postgresql_server, tmp_path_factory.mktemp("cells")) as found:
        yield found
