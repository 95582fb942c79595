"""What the front ends of a torture run intend, and what became of it, written down as it goes.

Each front end has a journal of its own: a line before each action and one after it, handed to
the kernel at once, so that they outlive the process. Each task in it works on names of its own,
one action at a time. So its state is known exactly, but for the one action whose end is missing.
"""

from __future__ import annotations

import os
import random
from pathlib import Path

import msgspec


class Part(msgspec.Struct, frozen=True):
    """A run of bytes that anybody can make again."""

    seed: int
    length: int

    def data(self) -> bytes:
        return random.Random(self.seed).randbytes(self.length)


class Held(msgspec.Struct, frozen=True):
    """An object: the parts that follow each other in it, and whether they are listed blocks."""

    parts: tuple[Part, ...]
    listed: bool = False

    def data(self) -> bytes:
        return b"".join(part.data() for part in self.parts)


# Actions. Names are places on a task's shelf, which nobody else uses.


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
    """Makes an object of some blocks it has and of all that are staged."""

    name: int
    keep: tuple[int, ...]


class Count(msgspec.Struct, frozen=True, tag=True):
    """Counts the task's own counter up, if it is where it is expected to be."""

    expected: int


class CountTogether(msgspec.Struct, frozen=True, tag=True):
    """Counts up what everybody counts up."""


Action = Put | Copy | Delete | Stage | ListStaged | Count | CountTogether


class Shelf(msgspec.Struct, frozen=True):
    """All that one task has in the store."""

    objects: dict[int, Held] = {}
    staged: dict[int, tuple[Part, ...]] = {}
    counter: int = 0


def after(shelf: Shelf, action: Action) -> Shelf:
    """The shelf once the action is done."""
    objects, staged, counter = dict(shelf.objects), dict(shelf.staged), shelf.counter
    match action:
        case Put(name, part):
            objects[name] = Held((part,))
        case Copy(source, target):
            objects[target] = objects[source]
        case Delete(name):
            del objects[name]
        case Stage(name, part):
            staged[name] = (*staged.get(name, ()), part)
        case ListStaged(name, keep):
            kept = tuple(objects[name].parts[number] for number in keep)
            objects[name] = Held(kept + staged.pop(name, ()), listed=True)
        case Count():
            counter += 1
    return Shelf(objects, staged, counter)


def must_be_refused(shelf: Shelf, action: Action) -> bool:
    match action:
        case Put(condition=condition):
            return condition == "wrong"
        case Copy(source=source):
            return source not in shelf.objects
        case Delete(name):
            return name not in shelf.objects
        case Count(expected):
            return expected != shelf.counter
    return False


# Lines


class Intent(msgspec.Struct, frozen=True, tag=True):
    task: int
    action: Action


class End(msgspec.Struct, frozen=True, tag=True):
    """How the task's last action ended: as it was told, or as it found out later."""

    task: int
    happened: bool | None
    value: int = 0


class Violation(msgspec.Struct, frozen=True, tag=True):
    """Something that must not be, as a front end saw it."""

    what: str


class Began(msgspec.Struct, frozen=True, tag=True):
    """A front end was started."""

    pid: int


Line = Intent | End | Violation | Began
_decode = msgspec.json.Decoder(Line).decode
_encode = msgspec.json.Encoder().encode


class Journal:
    """The journal of this front end, added to."""

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC)
        # A process that is killed may leave half a line.
        os.write(self._descriptor, b"\n")
        self.add(Began(os.getpid()))

    def add(self, line: Line) -> None:
        os.write(self._descriptor, _encode(line) + b"\n")

    def close(self) -> None:
        os.close(self._descriptor)


class TaskAccount:
    """What one task has, as far as its journal tells."""

    def __init__(self) -> None:
        self.shelf = Shelf()
        self.open: Action | None = None
        """The action of which nobody knows how it ended."""
        self.counted_together: list[int] = []
        self.counted_perhaps = 0

    def begin(self, action: Action) -> None:
        assert self.open is None, "an action before the one before it had ended"
        self.open = action

    def end(self, happened: bool | None, value: int) -> None:
        action, self.open = self.open, None
        assert action is not None
        if isinstance(action, CountTogether):
            # Nobody can find out later whether it was this one that was counted.
            if happened:
                self.counted_together.append(value)
            self.counted_perhaps += happened is None
        elif happened:
            self.shelf = after(self.shelf, action)
        elif happened is None:
            self.open = action

    def possible(self) -> list[Shelf]:
        """The shelves that may be found in the store."""
        if self.open is None or isinstance(self.open, CountTogether):
            return [self.shelf]
        if must_be_refused(self.shelf, self.open):
            return [self.shelf]
        return [self.shelf, after(self.shelf, self.open)]


class Account:
    """What one front end has, and what it saw go wrong."""

    def __init__(self, tasks: int) -> None:
        self.tasks = [TaskAccount() for _ in range(tasks)]
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


def read_journal(path: Path, tasks: int) -> Account:
    account = Account(tasks)
    for line in path.read_bytes().splitlines() if path.exists() else ():
        try:
            decoded = _decode(line)
        except msgspec.DecodeError:
            continue  # cut off, so what it was about to tell had not begun or is not known
        account.read(decoded)
    return account


def count_ends(path: Path) -> int:
    """A cheap measure of progress."""
    return path.read_bytes().count(b'"End"') if path.exists() else 0
