"""Reads in steps with every engine: one snapshot, with other work between the steps."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import NamedTuple

import pytest

from etagere.engine.interface import Fault, ReadTxn, Refused, Steps
from etagere.errors import Refusal
from tests.engine import samples
from tests.engine.conftest import start  # noqa: F401
from tests.engine.harness import Harness, conformance
from tests.engine.samples import ITEMS, Item, PutItem, PutItems
from tests.loops import until

_STOPS = 40
_SECONDS_MAX = 20.0


def _texts(txn: ReadTxn) -> list[str]:
    return [item.text for _, item in txn.scan(ITEMS, ITEMS.all(), 10)]


def _look_twice(txn: ReadTxn, _: None) -> Steps[tuple[list[str], list[str]]]:
    before = _texts(txn)
    for _number in range(_STOPS):
        _sleep_briefly()
        yield
    return before, _texts(txn)


class _Progress(NamedTuple):
    """What a read and a test tell each other; the read may run on another thread."""

    has_begun: threading.Event
    may_end: threading.Event


def _look_until_told(txn: ReadTxn, progress: _Progress) -> Steps[tuple[list[str], list[str]]]:
    before = _texts(txn)
    progress.has_begun.set()
    deadline = time.monotonic() + _SECONDS_MAX
    while not progress.may_end.is_set() and time.monotonic() < deadline:
        _sleep_briefly()
        yield
    return before, _texts(txn)


def _sleep_briefly() -> None:
    """Sleeps longer than a turn lasts."""
    end = time.monotonic() + 0.002
    while time.monotonic() < end:
        pass


def _refuse(txn: ReadTxn, code: str) -> Steps[None]:
    yield
    raise Refused(Refusal(code))


def _fail(txn: ReadTxn, _: None) -> Steps[None]:
    yield
    raise ValueError("for a test")


@conformance
async def test_the_snapshot_is_stable_while_others_write(harness: Harness) -> None:
    engine = await harness.open()
    await engine.write(samples.put_items, PutItems([PutItem("a", Item("old"))]))
    progress = _Progress(threading.Event(), threading.Event())
    reading = asyncio.create_task(engine.read_in_steps(_look_until_told, progress))
    await until(progress.has_begun.is_set)
    await engine.write(samples.put_items, PutItems([PutItem("a", Item("new"))]))
    assert not reading.done()
    progress.may_end.set()
    before, after = await reading
    assert before == after
    assert await engine.read(lambda txn, _: _texts(txn), None) == ["new"]


@conformance
async def test_refusals_and_failures_end_the_read(harness: Harness) -> None:
    engine = await harness.open()
    for _ in range(10):
        with pytest.raises(Refused, match="BlobNotFound"):
            await engine.read_in_steps(_refuse, "BlobNotFound")
        with pytest.raises(Fault):
            await engine.read_in_steps(_fail, None)
    assert await engine.read_in_steps(_look_twice, None) == ([], [])


@conformance
async def test_an_abandoned_read_leaves_nothing_open(harness: Harness) -> None:
    engine = await harness.open()
    for number in range(10):
        reading = asyncio.create_task(engine.read_in_steps(_look_twice, None))
        for _ in range(3):
            await asyncio.sleep(0)
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading
        await engine.write(samples.put_items, PutItems([PutItem("a", Item(str(number)))]))
        # The next read, perhaps on the same connection, sees what was written since.
        assert await engine.read_in_steps(_look_twice, None) == ([str(number)], [str(number)])
