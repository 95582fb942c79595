"""Processes are killed at any time: nothing acknowledged is lost, nothing is torn."""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from etagere.bodies import contents, maps
from etagere.bodies.collector import Collector
from etagere.bodies.segment_files import DIRECTORY_NAME
from etagere.engine.interface import ReadTxn
from etagere.engine.records import Collection
from etagere.model.ids import new_id
from tests.bodies.objects import OBJECTS, STAGED, ListBlocks, delete_object, list_blocks
from tests.engine.samples import Item, get_item
from tests.simulation import share_files, torture
from tests.simulation.journals import FrontEndHistory, count_ends, read_journal
from tests.simulation.servers import (
    FrontEnd,
    Server,
    front_end,
    require_clean,
    run,
    running,
    served,
    wait_until,
)

pytestmark = pytest.mark.alone

FRONT_ENDS = 3
_ROUNDS_MAX = 20
# Collections that exist only for bodies.
ACCOUNTS: list[Collection[Any, Any]] = [
    contents.INLINE,
    contents.BLOCK_LISTS,
    contents.CHUNKS,
    contents.CONTENT_SHARERS,
    contents.CHUNK_SHARERS,
    contents.CONTENTS_TO_REAP,
    contents.EXTENTS,
    contents.MOVES,
    contents.UNCOUNTED_DEAD,
    contents.DEAD_TOTALS,
    contents.SEGMENTS,
    maps.INTERVAL_MAPS,
    maps.INTERVALS,
    maps.FORMER_INTERVALS,
    maps.GENERATIONS,
    maps.MAPS_TO_REAP,
    maps.MAPS_TO_FLATTEN,
]


def seed_of_run() -> int:
    return int(os.environ.get("ETAGERE_SEED") or random.SystemRandom().getrandbits(32))


@contextmanager
def explained(seed: int, server: Server) -> Iterator[None]:
    """Adds the seed that reproduces a failing run."""
    try:
        yield
    except BaseException as error:
        server.show_stacks()
        print("\n".join(server.log().splitlines()[-400:]))
        print(f"again: ETAGERE_SEED={seed} .venv/bin/pytest tests/simulation/test_torture.py")
        error.add_note(f"ETAGERE_SEED={seed} .venv/bin/pytest tests/simulation/test_torture.py")
        raise


class Torture:
    """One run: a server with front ends that are under load from the start."""

    def __init__(self, server: Server, seed: int) -> None:
        self._server = server
        self._choices = random.Random(seed)
        self.killed = {"writer": 0, "front end": 0, "supervisor": 0, "all": 0}

    def kill(self) -> None:
        """Kills a process under load and waits until work continues."""
        self._wait_for_progress(self._choices.randint(1, 100))
        time.sleep(self._choices.uniform(0.0, 0.02))  # at any time, not only after a response
        victim = self._choices.choices([*self.killed], weights=[45, 30, 8, 17])[0]
        self.killed[victim] += 1
        server = self._server
        if victim == "all":
            server.kill_all()
            server.start()
        elif victim == "supervisor":
            children = server.kill_supervisor()
            wait_until(lambda: not any(map(running, children)), "children to follow")
            server.start()
        else:
            number = self._choices.randrange(FRONT_ENDS)
            name = "writer" if victim == "writer" else f"front-{number}"
            server.wait_for_another(name, server.kill(name))
        self._require_no_violation()

    def _wait_for_progress(self, ends: int) -> None:
        paths = [torture.journal_path(self._server.directory, n) for n in range(FRONT_ENDS)]
        goal = sum(map(count_ends, paths)) + ends

        def reached() -> bool:
            self._require_no_violation()
            return sum(map(count_ends, paths)) >= goal

        wait_until(reached, "progress", every=0.02)

    def _require_no_violation(self) -> None:
        for number in range(FRONT_ENDS):
            path = torture.journal_path(self._server.directory, number)
            if path.exists() and b'"Violation"' in path.read_bytes():
                raise AssertionError(read_journal(path, torture.TASKS).violations)


def accounts_of(server: Server) -> list[FrontEndHistory]:
    paths = [torture.journal_path(server.directory, number) for number in range(FRONT_ENDS)]
    return [read_journal(path, torture.TASKS) for path in paths]


async def require_as_journalled(server: Server) -> None:
    """Compares the store with the journals, in a process that wrote none of it."""
    accounts = accounts_of(server)
    async with front_end(server) as front:
        for number, account in enumerate(accounts):
            assert not account.violations
            view = torture.StoreView(number, front.engine, front.store)
            for task, kept in enumerate(account.tasks):
                possible = [await view.matches(task, state) for state in kept.possible()]
                assert "" in possible, (number, task, kept.open, possible)
        together = await front.engine.read(get_item, torture.TOGETHER) or Item()
    tasks = [kept for account in accounts for kept in account.tasks]
    counted = [value for kept in tasks for value in kept.counted_together]
    perhaps = sum(kept.counted_perhaps for kept in tasks)
    assert len(set(counted)) == len(counted)
    assert len(counted) <= together.number <= len(counted) + perhaps


async def require_space_is_reclaimed(server: Server) -> None:
    """Deletes everything and checks that nothing remains in the ledger or on disk."""
    async with front_end(server) as front:
        for name in await front.engine.read(_names, STAGED):
            command = ListBlocks(name, new_id())
            await front.engine.write(list_blocks, command)
        for name in await front.engine.read(_names, OBJECTS):
            await front.engine.write(delete_object, name)
        for name in await front.engine.read(share_files.names, None):
            await share_files.delete_file(front.engine, name)
        collector = Collector(front.engine, front.store, server.config)
        for _ in range(_ROUNDS_MAX):
            await front.store.maintain()
            await collector.collect()
        assert await _left(front) == {}
        assert list((server.directory / DIRECTORY_NAME).iterdir()) == []


def _names(txn: ReadTxn, collection: Collection[tuple[str], Any]) -> list[str]:
    return [name for (name,), _ in txn.scan(collection, collection.all(), 100_000)]


async def _left(front: FrontEnd) -> dict[str, int]:
    def count(txn: ReadTxn, _: None) -> dict[str, int]:
        found = {c.name: len(txn.scan(c, c.all(), 100_000)) for c in ACCOUNTS}
        return {name: number for name, number in found.items() if number}

    return await front.engine.read(count, None)


def torture_server(directory: Path, kills: int, seconds: float) -> None:
    """Kills until there were enough kills, within a time limit."""
    seed = seed_of_run()
    front_ends = {
        f"front-{number}": torture.front_end_main(directory, number, seed)
        for number in range(FRONT_ENDS)
    }
    with served(directory, torture.CONFIG, front_ends) as server, explained(seed, server):
        run_ = Torture(server, seed)
        deadline = time.monotonic() + seconds
        while sum(run_.killed.values()) < kills:
            assert time.monotonic() < deadline, f"only {run_.killed} in {seconds} s"
            run_.kill()
        assert server.stop() == 0
        require_clean(directory)
        accounts = accounts_of(server)
        ends, unknown = sum(a.ends for a in accounts), sum(a.unknown for a in accounts)
        print(f"seed {seed}: {run_.killed}, {ends} actions, {unknown} of them unknown at first")
        # The same data with a server without front ends.
        with served(directory, torture.CONFIG) as plain:
            asyncio.run(require_as_journalled(plain))
            run(require_space_is_reclaimed(plain))
            assert plain.stop() == 0
        require_clean(directory)


def test_kills(tmp_path: Path) -> None:
    torture_server(tmp_path / "data", kills=20, seconds=40)


@pytest.mark.long
def test_many_kills(tmp_path: Path) -> None:
    torture_server(tmp_path / "data", kills=250, seconds=900)
