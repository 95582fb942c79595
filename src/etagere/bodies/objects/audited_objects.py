"""The objects of segments, as a check sees them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, TypeVar

from etagere.bodies.audit.audited_segments import READ_BYTES, CannotRead
from etagere.bodies.audit.findings import Remedy
from etagere.bodies.audit.snapshot import CannotCheck
from etagere.bodies.objects.interface import ObjectMissing, ObjectStore
from etagere.bodies.objects.names import (
    INDEX_SHIFT,
    PREFIX,
    index_of,
    object_name,
    offset_in_object,
    segment_of,
    segment_prefix,
)
from etagere.engine.interface import Fault

T = TypeVar("T")


class AuditedObjects:
    """Segments that are objects in an object store."""

    noun = "objects"
    is_contiguous = False
    may_be_newer = True

    def __init__(self, open_objects: Callable[[], ObjectStore]) -> None:
        """`open_objects` opens the object store, which is closed with this."""
        self._runner = asyncio.Runner()
        self._objects = self._run(_open_in_loop(open_objects))
        self._listed: tuple[int, dict[int, int]] | None = None
        """The number of the segment that was listed last, and the sizes of its objects."""

    def _run(self, call: Coroutine[Any, Any, T]) -> T:
        try:
            return self._runner.run(call)
        except Fault as fault:
            raise CannotCheck(f"the object store cannot be read: {fault.detail}") from fault

    def list(self) -> dict[str, int]:
        return self._run(self._list())

    async def _list(self) -> dict[str, int]:
        sizes: dict[str, int] = {}
        async for name, size in self._objects.list(PREFIX):
            number = segment_of(name)
            key = name if number is None else segment_prefix(number)
            key = key.removeprefix(PREFIX)
            sizes[key] = sizes.get(key, 0) + size
        return sizes

    def number_of(self, name: str) -> int | None:
        return segment_of(f"{PREFIX}{name}{0:08x}") if name.endswith("/") else None

    def where(self, number: int) -> str:
        return segment_prefix(number)

    def size(self, number: int) -> int | None:
        sizes = self._sizes(number)
        return sum(sizes.values()) if sizes else None

    def _sizes(self, number: int) -> dict[int, int]:
        if self._listed is None or self._listed[0] != number:
            self._listed = number, self._run(self._list_segment(number))
        return self._listed[1]

    async def _list_segment(self, number: int) -> dict[int, int]:
        sizes: dict[int, int] = {}
        async for name, size in self._objects.list(segment_prefix(number)):
            index = index_of(name)
            if index is not None:
                sizes[index] = size
        return sizes

    def contains(self, number: int, offset: int, end: int) -> bool:
        size = self._sizes(number).get(offset >> INDEX_SHIFT)
        return size is not None and offset_in_object(offset) + end - offset <= size

    def read(self, number: int, offset: int, length: int) -> Iterator[bytes]:
        name = object_name(number, offset)
        at, end = offset_in_object(offset), offset_in_object(offset) + length
        while at < end:
            try:
                data = self._run(self._objects.get(name, at, min(READ_BYTES, end - at)))
            except ObjectMissing:
                raise CannotRead("are gone") from None
            if not data:
                raise CannotRead(f"end at {at} of {name}")
            at += len(data)
            yield data

    def removal(self, name: str) -> Remedy | None:
        # Collectors remove the objects of forgotten segments.
        return None

    def truncation(self, number: int, length: int) -> Remedy | None:
        # A put whose answer was lost may store its object after the segment was sealed.
        return None

    def close(self) -> None:
        try:
            self._run(self._objects.close())
        finally:
            self._runner.close()


async def _open_in_loop(open_objects: Callable[[], ObjectStore]) -> ObjectStore:
    return open_objects()
