"""A table service with one table for each test."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from tests.protocol.table.fixture import TableServiceFixture


@pytest.fixture
def tables() -> Iterator[TableServiceFixture]:
    with asyncio.Runner() as runner:
        opened = TableServiceFixture(runner)
        answer = opened.ask("POST", "Tables", {"TableName": "People"})
        assert answer.status == 201, answer
        yield opened
