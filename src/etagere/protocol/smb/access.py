"""Access masks ([MS-SMB2] 2.2.13.1).

The account key makes the client a superuser: permissions are stored, but not enforced. What
restricts it is the share mode of other opens, the read-only attribute and share snapshots.
"""

from __future__ import annotations

from typing import Final

from etagere.nt_status import NtStatus
from etagere.protocol.smb.status import SmbError
from etagere.rules.opens import Access, OpenMode


class AccessMask:
    """The rights of an access mask. They are plain integers, because every request combines some:
    flags of an enumeration take ten times as long."""

    READ_DATA: Final = 0x0000_0001
    """For a directory: list it."""
    WRITE_DATA: Final = 0x0000_0002
    """For a directory: create files in it."""
    APPEND_DATA: Final = 0x0000_0004
    """For a directory: create directories in it."""
    READ_EA: Final = 0x0000_0008
    WRITE_EA: Final = 0x0000_0010
    EXECUTE: Final = 0x0000_0020
    """For a directory: traverse it."""
    DELETE_CHILD: Final = 0x0000_0040
    READ_ATTRIBUTES: Final = 0x0000_0080
    WRITE_ATTRIBUTES: Final = 0x0000_0100
    DELETE: Final = 0x0001_0000
    READ_CONTROL: Final = 0x0002_0000
    WRITE_DAC: Final = 0x0004_0000
    WRITE_OWNER: Final = 0x0008_0000
    SYNCHRONIZE: Final = 0x0010_0000
    ACCESS_SYSTEM_SECURITY: Final = 0x0100_0000
    MAXIMUM_ALLOWED: Final = 0x0200_0000
    GENERIC_ALL: Final = 0x1000_0000
    GENERIC_EXECUTE: Final = 0x2000_0000
    GENERIC_WRITE: Final = 0x4000_0000
    GENERIC_READ: Final = 0x8000_0000


FULL_ACCESS: Final = 0x001F_01FF
"""Every right to a file or directory."""
READ_ONLY_ACCESS: Final = 0x0012_00A9
"""Every right to an entry of a share snapshot: GENERIC_READ and GENERIC_EXECUTE."""
ATTRIBUTE_ACCESS: Final = (
    AccessMask.READ_ATTRIBUTES | AccessMask.WRITE_ATTRIBUTES | AccessMask.SYNCHRONIZE
)
"""An open with no more than this breaks no caches."""

_GENERIC_RIGHTS: Final = (
    (AccessMask.GENERIC_READ, 0x0012_0089),
    (AccessMask.GENERIC_WRITE, 0x0012_0116),
    (AccessMask.GENERIC_EXECUTE, 0x0012_00A0),
    (AccessMask.GENERIC_ALL, FULL_ACCESS),
)
"""What the generic rights mean for files and directories."""
_GENERIC: Final = 0xF000_0000
_VALID: Final = _GENERIC | AccessMask.MAXIMUM_ALLOWED | FULL_ACCESS

READ_RIGHTS: Final = AccessMask.READ_DATA | AccessMask.EXECUTE
"""Each of them allows to read the bytes of a file."""
WRITE_RIGHTS: Final = AccessMask.WRITE_DATA | AccessMask.APPEND_DATA
"""Each of them allows to write to a file."""
DATA_ACCESS: Final = READ_RIGHTS | WRITE_RIGHTS
"""Rights to the bytes of a file: at least one is needed to lock them."""


def resolve_access(desired: int, *, is_snapshot: bool = False) -> int:
    """Returns the rights that an access mask asks for, without generic ones.

    Raises `SmbError` if it has none, or one that nobody gets.
    """
    if desired & AccessMask.ACCESS_SYSTEM_SECURITY:
        raise SmbError(NtStatus.PRIVILEGE_NOT_HELD)
    if not desired or desired & ~_VALID:
        raise SmbError(NtStatus.ACCESS_DENIED)
    rights = desired & FULL_ACCESS
    if desired & _GENERIC:
        for generic, meaning in _GENERIC_RIGHTS:
            if desired & generic:
                rights |= meaning
    if is_snapshot and rights & ~READ_ONLY_ACCESS:
        # Rights to change permissions are harmless in an open that never uses them, but Windows
        # clients look for the refusal.
        raise SmbError(NtStatus.ACCESS_DENIED)
    if desired & AccessMask.MAXIMUM_ALLOWED:
        rights |= READ_ONLY_ACCESS if is_snapshot else FULL_ACCESS
    return rights


def without_writing(rights: int) -> int:
    """Returns the rights that remain for a file with the read-only attribute."""
    return rights & ~WRITE_RIGHTS


_MODES: Final = tuple(
    tuple(OpenMode(Access(access), Access(share)) for share in range(8)) for access in range(8)
)
"""By access and share access, whose bits are the same."""


def open_mode(rights: int, share_access: int) -> OpenMode:
    """Returns the part of the rights that share modes consider, and what the open shares
    ([MS-SMB2] 2.2.13: FILE_SHARE_READ 1, WRITE 2, DELETE 4)."""
    access = 0
    if rights & READ_RIGHTS:
        access = 1
    if rights & WRITE_RIGHTS:
        access |= 2
    if rights & AccessMask.DELETE:
        access |= 4
    return _MODES[access][share_access]
