"""Random reads, writes, resizes and REST operations on an open file, against a bytearray."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from hypothesis import strategies as st

from etagere.model.files import Entry
from etagere.opens.handles import Handle
from etagere.rules.opens import RestAccess
from tests.opens.contents_fixture import ContentsFixture, contents_property_test
from tests.opens.fixture import R, W, opened
from tests.operations.file.fixture import path_of

_LENGTH_MAX = 300


class Step(NamedTuple):
    kind: str
    at: int
    length: int


_KINDS = (
    *("write", "write", "write", "read", "read", "resize", "clear", "flush", "store", "rest"),
    *("put_range", "replace", "pause", "snapshot", "reopen"),
)
_STEPS = st.lists(
    st.builds(
        Step,
        st.sampled_from(_KINDS),
        st.integers(0, _LENGTH_MAX),
        st.integers(1, 80),
    ),
    max_size=25,
)


class _Run:
    """A file, and what it should contain."""

    def __init__(self, f: ContentsFixture, path: str, handle: Handle) -> None:
        self.f = f
        self.path = path
        self.handle = handle
        self.model = bytearray()
        self.frozen: list[tuple[int, bytes]] = []

    async def take(self, number: int, step: Step) -> None:
        f, model, at, end = self.f, self.model, step.at, step.at + step.length
        data = bytes([number + 1]) * step.length
        match step.kind:
            case "write":
                await f.smb_write(self.handle, at, data)
                self._replace(at, data)
            case "resize":
                await f.resize(self.handle, at)
                del model[at:]
                model.extend(bytes(at - len(model)))
            case "clear":
                await f.clear_bytes(self.handle, at, end)
                model[at:end] = bytes(len(model[at:end]))
            case "read":
                assert await f.smb_read(self.handle, at, step.length) == model[at:end]
            case "flush":
                await f.flush(self.handle)
                assert await f.stored_length(self.path) == len(model)
            case "store":
                file = f.client.share.gathered.get(self.handle.entry.id)
                if file is not None:
                    file.store_soon()
            case "rest":
                assert await f.rest_bytes(self.path) == model
            case "put_range":
                await self._put_range(at, data)
            case "replace":
                await self._rest(RestAccess.REPLACE, lambda: f.put(self.path, data))
                self.model[:] = data
            case "pause":
                await asyncio.sleep(0)
            case "snapshot":
                await f.flush(self.handle)
                if len(self.frozen) < 2:
                    self.frozen.append((await f.snapshot(), bytes(model)))
            case "reopen":
                await f.client.close(self.handle)
                self.handle = await opened(f.client, self.path, R | W)

    def _replace(self, at: int, data: bytes) -> None:
        self.model.extend(bytes(max(0, at - len(self.model))))
        self.model[at : at + len(data)] = data

    async def _put_range(self, at: int, data: bytes) -> None:
        if at + len(data) <= len(self.model):
            await self._rest(RestAccess.WRITE, lambda: self.f.put_range(self.path, at, data))
            self._replace(at, data)

    async def _rest(self, access: RestAccess, change: Callable[[], Awaitable[Entry]]) -> None:
        await self.f.table.rest(path_of(self.path), access, lambda _: change())

    async def check(self) -> None:
        f = self.f
        assert await f.smb_read(self.handle) == self.model
        assert await f.rest_bytes(self.path) == self.model
        for moment, data in self.frozen:
            assert await f.stored_bytes(self.path, moment) == data
            await f.delete_snapshot(moment)
        await f.client.close(self.handle)
        assert not f.client.share.gathered
        assert f.memory.used == 0
        await f.rest_delete(self.path)


@contents_property_test(_STEPS, count=60)
async def test_contents_are_those_of_a_bytearray(f: ContentsFixture, steps: list[Step]) -> None:
    if "client" not in f.__dict__:
        await f.start()
    run = _Run(f, "f", await f.opened_file("f"))
    for number, step in enumerate(steps):
        await run.take(number, step)
    await run.check()
    assert await f.usage() == 0
