"""Runs test coroutines with an engine and a body store, once per engine."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

from hypothesis import given, settings
from hypothesis.strategies import SearchStrategy

from etagere.bodies.files import FileBodyStore
from etagere.engine.interface import C, Engine, ReadTxn, Refused, T, WriteTxn
from tests.clocks import SharedClock
from tests.engine.harness import Harness, Start

ACCOUNT = "shelf"

Test = Callable[[Start, Path], None]


class EngineFixture:
    """An engine and a body store on one directory."""

    def __init__(
        self, harness: Harness, engine: Engine, store: FileBodyStore, directory: Path
    ) -> None:
        self.clock: SharedClock = harness.clock
        self.engine = engine
        self.store = store
        self.directory = directory
        self.is_on_disk = harness.name == "sqlite"

    async def write(self, operation: Callable[[WriteTxn, C], T], command: C) -> T:
        return await self.engine.write(operation, command)

    async def read(self, operation: Callable[[ReadTxn, C], T], command: C) -> T:
        return await self.engine.read(operation, command)


F = TypeVar("F", bound=EngineFixture)


async def code_of(call: Awaitable[object]) -> str:
    """Returns the error code with which a call is refused, or an empty string."""
    try:
        await call
    except Refused as refused:
        return refused.refusal.code
    return ""


def engine_test(kind: type[F], body: Callable[[F], Awaitable[None]]) -> Test:
    """Turns a coroutine into a test that runs with every engine."""

    async def run(start: Start, directory: Path) -> None:
        async with opened_fixture(kind, start, directory) as fixture:
            await body(fixture)

    def test(start: Start, tmp_path: Path) -> None:
        asyncio.run(asyncio.wait_for(run(start, tmp_path), timeout=60))

    return _named_like(body, test)


def engine_property_test(
    kind: type[F], examples: SearchStrategy[T], count: int, body: Callable[[F, T], Awaitable[None]]
) -> Test:
    """Turns a coroutine that takes an example into a property test that runs with every engine.

    All examples share one fixture, because starting an engine takes longer than using it."""

    def test(start: Start, tmp_path: Path) -> None:
        with asyncio.Runner() as runner:
            context = opened_fixture(kind, start, tmp_path)
            fixture = runner.run(context.__aenter__())

            @given(examples)
            @settings(deadline=None, max_examples=count, derandomize=True)
            def hold(example: T) -> None:
                runner.run(_awaited(body(fixture, example)))

            try:
                hold()
            finally:
                runner.run(context.__aexit__(None, None, None))

    return _named_like(body, test)


@asynccontextmanager
async def opened_fixture(kind: type[F], start: Start, directory: Path) -> AsyncIterator[F]:
    harness = await start(directory)
    try:
        engine = await harness.open()
        store = FileBodyStore(directory, engine)
        try:
            yield kind(harness, engine, store, directory)
        finally:
            await store.close()
    finally:
        await harness.close()


def _named_like(body: Callable[..., object], test: Test) -> Test:
    test.__name__ = getattr(body, "__name__", "test")
    test.__doc__ = body.__doc__
    return test


async def _awaited(call: Awaitable[None]) -> None:
    await asyncio.wait_for(call, timeout=60)
