"""Paths in requests."""

from __future__ import annotations

import pytest

from etagere.clock import TICKS_PER_SECOND
from etagere.nt_status import NtStatus
from etagere.protocol.smb.paths import RequestedPath, decode_path, snapshot_at
from etagere.protocol.smb.status import SmbError

SNAPSHOT = 1_700_000_000 * TICKS_PER_SECOND
"""2023-11-14 22:13:20"""


def decode(path: str) -> RequestedPath:
    return decode_path(memoryview(path.encode("utf-16-le", "surrogatepass")))


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("", RequestedPath(())),
        ("a", RequestedPath(("a",))),
        ("a\\b c\\Ä.txt", RequestedPath(("a", "b c", "Ä.txt"))),
        ("a/b\\c", RequestedPath(("a", "b", "c"))),
        ("a\\b\\", RequestedPath(("a", "b"), names_directory=True)),
        ("trailing dot.", RequestedPath(("trailing dot.",))),
        ("\U0001f600", RequestedPath(("\U0001f600",))),
        ("@GMT-2023.11.14-22.13.20", RequestedPath((), SNAPSHOT)),
        ("@GMT-2023.11.14-22.13.20\\a\\b", RequestedPath(("a", "b"), SNAPSHOT)),
        ("a\\@GMT-2023.11.14-22.13.20", RequestedPath(("a", "@GMT-2023.11.14-22.13.20"))),
        ("@GMT-2023.13.14-22.13.20", RequestedPath(("@GMT-2023.13.14-22.13.20",))),
        ("@GMT-", RequestedPath(("@GMT-",))),
    ],
)
def test_paths(path: str, expected: RequestedPath) -> None:
    assert decode(path) == expected


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("\\", NtStatus.INVALID_PARAMETER),
        ("\\a", NtStatus.INVALID_PARAMETER),
        ("a\\\\b", NtStatus.OBJECT_NAME_INVALID),
        ("a//b", NtStatus.OBJECT_NAME_INVALID),
        (".", NtStatus.OBJECT_NAME_INVALID),
        ("a\\..", NtStatus.OBJECT_PATH_SYNTAX_BAD),
        ("..\\a", NtStatus.OBJECT_PATH_SYNTAX_BAD),
        ("a*", NtStatus.OBJECT_NAME_INVALID),
        ("a:stream", NtStatus.OBJECT_NAME_INVALID),
        ("a::$DATA", NtStatus.OBJECT_NAME_INVALID),
        ("a\x00b", NtStatus.OBJECT_NAME_INVALID),
        ("a\ud800", NtStatus.OBJECT_NAME_INVALID),
        ("con", NtStatus.OBJECT_NAME_INVALID),
        ("x" * 256, NtStatus.OBJECT_NAME_INVALID),
        ("\\".join(["x"] * 251), NtStatus.OBJECT_NAME_INVALID),
    ],
)
def test_invalid_paths(path: str, status: NtStatus) -> None:
    with pytest.raises(SmbError) as raised:
        decode(path)
    assert raised.value.status is status


def test_half_a_code_unit() -> None:
    with pytest.raises(SmbError):
        decode_path(memoryview(b"a\0b"))


def test_the_second_of_a_filetime_names_a_snapshot() -> None:
    filetime = SNAPSHOT + 116_444_736_000_000_000
    assert snapshot_at(filetime) == SNAPSHOT
    assert snapshot_at(filetime + TICKS_PER_SECOND - 1) == SNAPSHOT
