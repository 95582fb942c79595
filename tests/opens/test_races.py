"""Opens racing with REST operations, and clients that connect while operations are in progress."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from etagere.engine.interface import C, Engine, ReadTxn, Refused, T
from etagere.model.files import Entry, EntryPath, RenameEntry, SetEntryMetadata
from etagere.model.shares import ShareRef
from etagere.opens.client import ShareClient
from etagere.opens.handles import Handle, Session
from etagere.opens.requests import OpenRequest
from etagere.operations.file import entries, renames
from etagere.rules.opens import EVERYTHING, Access, OpenMode, RestAccess, refused_by
from tests.opens.fixture import NONE, SESSION, D, OpensFixture, R, W, opened, opens_test
from tests.operations.file.fixture import SHARE, path_of
from tests.operations.fixture import code_of

FILE = "dir/notes.txt"


class Gate:
    """A step of a REST operation that a test holds up."""

    def __init__(self) -> None:
        self.entered = asyncio.Event()
        self.leave = asyncio.Event()

    async def __call__(self, *_: object) -> None:
        self.entered.set()
        await self.leave.wait()


class LateReads:
    """An engine whose next read returns what is out of date by then."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.gate: Gate | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    async def read(self, operation: Callable[[ReadTxn, C], T], command: C) -> T:
        result = await self._engine.read(operation, command)
        gate, self.gate = self.gate, None
        if gate is not None:
            await gate()
        return result


# Tracking


@opens_test
async def test_untracked_operations_leave_nothing_behind(f: OpensFixture) -> None:
    await f.create()
    await f.rest_mkdir("dir")
    await f.rest_put(FILE)
    assert await code_of(f.rest_get("missing")) == "ResourceNotFound"
    assert not f.table._untracked
    assert not f.table._shares


@opens_test
async def test_the_first_client_waits_for_operations_in_progress(f: OpensFixture) -> None:
    await f.create()
    await f.mkdir("dir")
    await f.put(FILE)
    gates = [Gate(), Gate()]
    operations = [
        asyncio.ensure_future(f.table.rest(path_of(FILE), RestAccess.WRITE, gate)) for gate in gates
    ]
    await asyncio.gather(*(gate.entered.wait() for gate in gates))
    connecting = asyncio.ensure_future(f.connect())
    for gate in gates:
        await asyncio.sleep(0.01)
        assert not connecting.done()
        # New operations need not wait.
        await f.rest_set(FILE)
        gate.leave.set()
    client = await connecting
    await asyncio.gather(*operations)
    assert not f.table._untracked
    await client.disconnect()
    assert not f.table._shares


@opens_test
async def test_a_client_that_gives_up_leaves_nothing_behind(f: OpensFixture) -> None:
    await f.create()
    await f.mkdir("dir")
    gate = Gate()
    operation = asyncio.ensure_future(f.table.rest(path_of("dir"), RestAccess.SET, gate))
    await gate.entered.wait()
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(f.connect(), 0.01)
    assert not f.table._shares
    gate.leave.set()
    await operation
    with pytest.raises(Refused, match="ShareNotFound"):
        await f.table.attach(type(SHARE)(SHARE.account, "missing"))


@opens_test
async def test_a_share_is_tracked_until_its_last_operation_ends(f: OpensFixture) -> None:
    await f.create()
    await f.mkdir("dir")
    client = await f.connect()
    gate = Gate()
    operation = asyncio.ensure_future(f.table.rest(path_of("dir"), RestAccess.SET, gate))
    await gate.entered.wait()
    await client.disconnect()
    assert f.table._shares
    gate.leave.set()
    await operation
    assert not f.table._shares


# Opens during operations


@opens_test
async def test_opens_wait_for_operations_that_are_in_the_way(f: OpensFixture) -> None:
    await f.create()
    await f.mkdir("dir")
    await f.put(FILE)
    client = await f.connect()
    for access, mode, waits in (
        (RestAccess.WRITE, OpenMode(R, R), True),
        (RestAccess.WRITE, OpenMode(R, R | W), False),
        (RestAccess.READ, OpenMode(R, NONE), True),
        (RestAccess.READ, OpenMode(NONE, NONE), False),
        (RestAccess.DELETE, OpenMode(NONE, EVERYTHING), True),
        (RestAccess.RENAME, OpenMode(R, EVERYTHING), True),
        (RestAccess.QUERY, OpenMode(EVERYTHING, NONE), False),
        (RestAccess.LEASE, OpenMode(W, EVERYTHING), True),
    ):
        gate = Gate()
        operation = asyncio.ensure_future(f.table.rest(path_of(FILE), access, gate))
        await gate.entered.wait()
        opening = asyncio.ensure_future(client.open(OpenRequest(path_of(FILE), mode)))
        await asyncio.sleep(0.01)
        assert opening.done() is not waits, (access, mode)
        gate.leave.set()
        await operation
        await client.close((await opening).handle)


@opens_test
async def test_an_open_that_waits_is_not_overtaken(f: OpensFixture) -> None:
    """A stream of reads cannot keep a client from opening a file."""
    await f.create()
    await f.mkdir("dir")
    await f.put(FILE)
    client = await f.connect()
    gate = Gate()
    first = asyncio.ensure_future(f.table.rest(path_of(FILE), RestAccess.READ, gate))
    await gate.entered.wait()
    opening = asyncio.ensure_future(opened(client, FILE, R, NONE))
    await asyncio.sleep(0.01)
    second = asyncio.ensure_future(f.rest_read(FILE))
    unrelated = asyncio.ensure_future(f.rest_get(FILE))
    await asyncio.sleep(0.01)
    assert unrelated.done()
    assert not second.done()
    gate.leave.set()
    await first
    handle = await opening
    assert await code_of(second) == "SharingViolation"
    await client.close(handle)
    assert await code_of(f.rest_read(FILE)) == ""


@opens_test
async def test_locks_wait_for_writes_in_progress(f: OpensFixture) -> None:
    await f.create()
    await f.mkdir("dir")
    await f.put(FILE)
    client = await f.connect()
    handle = await opened(client, FILE, R | W)
    gate = Gate()
    operation = asyncio.ensure_future(f.table.rest(path_of(FILE), RestAccess.WRITE, gate))
    await gate.entered.wait()
    locking = asyncio.ensure_future(client.lock(handle, 0, 1, exclusive=False))
    await asyncio.sleep(0.01)
    assert not locking.done()
    gate.leave.set()
    await operation
    await locking
    assert await code_of(f.rest_write(FILE)) == "FileLockConflict"


@opens_test
async def test_an_open_does_not_wait_for_ever(f: OpensFixture) -> None:
    await f.create()
    await f.mkdir("dir")
    await f.put(FILE)
    client = await f.connect()
    gate = Gate()
    operation = asyncio.ensure_future(f.table.rest(path_of(FILE), RestAccess.WRITE, gate))
    await gate.entered.wait()
    opening = client.open(OpenRequest(path_of(FILE), OpenMode(R, R)), seconds_max=0.01)
    assert await code_of(opening) == "SharingViolation"
    assert not client.share.rest._pending_opens
    gate.leave.set()
    await operation


@opens_test
async def test_a_deletion_and_an_open_exclude_each_other(f: OpensFixture) -> None:
    """Whichever comes first, no handle stays open on a deleted file."""
    await f.create()
    await f.mkdir("dir")
    client = await f.connect()
    outcomes = set()
    for delay in range(12):
        await f.put(FILE)
        deleting = asyncio.ensure_future(code_of(f.rest_delete(FILE)))
        for _ in range(delay):
            await asyncio.sleep(0)
        opening = await code_of(opened(client, FILE))
        outcomes.add((await deleting, opening))
        for handle in list(client.handles.values()):
            await client.close(handle)
        if "notes.txt" in await f.names("dir"):
            await f.delete(FILE)
    assert outcomes <= {("SharingViolation", ""), ("", "ResourceNotFound")}
    assert ("", "ResourceNotFound") in outcomes


@opens_test
async def test_a_path_that_leads_elsewhere_is_examined_again(f: OpensFixture) -> None:
    """The file is replaced by another one between the check and the transaction."""
    await f.create()
    await f.mkdir("dir")
    old = await f.put(FILE)
    client = await f.connect()
    attempts = []

    async def run(path: EntryPath) -> object:
        attempts.append(path.expected_id)
        if len(attempts) == 1:
            await f.delete(FILE)
            await f.put(FILE)
            await opened(client, FILE, R, R)
        command = SetEntryMetadata(path, False, (("Key", "value"),))
        return await f.write(entries.set_metadata, command)

    code = await code_of(f.table.rest(path_of(FILE), RestAccess.SET, run))
    assert code == "SharingViolation"
    assert attempts == [old.id]
    assert (await f.entry(FILE)).metadata == ()


@opens_test
async def test_a_lease_and_an_open_exclude_each_other(f: OpensFixture) -> None:
    await f.create()
    await f.mkdir("dir")
    client = await f.connect()
    for delay in range(8):
        await f.put(FILE)
        leasing = asyncio.ensure_future(code_of(f.rest_lease(FILE)))
        for _ in range(delay):
            await asyncio.sleep(0)
        opening = await code_of(opened(client, FILE, W))
        outcome = (await leasing, opening)
        assert outcome in {("SharingViolation", ""), ("", "SharingViolation")}
        for handle in list(client.handles.values()):
            await client.close(handle)
        await f.delete_share()
        f.table.drop(ShareRef(SHARE))
        await f.create()
        await f.mkdir("dir")
        client = await f.connect()


@opens_test
async def test_an_open_that_was_out_of_date_is_done_again(f: OpensFixture) -> None:
    """The file is replaced or leased after the client has looked it up."""
    await f.create()
    await f.mkdir("dir")
    await f.put(FILE)
    client = await f.connect()
    late = client._opener._engine = LateReads(f.engine)

    async def open_late(change: Callable[[], Awaitable[object]]) -> Handle:
        late.gate = gate = Gate()
        opening = asyncio.ensure_future(opened(client, FILE, W))
        await gate.entered.wait()
        await change()
        gate.leave.set()
        return await opening

    async def replace() -> None:
        await f.rest_delete(FILE)
        await f.rest_put(FILE)

    async def move() -> None:
        await f.rest_rename("dir", "old", is_directory=True)
        await f.rest_mkdir("dir")
        await f.rest_rename("old/notes.txt", FILE)

    for change in (replace, move):
        handle = await open_late(change)
        assert handle.entry.id == (await f.entry(FILE)).id
        assert handle.entry.parent_id == (await f.entry("dir")).id
        assert list(client.share.current.handles) == [handle.id]
        await client.close(handle)
    assert await code_of(open_late(lambda: f.rest_delete(FILE))) == "ResourceNotFound"
    await f.put(FILE)
    assert await code_of(open_late(lambda: f.rest_lease(FILE))) == "SharingViolation"
    assert not client.share.current.handles
    assert f.table.open_handles == 0


# Renames


@opens_test
async def test_moves_of_open_files_and_of_directories_take_turns(f: OpensFixture) -> None:
    """A handle that follows its file must know the directories above the new place."""
    await f.create()
    for path in ("a", "b"):
        await f.mkdir(path)
    await f.put("a/file")
    client = await f.connect()
    handle = await opened(client, "a/file")

    def rename(
        gate: Gate, source: str, destination: str, *, is_directory: bool
    ) -> asyncio.Task[Entry]:
        async def run(source: EntryPath, destination: EntryPath) -> Entry:
            await gate()
            return await f.write(
                renames.rename_entry, RenameEntry(source, destination, is_directory)
            )

        paths = path_of(source), path_of(destination)
        return asyncio.ensure_future(f.table.rest_rename(*paths, run))

    async def take_turns(
        first: tuple[str, str], second: tuple[str, str], *, directory_first: bool
    ) -> None:
        gates = Gate(), Gate()
        one = rename(gates[0], *first, is_directory=directory_first)
        await gates[0].entered.wait()
        gates[1].leave.set()
        other = rename(gates[1], *second, is_directory=not directory_first)
        await asyncio.sleep(0.02)
        assert not gates[1].entered.is_set()
        gates[0].leave.set()
        await one
        await code_of(other)

    await take_turns(("a/file", "b/file"), ("b", "c"), directory_first=False)
    assert handle.entry.names == ("b", "file")
    assert await f.names("b") == ["file"]  # refused: there is a handle below
    await take_turns(("a", "c"), ("b/file", "c/file"), directory_first=True)
    assert handle.entry.names == ("c", "file")
    assert await f.names("c") == ["file"]


@opens_test
async def test_directories_with_open_handles_below_are_not_moved(f: OpensFixture) -> None:
    await f.create()
    await f.mkdir("dir")
    await f.mkdir("dir/sub")
    await f.put("dir/sub/file")
    client = await f.connect()
    handle = await opened(client, "dir/sub/file", NONE)
    for path in ("dir", "dir/sub"):
        refused = await code_of(f.rest_rename(path, "elsewhere", is_directory=True))
        assert refused == "SharingViolation"
        assert await code_of(f.rest_delete(path, is_directory=True)) == "SharingViolation"
    await client.close(handle)
    await f.rest_rename("dir", "elsewhere", is_directory=True)
    assert await f.names("elsewhere/sub") == ["file"]


@opens_test
async def test_handles_follow_a_file_that_is_renamed(f: OpensFixture) -> None:
    await f.create()
    for path in ("a", "a/b", "c"):
        await f.mkdir(path)
    entry = await f.put("a/b/file")
    client = await f.connect()
    handles = [await opened(client, "a/b/file") for _ in range(3)]
    refusing = await opened(client, "a/b/file", R, R | W)
    assert await code_of(f.rest_rename("a/b/file", "c/new")) == "SharingViolation"
    await client.close(refusing)
    await f.rest_rename("a/b/file", "c/new")
    share = client.share
    assert [one.id for one in share.page(0, 0, 10, is_recursive=True).handles] == [
        one.id for one in handles
    ]
    a, c = (await f.entry("a")).id, (await f.entry("c")).id
    assert share.page(a, 0, 10, is_recursive=True).handles == []
    assert share.page(c, 0, 10, is_recursive=True).handles == handles
    assert share.page(entry.id, 0, 10).handles == handles
    assert handles[0].entry.path == "c/new"
    assert await code_of(f.rest_rename("c", "d", is_directory=True)) == "SharingViolation"
    await f.rest_rename("a", "d", is_directory=True)
    for handle in handles:
        await client.close(handle)
    assert not share.current._within


@opens_test
async def test_a_rename_over_an_open_file_is_refused(f: OpensFixture) -> None:
    await f.create()
    await f.put("new")
    await f.put("old")
    client = await f.connect()
    handle = await opened(client, "old")
    assert await code_of(f.rest_rename("new", "old", replace=True)) == "SharingViolation"
    await client.close(handle)
    await f.rest_rename("new", "old", replace=True)
    handle = await opened(client, "old")
    await f.rest_rename("old", "OLD")
    assert handle.entry.path == "OLD"


# Shares


@opens_test
async def test_handles_of_a_deleted_share_are_closed(f: OpensFixture) -> None:
    await f.create()
    await f.put("file")
    told: list[Handle] = []
    client = await f.connect(SESSION, told.append)
    handle = await opened(client, "file", D, deletes_on_close=True)
    await f.delete_share()
    f.table.drop(ShareRef(SHARE))
    assert told == [handle]
    assert not handle.is_open
    assert f.table.open_handles == 0
    await f.create()
    await f.put("file")
    assert await code_of(opened(client, "file")) == "ShareBeingDeleted"
    assert await code_of(f.rest_delete("file")) == ""
    await client.disconnect()
    assert not f.table._shares


@opens_test
async def test_a_share_of_the_same_name_has_no_handles(f: OpensFixture) -> None:
    """Even if the table was not told that the old one was deleted."""
    await f.create()
    await f.put("file")
    client = await f.connect()
    handle = await opened(client, "file", R, NONE)
    await f.delete_share()
    await f.create()
    await f.put("file")
    assert await code_of(f.rest_put("file")) == ""
    assert not handle.is_open
    other = await f.connect(Session(8, "10.0.0.2:50000"))
    await opened(other, "file")


@opens_test
async def test_handles_in_snapshots_conflict_with_nothing(f: OpensFixture) -> None:
    await f.create()
    entry = await f.put("file")
    snapshot = await f.snapshot()
    client = await f.connect()
    handle = await opened(client, "file", R, NONE, snapshot=snapshot)
    await opened(client, "file", R, NONE, snapshot=snapshot)
    assert await code_of(f.rest_put("file")) == ""
    assert await code_of(f.rest_delete("file")) == ""
    assert client.share.page(entry.id, 0, 10).handles == []
    page = client.share.page(0, 0, 1, snapshot=snapshot, is_recursive=True)
    assert page.handles == [handle]
    assert page.following is not None
    await f.delete_snapshot(snapshot)
    f.table.drop(ShareRef(SHARE, snapshot))
    assert not handle.is_open
    assert f.table.open_handles == 0


# Everything at once

NAMES = ["a", "b", "a/x", "a/y", "b/x", "b/y"]


@opens_test
async def test_random_opens_and_operations_never_meet(f: OpensFixture) -> None:
    """No REST transaction runs on an entry with an open that forbids it, and every open handle is
    on the entry at its path."""
    await f.create()
    for name in ("a", "b"):
        await f.mkdir(name)
    random_ = random.Random(17)
    clients = [await f.connect(Session(number, "10.0.0.1:1")) for number in range(3)]
    share = clients[0].share

    async def smb(client: ShareClient) -> None:
        for _ in range(60):
            mode = OpenMode(Access(random_.randrange(8)), Access(random_.randrange(8)))
            path = random_.choice(NAMES)
            try:
                handle = (await client.open(OpenRequest(path_of(path), mode))).handle
            except Refused:
                continue
            for _ in range(random_.randrange(4)):
                # A rename is in the ledger a little earlier than in the table.
                if not share.rest.is_moving:
                    entry = await f.entry("/".join(handle.entry.names))
                    assert entry.id == handle.entry.id
                await asyncio.sleep(0)
            if mode.access & D and random_.random() < 0.3:
                await code_of(client.set_delete_pending(handle))
            await client.close(handle)

    async def rest() -> None:
        for _ in range(80):
            path, other = random_.choice(NAMES), random_.choice(NAMES)
            is_directory = "/" not in path
            choice = random_.randrange(6)
            if choice == 0 and not is_directory:
                await code_of(f.rest_put(path))
            elif choice == 1:
                await code_of(f.rest_delete(path, is_directory=is_directory))
            elif choice == 2:
                await code_of(f.rest_rename(path, other, is_directory=is_directory, replace=True))
            elif choice == 3:
                await code_of(f.rest_mkdir(path))
            elif choice == 4:
                await code_of(f.rest_set(path, is_directory=is_directory))
            else:
                await code_of(checked(path, random_.choice(list(RestAccess))))

    async def checked(path: str, access: RestAccess) -> None:
        async def run(path: EntryPath) -> None:
            for _ in range(3):
                entry = share.current.entries.get(path.expected_id or -1)
                modes = () if entry is None else tuple(entry.modes)
                assert not any(refused_by(access, mode) for mode in modes)
                await asyncio.sleep(0)

        await f.table.rest(path_of(path), access, run)

    await asyncio.gather(*map(smb, clients), *(rest() for _ in range(3)))
    assert not share.rest._in_progress
    assert not share.deletions
    assert not share.rest._changing_directories
    assert share.rest._moves == 0
    for client in clients:
        await client.disconnect()
    assert not f.table._shares
    assert f.table.open_handles == 0
    await f.require_sound()
