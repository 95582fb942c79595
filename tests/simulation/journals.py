"""Journals of the front ends in a torture run: intended actions and their outcomes.

Each front end has its own journal: a line before and after each action, handed to the kernel at
once, so that it survives the process. Each task works on its own names, one action at a time. So
its state is known exactly, except for one action whose end is missing."""

from __future__ import annotations

import os
import random
from pathlib import Path

import msgspec

from tests.simulation.share_files import FILE_BYTES


class Part(msgspec.Struct, frozen=True):
    """A run of reproducible bytes."""

    seed: int
    length: int

    def data(self) -> bytes:
        return random.Random(self.seed).randbytes(self.length)


class StoredObject(msgspec.Struct, frozen=True):
    """An object: its parts in order, and whether they are listed blocks."""

    parts: tuple[Part, ...]
    listed: bool = False

    def data(self) -> bytes:
        return b"".join(part.data() for part in self.parts)


class RangeWrite(msgspec.Struct, frozen=True):
    """Bytes that were written over those of a file."""

    start: int
    part: Part


class StoredFile(msgspec.Struct, frozen=True):
    """A file: what was written to it since it was created with zeros."""

    writes: tuple[RangeWrite, ...] = ()

    def data(self) -> bytes:
        data = bytearray(FILE_BYTES)
        for write in self.writes:
            data[write.start : write.start + write.part.length] = write.part.data()
        return bytes(data)


# Actions. Names are numbers that belong to one task.


class Put(msgspec.Struct, frozen=True, tag=True):
    """An upload: without a condition, on the version that is there, or on another one."""

    name: int
    part: Part
    condition: str = "none"


class Copy(msgspec.Struct, frozen=True, tag=True):
    source: int
    target: int


class Delete(msgspec.Struct, frozen=True, tag=True):
    name: int


class Stage(msgspec.Struct, frozen=True, tag=True):
    name: int
    part: Part


class ListStaged(msgspec.Struct, frozen=True, tag=True):
    """Makes an object of some of its blocks and all staged ones."""

    name: int
    keep: tuple[int, ...]


class Count(msgspec.Struct, frozen=True, tag=True):
    """Increments the task's own counter, if it has the expected value."""

    expected: int


class CountTogether(msgspec.Struct, frozen=True, tag=True):
    """Increments a counter that all tasks share."""


class CreateFile(msgspec.Struct, frozen=True, tag=True):
    """Creates a file of zeros, or replaces one."""

    name: int


class WriteRange(msgspec.Struct, frozen=True, tag=True):
    name: int
    write: RangeWrite


class RenameFile(msgspec.Struct, frozen=True, tag=True):
    """Moves a file to another name, and replaces what is there."""

    source: int
    target: int


class DeleteFile(msgspec.Struct, frozen=True, tag=True):
    name: int


ObjectAction = Put | Copy | Delete | Stage | ListStaged | Count | CountTogether
FileAction = CreateFile | WriteRange | RenameFile | DeleteFile
Action = ObjectAction | FileAction


class TaskState(msgspec.Struct, frozen=True):
    """Everything that one task has in the store."""

    objects: dict[int, StoredObject] = {}
    staged: dict[int, tuple[Part, ...]] = {}
    counter: int = 0
    files: dict[int, StoredFile] = {}


def after(state: TaskState, action: Action) -> TaskState:
    """Returns the state after an action."""
    objects, staged, counter = dict(state.objects), dict(state.staged), state.counter
    files = dict(state.files)
    match action:
        case Put(name, part):
            objects[name] = StoredObject((part,))
        case Copy(source, target):
            objects[target] = objects[source]
        case Delete(name):
            del objects[name]
        case Stage(name, part):
            staged[name] = (*staged.get(name, ()), part)
        case ListStaged(name, keep):
            reused = tuple(objects[name].parts[number] for number in keep)
            objects[name] = StoredObject(reused + staged.pop(name, ()), listed=True)
        case Count():
            counter += 1
        case CreateFile(name):
            files[name] = StoredFile()
        case WriteRange(name, write):
            files[name] = StoredFile((*files[name].writes, write))
        case RenameFile(source, target):
            files[target] = files.pop(source)
        case DeleteFile(name):
            del files[name]
    return TaskState(objects, staged, counter, files)


def must_be_refused(state: TaskState, action: Action) -> bool:
    match action:
        case Put(condition=condition):
            return condition == "wrong"
        case Copy(source=source):
            return source not in state.objects
        case Delete(name):
            return name not in state.objects
        case Count(expected):
            return expected != state.counter
        case RenameFile(source=name) | WriteRange(name=name) | DeleteFile(name):
            return name not in state.files
    return False


# Lines


class Intent(msgspec.Struct, frozen=True, tag=True):
    task: int
    action: Action


class End(msgspec.Struct, frozen=True, tag=True):
    """The outcome of the task's last action, as reported or as found out later."""

    task: int
    happened: bool | None
    value: int = 0


class Violation(msgspec.Struct, frozen=True, tag=True):
    """An invariant violation that a front end detected."""

    what: str


class Began(msgspec.Struct, frozen=True, tag=True):
    """A front end was started."""

    pid: int


Line = Intent | End | Violation | Began
_decode = msgspec.json.Decoder(Line).decode
_encode = msgspec.json.Encoder().encode


class Journal:
    """The journal of this front end, open for appending."""

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC)
        # A killed process may leave a partial line.
        os.write(self._descriptor, b"\n")
        self.add(Began(os.getpid()))

    def add(self, line: Line) -> None:
        os.write(self._descriptor, _encode(line) + b"\n")

    def close(self) -> None:
        os.close(self._descriptor)


class TaskHistory:
    """The state of one task according to its journal."""

    def __init__(self) -> None:
        self.state = TaskState()
        self.open: Action | None = None
        """The action whose outcome is unknown."""
        self.counted_together: list[int] = []
        self.counted_perhaps = 0

    def begin(self, action: Action) -> None:
        assert self.open is None, "an action before the one before it had ended"
        self.open = action

    def end(self, happened: bool | None, value: int) -> None:
        action, self.open = self.open, None
        assert action is not None
        if isinstance(action, CountTogether):
            # It cannot be found out later whether this increment happened.
            if happened:
                self.counted_together.append(value)
            self.counted_perhaps += happened is None
        elif happened:
            self.state = after(self.state, action)
        elif happened is None:
            self.open = action

    def possible(self) -> list[TaskState]:
        """Returns the states that may be in the store."""
        if self.open is None or isinstance(self.open, CountTogether):
            return [self.state]
        if must_be_refused(self.state, self.open):
            return [self.state]
        return [self.state, after(self.state, self.open)]


class FrontEndHistory:
    """The states of one front end's tasks, and the violations it detected."""

    def __init__(self, tasks: int) -> None:
        self.tasks = [TaskHistory() for _ in range(tasks)]
        self.violations: list[str] = []
        self.ends = 0
        self.unknown = 0
        self.starts = 0

    def read(self, line: Line) -> None:
        match line:
            case Intent(task, action):
                self.tasks[task].begin(action)
            case End(task, happened, value):
                self.tasks[task].end(happened, value)
                self.ends += 1
                self.unknown += happened is None
            case Violation(what):
                self.violations.append(what)
            case Began():
                self.starts += 1
                for account in self.tasks:
                    if isinstance(account.open, CountTogether):
                        account.end(None, 0)


def read_journal(path: Path, tasks: int) -> FrontEndHistory:
    account = FrontEndHistory(tasks)
    for line in path.read_bytes().splitlines() if path.exists() else ():
        try:
            decoded = _decode(line)
        except msgspec.DecodeError:
            continue  # a partial line: its action had not begun or its outcome is unknown
        account.read(decoded)
    return account


def count_ends(path: Path) -> int:
    """Returns a cheap measure of progress."""
    return path.read_bytes().count(b'"End"') if path.exists() else 0
