"""Front ends under load that are killed repeatedly, with or without their writer.

The front ends check themselves: the outcome of each action against the expected one, and the store
against their journals whenever an outcome was unknown, and completely at every start."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
from collections.abc import Callable
from pathlib import Path

from awscrt.checksums import crc64nvme

from etagere.bodies.collector import Collector
from etagere.bodies.files import FileBodyStore
from etagere.config import KIB, MIB, Config
from etagere.engine.interface import (
    EXCLUSIVE,
    Fault,
    ReadTxn,
    Refused,
    Unknown,
    WriteTxn,
    operation,
)
from etagere.engine.sqlite import SqliteEngine
from etagere.errors import Refusal
from etagere.jobs.supervision import Job
from etagere.model.base import Command
from etagere.model.ids import new_id
from tests.bodies.objects import (
    OBJECTS,
    STAGED,
    CopyObject,
    ListBlocks,
    copy_object,
    delete_object,
    download,
    list_blocks,
    stage,
    upload,
)
from tests.engine.samples import ITEMS, Item, Key, PutItem, count_up, get_item, put_item
from tests.simulation import share_files
from tests.simulation.journals import (
    Action,
    Copy,
    Count,
    CountTogether,
    CreateFile,
    Delete,
    DeleteFile,
    End,
    FileAction,
    Intent,
    Journal,
    ListStaged,
    Part,
    Put,
    RangeWrite,
    RenameFile,
    Stage,
    StoredFile,
    StoredObject,
    TaskHistory,
    TaskState,
    Violation,
    WriteRange,
    must_be_refused,
    read_journal,
)

TASKS = 6
NAMES = 4
TOGETHER = "together"
COLLECT_SECONDS = 0.05
CONFIG = Config(
    inline_bytes_max=4 * KIB,
    piece_bytes_max=1 * MIB,
    segment_bytes_max=4 * MIB,
    reserve_bytes=1 * MIB,
    checkpoint_pages=200,
)


def journal_path(directory: Path, number: int) -> Path:
    return directory.parent / f"journal-{number}"


class CountUp(Command, frozen=True):
    key: str
    expected: int


@operation
def count_from(txn: WriteTxn, command: CountUp) -> int:
    """Increments the counter only if it has the expected value."""
    found = txn.get(ITEMS, (command.key,), EXCLUSIVE) or Item()
    if found.number != command.expected:
        raise Refused(Refusal("ConditionNotMet"))
    return txn.put(ITEMS, (command.key,), Item(number=found.number + 1)).number


class StoreView:
    """Object names of one front end, and their content in the store."""

    def __init__(self, number: int, engine: SqliteEngine, store: FileBodyStore) -> None:
        self._number = number
        self.engine = engine
        self.store = store

    def name(self, task: int, place: int) -> str:
        return f"front-{self._number}/task-{task}/{place}"

    def file_name(self, task: int, place: int) -> str:
        return f"front-{self._number} task-{task} {place}"

    def counter(self, task: int) -> str:
        return f"front-{self._number}/task-{task}/counter"

    async def etag(self, task: int, place: int) -> int:
        def read(txn: ReadTxn, name: str) -> int:
            found = txn.get(OBJECTS, (name,))
            return found.etag if found else 0

        return await self.engine.read(read, self.name(task, place))

    async def matches(self, task: int, state: TaskState) -> str:
        """Describes the difference between an expected state and the store; empty if there is
        none."""
        counter = await self.engine.read(get_item, self.counter(task)) or Item()
        if counter.number != state.counter:
            return f"the counter is {counter.number}, not {state.counter}"
        for place in range(NAMES):
            name = self.name(task, place)
            wrong = await self._object_differs(name, state.objects.get(place))
            wrong = wrong or await self._staged_differs(name, state.staged.get(place, ()))
            if wrong:
                return f"{name}: {wrong}"
            file_name = self.file_name(task, place)
            wrong = await self._file_differs(file_name, state.files.get(place))
            if wrong:
                return f"file {file_name}: {wrong}"
        return ""

    async def _object_differs(self, name: str, held: StoredObject | None) -> str:
        found = await download(self.engine, self.store, name)
        return _difference(found, held)

    async def _file_differs(self, name: str, held: StoredFile | None) -> str:
        found = await share_files.read_file(self.engine, self.store, name)
        return _difference(found, held)

    async def _staged_differs(self, name: str, parts: tuple[Part, ...]) -> str:
        def read(txn: ReadTxn, name: str) -> list[tuple[int, int | None]]:
            found = txn.get(STAGED, (name,))
            blocks = found.blocks if found else ()
            return [(block.length, block.pieces[0].crc) for block in blocks]

        found = await self.engine.read(read, name)
        expected = [(part.length, crc64nvme(part.data())) for part in parts]
        return "" if found == expected else f"{len(found)} blocks staged, not {len(expected)}"


def _difference(found: bytes | None, held: StoredObject | StoredFile | None) -> str:
    expected = None if held is None else held.data()
    return "" if found == expected else f"has {_described(found)}, not {_described(expected)}"


def _described(data: bytes | None) -> str:
    return "nothing" if data is None else f"{len(data)} bytes of CRC {crc64nvme(data):016x}"


class Task:
    """Runs one action after another and knows the expected state."""

    def __init__(
        self,
        number: int,
        view: StoreView,
        account: TaskHistory,
        journal: Journal,
        choices: random.Random,
    ) -> None:
        self._number = number
        self._view = view
        self._account = account
        self._journal = journal
        self._choices = choices

    async def run(self, stopping: Callable[[], bool]) -> None:
        await self._find_out()
        while not stopping():
            await self._act(choose(self._account.state, self._choices))
            if self._choices.random() < 0.15:
                self._require(not (wrong := await self._differs()), wrong)

    async def _differs(self) -> str:
        return await self._view.matches(self._number, self._account.state)

    async def _act(self, action: Action) -> None:
        self._account.begin(action)
        self._journal.add(Intent(self._number, action))
        happened: bool | None
        value = 0
        try:
            value = await self._do(action)
            happened = True
        except Refused as refused:
            happened = False
            expected = must_be_refused(self._account.state, action)
            self._require(expected, f"{action} was refused: {refused}")
        except Fault as fault:
            happened = False
            self._require(False, f"{action}: {fault}")  # only processes fail here
        except Unknown:
            happened = None
        if happened:
            refusal = must_be_refused(self._account.state, action)
            self._require(not refusal, f"{action} was not refused")
            if isinstance(action, Count):
                self._require(value == self._account.state.counter + 1, f"{action} gave {value}")
        self._end(happened, value)
        if happened is None:
            await self._find_out()

    def _end(self, happened: bool | None, value: int = 0) -> None:
        self._journal.add(End(self._number, happened, value))
        self._account.end(happened, value)

    async def _find_out(self) -> None:
        """Finds which of the possible states is in the store. A write in between settles it: after
        another write, the last action of a killed writer has either happened or not."""
        while True:
            try:
                key = self._view.counter(self._number) + "/settled"
                await self._view.engine.write(put_item, PutItem(key))
                break
            except Unknown:
                continue
        differences = []
        for happened, state in enumerate(self._account.possible()):
            wrong = await self._view.matches(self._number, state)
            if not wrong:
                if self._account.open is not None:
                    self._end(bool(happened))
                return
            differences.append(wrong)
        self._require(False, f"after {self._account.open}: {' and '.join(differences)}")

    def _require(self, condition: bool, what: str) -> None:
        if not condition:
            self._journal.add(Violation(f"task {self._number}: {what}"))
            raise AssertionError(what)

    async def _do(self, action: Action) -> int:
        engine, store, name = self._view.engine, self._view.store, self._name
        match action:
            case Put(place, part, condition):
                etag = await self._view.etag(self._number, place)
                wanted = {"none": None, "right": etag, "wrong": etag + 1}[condition]
                return await upload(engine, store, name(place), part.data(), wanted)
            case Copy(source, target):
                return await engine.write(copy_object, CopyObject(name(source), name(target)))
            case Delete(place):
                await engine.write(delete_object, name(place))
            case Stage(place, part):
                await stage(engine, store, name(place), [part.data()])
            case ListStaged(place, keep):
                return await engine.write(list_blocks, ListBlocks(name(place), new_id(), keep))
            case Count(expected):
                key = self._view.counter(self._number)
                return await engine.write(count_from, CountUp(key, expected))
            case CountTogether():
                return await engine.write(count_up, Key(TOGETHER))
            case CreateFile() | WriteRange() | RenameFile() | DeleteFile():
                await self._do_with_file(action)
        return 0

    async def _do_with_file(self, action: FileAction) -> None:
        engine, store = self._view.engine, self._view.store
        match action:
            case CreateFile(place):
                await share_files.create_file(engine, self._file_name(place))
            case WriteRange(place, RangeWrite(start, part)):
                name = self._file_name(place)
                await share_files.write_range(engine, store, name, start, part.data())
            case RenameFile(source, target):
                names = self._file_name(source), self._file_name(target)
                await share_files.rename_file(engine, *names)
            case DeleteFile(place):
                await share_files.delete_file(engine, self._file_name(place))

    def _file_name(self, place: int) -> str:
        return self._view.file_name(self._number, place)

    def _name(self, place: int) -> str:
        return self._view.name(self._number, place)


def choose(state: TaskState, choices: random.Random) -> Action:
    """Chooses the next action."""
    if choices.random() < 0.25:
        return _choose_file_action(choices)
    place = choices.randrange(NAMES)
    kind = choices.random()
    if kind < 0.40:
        condition = choices.choice(["none", "none", "right", "wrong"])
        return Put(place, _part(choices), condition)
    if kind < 0.50:
        return Copy(choices.randrange(NAMES), place)
    if kind < 0.60:
        return Delete(place)
    if kind < 0.72:
        return Stage(place, Part(choices.getrandbits(32), choices.randint(1, 64 * KIB)))
    if kind < 0.82:
        held = state.objects.get(place)
        kept = range(len(held.parts)) if held and held.listed else ()
        return ListStaged(place, tuple(n for n in kept if choices.random() < 0.7)[:20])
    if kind < 0.92:
        return Count(state.counter + (choices.random() < 0.2))
    return CountTogether()


def _choose_file_action(choices: random.Random) -> FileAction:
    place = choices.randrange(NAMES)
    kind = choices.random()
    if kind < 0.25:
        return CreateFile(place)
    if kind < 0.80:
        length = choices.choice([1, 100, 5 * KIB, 60 * KIB, 200 * KIB])
        start = choices.randrange(share_files.FILE_BYTES - length)
        return WriteRange(place, RangeWrite(start, Part(choices.getrandbits(32), length)))
    if kind < 0.92:
        source, target = choices.sample(range(NAMES), 2)
        return RenameFile(source, target)
    return DeleteFile(place)


def _part(choices: random.Random) -> Part:
    """Mostly small, some large, some empty."""
    longest = choices.choice([0, 100, 4 * KIB, 5 * KIB, 60 * KIB, 400 * KIB, 2500 * KIB])
    return Part(choices.getrandbits(32), choices.randint(longest // 2, longest))


def front_end_main(directory: Path, number: int, seed: int) -> Callable[[int], None]:
    """The main function of a front end under the supervisor."""

    def main(lifeline: int) -> None:
        asyncio.run(_front_end(directory, number, seed, lifeline))

    return main


async def _create_share(engine: SqliteEngine) -> None:
    """Creates the share of the files, although the writer may be killed meanwhile."""
    while True:
        try:
            return await share_files.create_share(engine)
        except Unknown:
            continue


async def _front_end(directory: Path, number: int, seed: int, lifeline: int) -> None:
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, stopped.set)
    loop.add_reader(lifeline, os._exit, 1)  # nothing restarts the writer any more
    journal = Journal(journal_path(directory, number))
    account = read_journal(journal_path(directory, number), TASKS)
    choices = random.Random(f"{seed}/{number}/{account.starts}")
    engine = SqliteEngine(directory, CONFIG)
    store = FileBodyStore(directory, engine, CONFIG)
    collector = Collector(engine, store, CONFIG)
    collecting = asyncio.create_task(Job("collecting", collector.run, COLLECT_SECONDS).run())
    await _create_share(engine)
    view = StoreView(number, engine, store)
    tasks = [
        asyncio.create_task(
            Task(n, view, account.tasks[n], journal, random.Random(choices.getrandbits(64))).run(
                stopped.is_set
            )
        )
        for n in range(TASKS)
    ]
    stop = asyncio.create_task(stopped.wait())
    try:
        await asyncio.wait([stop, collecting, *tasks], return_when=asyncio.FIRST_COMPLETED)
        if not stopped.is_set():
            raise AssertionError("a task ended by itself")
        await asyncio.gather(*tasks)
        collecting.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await collecting
        await store.close()
        await engine.close()
    except BaseException as error:
        ended = [t for t in (collecting, *tasks) if t.done() and not t.cancelled()]
        causes = [repr(t.exception()) for t in ended if t.exception() is not None]
        journal.add(Violation(f"front end {number}: {error!r} because of {causes}"))
        raise
