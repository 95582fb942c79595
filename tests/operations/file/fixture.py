"""The fixture of the tests of the file operations."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from hypothesis.strategies import SearchStrategy

from etagere.bodies.audit.walk import check
from etagere.bodies.segments import Reap, reap
from etagere.engine.interface import ReadTxn, Steps, T
from etagere.model.files import (
    ClearRange,
    CreateDirectory,
    CreateFile,
    CreateHardLink,
    CreateSymbolicLink,
    DeleteEntry,
    Entry,
    EntryPath,
    FileNode,
    FileRanges,
    GetEntry,
    LeaseFile,
    ListEntries,
    ListRanges,
    NewEntry,
    NewTimes,
    OpenFile,
    PutRange,
    RenameEntry,
    SetEntryMetadata,
    SetEntryProperties,
    SymbolicLinkNode,
    TimedEntry,
)
from etagere.model.ids import new_id
from etagere.model.leases import FileLeaseAction
from etagere.model.service import RetentionPolicy, ServicePropertiesChange
from etagere.model.shares import (
    CreateShare,
    DeleteShare,
    GetShare,
    ListShares,
    Share,
    ShareName,
    ShareProtocol,
    ShareRef,
    ShareRow,
    ShareSettings,
    SnapshotShare,
    SnapshotsOfShare,
)
from etagere.operations.file import entries, links, listing, ranges, renames, shares
from etagere.operations.file.purging import (
    PurgeShares,
    expire_shares,
    forget_deleted_names,
    purge_histories,
    purge_shares,
)
from etagere.operations.pages import FilledPage, FillPage
from etagere.operations.service import SetServiceProperties, set_service_properties
from etagere.operations.tree_audits import TREE_AUDITS
from etagere.rules.file_ranges import cleared_range
from tests.operations.blob.consistency import held_records, require_balanced
from tests.operations.file.consistency import history_records, require_trees
from tests.operations.fixture import ACCOUNT, EngineFixture, Test, engine_property_test, engine_test
from tests.operations.pages import filled

SHARE = ShareName(ACCOUNT, "docs")
NEW = NewEntry(NewTimes(), 0)


def list_entries(txn: ReadTxn, command: FillPage[ListEntries, Entry]) -> Steps[FilledPage[Entry]]:
    """Lists the entries of a directory."""
    listed = yield from listing.list_directory(txn, command)
    return listed.filled


def keep_deleted_shares(account: str, days: int) -> SetServiceProperties:
    """Returns the command that sets how long deleted shares can be restored; 0: not at all."""
    policy = RetentionPolicy(enabled=days > 0, days=days or None)
    change = ServicePropertiesChange(share_delete_retention=policy)
    return SetServiceProperties(account, "file", change)


def path_of(path: str, snapshot: int | None = None, share: ShareName = SHARE) -> EntryPath:
    return EntryPath(ShareRef(share, snapshot), tuple(path.split("/")) if path else ())


class FileFixture(EngineFixture):
    """File operations with short signatures, on one share. Paths are separated by slashes."""

    # Shares

    async def create(self, name: ShareName = SHARE, **settings: Any) -> Share:
        command = CreateShare(name, new_id(), ShareSettings(**settings))
        return await self.write(shares.create_share, command)

    async def create_nfs(self, name: ShareName = SHARE) -> Share:
        return await self.create(name, protocol=ShareProtocol.NFS)

    async def usage(self, name: ShareName = SHARE) -> int:
        ask = GetShare(ShareRef(name))
        return (await self.read(shares.get_share_statistics, ask)).usage_bytes

    async def snapshot(self, name: ShareName = SHARE) -> int:
        taken = await self.write(shares.snapshot_share, SnapshotShare(name))
        assert taken.snapshot is not None
        return taken.snapshot

    async def delete_snapshot(self, moment: int, name: ShareName = SHARE) -> None:
        await self.write(shares.delete_share, DeleteShare(ShareRef(name, moment)))

    async def delete_share(
        self,
        name: ShareName = SHARE,
        snapshots: SnapshotsOfShare = SnapshotsOfShare.INCLUDE_LEASED,
        retention_days: int = 0,
        **asked: Any,
    ) -> None:
        await self.write(set_service_properties, keep_deleted_shares(name.account, retention_days))
        command = DeleteShare(ShareRef(name), snapshots, **asked)
        await self.write(shares.delete_share, command)

    async def shares(self, limit: int = 1_000, **asked: Any) -> list[ShareRow]:
        command = ListShares(ACCOUNT, limit, **asked)
        rows, _ = await self.read(lambda txn, c: filled(txn, listing.list_shares, c), command)
        return list(rows)

    # Entries

    async def mkdir(self, path: str, new: NewEntry = NEW) -> Entry:
        return await self.write(entries.create_directory, CreateDirectory(path_of(path), new))

    async def put(
        self, path: str, data: bytes = b"", length: int | None = None, **asked: Any
    ) -> Entry:
        """Creates a file that begins with these bytes, or replaces one."""
        asked = {"new": NEW, **asked}
        size = len(data) if length is None else length
        async with self.store.writer(len(data), inline=False) as writer:
            await writer.append(data)
            command = CreateFile(
                path_of(path),
                content_id=new_id(),
                length=size,
                body=await writer.seal() if data else None,
                **asked,
            )
            return await self.write(entries.create_file, command)

    async def put_range(self, path: str, start: int, data: bytes, **asked: Any) -> Entry:
        async with self.store.writer(len(data), inline=False) as writer:
            await writer.append(data)
            command = PutRange(path_of(path), start, await writer.seal(), new_id(), **asked)
            return await self.write(ranges.put_range, command)

    async def clear(self, path: str, start: int, end: int, **asked: Any) -> Entry:
        command = ClearRange(path_of(path), start, end, new_id(), **asked)
        return await self.write(ranges.clear_range, command)

    async def clear_aligned(self, path: str, start: int, end: int) -> Entry:
        """Clears a range as REST clients do: what is not aligned is overwritten."""
        length = cleared_range(start, end).zeros_length
        if not length:
            return await self.clear(path, start, end)
        async with self.store.writer(length, inline=False) as writer:
            await writer.append(bytes(length))
            return await self.clear(path, start, end, zeros=await writer.seal())

    async def set(self, path: str, *, is_directory: bool = False, **asked: Any) -> Entry:
        command = SetEntryProperties(path_of(path), is_directory, child_id=new_id(), **asked)
        return await self.write(entries.set_properties, command)

    async def describe(self, path: str, *, is_directory: bool = False, **asked: Any) -> Entry:
        command = SetEntryMetadata(path_of(path), is_directory, (("Key", "value"),), **asked)
        return await self.write(entries.set_metadata, command)

    async def delete(self, path: str, *, is_directory: bool = False, **asked: Any) -> int:
        """Deletes a file or directory; returns the number of links that are left."""
        command = DeleteEntry(path_of(path), is_directory, **asked)
        return await self.write(entries.delete_entry, command)

    async def rmdir(self, path: str) -> None:
        await self.delete(path, is_directory=True)

    async def rename(
        self, source: str, destination: str, *, is_directory: bool = False, **asked: Any
    ) -> Entry:
        command = RenameEntry(path_of(source), path_of(destination), is_directory, **asked)
        return await self.write(renames.rename_entry, command)

    async def link(self, path: str, target: str, **asked: Any) -> Entry:
        """Creates a hard link."""
        command = CreateHardLink(path_of(path), path_of(target).components, **asked)
        return await self.write(links.create_hard_link, command)

    async def symlink(self, path: str, target: str, new: NewEntry = NEW, **asked: Any) -> Entry:
        command = CreateSymbolicLink(path_of(path), new, target, **asked)
        return await self.write(links.create_symbolic_link, command)

    async def readlink(self, path: str, snapshot: int | None = None) -> Entry:
        return await self.read(links.get_symbolic_link, GetEntry(path_of(path, snapshot)))

    async def lease(self, path: str, action: FileLeaseAction) -> TimedEntry:
        return await self.write(entries.lease_file, LeaseFile(path_of(path), action))

    async def entry(
        self, path: str, snapshot: int | None = None, lease_id: bytes | None = None
    ) -> Entry:
        ask = GetEntry(path_of(path, snapshot), lease_id)
        return (await self.read(entries.get_file_or_directory, ask)).entry

    async def get(
        self,
        path: str,
        snapshot: int | None = None,
        first: int | None = None,
        last: int | None = None,
    ) -> bytes:
        with self.store.open_reader() as reader:
            ask = OpenFile(GetEntry(path_of(path, snapshot)), first, last)
            opened = await self.read(ranges.open_file, ask)
            assert opened is not None
            return b"".join([chunk async for chunk in reader.chunks(opened.plan)])

    async def page(
        self, path: str = "", snapshot: int | None = None, limit: int = 1_000, **asked: Any
    ) -> tuple[list[Entry], Entry | None]:
        command = ListEntries(path_of(path, snapshot), limit, **asked)
        rows, following = await self.read(lambda txn, c: filled(txn, list_entries, c), command)
        return list(rows), following

    async def names(self, path: str = "", snapshot: int | None = None, **asked: Any) -> list[str]:
        return [entry.name for entry in (await self.page(path, snapshot, **asked))[0]]

    async def ranges(
        self, path: str, snapshot: int | None = None, limit: int = 100, **asked: Any
    ) -> FileRanges:
        command = ListRanges(GetEntry(path_of(path, snapshot)), limit, **asked)
        return await self.read(ranges.list_ranges, command)

    async def tree(self, snapshot: int | None = None) -> dict[str, bytes | None]:
        """Returns all paths of the share, with the bytes of files and None for directories."""
        found: dict[str, bytes | None] = {}

        async def walk(directory: str) -> None:
            for entry in (await self.page(directory, snapshot))[0]:
                path = f"{directory}/{entry.name}" if directory else entry.name
                if isinstance(entry.node, FileNode):
                    found[path] = await self.get(path, snapshot)
                elif isinstance(entry.node, SymbolicLinkNode):
                    found[path] = entry.node.target.encode()
                else:
                    found[path] = None
                    await walk(path)

        await walk("")
        return found

    # Garbage collection and consistency

    async def purge(self, rows_max: int = 200) -> None:
        command = PurgeShares(rows_max)
        for step in (expire_shares, forget_deleted_names, purge_shares, purge_histories):
            while await self.write(step, command):
                pass
        while await self.write(reap, Reap()):
            pass

    async def require_sound(self) -> None:
        """Checks that no reference count is wrong, nothing is lost or leaked, and every tree is
        one."""
        await self.read(require_balanced, None)
        await self.read(require_trees, None)
        if self.is_on_disk:
            assert check(self.directory, audits=TREE_AUDITS).findings == []

    async def require_empty(self) -> None:
        """Checks that no bytes and no history are left once the store is purged."""
        await self.purge()
        await self.require_sound()
        assert await self.read(held_records, None) == 0
        assert await self.read(history_records, None) == 0


def file_test(body: Callable[[FileFixture], Awaitable[None]]) -> Test:
    """Turns a coroutine into a test that runs with every engine."""
    return engine_test(FileFixture, body)


def file_property_test(
    examples: SearchStrategy[T], *, count: int
) -> Callable[[Callable[[FileFixture, T], Awaitable[None]]], Test]:
    """Turns a coroutine into a property test that runs with every engine."""
    return lambda body: engine_property_test(FileFixture, examples, count, body)
