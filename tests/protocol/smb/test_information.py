"""Information classes, byte by byte ([MS-FSCC] 2.4, 2.5)."""

from __future__ import annotations

import pytest

from etagere.model.bodies import Inline
from etagere.model.files import DirectoryNode, Entry, FileNode, FileTimes
from etagere.protocol.smb.information.directories import DIRECTORY_CLASSES, EntryList, ListedEntry
from etagere.protocol.smb.information.files import FILE_CLASSES, FileState
from etagere.protocol.smb.information.volumes import VOLUME_CLASSES, VolumeState

_EPOCH = 116_444_736_000_000_000
_FILE = Entry(
    "b.txt",
    0x1122,
    parent_id=7,
    generation=0,
    stamp=1,
    times=FileTimes(created=1, written=2, changed=3, accessed=4),
    attributes=0x21,
    node=FileNode(Inline(b"hello", 5, crc=0)),
)
_DIRECTORY = Entry(
    "a",
    7,
    parent_id=0,
    generation=0,
    stamp=1,
    times=FileTimes(created=1, written=2, changed=3),
    attributes=0x10,
    node=DirectoryNode(),
)
STATE = FileState(_FILE, "a/b.txt", access=0x1F01FF, options=0x60, position=9, volume=0x0102_0304)

_TIMES = [
    (_EPOCH + 1).to_bytes(8, "little"),  # creation
    (_EPOCH + 4).to_bytes(8, "little"),  # last access
    (_EPOCH + 2).to_bytes(8, "little"),  # last write
    (_EPOCH + 3).to_bytes(8, "little"),  # change
]
_BASIC = [
    *_TIMES,
    bytes.fromhex("21000000"),  # attributes
    bytes(4),  # reserved
]
_STANDARD = [
    bytes.fromhex("0010000000000000"),  # allocation size
    bytes.fromhex("0500000000000000"),  # end of file
    bytes.fromhex("01000000"),  # number of links
    b"\x00",  # delete pending
    b"\x00",  # directory
    bytes(2),  # reserved
]
_PATH = "\\a\\b.txt".encode("utf-16-le")
_NAME = [
    bytes.fromhex("10000000"),  # length of the name
    _PATH,
]

GOLDEN: dict[int, list[bytes]] = {
    4: _BASIC,
    5: _STANDARD,
    6: [bytes.fromhex("2211000000000000")],
    7: [bytes(4)],
    8: [bytes.fromhex("ff011f00")],
    9: _NAME,
    14: [bytes.fromhex("0900000000000000")],
    16: [bytes.fromhex("20000000")],
    17: [bytes(4)],
    18: [
        *_BASIC,
        *_STANDARD,
        bytes.fromhex("2211000000000000"),  # index number
        bytes(4),  # size of extended attributes
        bytes.fromhex("ff011f00"),  # access
        bytes.fromhex("0900000000000000"),  # position
        bytes.fromhex("20000000"),  # mode
        bytes(4),  # alignment
        *_NAME,
    ],
    22: [
        bytes(4),  # offset of the next stream
        bytes.fromhex("0e000000"),  # length of the name
        bytes.fromhex("0500000000000000"),  # size
        bytes.fromhex("0010000000000000"),  # allocation size
        "::$DATA".encode("utf-16-le"),
    ],
    28: [
        bytes.fromhex("0500000000000000"),  # compressed size
        bytes(2),  # format: none
        bytes(6),  # shifts, reserved
    ],
    34: [
        *_TIMES,
        bytes.fromhex("0010000000000000"),  # allocation size
        bytes.fromhex("0500000000000000"),  # end of file
        bytes.fromhex("21000000"),  # attributes
        bytes(4),  # reserved
    ],
    35: [bytes.fromhex("21000000"), bytes(4)],
    48: [bytes.fromhex("0e000000"), _PATH[2:]],
    59: [
        bytes.fromhex("0403020100000000"),  # serial number of the volume
        bytes.fromhex("22110000000000000000000000000000"),  # file ID
    ],
}


@pytest.mark.parametrize("number", FILE_CLASSES)
def test_file_class(number: int) -> None:
    assert FILE_CLASSES[number].encode(STATE) == b"".join(GOLDEN[number])


def test_directory_has_no_stream() -> None:
    assert FILE_CLASSES[22].encode(STATE._replace(entry=_DIRECTORY)) == b""


def test_entry_that_is_to_be_deleted_has_no_link() -> None:
    standard = FILE_CLASSES[5].encode(STATE._replace(entry=_DIRECTORY, is_delete_pending=True))
    assert standard == bytes(16) + bytes.fromhex("0000000001010000")


def test_file_without_attributes_is_normal() -> None:
    plain = STATE._replace(entry=Entry("x", 1, 0, 0, 1, _FILE.times, 0, _FILE.node))
    assert FILE_CLASSES[35].encode(plain) == bytes.fromhex("8000000000000000")


VOLUME = VolumeState(bytes(range(16)), "box", created=1, quota_bytes=1 << 30, usage_bytes=4_097)
VOLUME_GOLDEN: dict[int, list[bytes]] = {
    1: [
        (_EPOCH + 1).to_bytes(8, "little"),
        bytes.fromhex("00010203"),  # serial number
        bytes.fromhex("06000000"),  # length of the label
        b"\x00",  # supports objects
        b"\x00",  # reserved
        "box".encode("utf-16-le"),
    ],
    3: [
        bytes.fromhex("0000040000000000"),  # allocation units
        bytes.fromhex("feff030000000000"),  # free
        bytes.fromhex("08000000"),  # sectors per unit
        bytes.fromhex("00020000"),  # bytes per sector
    ],
    4: [bytes.fromhex("07000000"), bytes.fromhex("20000000")],
    5: [
        bytes.fromhex("0e000000"),  # flags
        bytes.fromhex("ff000000"),  # length of components
        bytes.fromhex("08000000"),  # length of the name
        "NTFS".encode("utf-16-le"),
    ],
    6: [bytes(24), b"\xff" * 16, bytes(8)],
    7: [
        bytes.fromhex("0000040000000000"),  # allocation units
        bytes.fromhex("feff030000000000"),  # free for the caller
        bytes.fromhex("feff030000000000"),  # free
        bytes.fromhex("08000000"),  # sectors per unit
        bytes.fromhex("00020000"),  # bytes per sector
    ],
    8: [bytes(range(16)), bytes(48)],
    11: [
        bytes.fromhex("00020000"),  # logical
        bytes.fromhex("00100000"),  # physical, for atomicity
        bytes.fromhex("00100000"),  # physical, for performance
        bytes.fromhex("00100000"),  # of the file system
        bytes(12),  # flags, offsets
    ],
}


@pytest.mark.parametrize("number", VOLUME_CLASSES)
def test_volume_class(number: int) -> None:
    assert VOLUME_CLASSES[number].encode(VOLUME) == b"".join(VOLUME_GOLDEN[number])


_LISTED = ListedEntry("b.txt".encode("utf-16-le"), _FILE, 5)
_COMMON = [
    bytes(4),  # offset of the next entry
    bytes(4),  # file index
    *_TIMES,
    bytes.fromhex("0500000000000000"),  # end of file
    bytes.fromhex("0010000000000000"),  # allocation size
    bytes.fromhex("21000000"),  # attributes
    bytes.fromhex("0a000000"),  # length of the name
]
_ID = bytes.fromhex("2211000000000000")
ENTRY_GOLDEN: dict[int, list[bytes]] = {
    1: _COMMON,
    2: [*_COMMON, bytes(4)],
    3: [*_COMMON, bytes(4), bytes(2), bytes(24)],
    12: [bytes(4), bytes(4), bytes.fromhex("0a000000")],
    37: [*_COMMON, bytes(4), bytes(2), bytes(24), bytes(2), _ID],
    38: [*_COMMON, bytes(4), bytes(4), _ID],
    60: [*_COMMON, bytes(4), bytes(4), _ID, bytes(8)],
}


@pytest.mark.parametrize("number", DIRECTORY_CLASSES)
def test_directory_class(number: int) -> None:
    row = DIRECTORY_CLASSES[number]
    encoded = row.encode(_LISTED)
    assert encoded == b"".join(ENTRY_GOLDEN[number])
    assert len(encoded) == row.fixed_bytes


def test_entries_are_aligned_and_linked() -> None:
    entries = EntryList(DIRECTORY_CLASSES[12], bytes_max=24 + 24 + 22)
    assert [entries.add(_LISTED) for _ in range(4)] == [True, True, True, False]
    name = "b.txt".encode("utf-16-le")
    first = bytes.fromhex("18000000000000000a000000") + name + bytes(2)
    last = bytes.fromhex("00000000000000000a000000") + name
    assert bytes(entries.data) == first + first + last


def test_entries_can_be_removed_again() -> None:
    entries = EntryList(DIRECTORY_CLASSES[12], bytes_max=1_000)
    entries.add(_LISTED)
    before, mark = bytes(entries.data), entries.mark()
    entries.add(_LISTED)
    entries.add(_LISTED)
    entries.rewind(mark)
    assert bytes(entries.data) == before
