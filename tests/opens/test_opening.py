"""Opens of SMB clients with every disposition: what is opened, created, overwritten or refused."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

from etagere.engine.interface import Refused
from etagere.model.files import SetEntryMetadata
from etagere.nt_status import NtStatus
from etagere.opens.client import ShareClient
from etagere.opens.requests import Action, Disposition, EntryKind, Opened, OpenRequest
from etagere.operations.file import entries
from etagere.operations.file.changes import file_length
from etagere.rules.file_attributes import FileAttributes
from etagere.rules.opens import EVERYTHING, Access, OpenMode
from tests.opens.fixture import NONE, D, OpensFixture, R, W, opened, opens_test
from tests.opens.test_races import Gate, LateReads
from tests.operations.file.fixture import path_of
from tests.operations.fixture import code_of

READ_ONLY, HIDDEN = FileAttributes.READ_ONLY, FileAttributes.HIDDEN
SYSTEM, ARCHIVE = FileAttributes.SYSTEM, FileAttributes.ARCHIVE
GIB = 1 << 30
OVERWRITING = (Disposition.SUPERSEDE, Disposition.OVERWRITE, Disposition.OVERWRITE_IF)


async def attempt(
    client: ShareClient,
    path: str,
    disposition: Disposition,
    access: Access = R,
    *,
    share: Access = EVERYTHING,
    snapshot: int | None = None,
    **asked: Any,
) -> Opened:
    request = OpenRequest(path_of(path, snapshot), OpenMode(access, share), disposition, **asked)
    return await client.open(request)


async def outcome(client: ShareClient, path: str, disposition: Disposition, **asked: Any) -> object:
    """Returns what an open does, or the status with which it is refused."""
    try:
        done = await attempt(client, path, disposition, **asked)
    except Refused as refused:
        return refused.refusal.nt_status
    await client.close(done.handle)
    return done.action


NOT_FOUND, COLLISION = NtStatus.OBJECT_NAME_NOT_FOUND, NtStatus.OBJECT_NAME_COLLISION
IS_DIRECTORY, NOT_A_DIRECTORY = NtStatus.FILE_IS_A_DIRECTORY, NtStatus.NOT_A_DIRECTORY
INVALID = NtStatus.INVALID_PARAMETER
FILE, DIRECTORY, ANY = EntryKind.FILE, EntryKind.DIRECTORY, EntryKind.ANY
S, OP, C = Disposition.SUPERSEDE, Disposition.OPEN, Disposition.CREATE
OI, OW, OWI = Disposition.OPEN_IF, Disposition.OVERWRITE, Disposition.OVERWRITE_IF
# What happens at a missing entry, a file and a directory, by disposition and kind.
OUTCOMES: dict[tuple[Disposition, EntryKind], tuple[object, object, object]] = {
    (S, FILE): (Action.CREATED, Action.SUPERSEDED, IS_DIRECTORY),
    (S, ANY): (Action.CREATED, Action.SUPERSEDED, INVALID),
    (S, DIRECTORY): (INVALID, INVALID, INVALID),
    (OP, FILE): (NOT_FOUND, Action.OPENED, IS_DIRECTORY),
    (OP, ANY): (NOT_FOUND, Action.OPENED, Action.OPENED),
    (OP, DIRECTORY): (NOT_FOUND, NOT_A_DIRECTORY, Action.OPENED),
    (C, FILE): (Action.CREATED, COLLISION, COLLISION),
    (C, ANY): (Action.CREATED, COLLISION, COLLISION),
    (C, DIRECTORY): (Action.CREATED, COLLISION, COLLISION),
    (OI, FILE): (Action.CREATED, Action.OPENED, IS_DIRECTORY),
    (OI, ANY): (Action.CREATED, Action.OPENED, Action.OPENED),
    (OI, DIRECTORY): (Action.CREATED, NOT_A_DIRECTORY, Action.OPENED),
    (OW, FILE): (NOT_FOUND, Action.OVERWRITTEN, IS_DIRECTORY),
    (OW, ANY): (NOT_FOUND, Action.OVERWRITTEN, INVALID),
    (OW, DIRECTORY): (INVALID, INVALID, INVALID),
    (OWI, FILE): (Action.CREATED, Action.OVERWRITTEN, IS_DIRECTORY),
    (OWI, ANY): (Action.CREATED, Action.OVERWRITTEN, INVALID),
    (OWI, DIRECTORY): (INVALID, INVALID, INVALID),
}


@opens_test
async def test_every_disposition(f: OpensFixture) -> None:
    assert len(OUTCOMES) == len(Disposition) * len(EntryKind)
    await f.create()
    await f.mkdir("dir")
    await f.put("file")
    client = await f.connect()
    for number, ((disposition, kind), expected) in enumerate(OUTCOMES.items()):
        found = [
            await outcome(client, path, disposition, kind=kind)
            for path in (f"new{number}", "file", "dir")
        ]
        assert tuple(found) == expected, (disposition, kind)
        names = await f.names()
        assert (f"new{number}" in names) is (expected[0] is Action.CREATED)
        path_missing = await outcome(client, "missing/new", disposition, kind=kind)
        assert path_missing in (NtStatus.OBJECT_PATH_NOT_FOUND, INVALID)
        root = await outcome(client, "", disposition, kind=kind)
        assert root == expected[2]
    assert not client.share.current.handles


@opens_test
async def test_overwriting_keeps_what_smb_does_not_know(f: OpensFixture) -> None:
    await f.create()
    client = await f.connect()
    for disposition in OVERWRITING:
        old = await f.put("file", b"x" * 100)
        await f.write(entries.set_metadata, SetEntryMetadata(path_of("file"), False, (("k", "v"),)))
        await asyncio.sleep(0.002)
        attributes = int(HIDDEN)
        done = await attempt(client, "file", disposition, W, attributes=attributes)
        assert done.entry.id == old.id == done.handle.entry.id
        assert done.entry.metadata == (("k", "v"),)
        assert done.entry.attributes == HIDDEN | ARCHIVE
        assert done.entry.stamp > old.stamp
        assert done.entry.times.written > old.times.written
        keeps = disposition is not Disposition.SUPERSEDE
        assert (done.entry.times.created == old.times.created) is keeps
        assert await f.entry("file") == done.entry
        assert await f.usage() == 0
        await client.close(done.handle)
        await f.delete("file")


@opens_test
async def test_attributes(f: OpensFixture) -> None:
    await f.create()
    client = await f.connect()
    denied, cannot = NtStatus.ACCESS_DENIED, NtStatus.CANNOT_DELETE
    file = await attempt(client, "new", C, W, attributes=int(READ_ONLY | HIDDEN) | 0x80 | 0x800)
    assert file.entry.attributes == READ_ONLY | HIDDEN | ARCHIVE
    directory = await attempt(client, "dir", C, kind=DIRECTORY, attributes=int(HIDDEN) | 0x80)
    assert directory.entry.attributes == HIDDEN | FileAttributes.DIRECTORY
    for done in (file, directory):
        await client.close(done.handle)
    # A read-only file may be read and deleted, but not written, or deleted on close.
    assert await outcome(client, "new", OP, access=R | D) is Action.OPENED
    assert await outcome(client, "new", OP, access=W) == denied
    assert await outcome(client, "new", OP, access=D, deletes_on_close=True) == cannot
    for disposition in OVERWRITING:
        assert await outcome(client, "new", disposition, attributes=int(HIDDEN)) == denied
    for disposition in (C, OI, *OVERWRITING):
        asked = {"attributes": int(READ_ONLY), "access": D, "deletes_on_close": True}
        assert await outcome(client, "other", disposition, **asked) == cannot
    assert await f.names() == ["dir", "new"]
    # Hidden and system files are overwritten only with the same attributes.
    for old in (HIDDEN, SYSTEM, HIDDEN | SYSTEM):
        for asked_for in (FileAttributes.NONE, HIDDEN, SYSTEM, HIDDEN | SYSTEM):
            await f.put("file")
            await f.set("file", attributes=int(old))
            result = await outcome(client, "file", OW, attributes=int(asked_for))
            expected = denied if old & ~asked_for else Action.OVERWRITTEN
            assert result == expected, (old, asked_for)


@opens_test
async def test_snapshots_are_read_only(f: OpensFixture) -> None:
    await f.create()
    await f.put("file")
    snapshot = await f.snapshot()
    client = await f.connect()
    protected = NtStatus.MEDIA_WRITE_PROTECTED
    assert await outcome(client, "file", OP, snapshot=snapshot) is Action.OPENED
    assert await outcome(client, "file", OI, snapshot=snapshot) is Action.OPENED
    assert await outcome(client, "missing", OP, snapshot=snapshot) == NOT_FOUND
    for disposition in (C, OI):
        assert await outcome(client, "missing", disposition, snapshot=snapshot) == protected
    for disposition in OVERWRITING:
        assert await outcome(client, "file", disposition, snapshot=snapshot) == protected
    for access in (W, D, R | W | D):
        assert await outcome(client, "file", OP, access=access, snapshot=snapshot) == protected
    done = await attempt(client, "file", OP, snapshot=snapshot)
    assert (await client.get_entry(done.handle)).id == done.entry.id
    assert await code_of(client.rename(done.handle, ("x",))) == "ShareSnapshotOperationNotSupported"
    assert (
        await code_of(client.set_properties(done.handle, attributes=0))
        == "ShareSnapshotOperationNotSupported"
    )


@opens_test
async def test_overwriting_needs_what_others_share(f: OpensFixture) -> None:
    await f.create()
    await f.put("file")
    client = await f.connect()
    violation = NtStatus.SHARING_VIOLATION
    for shared in (Access(value) for value in range(8)):
        handle = await opened(client, "file", R, shared)
        overwritten = Action.OVERWRITTEN if shared & W else violation
        superseded = Action.SUPERSEDED if shared & W and shared & D else violation
        if not shared & R:
            overwritten = superseded = violation
        assert await outcome(client, "file", OW) == overwritten
        assert await outcome(client, "file", S) == superseded
        await client.close(handle)
    await f.rest_lease("file")
    assert await outcome(client, "file", OW) == violation


# Races of creations


@opens_test
async def test_the_creator_has_the_first_handle(f: OpensFixture) -> None:
    """Whatever others do at the name, the one that creates the file opens it first."""
    await f.create()
    await f.mkdir("dir")
    client = await f.connect()
    held = asyncio.Event()
    write = f.engine.write

    class Held:
        def __getattr__(self, name: str) -> Any:
            return getattr(f.engine, name)

        async def write(self, operation: Any, command: Any) -> Any:
            result = await write(operation, command)
            await held.wait()
            return result

    client._opener._engine = Held()
    creating = asyncio.ensure_future(attempt(client, "dir/new", C, R, share=NONE))
    while not await f.names("dir"):
        await asyncio.sleep(0)
    other = await f.connect()
    operations = [
        asyncio.ensure_future(code_of(operation))
        for operation in (
            f.rest_read("dir/New"),
            f.rest_put("dir/NEW"),
            f.rest_delete("dir/new"),
            f.rest_rename("dir/new", "elsewhere"),
            f.rest_rename("dir", "moved", is_directory=True),
            opened(other, "dir/new", R),
        )
    ]
    await asyncio.sleep(0.02)
    assert not any(operation.done() for operation in operations)
    held.set()
    done = await creating
    assert await asyncio.gather(*operations) == ["SharingViolation"] * len(operations)
    assert done.action is Action.CREATED
    assert client.share.current.handles == {done.handle.id: done.handle}
    await client.close(done.handle)
    assert await code_of(f.rest_delete("dir/new")) == ""


@opens_test
async def test_many_clients_create_one_file(f: OpensFixture) -> None:
    await f.create()
    clients = [await f.connect() for _ in range(8)]
    for number in range(5):
        name = f"file{number}"
        done = await asyncio.gather(*(attempt(one, name, OI, W) for one in clients))
        actions = [one.action for one in done]
        assert actions.count(Action.CREATED) == 1
        assert actions.count(Action.OPENED) == len(clients) - 1
        assert len({one.entry.id for one in done}) == 1
        results = await asyncio.gather(*(outcome(one, f"c{number}", C) for one in clients))
        assert sorted(map(str, results)) == sorted(
            map(str, [Action.CREATED] + [COLLISION] * (len(clients) - 1))
        )
    assert not f.table._shares[path_of("").ref.share.key].rest._reserved


@opens_test
async def test_a_file_that_appears_is_opened(f: OpensFixture) -> None:
    """A REST client creates the file after the client has found none."""
    await f.create()
    client = await f.connect()
    late = client._opener._engine = LateReads(f.engine)
    for disposition, expected in ((OI, Action.OPENED), (OWI, Action.OVERWRITTEN), (C, COLLISION)):
        late.gate = gate = Gate()
        opening = asyncio.ensure_future(outcome(client, "file", disposition))
        await gate.entered.wait()
        await f.rest_put("file")
        gate.leave.set()
        assert await opening == expected
        await f.rest_delete("file")


@opens_test
async def test_creation_in_a_directory_that_is_being_deleted(f: OpensFixture) -> None:
    await f.create()
    await f.mkdir("dir")
    client = await f.connect()
    handle = await opened(client, "dir", D)
    await client.set_delete_pending(handle)
    assert await outcome(client, "dir/new", C) == NtStatus.DELETE_PENDING
    client.clear_delete_pending(handle)
    assert await outcome(client, "dir/new", C) is Action.CREATED
    assert await code_of(client.set_delete_pending(handle)) == "DirectoryNotEmpty"


@opens_test
async def test_a_file_that_would_exceed_the_quota_is_not_created(f: OpensFixture) -> None:
    await f.create(quota_gib=1)
    await f.put("old", b"0123456789")
    client = await f.connect()
    full = NtStatus.DISK_FULL
    assert await outcome(client, "new", C, allocation=GIB - 9) == full
    assert await outcome(client, "old", OW, access=W, allocation=GIB + 1) == full
    assert await f.names() == ["old"] and file_length(await f.entry("old")) == 10
    assert await outcome(client, "new", C, allocation=GIB - 10) is Action.CREATED
    assert await outcome(client, "old", OW, access=W, allocation=GIB) is Action.OVERWRITTEN
    assert await outcome(client, "dir", C, kind=DIRECTORY, allocation=2 * GIB) is Action.CREATED


@opens_test
async def test_an_open_that_is_cancelled_leaves_nothing_behind(f: OpensFixture) -> None:
    await f.create()
    client = await f.connect()
    created = set()
    for steps in range(12):
        name = f"file{steps:02}"
        opening = asyncio.ensure_future(attempt(client, name, C, W))
        for _ in range(steps):
            await asyncio.sleep(0)
        opening.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            done = await opening
            created.add(name)
            await client.close(done.handle)
    await asyncio.sleep(0.01)
    # A client that does not get a handle has not created anything either.
    assert set(await f.names()) == created
    assert not client.share.rest._reserved
    assert not client.share.rest._in_progress
    assert not client.share.current.handles
    assert f.table.open_handles == 0
