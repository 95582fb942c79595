"""Access masks: generic rights, the maximum, and what share modes consider."""

from __future__ import annotations

import pytest

from etagere.nt_status import NtStatus
from etagere.protocol.smb.access import open_mode, resolve_access, without_writing
from etagere.protocol.smb.status import SmbError
from etagere.rules.opens import EVERYTHING, Access, OpenMode

READ, WRITE, DELETE, NONE = Access.READ, Access.WRITE, Access.DELETE, Access.NONE


@pytest.mark.parametrize(
    ("desired", "rights", "access"),
    [
        (0x0000_0001, 0x0000_0001, READ),
        (0x0000_0020, 0x0000_0020, READ),
        (0x0000_0002, 0x0000_0002, WRITE),
        (0x0000_0004, 0x0000_0004, WRITE),
        (0x0001_0000, 0x0001_0000, DELETE),
        (0x0010_0180, 0x0010_0180, NONE),
        (0x000E_0158, 0x000E_0158, NONE),
        (0x8000_0000, 0x0012_0089, READ),
        (0x4000_0000, 0x0012_0116, WRITE),
        (0x2000_0000, 0x0012_00A0, READ),
        (0xC000_0000, 0x0012_019F, READ | WRITE),
        (0x1000_0000, 0x001F_01FF, EVERYTHING),
        (0x0200_0000, 0x001F_01FF, EVERYTHING),
    ],
)
def test_rights(desired: int, rights: int, access: Access) -> None:
    assert resolve_access(desired) == rights
    assert open_mode(rights, 0x5) == OpenMode(access, READ | DELETE)


@pytest.mark.parametrize(
    ("desired", "status"),
    [
        (0, NtStatus.ACCESS_DENIED),
        (0x0000_0200, NtStatus.ACCESS_DENIED),
        (0x0020_0001, NtStatus.ACCESS_DENIED),
        (0x0400_0000, NtStatus.ACCESS_DENIED),
        (0x0800_0000, NtStatus.ACCESS_DENIED),
        (0x0100_0000, NtStatus.PRIVILEGE_NOT_HELD),
    ],
)
def test_rights_that_nobody_gets(desired: int, status: NtStatus) -> None:
    with pytest.raises(SmbError) as raised:
        resolve_access(desired)
    assert raised.value.status is status


def test_rights_in_a_snapshot() -> None:
    assert resolve_access(0x0200_0000, is_snapshot=True) == 0x0012_00A9
    assert resolve_access(0x8000_0000, is_snapshot=True) == 0x0012_0089
    for changing in (0x2, 0x4, 0x100, 0x1_0000, 0x4_0000, 0x4000_0000, 0x1000_0000, 0x200_0002):
        with pytest.raises(SmbError):
            resolve_access(changing, is_snapshot=True)


def test_rights_to_a_read_only_file() -> None:
    assert without_writing(0x001F_01FF) == 0x001F_01F9
