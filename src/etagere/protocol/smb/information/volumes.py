"""Information classes of volumes, which are shares ([MS-FSCC] 2.5)."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from etagere.protocol.smb.filetimes import to_filetime
from etagere.protocol.smb.information.files import ALLOCATION_UNIT_BYTES
from etagere.rules.file_names import COMPONENT_LENGTH_MAX

SECTOR_BYTES: Final = 512
_SECTORS_PER_UNIT: Final = ALLOCATION_UNIT_BYTES // SECTOR_BYTES
_DISK: Final = 0x07
"""FILE_DEVICE_DISK."""
_IS_MOUNTED: Final = 0x20
"""FILE_DEVICE_IS_MOUNTED."""
_ATTRIBUTES: Final = 0x02 | 0x04 | 0x08
"""Names keep their case and are Unicode; descriptors are kept. Clients decide from these flags
which features they use."""
_FILE_SYSTEM: Final = "NTFS".encode("utf-16-le")
_NO_LIMIT: Final = 0xFFFF_FFFF_FFFF_FFFF

_VOLUME: Final = struct.Struct("<QIIBB")
_SIZE: Final = struct.Struct("<qqII")
_DEVICE: Final = struct.Struct("<II")
_ATTRIBUTE: Final = struct.Struct("<III")
_CONTROL: Final = struct.Struct("<qqqQQI4x")
_FULL_SIZE: Final = struct.Struct("<qqqII")
_OBJECT_ID: Final = struct.Struct("<16s48x")
_SECTOR_SIZE: Final = struct.Struct("<IIIIIII")


class VolumeState(NamedTuple):
    """A share as a volume."""

    id: bytes
    """The ID of the share: 16 bytes."""
    name: str
    created: int
    """In ticks since 1970."""
    quota_bytes: int
    usage_bytes: int

    @property
    def serial_number(self) -> int:
        return serial_number(self.id)

    @property
    def units(self) -> int:
        return self.quota_bytes // ALLOCATION_UNIT_BYTES

    @property
    def free_units(self) -> int:
        return max(0, self.quota_bytes - self.usage_bytes) // ALLOCATION_UNIT_BYTES


def serial_number(share_id: bytes) -> int:
    """Returns the serial number of the volume that a share is."""
    return int.from_bytes(share_id[:4], "little")


def _volume(state: VolumeState) -> bytes:
    """FileFsVolumeInformation ([MS-FSCC] 2.5.9)."""
    label = state.name.encode("utf-16-le")
    created, number = to_filetime(state.created), state.serial_number
    return _VOLUME.pack(created, number, len(label), 0, 0) + label


def _size(state: VolumeState) -> bytes:
    """FileFsSizeInformation ([MS-FSCC] 2.5.8)."""
    return _SIZE.pack(state.units, state.free_units, _SECTORS_PER_UNIT, SECTOR_BYTES)


def _device(_state: VolumeState) -> bytes:
    """FileFsDeviceInformation ([MS-FSCC] 2.5.10)."""
    return _DEVICE.pack(_DISK, _IS_MOUNTED)


def _attribute(_state: VolumeState) -> bytes:
    """FileFsAttributeInformation ([MS-FSCC] 2.5.1)."""
    head = _ATTRIBUTE.pack(_ATTRIBUTES, COMPONENT_LENGTH_MAX, len(_FILE_SYSTEM))
    return head + _FILE_SYSTEM


def _control(_state: VolumeState) -> bytes:
    """FileFsControlInformation ([MS-FSCC] 2.5.2): no quotas of users."""
    return _CONTROL.pack(0, 0, 0, _NO_LIMIT, _NO_LIMIT, 0)


def _full_size(state: VolumeState) -> bytes:
    """FileFsFullSizeInformation ([MS-FSCC] 2.5.4)."""
    free = state.free_units
    return _FULL_SIZE.pack(state.units, free, free, _SECTORS_PER_UNIT, SECTOR_BYTES)


def _object_id(state: VolumeState) -> bytes:
    """FileFsObjectIdInformation ([MS-FSCC] 2.5.6)."""
    return _OBJECT_ID.pack(state.id)


def _sector_size(_state: VolumeState) -> bytes:
    """FileFsSectorSizeInformation ([MS-FSCC] 2.5.7)."""
    unit = ALLOCATION_UNIT_BYTES
    return _SECTOR_SIZE.pack(SECTOR_BYTES, unit, unit, unit, 0, 0, 0)


class VolumeClass(NamedTuple):
    """An information class that can be queried."""

    encode: Callable[[VolumeState], bytes]
    fixed_bytes: int
    """The smallest buffer that takes it. What follows may be cut."""


VOLUME_CLASSES: Final[Mapping[int, VolumeClass]] = {
    1: VolumeClass(_volume, 24),
    3: VolumeClass(_size, _SIZE.size),
    4: VolumeClass(_device, _DEVICE.size),
    5: VolumeClass(_attribute, 16),
    6: VolumeClass(_control, _CONTROL.size),
    7: VolumeClass(_full_size, _FULL_SIZE.size),
    8: VolumeClass(_object_id, _OBJECT_ID.size),
    11: VolumeClass(_sector_size, _SECTOR_SIZE.size),
}
