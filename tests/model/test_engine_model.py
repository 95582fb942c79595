"""Both engines compared with a sorted dictionary; SQLite from two processes."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
)

from etagere.clock import Clock
from etagere.config import Config
from etagere.engine.interface import Engine, Fault, Refused
from etagere.engine.memory import MemoryEngine
from etagere.engine.sqlite import SqliteEngine
from tests.engine import samples
from tests.engine.samples import (
    ITEMS,
    NAMED,
    Claim,
    Item,
    Key,
    PutItem,
    PutItems,
    PutLarge,
    PutNamed,
    Scan,
    Transfer,
    WriteAndLook,
)
from tests.engine.sqlite_harness import SqliteHarness
from tests.model.processes import HelperProcess
from tests.model.scripts import Act, Ending, Script, Step, follow, run_script
from tests.model.test_bodies_model import WRITER_KILLS_MAX, run_machine

CONFIG = Config(durable=False, checkpoint_pages=20, reserve_bytes=0)
"""A short log, so that reads come from the log and from the database in turn."""

KEYS = st.text("ab/\x00é\U0001f600", max_size=3)
ITEM = st.builds(Item, KEYS, st.integers(-5, 5))
IDS = st.sampled_from([b"\x00" * 16, b"\x01" * 16, b"\xfe" + b"\xff" * 15])
SIDES = st.sampled_from([0, 1])

STEPS = st.builds(Step, st.sampled_from(Act), KEYS, st.integers(0, 9)) | st.builds(
    Step, st.just(Act.FILL), KEYS, st.sampled_from([100, 300])
)
SCRIPTS = st.builds(Script, st.lists(STEPS, max_size=5), st.sampled_from(Ending))
WRITES: dict[str, Any] = {**vars(samples), "run_script": run_script}

Outcome = tuple[str, Any]


class EngineSession:
    """A front end: runs operations by name and reports how they ended."""

    def __init__(self, open_engine: Callable[[], Engine]) -> None:
        self._open_engine = open_engine

    async def open(self) -> None:
        self._engine = self._open_engine()

    async def write(self, operation: str, command: object) -> Outcome:
        try:
            return "result", await self._engine.write(WRITES[operation], command)
        except Refused as refused:
            return "refused", refused.refusal.code
        except Fault as fault:
            return "fault", fault.reason.value

    async def write_together(self, operation: str, commands: list[object]) -> list[Outcome]:
        """Sends them at once, so that the writer groups them."""
        return await asyncio.gather(*(self.write(operation, command) for command in commands))

    async def read(self, operation: str, command: object) -> Outcome:
        try:
            return "result", await self._engine.read(getattr(samples, operation), command)
        except Refused as refused:
            return "refused", refused.refusal.code

    async def read_in_thread(self, operation: str, command: object) -> Outcome:
        return "result", await self._engine.read_in_thread(getattr(samples, operation), command)

    async def let_loop_run(self) -> None:
        for _ in range(3):
            await asyncio.sleep(0)

    async def close(self) -> None:
        await self._engine.close()


class LocalSession:
    """A session in this process, called like a helper process."""

    def __init__(self, side: EngineSession, runner: asyncio.Runner) -> None:
        self._side = side
        self._runner = runner

    def call(self, method: str, *arguments: object) -> Any:
        return self._runner.run(getattr(self._side, method)(*arguments))


class EngineMachine(RuleBasedStateMachine):
    """Every acknowledged change is visible to both sessions."""

    root: Path
    sides: list[LocalSession | HelperProcess]

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.items: dict[str, Item] = {}
        self.named: set[tuple[bytes, str]] = set()
        self.large: dict[bytes, int] = {}
        self.restarts = 0

    @initialize()
    def start(self) -> None:
        self.begin()

    def begin(self) -> None:
        raise NotImplementedError

    def write(self, side: int, operation: str, command: object) -> Outcome:
        outcome: Outcome = self.sides[side].call("write", operation, command)
        return outcome

    def read(self, side: int, operation: str, command: object) -> Any:
        kind, result = self.sides[side].call("read", operation, command)
        assert kind == "result"
        return result

    # Plain writes

    @rule(side=SIDES, key=KEYS, item=ITEM)
    def put(self, side: int, key: str, item: Item) -> None:
        assert self.write(side, "put_item", PutItem(key, item)) == ("result", item)
        self.items[key] = item
        assert self.read(1 - side, "get_item", key) == item

    @rule(side=SIDES, items=st.dictionaries(KEYS, ITEM, max_size=8))
    def put_many(self, side: int, items: dict[str, Item]) -> None:
        puts = PutItems([PutItem(key, item) for key, item in items.items()])
        assert self.write(side, "put_items", puts) == ("result", len(items))
        self.items.update(items)

    @rule(side=SIDES, key=KEYS)
    def delete(self, side: int, key: str) -> None:
        assert self.write(side, "delete_item", Key(key)) == ("result", None)
        self.items.pop(key, None)
        assert self.read(1 - side, "get_item", key) is None

    @rule(side=SIDES, keys=st.lists(st.tuples(IDS, KEYS), max_size=4))
    def put_named(self, side: int, keys: list[tuple[bytes, str]]) -> None:
        assert self.write(side, "put_named", PutNamed(keys)) == ("result", None)
        self.named.update(keys)

    @rule(side=SIDES, key=st.binary(max_size=2), size=st.sampled_from([0, 1, 5_000, 200_000]))
    def put_large(self, side: int, key: bytes, size: int) -> None:
        assert self.write(side, "put_large", PutLarge(key, bytes(size))) == ("result", None)
        self.large[key] = size
        found = self.read(1 - side, "get_large", key)
        assert found.data == bytes(size)

    # Decisions

    @rule(side=SIDES, key=KEYS, item=ITEM)
    def create_once(self, side: int, key: str, item: Item) -> None:
        outcome = self.write(side, "create_once", PutItem(key, item))
        if key in self.items:
            assert outcome == ("refused", "BlobAlreadyExists")
        else:
            assert outcome == ("result", item)
            self.items[key] = item

    @rule(side=SIDES, key=KEYS)
    def count_up(self, side: int, key: str) -> None:
        old = self.items.get(key, Item())
        self.items[key] = msgspec.structs.replace(old, number=old.number + 1)
        assert self.write(side, "count_up", Key(key)) == ("result", old.number + 1)

    @rule(side=SIDES, source=KEYS, goal=KEYS, amount=st.integers(1, 3))
    def transfer(self, side: int, source: str, goal: str, amount: int) -> None:
        numbers = {key: self.items.get(key, Item()).number for key in (source, goal)}
        numbers[source] -= amount
        numbers[goal] += amount
        outcome = self.write(side, "transfer", Transfer(source, goal, amount))
        assert outcome == ("result", None)
        self.items.update({key: Item(number=number) for key, number in numbers.items()})

    @rule(side=SIDES, limit=st.integers(0, 3))
    def take(self, side: int, limit: int) -> None:
        expected = sorted(self.items)[:limit]
        assert self.write(side, "take_items", Claim(limit)) == ("result", expected)
        for key in expected:
            del self.items[key]

    @rule(side=SIDES, key=KEYS, item=ITEM, deleted=KEYS)
    def write_and_look(self, side: int, key: str, item: Item, deleted: str) -> None:
        """An operation sees its own writes, in gets and in scans."""
        command = WriteAndLook(PutItem(key, item), deleted, key)
        kind, seen = self.write(side, "write_and_look", command)
        self.items[key] = item
        self.items.pop(deleted, None)
        keys = sorted(self.items)
        assert kind == "result"
        assert (seen.deleted, seen.put) == (None, self.items.get(key))
        assert (seen.forward, seen.two_forward) == (keys[:100], keys[:2])
        assert (seen.reverse, seen.two_reverse) == (keys[::-1][:100], keys[::-1][:2])

    @rule(side=SIDES, steps=st.lists(STEPS, max_size=10), ending=st.sampled_from(Ending))
    def run_script(self, side: int, steps: list[Step], ending: Ending) -> None:
        """An operation of any shape sees its own changes and is atomic."""
        script = Script(steps, ending)
        expected = self.follow(script)
        assert self.write(side, "run_script", script) == expected
        everything = self.read(1 - side, "scan_items", Scan(ITEMS.all(), 100_000))
        assert everything == sorted(self.items)

    def follow(self, script: Script) -> Outcome:
        """Applies a script to the model; keeps the changes if it commits."""
        items = dict(self.items)
        seen = follow(items, script)
        if script.ending is Ending.KEEP:
            self.items = items
            return "result", seen
        if script.ending is Ending.REFUSE:
            return "refused", "ConditionNotMet"
        return "fault", "failed"

    # Refusals and failures

    @rule(side=SIDES, key=KEYS, item=ITEM)
    def refuse(self, side: int, key: str, item: Item) -> None:
        outcome = self.write(side, "refuse_after_writing", PutItem(key, item))
        assert outcome == ("refused", "ConditionNotMet")
        assert self.read(1 - side, "get_item", key) == self.items.get(key)

    @rule(side=SIDES, key=KEYS)
    def fail(self, side: int, key: str) -> None:
        outcome = self.write(side, "divide_by_zero", PutItem(key, Item("lost")))
        assert outcome == ("fault", "failed")
        assert self.read(1 - side, "get_item", key) == self.items.get(key)

    # Reads

    @rule(side=SIDES, key=KEYS)
    def get(self, side: int, key: str) -> None:
        assert self.read(side, "get_item", key) == self.items.get(key)
        kind, _ = self.sides[side].call("read", "read_and_refuse", key)
        assert kind == ("result" if key in self.items else "refused")
        found = self.sides[side].call("read_in_thread", "get_item", key)
        assert found == ("result", self.items.get(key))

    @rule(
        side=SIDES,
        prefix=KEYS,
        place=st.none() | KEYS,
        after=st.booleans(),
        limit=st.integers(0, 5) | st.just(100_000),
        reverse=st.booleans(),
    )
    def scan(
        self, side: int, prefix: str, place: str | None, after: bool, limit: int, reverse: bool
    ) -> None:
        span = ITEMS.under((), prefix)
        keys = [key for key in sorted(self.items) if key.startswith(prefix)]
        if place is not None:
            span = (ITEMS.after if after else ITEMS.starting)(span, (place,))
            keys = [key for key in keys if key > place or (key == place and not after)]
        if reverse:
            keys.reverse()
        assert self.read(side, "scan_items", Scan(span, limit, reverse)) == keys[:limit]

    @rule(side=SIDES, parent=IDS, prefix=KEYS, reverse=st.booleans())
    def scan_named(self, side: int, parent: bytes, prefix: str, reverse: bool) -> None:
        found = self.read(side, "scan_named", Scan(NAMED.under((parent,), prefix), 1000, reverse))
        expected = [key for key in self.named if key[0] == parent and key[1].startswith(prefix)]
        assert found == sorted(expected, reverse=reverse)
        everything = self.read(side, "scan_named", Scan(NAMED.all(), 1000, reverse))
        assert everything == sorted(self.named, reverse=reverse)

    # Restarting the writer

    @precondition(lambda self: self.restarts < WRITER_KILLS_MAX)
    @rule()
    def restart(self) -> None:
        self.restarts += 1
        self.restart_writer()

    def restart_writer(self) -> None:
        raise NotImplementedError

    def teardown(self) -> None:
        try:
            for side in (0, 1):
                found = self.read(side, "scan_items", Scan(ITEMS.all(), 100_000))
                assert found == sorted(self.items)
                for key, item in self.items.items():
                    assert self.read(side, "get_item", key) == item
                for key_of_large, size in self.large.items():
                    assert len(self.read(side, "get_large", key_of_large).data) == size
        finally:
            self.end()
            self.runner.close()

    def end(self) -> None:
        raise NotImplementedError


class MemoryMachine(EngineMachine):
    """One engine; both sessions are the same."""

    def begin(self) -> None:
        self.engine = MemoryEngine()
        self.sides = [self.new_session(), self.new_session()]

    def new_session(self) -> LocalSession:
        side = LocalSession(EngineSession(lambda: self.engine), self.runner)
        side.call("open")
        return side

    def restart_writer(self) -> None:
        self.engine = self.engine.restarted()
        self.sides = [self.new_session(), self.new_session()]

    def end(self) -> None:
        self.sides[0].call("close")


def sqlite_session(directory: Path, clock: Clock) -> EngineSession:
    return EngineSession(lambda: SqliteEngine(directory, CONFIG, clock))


class SqliteMachine(EngineMachine):
    """One session in this process, one in another."""

    def begin(self) -> None:
        self.directory = Path(tempfile.mkdtemp(dir=self.root))
        self.harness = SqliteHarness(self.directory, CONFIG)
        self.harness.start()
        clock = self.harness.clock
        self.helper = HelperProcess(lambda: sqlite_session(self.directory, clock))
        self.sides = [LocalSession(sqlite_session(self.directory, clock), self.runner), self.helper]
        for side in self.sides:
            side.call("open")

    @rule(side=SIDES, scripts=st.lists(SCRIPTS, max_size=4))
    def run_together(self, side: int, scripts: list[Script]) -> None:
        """Operations of one group see earlier changes, but nothing that was refused."""
        expected = [self.follow(script) for script in scripts]
        assert self.sides[side].call("write_together", "run_script", scripts) == expected

    def restart_writer(self) -> None:
        before = self.harness.writer_pid()
        self.harness.kill_writer()
        self.harness.wait_for_writer(other_than=before)
        for side in self.sides:
            side.call("let_loop_run")

    def end(self) -> None:
        try:
            self.sides[0].call("close")
        finally:
            self.helper.kill()
            self.harness.stop()
            shutil.rmtree(self.directory)


def test_the_memory_engine_matches_the_model(tmp_path: Path) -> None:
    run_machine(MemoryMachine, tmp_path, 60, 50)


def test_the_sqlite_engine_matches_the_model(tmp_path: Path) -> None:
    run_machine(SqliteMachine, tmp_path, 25, 50)


@pytest.mark.long
@pytest.mark.parametrize("machine", [MemoryMachine, SqliteMachine])
def test_engines_match_the_model_in_long_runs(machine: type[EngineMachine], tmp_path: Path) -> None:
    run_machine(machine, tmp_path, 300, 100, derandomize=False)
