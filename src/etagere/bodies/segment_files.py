"""Segments as files in a directory."""

from __future__ import annotations

import asyncio
import logging
import math
import re
from collections.abc import AsyncGenerator, Callable, Sequence
from pathlib import Path
from typing import Any, Final

from etagere.bodies.disk import Disk
from etagere.bodies.store import BodyCorrupt
from etagere.config import MIB
from etagere.descriptors import OpenFile

logger = logging.getLogger(__name__)

DIRECTORY_NAME: Final = "segments"
_NAME: Final = re.compile(r"[0-9a-f]{8,}\.seg")


def segment_path(directory: Path, number: int) -> Path:
    return directory / DIRECTORY_NAME / f"{number:08x}.seg"


class SegmentFiles:
    """The files of the segments in a data directory."""

    move_bytes_max = 64 * MIB
    search_seconds = math.inf

    def __init__(
        self,
        directory: Path,
        disk: Disk,
        open_file: Callable[[int], OpenFile],
        in_thread: Callable[..., asyncio.Future[Any]],
    ) -> None:
        """`open_file` returns the open file of a segment."""
        self._directory = directory
        self._disk = disk
        self._open_file = open_file
        self._in_thread = in_thread

    def describe(self, number: int) -> str:
        return str(segment_path(self._directory, number))

    async def size(self, number: int) -> int:
        try:
            return segment_path(self._directory, number).stat().st_size
        except FileNotFoundError:
            return 0

    async def read(
        self, number: int, places: Sequence[tuple[int, int]]
    ) -> AsyncGenerator[bytes, None]:
        for offset, length in places:
            data = b""
            try:
                file = self._open_file(number)
                data = await self._in_thread(self._disk.read, file.descriptor, length, offset)
            except (BodyCorrupt, OSError) as error:
                logger.error("cannot read segment %d: %s", number, error)
            yield data

    async def remove(self, numbers: Sequence[int]) -> dict[int, int]:
        gone: dict[int, int] = {}
        for number in numbers:
            path = segment_path(self._directory, number)
            try:
                size = await self.size(number)
                await self._in_thread(self._disk.unlink, path)
            except OSError as error:
                # The other files are removed all the same.
                logger.error("cannot remove %s, will retry: %s", path, error)
                continue
            gone[number] = size
        if gone:
            # Otherwise a crash could restore a file that has no record.
            folder = self._directory / DIRECTORY_NAME
            await self._in_thread(self._disk.sync_directory, folder)
        return gone

    async def numbers(self) -> set[int]:
        return set(await self._in_thread(self._list))

    def _list(self) -> list[int]:
        return [
            int(path.stem, 16)
            for path in (self._directory / DIRECTORY_NAME).iterdir()
            if _NAME.fullmatch(path.name)
        ]
