"""QUERY_DIRECTORY on a directory in the ledger."""

from __future__ import annotations

import struct
from collections.abc import Awaitable, Callable, Sequence
from types import SimpleNamespace
from typing import Any, cast

from etagere.model.files import Entry, EntryPath
from etagere.model.shares import ShareRef
from etagere.nt_status import NtStatus
from etagere.opens.handles import Handle, OpenEntry
from etagere.operations.file.tree import find_at, locate_entry
from etagere.protocol.smb.commands.directories import query_directory
from etagere.protocol.smb.requests import Request
from etagere.protocol.smb.state import Open, Session, Tree
from etagere.protocol.smb.status import SmbError
from etagere.rules.opens import EVERYTHING, OpenMode
from tests.engine.conftest import start
from tests.opens.fixture import SESSION, OpensFixture
from tests.operations.file.fixture import SHARE, path_of
from tests.operations.fixture import Test, engine_test

__all__ = ["start"]

RESTART, SINGLE, REOPEN = 0x01, 0x02, 0x10
NAMES, ID_BOTH = 12, 37


class DirectoryFixture(OpensFixture):
    """A client that lists one directory."""

    opened: Open
    gathered: dict[int, int]

    async def open_directory(self, path: str) -> None:
        """Creates the share with a directory, and opens it."""
        share = await self.open_share()
        if path:
            await self.mkdir(path)
        located = await self.read(locate_entry, path_of(path))
        entry = OpenEntry(located.entry_id, located.directory_ids, located.path, is_directory=True)
        mode = OpenMode(EVERYTHING, EVERYTHING)
        handle = Handle(5, entry, mode, SESSION, 0, lambda _: None)
        client = SimpleNamespace(share=share, get_entry=self._get_entry)
        tree = Tree(1, Session(1), SHARE, cast("Any", client))
        self.opened = Open(5, tree, 0x1F01FF, handle=handle)
        self.gathered = {}

    async def _get_entry(self, handle: Handle) -> Entry:
        return await self.read(find_at, EntryPath(ShareRef(SHARE), handle.entry.names))

    async def query(
        self, pattern: str = "*", flags: int = 0, info_class: int = NAMES, bytes_max: int = 65_536
    ) -> bytes:
        name = pattern.encode("utf-16-le")
        body = struct.pack("<HBBIQQHHI", 33, info_class, flags, 0, 5, 5, 96, len(name), bytes_max)
        contents = SimpleNamespace(length=lambda entry: self.gathered.get(entry.id))
        request = SimpleNamespace(
            body=memoryview(body + name),
            open=lambda *_: self.opened,
            pend=lambda: None,
            may_pend=True,
            server=SimpleNamespace(engine=self.engine, contents=contents),
        )
        reply = await query_directory(cast("Request", request))
        size, offset, length = struct.unpack("<HHI", reply.body)
        assert (size, offset, length) == (9, 72, len(reply.payload))
        assert length <= bytes_max
        return bytes(reply.payload)

    async def names(self, *asked: Any, **options: Any) -> list[str]:
        return listed_names(await self.query(*asked, **options))

    async def status(self, *asked: Any, **options: Any) -> NtStatus:
        try:
            await self.query(*asked, **options)
        except SmbError as error:
            return error.status
        return NtStatus.SUCCESS


def rows(data: bytes) -> list[bytes]:
    found, at = [], 0
    while True:
        (following,) = struct.unpack_from("<I", data, at)
        found.append(data[at : at + following] if following else data[at:])
        if not following:
            return found
        at += following


def listed_names(data: bytes) -> list[str]:
    return [
        row[12 : 12 + struct.unpack_from("<I", row, 8)[0]].decode("utf-16-le") for row in rows(data)
    ]


def directory_test(body: Callable[[DirectoryFixture], Awaitable[None]]) -> Test:
    return engine_test(DirectoryFixture, body)


async def _fill(at: DirectoryFixture, names: Sequence[str]) -> None:
    await at.open_directory("d")
    for name in names:
        await at.put(f"d/{name}")


@directory_test
async def test_all_in_order(at: DirectoryFixture) -> None:
    await _fill(at, ["b", "A", "Äpfel", "c.txt"])
    assert await at.names() == [".", "..", "A", "b", "c.txt", "Äpfel"]
    assert await at.status() is NtStatus.NO_MORE_FILES
    assert await at.status("other") is NtStatus.NO_MORE_FILES


@directory_test
async def test_patterns(at: DirectoryFixture) -> None:
    await _fill(at, ["ab", "abc", "b.txt"])
    assert await at.names("AB*") == ["ab", "abc"]
    assert await at.names("Ab", REOPEN) == ["ab"]
    assert await at.status() is NtStatus.NO_MORE_FILES
    assert await at.names("*.txt", RESTART) == ["b.txt"]
    assert await at.status("x*", REOPEN) is NtStatus.NO_SUCH_FILE
    assert await at.status("x", REOPEN) is NtStatus.NO_SUCH_FILE
    for invalid in ("", "a\\b", "a/b", "x" * 300):
        at.opened.search = None
        assert await at.status(invalid) is NtStatus.OBJECT_NAME_INVALID


@directory_test
async def test_one_at_a_time(at: DirectoryFixture) -> None:
    await _fill(at, ["a", "b"])
    found = [(await at.names(flags=SINGLE))[0] for _ in range(4)]
    assert found == [".", "..", "a", "b"]
    assert await at.status(flags=SINGLE) is NtStatus.NO_MORE_FILES
    assert await at.names(flags=SINGLE | RESTART) == ["."]


@directory_test
async def test_pages(at: DirectoryFixture) -> None:
    names = [f"file-{number:03}" for number in range(60)]
    await _fill(at, names)
    found = []
    while True:
        try:
            page = await at.names(bytes_max=200)
        except SmbError as error:
            assert error.status is NtStatus.NO_MORE_FILES
            break
        assert len(page) <= 8
        found += page
    assert found == [".", "..", *names]


@directory_test
async def test_small_buffers(at: DirectoryFixture) -> None:
    await _fill(at, ["a-rather-long-name"])
    assert await at.status("a*", bytes_max=11) is NtStatus.INFO_LENGTH_MISMATCH
    assert await at.status("a*", bytes_max=20) is NtStatus.BUFFER_OVERFLOW
    assert await at.names("a*", bytes_max=12 + 36) == ["a-rather-long-name"]


@directory_test
async def test_entries_that_are_to_be_deleted_are_shown(at: DirectoryFixture) -> None:
    await _fill(at, ["a", "b", "c"])
    share = (await at.connect()).share
    located = await at.read(locate_entry, path_of("d/b"))
    share.deletions.mark(OpenEntry(located.entry_id, located.directory_ids, "d/b", False))
    assert await at.names() == [".", "..", "a", "b", "c"]


@directory_test
async def test_lengths_include_gathered_writes(at: DirectoryFixture) -> None:
    await _fill(at, ["a"])
    share = (await at.connect()).share
    located = await at.read(locate_entry, path_of("d/a"))
    entry = OpenEntry(located.entry_id, located.directory_ids, "d/a", is_directory=False)
    share.current.entries[entry.id] = entry
    at.gathered[entry.id] = 12_345
    (row,) = rows(await at.query("a", info_class=ID_BOTH))
    assert struct.unpack_from("<q", row, 40) == (12_345,)
    assert struct.unpack_from("<Q", row, 96) == (entry.id,)


@directory_test
async def test_root(at: DirectoryFixture) -> None:
    await at.open_directory("")
    await at.mkdir("a")
    assert await at.names() == [".", "..", "a"]


@directory_test
async def test_changes_between_pages(at: DirectoryFixture) -> None:
    await _fill(at, ["a", "b", "c"])
    assert await at.names(bytes_max=50) == [".", "..", "a"]
    await at.put("d/bb")
    await at.put("d/0")
    assert await at.names() == ["b", "bb", "c"]
