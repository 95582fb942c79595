"""Information classes of the entries of directories ([MS-FSCC] 2.4)."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from etagere.model.files import Entry
from etagere.protocol.smb.information.files import (
    allocation_of,
    attributes_of,
    times_of,
)

_COMMON: Final = struct.Struct("<IIQQQQqqII")
"""Up to the length of the name. The first field is the offset of the next entry."""
_FULL: Final = struct.Struct("<I")
_ID_FULL: Final = struct.Struct("<I4xQ")
_BOTH: Final = struct.Struct("<IBx24x")
_ID_BOTH: Final = struct.Struct("<IBx24x2xQ")
_ID_EXTENDED: Final = struct.Struct("<IIQ8x")
_NAMES: Final = struct.Struct("<III")
_NEXT: Final = struct.Struct("<I")
_ALIGNMENT_BYTES: Final = 8


class ListedEntry(NamedTuple):
    """An entry of a directory, under the name that the listing shows."""

    name: bytes
    """In UTF-16."""
    entry: Entry
    length: int
    """With writes that are not in the ledger yet."""


def _common(listed: ListedEntry) -> bytes:
    entry, length = listed.entry, listed.length
    return _COMMON.pack(
        0,
        0,
        *times_of(entry),
        length,
        allocation_of(length),
        attributes_of(entry),
        len(listed.name),
    )


def _directory(listed: ListedEntry) -> bytes:
    """FileDirectoryInformation ([MS-FSCC] 2.4.10)."""
    return _common(listed)


def _full(listed: ListedEntry) -> bytes:
    """FileFullDirectoryInformation ([MS-FSCC] 2.4.14)."""
    return _common(listed) + _FULL.pack(0)


def _both(listed: ListedEntry) -> bytes:
    """FileBothDirectoryInformation ([MS-FSCC] 2.4.8): there are no short names."""
    return _common(listed) + _BOTH.pack(0, 0)


def _names(listed: ListedEntry) -> bytes:
    """FileNamesInformation ([MS-FSCC] 2.4.33)."""
    return _NAMES.pack(0, 0, len(listed.name))


def _id_both(listed: ListedEntry) -> bytes:
    """FileIdBothDirectoryInformation ([MS-FSCC] 2.4.22)."""
    return _common(listed) + _ID_BOTH.pack(0, 0, listed.entry.id)


def _id_full(listed: ListedEntry) -> bytes:
    """FileIdFullDirectoryInformation ([MS-FSCC] 2.4.23)."""
    return _common(listed) + _ID_FULL.pack(0, listed.entry.id)


def _id_extended(listed: ListedEntry) -> bytes:
    """FileIdExtdDirectoryInformation ([MS-FSCC] 2.4.24)."""
    return _common(listed) + _ID_EXTENDED.pack(0, 0, listed.entry.id)


class DirectoryClass(NamedTuple):
    """An information class of the entries of a directory."""

    encode: Callable[[ListedEntry], bytes]
    """Encodes what comes before the name."""
    fixed_bytes: int


DIRECTORY_CLASSES: Final[Mapping[int, DirectoryClass]] = {
    1: DirectoryClass(_directory, _COMMON.size),
    2: DirectoryClass(_full, _COMMON.size + _FULL.size),
    3: DirectoryClass(_both, _COMMON.size + _BOTH.size),
    12: DirectoryClass(_names, _NAMES.size),
    37: DirectoryClass(_id_both, _COMMON.size + _ID_BOTH.size),
    38: DirectoryClass(_id_full, _COMMON.size + _ID_FULL.size),
    60: DirectoryClass(_id_extended, _COMMON.size + _ID_EXTENDED.size),
}


class EntryList:
    """The entries of a response, each of which says where the next one starts."""

    def __init__(self, directory_class: DirectoryClass, bytes_max: int) -> None:
        self._encode = directory_class.encode
        self._fixed_bytes = directory_class.fixed_bytes
        self._bytes_max = bytes_max
        self._last = 0
        self.data = bytearray()

    def mark(self) -> tuple[int, int]:
        """Returns the current state, for `rewind`."""
        return len(self.data), self._last

    def rewind(self, mark: tuple[int, int]) -> None:
        """Removes the entries that were added since the mark."""
        length, self._last = mark
        del self.data[length:]
        if self.data:
            _NEXT.pack_into(self.data, self._last, 0)

    def add(self, listed: ListedEntry) -> bool:
        """Adds an entry; returns whether there was room for it."""
        data = self.data
        start = -(-len(data) // _ALIGNMENT_BYTES) * _ALIGNMENT_BYTES
        if start + self._fixed_bytes + len(listed.name) > self._bytes_max:
            return False
        if data:
            data += bytes(start - len(data))
            _NEXT.pack_into(data, self._last, start - self._last)
        self._last = start
        data += self._encode(listed)
        data += listed.name
        return True
