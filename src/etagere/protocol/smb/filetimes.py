"""Times as SMB clients see them ([MS-DTYP] 2.3.3): in 100 ns since 1601, while ticks are since
1970."""

from __future__ import annotations

from typing import Final

_TICKS_FROM_1601_TO_1970: Final = 116_444_736_000_000_000
FILETIME_MAX: Final = (1 << 63) - 1
SETTABLE_MAX: Final = 2_650_467_743_999_999_999
"""The end of the year 9999, which is the last one that REST clients can be told."""


def to_filetime(ticks: int) -> int:
    """Returns a time of an entry; 0, which is "no time", for times before 1601."""
    return min(max(ticks + _TICKS_FROM_1601_TO_1970, 0), FILETIME_MAX)


def from_filetime(filetime: int) -> int:
    """Returns the ticks since 1970 of a time that a client sends."""
    return filetime - _TICKS_FROM_1601_TO_1970
