"""An office with a table for each test."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from tests.protocol.table.office import Office


@pytest.fixture
def office() -> Iterator[Office]:
    with asyncio.Runner() as runner:
        opened = Office(runner)
        answer = opened.ask("POST", "Tables", {"TableName": "People"})
        assert answer.status == 201, answer
        yield opened
