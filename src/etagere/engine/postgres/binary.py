"""Parameters and results of PostgreSQL in its binary format."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import Final

_BYTEA_OID: Final = 17
_BIGINT_OID: Final = 20
_ARRAY = struct.Struct(">iiIii")
_EMPTY_ARRAY = struct.Struct(">iiI")
_LENGTH = struct.Struct(">i")
_BIGINT = struct.Struct(">q")
_BIGINT_ELEMENT = struct.Struct(">iq")
_INT = struct.Struct(">i")
_NULL: Final = _LENGTH.pack(-1)
_BIGINT_BYTES: Final = 8

pack_length = _LENGTH.pack


def bytea_array(values: Sequence[bytes]) -> bytes:
    if not values:
        return _EMPTY_ARRAY.pack(0, 0, _BYTEA_OID)
    parts = [_ARRAY.pack(1, 0, _BYTEA_OID, len(values), 1)]
    for value in values:
        parts.append(pack_length(len(value)))
        parts.append(value)
    return b"".join(parts)


def bigint_array(values: Sequence[int | None]) -> bytes:
    """Returns an array of numbers; None is NULL."""
    if not values:
        return _EMPTY_ARRAY.pack(0, 0, _BIGINT_OID)
    parts = [_ARRAY.pack(1, int(None in values), _BIGINT_OID, len(values), 1)]
    parts += [
        _NULL if value is None else _BIGINT_ELEMENT.pack(_BIGINT_BYTES, value) for value in values
    ]
    return b"".join(parts)


def bigint(value: int) -> bytes:
    return _BIGINT.pack(value)


def to_int(value: bytes | None) -> int:
    """Returns a number of any width."""
    assert value is not None
    return int.from_bytes(value, "big", signed=True)


# The format of COPY

_COPY_HEADER: Final = b"PGCOPY\n\xff\r\n\x00" + bytes(8)
_COPY_TRAILER: Final = b"\xff\xff"
_COPY_ROW: Final = struct.Struct(">hi")
_COPY_COLUMNS: Final = 5


def encode_copy_rows(
    rows: Iterable[tuple[tuple[bytes, bytes, bytes], bytes]], version: int
) -> bytes:
    """Returns records as COPY reads them: key, rest, digest, version and value of each."""
    parts = [_COPY_HEADER]
    length_and_version = _BIGINT_ELEMENT.pack(_BIGINT_BYTES, version)
    for (key, rest, digest), value in rows:
        parts += (
            _COPY_ROW.pack(_COPY_COLUMNS, len(key)),
            key,
            pack_length(len(rest)),
            rest,
            pack_length(len(digest)),
            digest,
            length_and_version,
            pack_length(len(value)),
            value,
        )
    parts.append(_COPY_TRAILER)
    return b"".join(parts)
