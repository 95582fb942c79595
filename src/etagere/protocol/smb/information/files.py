"""Information classes of files and directories ([MS-FSCC] 2.4)."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from etagere.model.files import Entry, FileNode, FileTimes, SymbolicLinkNode
from etagere.protocol.smb.filetimes import to_filetime
from etagere.rules.file_attributes import FileAttributes

ALLOCATION_UNIT_BYTES: Final = 4_096
NORMAL: Final = 0x80
"""FILE_ATTRIBUTE_NORMAL: a file without any other attribute ([MS-FSCC] 2.6)."""

_BASIC: Final = struct.Struct("<QQQQII")
_STANDARD: Final = struct.Struct("<qqIBBH")
_INDEX: Final = struct.Struct("<Q")
_WORD: Final = struct.Struct("<I")
_OFFSET: Final = struct.Struct("<q")
_STREAM: Final = struct.Struct("<IIqq")
_COMPRESSION: Final = struct.Struct("<qHBBB3x")
_NETWORK_OPEN: Final = struct.Struct("<QQQQqqII")
_ATTRIBUTE_TAG: Final = struct.Struct("<II")
_ID: Final = struct.Struct("<QQ8x")
_DATA_STREAM: Final = "::$DATA".encode("utf-16-le")


class FileState(NamedTuple):
    """What is known about the entry of an open, and about the open itself."""

    entry: Entry
    path: str
    """With slashes, without one at the start; the root has an empty path."""
    access: int = 0
    options: int = 0
    position: int = 0
    is_delete_pending: bool = False
    volume: int = 0
    """The serial number of the volume."""
    allocation: int = 0
    """The number of bytes that the client has asked to allocate."""

    @property
    def name(self) -> bytes:
        """The path from the root, with a backslash at its start."""
        return ("\\" + self.path.replace("/", "\\")).encode("utf-16-le", "surrogatepass")


def length_of(entry: Entry) -> int:
    """Returns the length of a file; that of a symbolic link is the length of its text."""
    node = entry.node
    if isinstance(node, FileNode):
        return node.content.length
    return len(node.target.encode()) if isinstance(node, SymbolicLinkNode) else 0


def allocation_of(length: int) -> int:
    """Returns the space that a file of a length takes, in whole allocation units."""
    return -(-length // ALLOCATION_UNIT_BYTES) * ALLOCATION_UNIT_BYTES


def attributes_of(entry: Entry) -> int:
    """Returns the attributes as SMB clients see them: never none."""
    if entry.is_directory:
        return entry.attributes | FileAttributes.DIRECTORY
    return entry.attributes or NORMAL


def times_of(entry: Entry) -> tuple[int, int, int, int]:
    """Returns the times of creation, last access, last write and change."""
    return filetimes(entry.times)


def filetimes(times: FileTimes) -> tuple[int, int, int, int]:
    accessed = times.created if times.accessed is None else times.accessed
    return (
        to_filetime(times.created),
        to_filetime(accessed),
        to_filetime(times.written),
        to_filetime(times.changed),
    )


# Encoders, in the order of their classes


def _basic(state: FileState) -> bytes:
    """FileBasicInformation ([MS-FSCC] 2.4.7)."""
    return _BASIC.pack(*times_of(state.entry), attributes_of(state.entry), 0)


def _standard(state: FileState) -> bytes:
    """FileStandardInformation ([MS-FSCC] 2.4.47). An entry that is to be deleted has one link
    less."""
    entry, pending = state.entry, state.is_delete_pending
    length = length_of(entry)
    links = entry.link_count - pending
    allocation = allocation_of(max(length, state.allocation))
    return _STANDARD.pack(allocation, length, links, pending, entry.is_directory, 0)


def _internal(state: FileState) -> bytes:
    """FileInternalInformation ([MS-FSCC] 2.4.27)."""
    return _INDEX.pack(state.entry.id)


def _ea(_state: FileState) -> bytes:
    """FileEaInformation ([MS-FSCC] 2.4.13): there are no extended attributes."""
    return _WORD.pack(0)


def _access(state: FileState) -> bytes:
    """FileAccessInformation ([MS-FSCC] 2.4.1)."""
    return _WORD.pack(state.access)


def _name(state: FileState) -> bytes:
    """FileNameInformation ([MS-FSCC] 2.1.7)."""
    return _WORD.pack(len(state.name)) + state.name


def _position(state: FileState) -> bytes:
    """FilePositionInformation ([MS-FSCC] 2.4.40)."""
    return _OFFSET.pack(state.position)


MODE_OPTIONS: Final = 0x0000_103E
"""The create options that FileModeInformation shows ([MS-FSCC] 2.4.31)."""


def _mode(state: FileState) -> bytes:
    """FileModeInformation ([MS-FSCC] 2.4.31)."""
    return _WORD.pack(state.options & MODE_OPTIONS)


def _alignment(_state: FileState) -> bytes:
    """FileAlignmentInformation ([MS-FSCC] 2.4.3): any alignment will do."""
    return _WORD.pack(0)


def _all(state: FileState) -> bytes:
    """FileAllInformation ([MS-FSCC] 2.4.2): the classes above, one after the other."""
    parts = _basic, _standard, _internal, _ea, _access, _position, _mode, _alignment, _name
    return b"".join(encode(state) for encode in parts)


def _streams(state: FileState) -> bytes:
    """FileStreamInformation ([MS-FSCC] 2.4.49): files have one stream, directories none."""
    if state.entry.is_directory:
        return b""
    length = length_of(state.entry)
    head = _STREAM.pack(0, len(_DATA_STREAM), length, allocation_of(length))
    return head + _DATA_STREAM


def _compression(state: FileState) -> bytes:
    """FileCompressionInformation ([MS-FSCC] 2.4.9): nothing is compressed."""
    return _COMPRESSION.pack(length_of(state.entry), 0, 0, 0, 0)


def _network_open(state: FileState) -> bytes:
    """FileNetworkOpenInformation ([MS-FSCC] 2.4.34)."""
    return network_open(state.entry, state.allocation) + _WORD.pack(0)


_NETWORK_OPEN_CORE: Final = struct.Struct("<QQQQqqI")


def network_open(entry: Entry, allocation: int = 0) -> bytes:
    """Returns the times, sizes and attributes, as CREATE and CLOSE responses have them, too.
    `allocation` is the number of bytes that the client has asked to allocate."""
    length = length_of(entry)
    return _NETWORK_OPEN_CORE.pack(
        *times_of(entry), allocation_of(max(length, allocation)), length, attributes_of(entry)
    )


def _attribute_tag(state: FileState) -> bytes:
    """FileAttributeTagInformation ([MS-FSCC] 2.4.6): there are no reparse points."""
    return _ATTRIBUTE_TAG.pack(attributes_of(state.entry), 0)


def _normalized_name(state: FileState) -> bytes:
    """FileNormalizedNameInformation ([MS-FSCC] 2.4.36): without the leading backslash."""
    name = state.name[2:]
    return _WORD.pack(len(name)) + name


def _id(state: FileState) -> bytes:
    """FileIdInformation ([MS-FSCC] 2.4.26)."""
    return _ID.pack(state.volume, state.entry.id)


class FileClass(NamedTuple):
    """An information class that can be queried."""

    encode: Callable[[FileState], bytes]
    fixed_bytes: int
    """The smallest buffer that takes it. What follows may be cut."""
    needs_attributes: bool = False
    """Whether the open must have been granted FILE_READ_ATTRIBUTES."""


NORMALIZED_NAME: Final = 48
ALTERNATE_NAME: Final = 21
FULL_EA: Final = 15

FILE_CLASSES: Final[Mapping[int, FileClass]] = {
    4: FileClass(_basic, _BASIC.size, needs_attributes=True),
    5: FileClass(_standard, _STANDARD.size),
    6: FileClass(_internal, _INDEX.size),
    7: FileClass(_ea, _WORD.size),
    8: FileClass(_access, _WORD.size),
    9: FileClass(_name, 8),
    14: FileClass(_position, _OFFSET.size),
    16: FileClass(_mode, _WORD.size),
    17: FileClass(_alignment, _WORD.size),
    18: FileClass(_all, 104, needs_attributes=True),
    22: FileClass(_streams, 32),
    28: FileClass(_compression, _COMPRESSION.size),
    34: FileClass(_network_open, _NETWORK_OPEN.size, needs_attributes=True),
    35: FileClass(_attribute_tag, _ATTRIBUTE_TAG.size, needs_attributes=True),
    NORMALIZED_NAME: FileClass(_normalized_name, 8),
    59: FileClass(_id, _ID.size),
}
