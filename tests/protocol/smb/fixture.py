"""A request of a client, and a share whose opens, bytes and locks are only recorded."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from etagere.engine.interface import Refused, abort_if
from etagere.errors import Refusal
from etagere.model.bodies import Inline
from etagere.model.files import DirectoryNode, Entry, FileNode, FileTimes
from etagere.model.shares import ShareName, ShareRef
from etagere.nt_status import NtStatus
from etagere.opens.handles import Handle, LockRange, OpenEntry
from etagere.opens.handles import Session as OpensSession
from etagere.opens.requests import Action, Opened, OpenRequest
from etagere.opens.share import ShareOpens
from etagere.opens.watches import Watches
from etagere.protocol.smb.header import Header
from etagere.protocol.smb.requests import RELATED_FILE_ID, Handler, Reply, Request
from etagere.protocol.smb.state import Negotiated, Open, Session, Tree
from etagere.protocol.smb.status import SmbError, status_of
from etagere.rules.caching import Caching
from etagere.rules.opens import (
    EVERYTHING,
    LOCK_NOT_GRANTED,
    OpenMode,
    check_handle_read,
    check_handle_write,
)

SHARE = ShareName("account", "box")
CLIENT_GUID = bytes(range(16))
HANDLE_ID = 0x1122_3344_5566_7788
ENTRY_ID = 0x99
FULL_ACCESS = 0x1F01FF


def entry(*, is_directory: bool = False, length: int = 5, attributes: int = 0x20) -> Entry:
    content = Inline(b"content", length, crc=0)
    return Entry(
        "name",
        ENTRY_ID,
        parent_id=0,
        generation=0,
        stamp=0,
        times=FileTimes(created=1, written=2, changed=3),
        attributes=0x10 if is_directory else attributes,
        node=DirectoryNode() if is_directory else FileNode(content),
    )


def new_handle(*, is_directory: bool = False) -> Handle:
    open_entry = OpenEntry(ENTRY_ID, (0,), "name", is_directory)
    mode = OpenMode(EVERYTHING, EVERYTHING)
    session = OpensSession(1, "127.0.0.1:1")
    return Handle(HANDLE_ID, open_entry, mode, session, 0, lambda _: None)


@dataclass
class FakeShare:
    """Records what commands ask of a share, and answers as it is told to."""

    answers: list[Opened | Refused] = field(default_factory=list)
    shown: Entry = field(default_factory=entry)
    data: bytes = b"hello"
    conflicts: set[int] = field(default_factory=set)
    """The starts of the ranges that others have locked."""
    opened: list[OpenRequest] = field(default_factory=list)
    calls: list[tuple[Any, ...]] = field(default_factory=list)
    share: ShareOpens = field(default_factory=lambda: cast("ShareOpens", FakeOpens()))

    async def open(self, request: OpenRequest, on_wait: Callable[[], None]) -> Opened:
        self.opened.append(request)
        answer = self.answers.pop(0)
        if isinstance(answer, Refused):
            raise answer
        return answer

    async def get_entry(self, handle: Handle) -> Entry:
        return self.shown

    async def close(self, handle: Handle) -> None:
        self.calls.append(("close", handle.id))

    async def lock(
        self,
        handle: Handle,
        start: int,
        end: int,
        *,
        exclusive: bool,
        waits: bool,
        on_wait: Callable[[], None],
    ) -> None:
        self.calls.append(("lock", start, end, exclusive))
        on_wait()

    async def lock_all(self, handle: Handle, ranges: Sequence[LockRange]) -> None:
        if any(one.start in self.conflicts for one in ranges):
            raise Refused(LOCK_NOT_GRANTED)
        self.calls.append(("lock_all", *ranges))

    def check_read(self, handle: Handle, start: int, end: int) -> None:
        abort_if(check_handle_read(handle.id, handle.entry.locks, start, end))

    def check_write(self, handle: Handle, start: int, end: int) -> None:
        abort_if(check_handle_write(handle.id, handle.entry.locks, start, end))

    def acknowledge(self, handle: Handle, state: Caching) -> None:
        self.calls.append(("acknowledge", handle.id, state))

    def acknowledge_lease(self, client: bytes, key: bytes, state: Caching) -> None:
        self.calls.append(("acknowledge", client, key, state))

    def unlock(self, handle: Handle, ranges: Sequence[tuple[int, int]]) -> bool:
        self.calls.append(("unlock", *ranges))
        return all(start not in self.conflicts for start, _ in ranges)

    # The contents of files

    async def read(self, share: object, handle: Handle, offset: int, length: int) -> bytes:
        return self.data[offset : offset + length]

    async def write(
        self,
        share: object,
        handle: Handle,
        offset: int | None,
        data: memoryview,
        *,
        through: bool,
    ) -> int:
        start = len(self.data) if offset is None else offset
        end = start + len(data)
        self.check_write(handle, start, end)
        self.calls.append(("write", offset, bytes(data), through))
        return end

    def length(self, entry: OpenEntry) -> int | None:
        return None

    async def flush(self, share: object, entry: OpenEntry) -> None:
        self.calls.append(("flush", entry.id))


class FakeOpens:
    id = bytes(range(16))
    watches = Watches()


class FakeEngine:
    async def read(self, _operation: object, command: ShareRef) -> None:
        if command.snapshot == 0:
            raise Refused(Refusal("ShareSnapshotNotFound"))


@dataclass
class FakeServices:
    contents: FakeShare
    engine: FakeEngine = field(default_factory=FakeEngine)


class FakeRequest:
    """A request on a tree that is connected to a fake share."""

    def __init__(self, body: bytes, share: FakeShare, *opens: Open, dialect: int = 0x311) -> None:
        self.header = Header(0)
        self.body = memoryview(body)
        self.sent: list[bytes] = []
        self.session = Session(1, "account", notify=self.sent.append)
        self.tree = Tree(1, self.session, SHARE, cast("Any", share))
        self.negotiated = Negotiated(dialect, CLIENT_GUID, 0, 0, (dialect,), 0, 0)
        self.server = FakeServices(share)
        self.is_pending = False
        self.may_pend = True
        for one in opens:
            one.tree = self.tree
            self.add_open(one)

    def open(self, persistent: int, volatile: int) -> Open:
        found = self.session.opens.get(volatile)
        if persistent != volatile or volatile == RELATED_FILE_ID or found is None:
            raise SmbError(NtStatus.FILE_CLOSED)
        return found

    def add_open(self, opened: Open) -> None:
        self.session.opens[opened.id] = self.tree.opens[opened.id] = opened

    def pend(self) -> None:
        if not self.may_pend:
            raise SmbError(NtStatus.INTERNAL_ERROR)
        self.is_pending = True


def new_open(access: int = FULL_ACCESS, *, is_directory: bool = False, options: int = 0) -> Open:
    handle = new_handle(is_directory=is_directory)
    return Open(handle.id, cast("Any", None), access, options, handle)


def run(command: Handler, request: FakeRequest) -> Reply:
    async def carry_out() -> Reply:
        reply = await command(cast("Request", request))
        await asyncio.sleep(0)
        return reply

    return asyncio.run(carry_out())


def status(command: Handler, request: FakeRequest) -> NtStatus:
    """Returns the error that a command ends with."""
    try:
        return run(command, request).status
    except SmbError as error:
        return error.status
    except Refused as refused:
        return status_of(refused.refusal)


def opened(action: Action = Action.OPENED, shown: Entry | None = None) -> Opened:
    shown = entry() if shown is None else shown
    return Opened(new_handle(is_directory=shown.is_directory), shown, action)
