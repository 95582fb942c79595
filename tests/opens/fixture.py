"""The fixture of the tests of the table of opens: SMB-like clients and REST operations."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import cached_property
from typing import Any

from etagere.model.files import (
    CreateDirectory,
    CreateFile,
    DeleteEntry,
    Entry,
    EntryPath,
    GetEntry,
    LeaseFile,
    RenameEntry,
    SetEntryMetadata,
    TimedEntry,
)
from etagere.model.ids import new_id
from etagere.model.leases import Acquire, FileLeaseAction, new_lease_id
from etagere.opens.client import ShareClient, connect
from etagere.opens.handles import Handle, Session
from etagere.opens.requests import OpenRequest
from etagere.opens.share import ShareOpens
from etagere.opens.table import OpenTable
from etagere.operations.file import entries, renames
from etagere.rules.opens import EVERYTHING, Access, OpenMode, RestAccess
from tests.operations.file.fixture import NEW, SHARE, FileFixture, path_of
from tests.operations.fixture import Test, engine_test

R, W, D = Access.READ, Access.WRITE, Access.DELETE
NONE = Access.NONE
SESSION = Session(7, "10.0.0.1:50000", "pc1")


class OpensFixture(FileFixture):
    """REST operations go through the table; those of the base class do not."""

    @cached_property
    def table(self) -> OpenTable:
        return OpenTable(self.engine)

    async def connect(
        self, session: Session = SESSION, on_closed: Callable[[Handle], None] | None = None
    ) -> ShareClient:
        told = (lambda _: None) if on_closed is None else on_closed
        return await connect(self.engine, self.table, SHARE, session, self.clock, told)

    async def open_share(self) -> ShareOpens:
        """Creates the share and tracks it."""
        await self.create()
        return (await self.connect()).share

    # REST operations

    async def rest_get(self, path: str) -> Entry:
        return await self._get(path, RestAccess.QUERY)

    async def rest_read(self, path: str, span: tuple[int, int] | None = None) -> Entry:
        return await self._get(path, RestAccess.READ, span)

    async def _get(
        self, path: str, access: RestAccess, span: tuple[int, int] | None = None
    ) -> Entry:
        async def run(path: EntryPath) -> Entry:
            return (await self.read(entries.get_file_or_directory, GetEntry(path))).entry

        return await self.table.rest(path_of(path), access, run, span=span)

    async def rest_write(self, path: str, data: bytes = b"x", seconds_max: float = 30) -> Entry:
        return await self.rest_set(path, RestAccess.WRITE, seconds_max=seconds_max)

    async def rest_set(
        self,
        path: str,
        access: RestAccess = RestAccess.SET,
        *,
        is_directory: bool = False,
        seconds_max: float = 30,
    ) -> Entry:
        return await self.table.rest(
            path_of(path),
            access,
            lambda path: self.write(
                entries.set_metadata, SetEntryMetadata(path, is_directory, (("Key", "value"),))
            ),
            seconds_max=seconds_max,
        )

    async def rest_put(self, path: str) -> Entry:
        return await self.table.rest(
            path_of(path),
            RestAccess.REPLACE,
            lambda path: self.write(entries.create_file, CreateFile(path, NEW, new_id(), 10)),
        )

    async def rest_mkdir(self, path: str) -> Entry:
        return await self.table.rest(
            path_of(path),
            RestAccess.CREATE,
            lambda path: self.write(entries.create_directory, CreateDirectory(path, NEW)),
        )

    async def rest_delete(
        self, path: str, *, is_directory: bool = False, seconds_max: float = 30
    ) -> None:
        await self.table.rest(
            path_of(path),
            RestAccess.DELETE,
            lambda path: self.write(entries.delete_entry, DeleteEntry(path, is_directory)),
            seconds_max=seconds_max,
        )

    async def rest_rename(
        self, source: str, destination: str, *, is_directory: bool = False, **asked: Any
    ) -> Entry:
        return await self.table.rest_rename(
            path_of(source),
            path_of(destination),
            lambda source, destination: self.write(
                renames.rename_entry, RenameEntry(source, destination, is_directory, **asked)
            ),
        )

    async def rest_lease(self, path: str, action: FileLeaseAction | None = None) -> TimedEntry:
        action = action or Acquire(new_lease_id(), None)
        return await self.table.rest(
            path_of(path),
            RestAccess.LEASE,
            lambda path: self.write(entries.lease_file, LeaseFile(path, action)),
        )


async def opened(
    client: ShareClient,
    path: str,
    access: Access = R,
    share: Access = EVERYTHING,
    *,
    snapshot: int | None = None,
    **asked: Any,
) -> Handle:
    request = OpenRequest(path_of(path, snapshot), OpenMode(access, share), **asked)
    return (await client.open(request)).handle


def opens_test(body: Callable[[OpensFixture], Awaitable[None]]) -> Test:
    """Turns a coroutine into a test that runs with every engine."""
    return engine_test(OpensFixture, body)
