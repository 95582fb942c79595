"""Listings of any length, sent in pages that are bounded in rows, bytes and time.

The rows of a page are encoded while they are read, and each part is freed when it is sent: a slow
client uses the memory of at most one page. While many pages wait for their clients, new ones are
shorter, which the protocol allows for every page.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Final, Generic, TypeVar

from etagere.config import KIB, MIB
from etagere.engine.interface import Engine, ReadClass, ReadTxn, Steps
from etagere.operations.pages import Asked, FilledPage, FillPage, Row
from etagere.protocol.http.messages import Response
from etagere.protocol.rest.responses import XML
from etagere.protocol.time_slices import run_at_once

_JOINED_BYTES_MAX: Final = 64 * KIB
"""A page up to this length is sent in one piece."""


@dataclass(frozen=True)
class Limits:
    """The limits of pages."""

    page_bytes_max: int = 8 * MIB
    step_bytes: int = 256 * KIB
    """The approximate number of bytes that are encoded without a pause."""
    unsent_bytes_max: int = 128 * MIB
    """The maximum of all unsent pages of a process. Near it, pages are shorter, but not shorter
    than the next limit."""
    short_bytes: int = 256 * KIB
    unsent_share: int = 8
    """A page takes at most this fraction of the rest of `unsent_bytes_max`."""


class UnsentPages:
    """The number of bytes of pages in this process that have not been sent yet."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self.bytes = 0

    def page_bytes_max(self) -> int:
        limits = self._limits
        left = limits.unsent_bytes_max - self.bytes
        return min(limits.page_bytes_max, max(limits.short_bytes, left // limits.unsent_share))


LIMITS: Final = Limits()
UNSENT: Final = UnsentPages(LIMITS)


class EncodedRows(Generic[Row]):
    """The encoded rows of a page, up to a maximum number of bytes."""

    def __init__(self, encode: Callable[[Sequence[Row]], list[str]], bytes_max: int) -> None:
        self._encode = encode
        self._left = bytes_max
        self._rows = self._bytes = 0
        self.parts: deque[bytes] = deque()

    def add(self, rows: Sequence[Row]) -> int:
        """Adds the rows that fit; returns how many."""
        texts = self._encode(rows)
        part = "".join(texts).encode()
        if len(part) > self._left:
            ends = accumulate(len(text.encode()) for text in texts)
            fitting = sum(end <= self._left for end in ends)
            texts = texts[: fitting if fitting or self.parts else 1]
            part = "".join(texts).encode()
        if part:
            self.parts.append(part)
            self._left -= len(part)
            self._rows += len(texts)
            self._bytes += len(part)
        return len(texts)

    @property
    def rows_at_once(self) -> int:
        # Without rows, nothing has to be encoded.
        return LIMITS.step_bytes * max(1, self._rows) // max(1, self._bytes)


T = TypeVar("T")
Operation = Callable[[ReadTxn, FillPage[Asked, Row]], Steps[T]]


EncodeRows = Callable[[Sequence[Row], int], list[str]]
"""Encodes rows, for a given time, as text."""


async def listed(
    engine: Engine,
    read_class: ReadClass,
    operation: Operation[Asked, Row, FilledPage[Row]],
    asked: Asked,
    encode: EncodeRows[Row],
    start: str,
    end: Callable[[Row | None], str],
    *,
    in_thread: bool = False,
) -> Response:
    """Returns the response with a page, between a start and an end with the marker of the next
    page. The start ends with the opening tag of the rows, and the end begins with the closing one.
    `in_thread`: the steps of the operation may be long."""
    filled = await fill_page(engine, read_class, operation, asked, encode, in_thread=in_thread)
    return page_response(filled, start, end)


async def fill_page(
    engine: Engine,
    read_class: ReadClass,
    operation: Operation[Asked, Row, T],
    asked: Asked,
    encode: EncodeRows[Row],
    *,
    in_thread: bool = False,
) -> T:
    """Returns the result of an operation that fills a page."""

    def new_page(now: int) -> EncodedRows[Row]:
        return EncodedRows(lambda rows: encode(rows, now), UNSENT.page_bytes_max())

    command = FillPage(asked, new_page)
    if in_thread:
        return await engine.read_in_thread(
            lambda txn, command: run_at_once(operation(txn, command)), command, read_class
        )
    return await engine.read_in_steps(operation, command, read_class)


def page_response(
    filled: FilledPage[Row], start: str, end: Callable[[Row | None], str]
) -> Response:
    """Returns the response with a page that `fill_page` has filled; `start` and `end` as in
    `listed`."""
    page = filled.page
    assert isinstance(page, EncodedRows)
    parts, tail = page.parts, end(filled.following)
    if not parts:
        # Without rows, the element has a single tag.
        start, tail = f"{start.removesuffix('>')} />", tail.partition(">")[2]
    parts.appendleft(start.encode())
    parts.append(tail.encode())
    length = sum(map(len, parts))
    if length <= _JOINED_BYTES_MAX:
        return Response(200, [XML], b"".join(parts))
    sending = _Sending(parts, length)
    return Response(200, [XML], sending.body(), finished=sending.finish)


class _Sending:
    """A page that is being sent."""

    def __init__(self, parts: deque[bytes], length: int) -> None:
        self._parts = parts
        self._unsent = length
        UNSENT.bytes += length

    async def body(self) -> AsyncIterator[bytes]:
        while self._parts:
            length = len(self._parts[0])
            yield self._parts.popleft()
            # The next part is requested, so this one has been sent.
            self._unsent -= length
            UNSENT.bytes -= length

    def finish(self) -> None:
        """Called when the page was sent or abandoned."""
        self._parts.clear()
        UNSENT.bytes -= self._unsent
        self._unsent = 0
