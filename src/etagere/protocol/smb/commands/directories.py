"""QUERY_DIRECTORY: the entries of an open directory ([MS-SMB2] 2.2.33, 3.3.5.18).

Entries that are to be deleted are shown, as in Windows; REST clients do not see them. An open keeps
its pattern and the name of the next entry. Every request reads a page of its own, in
steps, so that no transaction lasts from one request to the next.
"""

from __future__ import annotations

import asyncio
import re
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from etagere.engine.interface import Engine, ReadClass
from etagere.model.files import Entry, EntryPath, ListEntries
from etagere.model.shares import ShareRef
from etagere.nt_status import NtStatus
from etagere.operations.file.listing import list_directory
from etagere.operations.file.tree import find_at
from etagere.operations.pages import FillPage
from etagere.protocol.smb.access import AccessMask
from etagere.protocol.smb.buffers import decode_utf16, variable_part
from etagere.protocol.smb.information.directories import (
    DIRECTORY_CLASSES,
    DirectoryClass,
    EntryList,
    ListedEntry,
)
from etagere.protocol.smb.information.files import length_of
from etagere.protocol.smb.patterns import NamePattern, compile_pattern
from etagere.protocol.smb.requests import Reply, Request
from etagere.protocol.smb.responses import with_buffer
from etagere.protocol.smb.state import Open
from etagere.protocol.smb.status import SmbError
from etagere.protocol.smb.targets import FileTarget, directory_target
from etagere.rules.file_names import COMPONENT_LENGTH_MAX, fold_name

_REQUEST: Final = struct.Struct("<2xBBIQQHHI")
_RESTART: Final = 0x01
_SINGLE_ENTRY: Final = 0x02
_REOPEN: Final = 0x10
_ROWS_MAX: Final = 1 << 30
"""More than a page has: its bytes limit it."""
_ROWS_AT_ONCE: Final = 250
"""About what 2 ms are enough for."""
_DOTS: Final = (".", "..")
_NOT_IN_NAMES: Final = frozenset("\\/\0")
_UNPAIRED_SURROGATE: Final = re.compile("[\ud800-\udfff]")


class QueryDirectory(NamedTuple):
    """The fields of a request."""

    info_class: int
    flags: int
    file_index: int
    persistent: int
    volatile: int
    name_offset: int
    name_length: int
    output_bytes_max: int


@dataclass(slots=True)
class DirectorySearch:
    """Where the enumeration of a directory by one open has got to."""

    pattern: NamePattern
    dots: tuple[str, ...] = ()
    """Which of "." and ".." are still to be shown."""
    marker: str = ""
    """The folded name of the next entry."""
    is_done: bool = False
    has_found: bool = False
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Requests of one open take turns."""


async def query_directory(request: Request) -> Reply:
    asked = _parse(request.body)
    opened = request.open(asked.persistent, asked.volatile)
    info_class = DIRECTORY_CLASSES.get(asked.info_class)
    if info_class is None:
        raise SmbError(NtStatus.INVALID_INFO_CLASS)
    target = directory_target(opened)
    if not opened.access & AccessMask.READ_DATA:
        raise SmbError(NtStatus.ACCESS_DENIED)
    if asked.output_bytes_max < info_class.fixed_bytes:
        raise SmbError(NtStatus.INFO_LENGTH_MISMATCH)
    search = _search(opened, asked, request.body)
    async with search.lock:
        data = await _next_page(request, target, search, info_class, asked)
    return with_buffer(data)


def _parse(body: memoryview) -> QueryDirectory:
    if len(body) < _REQUEST.size:
        raise SmbError(NtStatus.INVALID_PARAMETER)
    return QueryDirectory(*_REQUEST.unpack_from(body))


def _search(opened: Open, asked: QueryDirectory, body: memoryview) -> DirectorySearch:
    """Returns the enumeration that a request continues, or begins."""
    known = opened.search
    pattern = decode_utf16(variable_part(body, asked.name_offset, asked.name_length, _REQUEST.size))
    if known is not None and not asked.flags & (_RESTART | _REOPEN):
        return known
    if not pattern and known is not None:
        compiled = known.pattern
    else:
        if not _is_pattern(pattern):
            raise SmbError(NtStatus.OBJECT_NAME_INVALID)
        compiled = compile_pattern(pattern)
    # A dot and two dots are the same to Windows, so that both match or none does.
    dots = _DOTS if not compiled.is_literal and compiled.matches(".") else ()
    opened.search = search = DirectorySearch(compiled, dots)
    return search


def _is_pattern(text: str) -> bool:
    if not 0 < len(text) <= COMPONENT_LENGTH_MAX:
        return False
    return _NOT_IN_NAMES.isdisjoint(text) and _UNPAIRED_SURROGATE.search(text) is None


async def _next_page(
    request: Request,
    target: FileTarget,
    search: DirectorySearch,
    info_class: DirectoryClass,
    asked: QueryDirectory,
) -> bytearray:
    page = _new_page(request, target, search, info_class, asked)
    if search.dots:
        await _add_dots(request, target, search, page)
    while not (search.is_done or page.is_full):
        following = await _fill(request.server.engine, target, search, page)
        if following is None or page.is_over:
            search.is_done = True
        else:
            search.marker = fold_name(following.name)
            if request.may_pend and not page.is_full:
                # The snapshot of the ledger is old, and the next one continues.
                request.pend()
    if page.list.data:
        search.has_found = True
        return page.list.data
    if page.is_full:
        raise SmbError(NtStatus.BUFFER_OVERFLOW)
    raise SmbError(NtStatus.NO_MORE_FILES if search.has_found else NtStatus.NO_SUCH_FILE)


def _new_page(
    request: Request,
    target: FileTarget,
    search: DirectorySearch,
    info_class: DirectoryClass,
    asked: QueryDirectory,
) -> _DirectoryPage:
    share, contents = target.client.share, request.server.contents
    is_current = target.handle.entry.snapshot is None
    open_entries = share.current.entries

    def length(entry: Entry) -> int:
        opened = open_entries.get(entry.id) if is_current else None
        gathered = None if opened is None else contents.length(opened)
        return length_of(entry) if gathered is None else gathered

    entries = EntryList(info_class, asked.output_bytes_max)
    return _DirectoryPage(
        entries, search.pattern, length, is_single=bool(asked.flags & _SINGLE_ENTRY)
    )


async def _add_dots(
    request: Request, target: FileTarget, search: DirectorySearch, page: _DirectoryPage
) -> None:
    handle = target.handle
    while search.dots and not page.is_full:
        entry = await target.client.get_entry(handle)
        if search.dots[0] == ".." and not handle.entry.is_root:
            path = EntryPath(
                ShareRef(target.client.share.name, handle.entry.snapshot), handle.entry.names[:-1]
            )
            entry = await request.server.engine.read(find_at, path)
        if page.add_entry(search.dots[0], entry):
            search.dots = search.dots[1:]


async def _fill(
    engine: Engine, target: FileTarget, search: DirectorySearch, page: _DirectoryPage
) -> Entry | None:
    """Adds entries to the page; returns the first one that it has no room for."""
    handle, share = target.handle, target.client.share
    snapshot = handle.entry.snapshot
    asked = ListEntries(
        EntryPath(ShareRef(share.name, snapshot), ()),
        _ROWS_MAX,
        prefix=search.pattern.prefix,
        marker=search.marker,
        directory_id=handle.entry.id,
    )
    read_class = ReadClass("listing", handle.session.client_address)
    mark = page.list.mark()

    def begin(_now: int) -> _DirectoryPage:
        page.rewind(mark)
        return page

    listed = await engine.read_in_steps(list_directory, FillPage(asked, begin), read_class)
    return listed.filled.following


class _DirectoryPage:
    """The entries of a response, which is limited by its bytes."""

    rows_at_once = _ROWS_AT_ONCE

    def __init__(
        self,
        entries: EntryList,
        pattern: NamePattern,
        length: Callable[[Entry], int],
        *,
        is_single: bool,
    ) -> None:
        self.list = entries
        self._pattern = pattern
        self._length = length
        self._is_single = is_single
        self.is_full = False
        self.is_over = False
        """Whether no entry that follows can match."""

    def rewind(self, mark: tuple[int, int]) -> None:
        """Begins again where the page was at the mark, which had room."""
        self.list.rewind(mark)
        self.is_full = self.is_over = False

    def add(self, rows: Sequence[Entry]) -> int:
        matches = self._pattern.matches
        for at, entry in enumerate(rows):
            if self.is_full or self.is_over:
                return at
            if matches(fold_name(entry.name)) and not self.add_entry(entry.name, entry):
                return at
            # The name itself comes before all names that begin with it.
            self.is_over = self._pattern.is_literal
        return len(rows)

    def add_entry(self, name: str, entry: Entry) -> bool:
        """Adds an entry under a name; returns whether there was room for it."""
        encoded = name.encode("utf-16-le", "surrogatepass")
        has_room = self.list.add(ListedEntry(encoded, entry, self._length(entry)))
        self.is_full = not has_room or self._is_single
        return has_room
