"""Random sequences of file operations, compared with a tree in memory."""

from __future__ import annotations

from collections.abc import Awaitable
from dataclasses import dataclass, field
from typing import Final

from hypothesis import strategies as st

from tests.operations.file.fixture import FileFixture, file_property_test
from tests.operations.fixture import code_of

Path = tuple[str, ...]


# Steps. Snapshots are chosen by number among the existing ones.


@dataclass(frozen=True)
class Put:
    path: Path
    length: int


@dataclass(frozen=True)
class MakeDirectory:
    path: Path


@dataclass(frozen=True)
class Write:
    path: Path
    start: int
    length: int
    clears: bool


@dataclass(frozen=True)
class Resize:
    path: Path
    length: int


@dataclass(frozen=True)
class Delete:
    path: Path
    is_directory: bool


@dataclass(frozen=True)
class Rename:
    source: Path
    target: Path
    is_directory: bool
    replace: bool


@dataclass(frozen=True)
class HardLink:
    path: Path
    target: Path


@dataclass(frozen=True)
class SymbolicLink:
    path: Path
    target: Path


@dataclass(frozen=True)
class TakeSnapshot:
    pass


@dataclass(frozen=True)
class DeleteSnapshot:
    number: int


@dataclass(frozen=True)
class Purge:
    rows_max: int


Change = Put | MakeDirectory | Write | Resize | Delete | Rename | HardLink | SymbolicLink
Step = Change | TakeSnapshot | DeleteSnapshot | Purge

_NAME: Final = st.sampled_from(("a", "A", "b", "c"))
_PATH: Final = st.lists(_NAME, min_size=1, max_size=3).map(tuple)
_LENGTH: Final = st.integers(0, 12)
STEPS: Final = st.lists(
    st.one_of(
        st.builds(Put, _PATH, _LENGTH),
        st.builds(MakeDirectory, _PATH),
        st.builds(MakeDirectory, _PATH),
        st.builds(Write, _PATH, st.integers(0, 8), st.integers(1, 6), st.booleans()),
        st.builds(Resize, _PATH, _LENGTH),
        st.builds(Delete, _PATH, st.booleans()),
        st.builds(Rename, _PATH, _PATH, st.booleans(), st.booleans()),
        st.builds(Rename, _PATH, _PATH, st.booleans(), st.booleans()),
        st.builds(HardLink, _PATH, _PATH),
        st.builds(HardLink, _PATH, _PATH),
        st.builds(SymbolicLink, _PATH, _PATH),
        st.just(TakeSnapshot()),
        st.builds(DeleteSnapshot, st.integers(0, 3)),
        st.builds(Purge, st.integers(1, 3)),
    ),
    min_size=5,
    max_size=40,
)


# The model


@dataclass(eq=False)
class File:
    """A file with its bytes, or a symbolic link with its text."""

    data: bytes
    links: int = 1
    is_linked: bool = False
    """Whether it has ever had several links."""
    is_symbolic_link: bool = False


@dataclass(eq=False)
class Node:
    """A directory with its entries by upper-case names, or a file by one of its names."""

    name: str
    file: File | None = None
    entries: dict[str, Node] = field(default_factory=dict)

    @property
    def is_directory(self) -> bool:
        return self.file is None

    @property
    def data(self) -> bytes | None:
        return None if self.file is None else self.file.data

    def shown(self, prefix: str = "") -> dict[str, bytes | None]:
        found: dict[str, bytes | None] = {}
        for _, node in sorted(self.entries.items()):
            found[prefix + node.name] = node.data
            found |= node.shown(f"{prefix}{node.name}/")
        return found

    def below(self) -> list[Node]:
        return [self, *(each for node in self.entries.values() for each in node.below())]

    def usage(self) -> int:
        """Returns the length of all files. Each counts once, whatever its links."""
        files = {node.file for node in self.below() if node.file is not None}
        return sum(len(file.data) for file in files if not file.is_symbolic_link)

    def links(self, prefix: str = "") -> dict[str, int]:
        """Returns the link counts of all files."""
        found = {}
        for node in self.entries.values():
            if node.file is not None:
                found[prefix + node.name] = node.file.links
            found |= node.links(f"{prefix}{node.name}/")
        return found


class Refuse(Exception):
    """The model refuses a step, with this error code."""


class Model:
    """A share as its clients know it."""

    def __init__(self) -> None:
        self.root = Node("")
        self.snapshots: dict[int, dict[str, bytes | None]] = {}

    def parent(self, path: Path) -> Node:
        node = self.root
        for name in path[:-1]:
            found = node.entries.get(name.upper())
            if found is None or not found.is_directory:
                raise Refuse("ParentNotFound")
            node = found
        return node

    def get(self, path: Path, *, is_directory: bool) -> Node:
        node = self.parent(path).entries.get(path[-1].upper())
        if node is None:
            raise Refuse("ResourceNotFound")
        if node.is_directory is not is_directory:
            raise Refuse("ResourceTypeMismatch")
        return node

    def put(self, path: Path, data: bytes) -> None:
        entries, key = self.parent(path).entries, path[-1].upper()
        if key not in entries:
            entries[key] = Node(path[-1], File(data))
            return
        file = self.regular_file(path)
        file.data = data
        if not file.is_linked:
            entries[key].name = path[-1]

    def regular_file(self, path: Path) -> File:
        file = self.get(path, is_directory=False).file
        assert file is not None
        if file.is_symbolic_link:
            raise Refuse("ResourceTypeMismatch")
        return file

    def make_directory(self, path: Path) -> None:
        entries, key = self.parent(path).entries, path[-1].upper()
        if key in entries:
            raise Refuse("ResourceAlreadyExists")
        entries[key] = Node(path[-1])

    def hard_link(self, path: Path, target: Path) -> None:
        entries, key = self.parent(path).entries, path[-1].upper()
        self.parent(target)
        if key in entries:
            raise Refuse("ResourceAlreadyExists")
        file = self.regular_file(target)
        file.links += 1
        file.is_linked = True
        entries[key] = Node(path[-1], file)

    def symbolic_link(self, path: Path, target: Path) -> None:
        entries, key = self.parent(path).entries, path[-1].upper()
        if key in entries:
            raise Refuse("ResourceAlreadyExists")
        entries[key] = Node(path[-1], File(_text(target).encode(), is_symbolic_link=True))

    def write(self, path: Path, start: int, data: bytes) -> None:
        file = self.regular_file(path)
        if start + len(data) > len(file.data):
            raise Refuse("InvalidRange")
        file.data = file.data[:start] + data + file.data[start + len(data) :]

    def resize(self, path: Path, length: int) -> None:
        file = self.regular_file(path)
        file.data = file.data[:length].ljust(length, b"\0")

    def delete(self, path: Path, *, is_directory: bool) -> int:
        """Returns how many links are left."""
        node = self.get(path, is_directory=is_directory)
        if node.entries:
            raise Refuse("DirectoryNotEmpty")
        return self.remove(self.parent(path), path[-1])

    def remove(self, parent: Node, name: str) -> int:
        file = parent.entries.pop(name.upper()).file
        if file is None:
            return 0
        file.links -= 1
        return file.links

    def rename(self, step: Rename) -> None:
        source, target = self.parent(step.source), self.parent(step.target)
        node = self.get(step.source, is_directory=step.is_directory)
        if any(each is target for each in node.below()):
            raise Refuse("InvalidInput")
        key = step.target[-1].upper()
        over = target.entries.get(key)
        if over not in (None, node) and (not step.replace or over.is_directory):
            raise Refuse("ResourceAlreadyExists")
        if over is not None and over is not node:
            self.remove(target, key)
        del source.entries[step.source[-1].upper()]
        node.name = step.target[-1]
        target.entries[key] = node


class Comparison:
    """Runs each step on the share and on the model, and compares the results."""

    def __init__(self, files: FileFixture) -> None:
        self._files = files
        self._model = Model()
        self._written = 0

    async def step(self, step: Step) -> None:
        files, model = self._files, self._model
        match step:
            case TakeSnapshot():
                model.snapshots[await files.snapshot()] = model.root.shown()
            case DeleteSnapshot() if model.snapshots:
                moment = list(model.snapshots)[step.number % len(model.snapshots)]
                await files.delete_snapshot(moment)
                del model.snapshots[moment]
            case DeleteSnapshot():
                pass
            case Purge():
                await files.purge(step.rows_max)
            case _:
                await self._change(step)

    async def _change(self, step: Change) -> None:
        self._written += 1
        fill = bytes([self._written % 255 + 1])
        expected = ""
        try:
            self._apply(step, fill)
        except Refuse as refused:
            expected = str(refused)
        assert await code_of(self._call(step, fill)) == expected, step

    def _call(self, step: Change, fill: bytes) -> Awaitable[object]:
        files = self._files
        match step:
            case Put(path, length):
                return files.put(_text(path), fill * length)
            case MakeDirectory(path):
                return files.mkdir(_text(path))
            case Write(path, start, length, clears):
                if clears:
                    return files.clear(_text(path), start, start + length)
                return files.put_range(_text(path), start, fill * length)
            case Resize(path, length):
                return files.set(_text(path), length=length)
            case Delete(path, is_directory):
                return files.delete(_text(path), is_directory=is_directory)
            case HardLink(path, target):
                return files.link(_text(path), _text(target))
            case SymbolicLink(path, target):
                return files.symlink(_text(path), _text(target))
            case Rename(source, target, is_directory, replace):
                return files.rename(
                    _text(source), _text(target), is_directory=is_directory, replace=replace
                )

    def _apply(self, step: Change, fill: bytes) -> None:
        model = self._model
        match step:
            case Put(path, length):
                model.put(path, fill * length)
            case MakeDirectory(path):
                model.make_directory(path)
            case Write(path, start, length, clears):
                model.write(path, start, bytes(length) if clears else fill * length)
            case Resize(path, length):
                model.resize(path, length)
            case Delete(path, is_directory):
                model.delete(path, is_directory=is_directory)
            case HardLink(path, target):
                model.hard_link(path, target)
            case SymbolicLink(path, target):
                model.symbolic_link(path, target)
            case Rename():
                model.rename(step)

    async def compare(self) -> None:
        files, model = self._files, self._model
        assert await files.tree() == model.root.shown()
        assert await files.usage() == model.root.usage()
        for path, links in model.root.links().items():
            assert (await files.entry(path)).link_count == links

    async def compare_snapshots(self) -> None:
        for moment, shown in self._model.snapshots.items():
            assert await self._files.tree(moment) == shown

    async def end(self) -> None:
        """Deletes every entry, then every snapshot: nothing is left."""
        files = self._files
        for path, data in reversed(self._model.root.shown().items()):
            is_directory = data is None
            left = self._model.delete(tuple(path.split("/")), is_directory=is_directory)
            assert await files.delete(path, is_directory=is_directory) == left
        await self.compare_snapshots()
        await files.require_sound()
        for moment in self._model.snapshots:
            await files.delete_snapshot(moment)
        await files.require_empty()
        await files.delete_share()
        await files.purge()


def _text(path: Path) -> str:
    return "/".join(path)


@file_property_test(STEPS, count=60)
async def test_random_sequences_match_the_model(files: FileFixture, steps: list[Step]) -> None:
    await files.create_nfs()
    run = Comparison(files)
    for step in steps:
        await run.step(step)
        await run.compare()
    await run.compare_snapshots()
    await files.require_sound()
    await run.end()
