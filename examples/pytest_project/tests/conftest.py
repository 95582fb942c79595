"""What the tests have in common."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from album.application import Application


@pytest.fixture
def application(etagere_connection_string: str) -> Iterator[Application]:  # the second line
    """The application in an account of its own, which is empty."""
    with Application(etagere_connection_string) as running:
        yield running
