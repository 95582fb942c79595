"""Copies to files with short signatures, for tests of the operations."""

from __future__ import annotations

from typing import Any

from etagere.model.blobs import Blob, BlobName, Copied, PutBlob
from etagere.model.common import ContentHeaders, Metadata
from etagere.model.containers import ContainerName, CreateContainer
from etagere.model.copies import FinishCopy
from etagere.model.file_copies import (
    BeginFileCopy,
    BegunFileCopy,
    CopyFile,
    FileDestination,
    PutFileCopy,
)
from etagere.model.files import Entry
from etagere.model.ids import new_id
from etagere.model.shares import ShareName
from etagere.model.sources import SourceBlob, SourceFile, StoredSource
from etagere.operations.blob.blobs import put_blob
from etagere.operations.blob.containers import create_container
from etagere.operations.file import copies, pending_copies
from etagere.operations.file.changes import file_node
from tests.operations.file.fixture import SHARE, FileFixture, path_of
from tests.operations.fixture import ACCOUNT

BOX = ContainerName(ACCOUNT, "box")
HEADERS = ContentHeaders("text/plain", "gzip", "fr", "inline", "no-cache", b"m" * 16)
METADATA: Metadata = (("Key", "value"),)
PROCESS = b"p" * 16


def to(path: str, share: ShareName = SHARE, **asked: Any) -> FileDestination:
    return FileDestination(
        path_of(path, share=share), new_id(), "http://host/source", new_id(), **asked
    )


def of(path: str, snapshot: int | None = None, share: ShareName = SHARE) -> SourceFile:
    return SourceFile(path_of(path, snapshot, share), 0)


def of_blob(name: str) -> SourceBlob:
    return SourceBlob(BlobName(BOX, name), None, 0)


async def copy(
    files: FileFixture, source: StoredSource, destination: FileDestination
) -> Entry | None:
    return await files.write(copies.copy_file, CopyFile(destination, source))


async def copied(files: FileFixture, path: str) -> Copied:
    found = file_node(await files.entry(path)).copied
    assert found is not None
    return found


async def create_box(files: FileFixture) -> None:
    await files.write(create_container, CreateContainer(BOX, new_id()))


async def put_source(files: FileFixture, name: str, data: bytes, *, inline: bool = False) -> Blob:
    async with files.store.writer(len(data), inline=inline) as writer:
        await writer.append(data)
        command = PutBlob(BlobName(BOX, name), await writer.seal(), HEADERS, METADATA)
        return await files.write(put_blob, command)


async def put_copy(files: FileFixture, destination: FileDestination, data: bytes) -> Entry:
    async with files.store.writer(len(data), inline=False) as writer:
        await writer.append(data)
        command = PutFileCopy(destination, await writer.seal(), HEADERS, METADATA)
        return await files.write(copies.put_file_copy, command)


async def begin(
    files: FileFixture, destination: FileDestination, total: int = 1_000
) -> BegunFileCopy:
    command = BeginFileCopy(destination, total, HEADERS, METADATA, PROCESS)
    return await files.write(pending_copies.begin_file_copy, command)


async def finish(files: FileFixture, begun: BegunFileCopy, data: bytes) -> bool:
    async with files.store.writer(len(data), inline=False) as writer:
        await writer.append(data)
        command = FinishCopy(begun.copy_ref, await writer.seal())
        return await files.write(pending_copies.finish_file_copy, command)
