"""Files and objects, as the source and the target of a transfer of extents."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import AsyncGenerator
from contextlib import ExitStack, aclosing, suppress
from pathlib import Path
from typing import Final

from etagere import directories
from etagere.bodies.objects.buffers import BufferMemory
from etagere.bodies.objects.interface import OBJECT_BYTES_MAX, ObjectExists, ObjectStore
from etagere.bodies.objects.names import INDEX_SHIFT, PREFIX, object_name
from etagere.bodies.objects.reading import read_ranges
from etagere.bodies.plans import SegmentRange
from etagere.bodies.segment_files import DIRECTORY_NAME, segment_path
from etagere.bodies.transfer import Portion
from etagere.config import MIB, Config

_PACKED_BYTES: Final = 16 * MIB
_READ_AHEAD_BYTES: Final = 32 * MIB
_DELETES_MAX: Final = 1_000


class FileSource:
    """Segment files in a directory."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    async def read(self, portion: Portion) -> AsyncGenerator[bytes, None]:
        with ExitStack() as opened:
            files: dict[int, int | None] = {}
            for (number, offset), extent, _ in portion.parts:
                if number not in files:
                    files[number] = self._open(number, opened)
                descriptor = files[number]
                data = b""
                if descriptor is not None:
                    data = await asyncio.to_thread(_read, descriptor, extent.length, offset)
                yield data

    def _open(self, number: int, opened: ExitStack) -> int | None:
        path = segment_path(self._directory, number)
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        opened.callback(os.close, descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_SEQUENTIAL)
        return descriptor


def _read(descriptor: int, length: int, offset: int) -> bytes:
    """Reads what there is of a range; nothing if it cannot be read."""
    parts: list[bytes] = []
    while length:
        try:
            data = os.pread(descriptor, length, offset)
        except OSError as error:
            if error.errno != errno.EIO:
                raise
            return b""
        if not data:
            break
        parts.append(data)
        length -= len(data)
        offset += len(data)
    return parts[0] if len(parts) == 1 else b"".join(parts)


class FileTarget:
    """A directory that gets segment files. Dead space becomes holes."""

    kept_bytes_max = 1 << INDEX_SHIFT
    portions_per_segment = 1
    holds_portions = False

    def __init__(self, directory: Path, config: Config) -> None:
        self._directory = directory
        self.portion_bytes_max = config.segment_bytes_max

    def is_empty(self) -> bool:
        folder = self._directory / DIRECTORY_NAME
        return not folder.is_dir() or not any(folder.iterdir())

    def clear(self) -> None:
        """Creates the directory of the segments, or removes what an interrupted transfer left."""
        folder = self._directory / DIRECTORY_NAME
        directories.make(folder)
        for path in folder.iterdir():
            path.unlink()

    async def write(self, portion: Portion, data: AsyncGenerator[bytes, None]) -> None:
        path = segment_path(self._directory, portion.number)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            parts = iter(portion.parts)
            async for bytes_of_part in data:
                await asyncio.to_thread(_write, descriptor, bytes_of_part, next(parts).offset)
            await asyncio.to_thread(os.fsync, descriptor)
        except OSError as error:
            raise OSError(error.errno, error.strerror, error.filename or str(path)) from error
        finally:
            os.close(descriptor)

    def sync(self) -> None:
        """Makes the names of the files durable."""
        directories.sync(self._directory / DIRECTORY_NAME)


def _write(descriptor: int, data: bytes, offset: int) -> None:
    view = memoryview(data)
    while view:
        count = os.pwrite(descriptor, view, offset)
        view, offset = view[count:], offset + count


class ObjectSource:
    """Segments of objects."""

    def __init__(self, objects: ObjectStore) -> None:
        self._objects = objects
        self._memory = BufferMemory(_READ_AHEAD_BYTES)

    async def read(self, portion: Portion) -> AsyncGenerator[bytes, None]:
        ranges = [
            SegmentRange(*part.source, part.extent.length, part.extent.crc)
            for part in portion.parts
        ]
        async with aclosing(read_ranges(self._objects.get, self._memory, ranges)) as found:
            async for data in found:
                yield data


class ObjectTarget:
    """An object store that gets segments of objects. Dead space between extents becomes zeros."""

    kept_bytes_max = OBJECT_BYTES_MAX
    portion_bytes_max = _PACKED_BYTES
    holds_portions = True

    def __init__(self, objects: ObjectStore, config: Config) -> None:
        self._objects = objects
        self.portions_per_segment = max(1, config.segment_bytes_max // _PACKED_BYTES)

    async def is_empty(self) -> bool:
        async for _ in self._objects.list(PREFIX):
            return False
        return True

    async def clear(self) -> None:
        """Removes what an interrupted transfer left."""
        names: list[str] = []
        async for name, _ in self._objects.list(PREFIX):
            names.append(name)
        for at in range(0, len(names), _DELETES_MAX):
            await self._objects.delete(names[at : at + _DELETES_MAX])

    async def write(self, portion: Portion, data: AsyncGenerator[bytes, None]) -> None:
        buffers: list[bytes] = []
        at = portion.start
        parts = iter(portion.parts)
        async for bytes_of_part in data:
            offset = next(parts).offset
            if offset > at:
                buffers.append(bytes(offset - at))
            buffers.append(bytes_of_part)
            at = offset + len(bytes_of_part)
        name = object_name(portion.number, portion.start)
        with suppress(ObjectExists):
            await self._objects.put(name, buffers)
            return
        # A put of an interrupted transfer has ended late.
        await self._objects.delete([name])
        await self._objects.put(name, buffers)
