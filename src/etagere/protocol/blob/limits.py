"""The maximum lengths of uploads to the blob service."""

from __future__ import annotations

from typing import Final

from etagere.protocol.rest.uploads import Limits

_MIB = 1 << 20
BLOB_BYTES_MAX: Final[Limits] = (
    ("2019-12-12", 5_000 * _MIB),
    ("2016-05-31", 256 * _MIB),
    ("", 64 * _MIB),
)
BLOCK_BYTES_MAX: Final[Limits] = (
    ("2019-12-12", 4_000 * _MIB),
    ("2016-05-31", 100 * _MIB),
    ("", 4 * _MIB),
)
APPENDED_BYTES_MAX: Final[Limits] = (
    ("2022-11-02", 100 * _MIB),
    ("", 4 * _MIB),
)
PAGES_BYTES_MAX: Final[Limits] = (("", 4 * _MIB),)
