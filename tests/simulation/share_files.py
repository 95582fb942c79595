"""Files of one share on an engine and a body store, as the REST handlers use these."""

from __future__ import annotations

from typing import Final

from etagere.bodies.plans import Plan
from etagere.bodies.store import BodyStore
from etagere.engine.interface import Engine, ReadTxn, Refused
from etagere.model.files import (
    CreateFile,
    DeleteEntry,
    EntryPath,
    GetEntry,
    NewEntry,
    NewTimes,
    OpenFile,
    PutRange,
    RenameEntry,
)
from etagere.model.ids import new_id
from etagere.model.shares import CreateShare, ShareName, ShareRef
from etagere.operations.file import entries, ranges, renames, shares
from etagere.operations.file.collections import ENTRIES

SHARE: Final = ShareName("account", "share")
FILE_BYTES: Final = 300_000


def _path(name: str) -> EntryPath:
    return EntryPath(ShareRef(SHARE), (name,))


async def create_share(engine: Engine) -> None:
    """Creates the share, unless it exists."""
    try:
        await engine.write(shares.create_share, CreateShare(SHARE, new_id()))
    except Refused as refused:
        if refused.refusal.code != "ShareAlreadyExists":
            raise


async def create_file(engine: Engine, name: str) -> None:
    """Creates a file of zeros, or replaces one."""
    command = CreateFile(_path(name), NewEntry(NewTimes(), 0), new_id(), FILE_BYTES)
    await engine.write(entries.create_file, command)


async def write_range(engine: Engine, store: BodyStore, name: str, start: int, data: bytes) -> None:
    async with store.writer(len(data), inline=False) as writer:
        await writer.append(data)
        command = PutRange(_path(name), start, await writer.seal(), new_id())
        await engine.write(ranges.put_range, command)


async def rename_file(engine: Engine, source: str, target: str) -> None:
    """Moves a file to another name, and replaces what is there."""
    command = RenameEntry(_path(source), _path(target), is_directory=False, replace=True)
    await engine.write(renames.rename_entry, command)


async def delete_file(engine: Engine, name: str) -> None:
    await engine.write(entries.delete_entry, DeleteEntry(_path(name), is_directory=False))


async def read_file(engine: Engine, store: BodyStore, name: str) -> bytes | None:
    """Returns all bytes of a file, or None if there is none."""
    with store.open_reader() as reader:
        plan = await engine.read(_find, name)
        if plan is None:
            return None
        return b"".join([chunk async for chunk in reader.chunks(plan)])


def _find(txn: ReadTxn, name: str) -> Plan | None:
    try:
        opened = ranges.open_file(txn, OpenFile(GetEntry(_path(name))))
    except Refused:
        return None
    assert opened is not None
    return opened.plan


def names(txn: ReadTxn, _: None) -> list[str]:
    """Returns the names of all files of the share."""
    return [entry.name for _, entry in txn.scan(ENTRIES, ENTRIES.all(), 100_000)]
